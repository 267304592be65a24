"""`pagewalk layout` as a reader runs it: the panes, the way back, --json, and every refusal."""

from __future__ import annotations

import json
import random
import re
import shlex
from dataclasses import asdict
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from kernels.explorer import KERNELS, LAYOUTS, Geometry, explain, locate
from walkthroughs.cli import cli
from walkthroughs.commands import layout as command

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def layout(run_cli):
    def run(*args, **env):
        return run_cli("layout", *args, env={"PYTHONPATH": str(ROOT), **env})

    return run


def said(*args: str, columns: int = 80) -> str:
    """What the command prints, without a process of its own."""
    done = CliRunner().invoke(cli, ["layout", *args], env={"COLUMNS": str(columns), "NO_COLOR": "1"})
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_panes_of_the_lessons_example(layout):
    done = layout(COLUMNS="80", NO_COLOR="1")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    text = done.stdout
    assert text.splitlines()[0] == "Token 20, KV head 3, channel 10"
    for row in (
        "  table   │  7  │▸ 2 ◂│  5  │",
        "  physical block 2  [····█···········]",
        "  slot                 2 * 16 + 4      = 36",
        "  query heads 12 to 15 read this KV head",
        "  block   block_table[1]  2 × 16384  kv_block_stride = 32768",
        "  element                                              39074",
        "  bytes 78148 to 78149: bytes 4 to 5 of sector 2442, in line 610",
        "  tiny      V    86410  172820    5400  one run",
        "  thread 40 = warp 1, lane 8",
        "  lanes [········█·······················]",
        "  The warp asks for 256 bytes in 8 sectors.",
        "  thread 52 = warp 1, lane 20",
    ):
        assert row in text.splitlines(), row


def test_the_arrow_points_from_the_entry_down():
    rows = said("--table", "4,9,1,3", "--token", "50").splitlines()
    body = next(row for row in rows if row.startswith("  table"))
    arrow = next(row for row in rows if row.strip() == "▼")
    assert body[arrow.index("▼")] in "▸ 3◂"
    assert body.index("▸") < arrow.index("▼") < body.index("◂")


@pytest.mark.parametrize("columns", [40, 80, 120])
@pytest.mark.parametrize("kernel", KERNELS)
def test_nothing_is_wider_than_the_terminal(kernel, columns):
    for args in ((), ("--table", ",".join(map(str, range(90_000, 90_040))), "--token", "300"), ("--kv-heads", "32")):
        text = said("--kernel", kernel, *args, columns=columns)
        for line in text.splitlines():
            assert len(line) <= columns or len(line.split()) == 1, line
        assert "\x1b" not in text


def test_every_sum_on_the_screen_is_right():
    """Read back what is printed: the products are the factors', and the element is their sum."""
    rng = random.Random(4)
    for _ in range(20):
        name = rng.choice(list(LAYOUTS))
        token, head, channel = rng.randrange(48), rng.randrange(8), rng.randrange(128)
        point = ("--token", str(token), "--head", str(head), "--channel", str(channel))
        text = said(*point, "--layout", name, columns=200)
        pane = text.split(f" in {name}: ")[1].split("\n\n")[0]
        terms = [tuple(map(int, found)) for found in re.findall(r"(\d+) × (\d+).* = +(\d+)$", pane, re.M)]
        assert all(index * stride == product for index, stride, product in terms)
        (element,) = re.findall(r"^  element +(\d+)$", pane, re.M)
        assert sum(product for _, _, product in terms) == int(element)
        found = explain("classic-v1", Geometry(), [7, 2, 5], token, head, channel)
        assert int(element) == found.place(name).element


def test_back_from_a_byte():
    text = said("--byte", "78149", "--layout", "classic-k")
    assert text.splitlines()[0] == "Byte 78149 of classic-k: Classic K, with x"
    assert "  byte 1 of element 39074: 78149 // 2" in text
    assert "  block   39074 // 16384  = 2      rest 6306" in text
    assert "  K of token 20, KV head 3, channel 10" in text
    assert "  physical block 2, offset 4, slot 36" in text


def test_a_byte_of_a_strange_block_is_no_token():
    text = said("--byte", str(3 * 32768 + 6), "--layout", "classic-v")
    assert "  V of no token of this sequence, KV head 0, channel 0" in text
    assert "  physical block 3  [···█············]" in text
    assert "▸" not in text


def test_without_a_layout_the_byte_is_of_the_kernels_first():
    assert said("--byte", "0", "--kernel", "tiny-vllm").startswith("Byte 0 of tiny:")


def test_kernels_with_many_layouts_name_the_others_and_a_strange_one_is_told():
    assert "knows more layouts (--layout): hnd-k, hnd-v, side-nhd, side-hnd" in said(
        "--kernel", "reshape-and-cache-flash", columns=120
    )
    text = said("--layout", "tiny", columns=120)
    assert "classic-v1 does not touch tiny. It knows classic-k, classic-v." in text
    assert "thread 40" not in text
    assert "The warp writes 512 bytes" in said("--kernel", "reshape-and-cache")


def test_a_thread_that_is_not_there_and_a_note_are_said():
    text = said("--kernel", "reshape-and-cache", "--heads", "40", "--kv-heads", "40", "--head", "39", columns=120)
    assert text.count("No thread has number 625: 512 are started and there is no loop.") == 2
    assert "query head 39 reads this KV head" in text
    assert "Note: vLLM compiles this kernel for block sizes 8, 16 and 32 only." in said("--block-size", "64")


def test_json_has_the_whole_answer(layout, json_rows):
    (row,) = json_rows(layout("--kernel", "tiny-vllm", "--token", "33", "--json"), "layouts")
    assert row["id"] == "tiny-vllm"
    assert row["geometry"] == asdict(Geometry())
    assert row["block_table"] == [7, 2, 5]
    assert row["explained"] == json.loads(json.dumps(asdict(explain("tiny-vllm", Geometry(), [7, 2, 5], 33, 3, 10))))
    (row,) = json_rows(layout("--byte", "5", "--layout", "side-hnd", "--json"), "layouts")
    assert (row["id"], row["byte"]) == ("side-hnd", 5)
    assert row["located"] == json.loads(json.dumps(asdict(locate("side-hnd", Geometry(), [7, 2, 5], 5))))


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ("--kernel classic", "Did you mean classic-v2 or classic-v1"),
        ("--layout nhd", "no layout is called 'nhd'"),
        ("--dtype half", "There are float32, float16, bfloat16, fp8"),
        ("--table 7,x", "'7,x': give physical blocks with commas between them, as 7,2,5"),
        ("--table 7,7", "block_table[1] = 7: is there already, as entry 0"),
        ("--table -1", "block_table[0] = -1: must be an integer from 0"),
        ("--block-size 24", "block_size = 24: must divide the warp of 32 lanes or be a multiple of it"),
        ("--head-size 100", "head_size = 100: must be divisible by x = 8"),
        ("--heads 30", "num_heads = 30: must be divisible by num_kv_heads = 8"),
        ("--token 48", "token = 48: must be an integer from 0 to 47: 3 blocks of 16 tokens"),
        ("--head 8", "head = 8: must be an integer from 0 to 7: a KV head"),
        ("--channel -1", "channel = -1: must be an integer from 0 to 127"),
        ("--byte 999999", "byte = 999999: must be an integer from 0 to 262143: 8 blocks of 32768 bytes"),
        ("--token x", "'x' is not a valid integer"),
    ],
)
def test_wrong_use_names_the_argument_the_value_and_what_to_do(args, says):
    done = CliRunner().invoke(cli, ["layout", *shlex.split(args)])
    assert done.exit_code == 2
    assert says in " ".join(done.stderr.split())
    assert done.stdout == ""


def test_wrong_use_ends_a_process_with_2(layout):
    done = layout("--head", "8", "--json")
    assert done.returncode == 2
    assert done.stdout == ""
    assert "head = 8" in done.stderr


@given(st.integers(1, 50), st.data(), st.integers(1, 8))
def test_the_drawn_entries_are_neighbours_with_the_chosen_one(entries, data, most):
    chosen = data.draw(st.integers(0, entries - 1))
    shown = list(command.window(entries, chosen, most))
    assert chosen in shown
    assert len(shown) == min(entries, most)
    assert shown == list(range(shown[0], shown[-1] + 1))


def test_a_table_of_a_program_is_taken_as_it_is():
    assert command.Table().convert((3, 1), None, None) == (3, 1)
    with pytest.raises(click.BadParameter):
        command.Table().convert("", None, None)

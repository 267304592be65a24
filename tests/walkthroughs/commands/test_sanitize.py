"""`pagewalk sanitize`: what it finds, says and answers with, on ports and on broken kernels."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kernels.variants import VARIANTS
from walkthroughs.cli import cli
from walkthroughs.launchables import launchable, names

CLEAN = [name for name in names() if name != "tiny-vllm-attention"]


def run(*args: str, width: int = 200) -> Result:
    return CliRunner().invoke(cli, ["sanitize", *args], env={"COLUMNS": str(width), "NO_COLOR": "1"})


def row(*args: str) -> dict[str, Any]:
    done = run(*args, "--json")
    envelope = json.loads(done.stdout)
    assert envelope["schema"] == 1
    (found,) = envelope["kernels"]
    assert done.exit_code == (0 if found["status"] == "passed" else 1)
    return dict(found)


def test_tiny_vllms_race_is_told_with_both_lines_and_where_they_come_from():
    done = run("tiny-vllm-attention")
    assert done.exit_code == 1
    assert "RACE  write-after-read, between warps: shared dot_products[0]" in done.stdout
    assert "reads, threads 32-63" in done.stdout
    assert "writes, thread 0" in done.stdout
    assert "      dot_product = dot_products[0]\n" in done.stdout
    assert "      dot_products[0] = qk\n" in done.stdout
    assert done.stdout.count("upstream: tiny-vllm@e25bf19 src/kernels.cu:494-508 (cross-warp-reduce)") == 2
    assert done.stderr == "1 race, 0 faults\n"


@pytest.mark.parametrize("schedule", ["in-order", "reversed", "random:9"])
def test_the_verdict_does_not_hang_on_the_schedule(schedule):
    found = row("tiny-vllm-attention", "--schedule", schedule)
    assert (found["status"], found["schedule"], len(found["races"]), found["faults"]) == ("failed", schedule, 1, [])


def test_a_search_over_warp_orders_is_sanitized_too():
    found = row("tiny-vllm-attention", "--schedule", "adversarial")
    assert found["status"] == "failed"
    assert len(found["races"]) == 1
    assert row("tiny-vllm-attention-repaired", "--schedule", "adversarial")["status"] == "passed"


@pytest.mark.parametrize("name", CLEAN)
def test_sound_ports_are_clean_in_every_case(name):
    for case in launchable(name).cases:
        done = run(name, "--case", case)
        assert done.exit_code == 0, done.stdout
        assert "clean: no race, no fault" in done.stdout
        assert done.stderr == "0 races, 0 faults\n"


def test_json_has_everything_a_page_needs():
    found = row("tiny-vllm-attention")
    (race,) = found["races"]
    assert (race["scope"], race["hazard"], race["element"]) == ("between warps", "write-after-read", "dot_products[0]")
    assert race["pairs"] == 19 * 32 * 4
    read, write = race["accesses"]
    assert (read["kind"], read["threads"]) == ("read", list(range(32, 64)))
    assert (write["kind"], write["threads"]) == ("write", [0])
    assert read["where"].startswith("kernels/tiny_vllm/attention.py:")
    assert read["upstream"]["concept"] == "cross-warp-reduce"
    assert (read["upstream"]["first"], read["upstream"]["last"]) == (494, 508)
    assert "memory" not in found


@pytest.mark.parametrize("name", VARIANTS)
def test_broken_kernels_can_be_asked_for_by_name(name):
    found = row(name)
    assert found["status"] == "failed"
    kinds = {fault["kind"] for fault in found["faults"]} | ({"race"} if found["races"] else set())
    assert kinds == {VARIANTS[name].verdict}


def test_a_fault_shows_its_line():
    done = run("misaligned-vector")
    assert done.exit_code == 1
    assert "FAULT  misaligned: values[1:5] starts at byte 4" in done.stdout
    assert "      a, b, c, d = vector_load4(values, 4 * i + 1)\n" in done.stdout
    assert "clean" not in done.stdout
    (fault,) = row("misaligned-vector")["faults"]
    assert fault["where"].startswith("kernels/variants.py:")
    assert fault["thread"] == [0, 0, 0]


def test_the_memory_view_shows_what_x_is_for():
    packed, naive = run("k-load-x-16", "--memory").stdout, run("k-load-naive-16", "--memory").stdout
    loads = [next(line.split() for line in text.splitlines() if "k_cache" in line) for text in (packed, naive)]
    assert loads[0][1:] == ["k_cache", "read", "128", "8", "8.00", "2.00", "100%"]
    assert loads[1][1:] == ["k_cache", "read", "128", "8", "16.00", "16.00", "50%"]
    assert "shared memory" not in packed


def test_the_memory_view_of_a_port_names_its_lines():
    done = run("classic-v1", "--memory")
    assert done.exit_code == 0
    assert "global memory" in done.stdout
    assert "shared memory" in done.stdout
    found = row("classic-v1", "--memory")
    arrays = {(item["space"], item["array"]) for item in found["memory"]}
    assert {("global", "k_cache"), ("global", "v_cache"), ("shared", "logits"), ("shared", "red_smem")} <= arrays
    loads = next(item for item in found["memory"] if item["array"] == "k_cache")
    assert loads["upstream"]["concept"] == "k-address"
    assert loads["sectors"] == 8 * loads["requests"]


def test_bank_conflicts_are_information():
    found = row("classic-v1", "--case", "half")
    assert found["status"] == "passed"
    assert all(conflict["degree"] > 1 for conflict in found["bank_conflicts"])


def test_narrow_terminals_get_every_word():
    done = run("tiny-vllm-attention", "--memory", width=60)
    words = " ".join(done.stdout.split())
    assert "reads active_slots requests 8, bytes/lane 4, sectors/req. 1.00, lines/req. 1.00, coalesced 12%" in words
    assert "reads dot_products requests 160, bytes/lane 4, wavefronts/req. 1.00, worst 1" in words
    assert "…" not in words


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("tiny-vllm-atention",), "Did you mean tiny-vllm-attention"),
        (("broadcast-in-loop",), "broadcast-in-a-loop"),
        (("k-load-x-61",), "k-load-x-16"),
        (("classic-v1", "--case", "smal"), "small"),
        (("misaligned-vector", "--case", "small"), "has one launch and no --case"),
        (("classic-v1", "--schedule", "sideways"), "must be in-order"),
        ((), "Missing argument"),
    ],
)
def test_wrong_use_exits_2_and_says_what_would_be_right(args, message):
    done = run(*args)
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stdout == ""


def test_long_thread_lists_are_cut():
    line = next(line for line in run("one-slot-for-all-warps").stdout.splitlines() if "writes" in line)
    assert line.endswith("threads 0, 32, 64, 96")
    text = run("reads-past-the-end").stdout
    assert max(map(len, text.splitlines())) < 200

"""What a reader may write: solutions of their own, wrong ones, and files that break, loop, leave or eat memory."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest

from kernels.errors import BackendUnavailable
from kernels.kernel import Backend, cuda_unavailable
from kernels.vllm import attention_kernels
from walkthroughs.digest import ROOT
from walkthroughs.drills import bank, fix, fix_cases, fix_check, fix_errors, fix_folder, fix_judge
from walkthroughs.drills.fix import Task
from walkthroughs.drills.fix_verdict import Failure, Verdict
from walkthroughs.server.process import Limits

SEEDS = (11, 12, 13)
KV_HEAD, SLOT_SPLIT, GATHER, TAIL = (
    fix.task(f"fix/{name}") for name in ("kv-head", "slot-split", "gather-rescale", "v-tail")
)
DOOR = "# region: gqa-mapping\n"
FAULT = "head_idx % num_kv_heads"
THREADS = "NUM_THREADS = 128\n"
INDENT = " " * 16


def file_of(task: Task, old: str = "", new: str = "") -> str:
    """A reader's file: the header, and the unsolved text with a change."""
    text = fix_folder.header(task) + fix.unsolved(task)
    assert old in text
    return text.replace(old, new, 1) if old else text


def checked(task: Task, text: str, seeds: tuple[int, ...] = SEEDS) -> Verdict:
    """Judged in this process: only for text that does no harm."""
    return fix_check.check(task, text, "sim", seeds, lambda event: None)


# -- solutions of the reader's own


@pytest.mark.parametrize(
    ("task", "old", "new"),
    [
        (SLOT_SPLIT, "slot_idx // block_size\n    # endregion", "slot_idx - block_idx * block_size\n    # endregion"),
        (KV_HEAD, "head_idx % num_kv_heads", "head_idx * num_kv_heads // num_heads"),
        (
            GATHER, f"{INDENT}acc[d] = acc[d] +",
            f"{INDENT}# One thing at a time.\n\n{INDENT}acc[d] *= correction\n{INDENT}acc[d] = acc[d] +",
        ),
    ],
    ids=["other-words", "other-formula", "more-lines"],
)  # fmt: skip
def test_another_solution_is_as_good(task: Task, old: str, new: str) -> None:
    verdict = checked(task, file_of(task, old, new))
    assert verdict.first is None
    assert verdict.passed


def test_a_solution_for_the_shown_case_alone_is_found_out() -> None:
    text = file_of(SLOT_SPLIT, "slot_idx // block_size\n    # endregion", "slot_idx % 16\n    # endregion")
    assert checked(SLOT_SPLIT, text, ()).passed, "the step has blocks of 16"
    verdict = checked(SLOT_SPLIT, text)
    assert verdict.status == "failed"
    assert verdict.first is not None
    assert verdict.first.where.startswith("held-out case")
    assert verdict.first.seed in SEEDS
    # The seed that the failure names brings the same failure again.
    again = checked(SLOT_SPLIT, text, (verdict.first.seed,))
    assert again.first is not None
    assert (again.first.name, again.first.got) == (verdict.first.name, verdict.first.got)


@pytest.mark.parametrize("case", sorted(fix_cases.CASES))
def test_held_out_cases_differ_and_can_be_drawn_again(case: str) -> None:
    import random

    draw, _ = fix_cases.CASES[case]
    drawn = [repr(draw(random.Random(f"{case} {seed}"))) for seed in range(20)]
    assert len(set(drawn)) == 20
    assert drawn[7] == repr(draw(random.Random(f"{case} 7")))
    offer = next((offer for offer in fix_cases.OFFERS.values() if offer.run == case), None)
    if offer:
        for seed in range(200):
            values = draw(random.Random(f"{case} {seed}"))
            assert offer.read(values) == values, "within what a live run may have"


def test_the_ports_own_module_is_left_alone() -> None:
    before = attention_kernels.paged_attention_kernel.fn
    checked(KV_HEAD, file_of(KV_HEAD))
    assert attention_kernels.paged_attention_kernel.fn is before
    assert checked(KV_HEAD, fix.solved(KV_HEAD), ()).passed


# -- where it went wrong


def test_a_report_names_the_readers_line() -> None:
    task = fix.task("fix/k-piece")
    text = file_of(task, "            # region: k-address\n", "            # region: k-address\n            # mine\n\n")
    verdict = checked(task, text)
    assert verdict.first is not None
    assert verdict.first.what == "report"
    assert f"k-piece.py:{verdict.first.line}," in verdict.first.message
    assert text.splitlines()[verdict.first.line - 1].strip() == "k_vecs[j, e] = k_cache[k_offset + e]"
    assert verdict.first.upstream[0]["concept"] == "k-address"


def test_the_first_wrong_value_is_shown() -> None:
    found = fix_errors.first_value([[1.0, 2.0], [3.0, np.nan]], [[1.0, 2.05], [4.0, np.nan]], 0.1)
    assert found == ("[1, 0]", "3", "4")
    assert fix_errors.first_value([np.nan, 1], [0, 1], 9.0) == ("[0]", "nan", "0")
    assert fix_errors.first_value([np.inf], [np.inf], 0.0).at == ""
    assert fix_errors.first_value([1, 2], [1, 2, 3], 0.0) == ("", "2 values", "3 values")
    assert fix_errors.first_value(3, 4, 0.0) == ("", "3", "4")
    assert fix_errors.first_value(True, False, 0.0) == ("", "1", "0")
    assert fix_errors.first_value("a", "b", 0.0) == ("", "a", "b")


def test_a_verdict_survives_json() -> None:
    verdict = checked(KV_HEAD, file_of(KV_HEAD))
    assert verdict.first is not None
    assert Verdict.from_json(json.loads(json.dumps(verdict.to_json(), allow_nan=False))) == verdict
    assert Failure.from_json(json.loads(json.dumps(asdict(verdict.first)))) == verdict.first


def test_tiny_vllm_has_lines_too() -> None:
    task = fix.task("fix/tiny-value")
    (place,) = checked(task, file_of(task)).first.upstream  # type: ignore[union-attr]
    assert (place["source"], place["path"], place["first"]) == ("tiny-vllm@e25bf19", "src/kernels.cu", 485)


def test_a_task_without_upstream_says_nothing_of_it() -> None:
    assert GATHER.source == ""
    assert checked(GATHER, file_of(GATHER)).first.upstream == ()  # type: ignore[union-attr]


# -- what is gone would be the port's own again, which is right


@pytest.mark.parametrize("task", fix.tasks().values(), ids=lambda task: task.name)
def test_an_empty_file_never_passes(task: Task) -> None:
    for text in ("", fix_folder.header(task)):
        verdict = checked(task, text)
        assert verdict.status == "error"
        assert verdict.first is not None
        assert "must stay" in verdict.first.message


@pytest.mark.parametrize(
    ("name", "old", "new", "gone"),
    [
        ("group-sum", "def qk_dot(", "def my_dot(", "qk_dot"),
        ("row-sum", "def paged_attention_kernel(", "def my_kernel(", "paged_attention_kernel"),
        ("row-sum", "@device\ndef paged_attention_kernel(", "def paged_attention_kernel(", "paged_attention_kernel"),
        ("one-partition", "@kernel(reduce_constexpr)\n", "", "paged_attention_v2_reduce_kernel"),
        ("kv-head", "def constexpr(", "def my_constexpr(", "constexpr"),
    ],
)
def test_a_name_that_is_gone_is_said(name: str, old: str, new: str, gone: str) -> None:
    verdict = checked(fix.task(f"fix/{name}"), file_of(fix.task(f"fix/{name}"), old, new))
    assert verdict.status == "error"
    assert verdict.first is not None
    assert f"{gone} is gone" in verdict.first.message


def test_the_ports_own_kernel_brought_in_is_no_solution() -> None:
    task = fix.task("fix/group-sum")
    text = file_of(task) + "\nfrom kernels.vllm.attention_utils import qk_dot\n"
    assert not checked(task, text).passed


# -- what is no kernel any more


@pytest.mark.parametrize(
    ("old", "new", "status", "said"),
    [
        (FAULT, "(head_idx", "error", r"line 137: '\(' was never closed"),
        (FAULT, "head_idx %% 2", "error", r"line 137: invalid syntax: `kv_head_idx = head_idx %% 2`"),
        (DOOR, "\n", "error", r"^line 141: # endregion closes nothing.*must stay"),
        (DOOR, "# region: gqa-maping\n", "error", r"^line 133: .*gqa-maping.*did you mean gqa-mapping"),
        (f"kv_head_idx = {FAULT}", "kv_head = 0", "failed", r"kv_head_idx.*keep their names"),
        (FAULT, "heed_idx", "failed", r"NameError: name 'heed_idx' is not defined"),
        (FAULT, "head_idx // 0", "failed", r"ZeroDivisionError"),
        (THREADS, THREADS + "raise SystemExit(3)\n", "error", r"line \d+: .*ends the program"),
        (THREADS, THREADS + "import nowhere\n", "error", r"line \d+: ModuleNotFoundError"),
        ("@device\ndef paged_attention_kernel", "def paged_attention_kernel", "error", r"attention_kernel is gone"),
    ],
    ids=["bracket", "operator", "fence-gone", "fence-typo", "renamed", "name", "zero", "exit", "import", "no-device"],
)  # fmt: skip
def test_it_is_said_in_one_line(old: str, new: str, status: str, said: str) -> None:
    import re

    verdict = checked(KV_HEAD, file_of(KV_HEAD, old, new))
    assert verdict.status == status
    assert verdict.first is not None
    assert re.search(said, verdict.first.message), verdict.first.message
    assert "\n" not in verdict.first.message
    assert len(verdict.first.message) < 500


def test_a_blank_that_is_left_is_named() -> None:
    text = file_of(TAIL)
    first = checked(TAIL, text).first
    assert first is not None
    assert first.message == f"line {first.line}: the blank ____ is still there: `v_vec[j] = ____`"
    assert "____" in text.splitlines()[first.line - 1]


def test_the_line_of_an_error_in_the_kernel() -> None:
    text = file_of(KV_HEAD, "head_idx % num_kv_heads", "head_idx // 0")
    first = checked(KV_HEAD, text).first
    assert first is not None
    assert text.splitlines()[first.line - 1].strip() == "kv_head_idx = head_idx // 0"
    assert first.upstream[0]["concept"] == "gqa-mapping"


NUMBA = """Failed in cuda mode pipeline (step: nopython frontend)
\x1b[1mNo implementation of function Function(<built-in function add>) found for signature:

 >>> add(Literal[str](a), int64)

There are 28 candidate implementations:
During: typing of intrinsic-call at /x/kernels/vllm/attention_kernels.py#fix (137)

File "kernels/vllm/attention_kernels.py#fix", line 137:
<source missing, REPL/exec in use?>
"""


@pytest.mark.parametrize(
    ("said", "line", "shown"),
    [
        (NUMBA, 137, "RuntimeError: Numba has no add(Literal[str](a), int64)"),
        (NUMBA.partition("\nDuring")[0], 0, "RuntimeError: Numba has no add(Literal[str](a), int64)"),
        (
            f"{NUMBA.splitlines()[0]}\nNameError: name 'qk_max' is not defined\nDuring: Pass", -1,
            "RuntimeError: NameError: name 'qk_max' is not defined",
        ),
        (f'Unknown\n\nFile "{KV_HEAD.file}#fix", line 57:\n', 57, "RuntimeError: Unknown"),
        ("", 0, "RuntimeError: "),
    ],
    ids=["typing", "nowhere", "name", "attribute", "empty"],
)  # fmt: skip
def test_what_numba_says_becomes_one_line(said: str, line: int, shown: str) -> None:
    text = file_of(KV_HEAD)
    first = fix_errors.of_error(KV_HEAD, text, RuntimeError(said), "a step", None, ("gqa-mapping",))
    assert first.what == "error"
    assert first.message == shown
    # Numba does not say where an unknown name stands: it is the first line that has it.
    assert first.line == (line if line >= 0 else text[: text.index("qk_max =")].count("\n") + 1)


def test_on_a_gpu_delays_are_for_barriers_only() -> None:
    def parts(name: str) -> list[str]:
        return [part.where for part in fix_check._parts(fix.task(name), Backend("cuda"), (), (1, 2))]

    assert parts("fix/kv-head") == ["vllm-classic/gqa", "held-out case 1", "held-out case 2"]
    delays = [f"vllm-classic/qk-dot{late}" for late in ("", *(f", warp {warp} delayed" for warp in (0, 1, 3)))]
    assert parts("fix/q-barrier") == [*delays, "held-out case 1", "held-out case 2, warp 0 delayed"]
    assert parts("fix/tiny-slot") == ["tiny-vllm/two-indexes"]


# -- in a process of its own


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (DOOR, DOOR + "    while True:\n        head_idx = 0\n", "It ran for 6 seconds and was ended: is there a loop"),
        (THREADS, THREADS + "while True:\n    pass\n", "It ran for 6 seconds and was ended"),
        (DOOR, DOOR + "    raise SystemExit(0)\n", "the kernel ends the program (SystemExit)"),
        (THREADS, THREADS + "import os\nos._exit(0)\n", "ended with exit code 0 before its"),
        (THREADS, THREADS + "import os\nos.kill(os.getpid(), 9)\n", "was ended by SIGKILL"),
        (THREADS, THREADS + "more = bytearray(1 << 40)\n", "more memory than a check may have"),
        (
            THREADS, THREADS + "held = [b'x' * (1 << 24) for _ in range(99)]\nwhile True:\n    pass\n",
            "GiB of memory and was ended",
        ),
    ],
    ids=["loop-in-kernel", "loop-in-file", "exit-in-kernel", "os-exit", "killed", "huge", "resident"],
)  # fmt: skip
def test_nothing_hangs_and_nothing_harms(old: str, new: str, said: str) -> None:
    # Loops are waited for; the others end by themselves, however slow the machine.
    limits = replace(Limits(), seconds=6.0 if "while" in new and "held" not in new else 120.0, memory=1 << 30)
    (verdict,) = fix_judge.judge(KV_HEAD, file_of(KV_HEAD, old, new), ("sim",), SEEDS[:1], limits=limits)
    assert verdict.status in ("error", "failed")
    assert said in verdict.said
    assert "\n" not in verdict.said


def test_what_a_file_prints_is_no_answer() -> None:
    noise = THREADS + 'import sys\nprint({"event": "verdict"})\nsys.stdout.flush()\n'
    text = fix.solved(KV_HEAD).replace(THREADS, noise, 1)
    (verdict,) = fix_judge.judge(KV_HEAD, text, ("sim",), SEEDS[:1])
    assert verdict.passed
    assert verdict.checks > 3


def test_events_come_as_they_happen() -> None:
    events: list[dict[str, Any]] = []
    (verdict,) = fix_judge.judge(SLOT_SPLIT, file_of(SLOT_SPLIT), ("sim",), SEEDS[:1], events.append)
    assert [event["event"] for event in events] == ["running", "launch", "check", "check", "check", "verdict", "ended"]
    assert events[4]["upstream"] == list(verdict.first.upstream)  # type: ignore[union-attr]
    assert events[5]["failure"]["line"] == verdict.first.line  # type: ignore[union-attr]


def test_the_bank_grades_a_whole_file() -> None:
    question = bank.ask(bank.item("fix/slot-split"), 1)
    right = bank.grade(question, fix.solved(SLOT_SPLIT))
    assert right.right
    assert right.said == f"Right: it holds on {' and '.join(fix_judge.backends())}."
    wrong = bank.grade(question, file_of(SLOT_SPLIT))
    assert wrong.right is False
    assert wrong.said == "offset of each token, element [0]: observed 2, expected 0"


def test_a_gpu_is_asked_for_in_vain() -> None:
    if cuda_unavailable() is None:
        pytest.skip("there is a GPU here")
    assert fix_judge.backends() == ("sim",)
    with pytest.raises(BackendUnavailable):
        fix_check.check(KV_HEAD, fix.solved(KV_HEAD), "cuda", SEEDS, lambda event: None)
    (verdict,) = fix_judge.judge(KV_HEAD, fix.solved(KV_HEAD), ("cuda",), SEEDS)
    assert verdict.status == "error"
    assert verdict.said.startswith("BackendUnavailable: --backend cuda")


# -- the record of a GPU machine

BARE = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in BANNED:
            raise ImportError(name + " is not on a GPU machine")

BANNED = {"click", "rich", "tree_sitter", "markdown", "mkdocs", "pymdownx", "pypi_simple", "requests", "platformdirs",
          "filelock", "pygments", "hypothesis", "fsrs", "genanki", "starlette", "uvicorn", "textual"}
sys.meta_path.insert(0, Refuse())
from walkthroughs.drills import fix, fix_check, fix_record
for name in ("fix/tiny-value", "fix/slot-split"):
    task = fix.task(name)
    print(name, fix_check.check(task, fix.unsolved(task), "sim", (1,), lambda event: None).status)
sys.exit(fix_record.main(sys.argv[1:]))
"""


def test_the_record_needs_nothing_of_the_site(tmp_path: Any) -> None:
    out = tmp_path / "fix.json"
    asked = ["--backend", "sim", "--out", str(out), "--jobs", "2", "--only", "fix/slot-split", "--only", "fix/v-tail"]
    done = subprocess.run(
        [sys.executable, "-c", BARE, *asked], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "fix/tiny-value failed\nfix/slot-split failed\n" in done.stdout
    record = json.loads(out.read_text("utf-8"))
    assert (record["backend"], record["device"], record["complete"]) == ("sim", "SIMT machine", True)
    assert [(row["id"], row["status"]) for row in record["drills"]] == [
        ("fix/v-tail", "passed"), ("fix/slot-split", "passed")
    ]  # fmt: skip
    states = {row["id"]: (row["solved"]["status"], row["unsolved"]["failure"]["what"]) for row in record["drills"]}
    assert states == {"fix/v-tail": ("passed", "blank"), "fix/slot-split": ("passed", "check")}


def test_the_record_refuses_what_it_cannot_do(capsys: pytest.CaptureFixture[str]) -> None:
    from walkthroughs.drills import fix_record

    assert fix_record.main(["--only", "fix/nothing"]) == 2
    assert "--only fix/nothing: must be one of fix/kv-head" in capsys.readouterr().err
    if cuda_unavailable():
        assert fix_record.main([]) == 2
        assert "fix_record: --backend cuda" in capsys.readouterr().err

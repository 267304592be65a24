"""Fix the kernel: the table, the cuts, and for every drill that the solution passes and the unsolved file does not."""

from __future__ import annotations

import ast
import difflib
from typing import Any

import pytest

from annotate.concepts import concepts
from annotate.regions import regions
from walkthroughs.digest import ROOT
from walkthroughs.drills import bank, fix, fix_check, fix_cut, fix_folder, fix_judge
from walkthroughs.drills.asking import fixed_seed
from walkthroughs.drills.errors import DrillError
from walkthroughs.drills.fix import Task
from walkthroughs.drills.fix_cut import BLANK, Cut
from walkthroughs.step import steps

TASKS = list(fix.tasks().values())
SEEDS = (11, 12, 13)
# What the issue asks for, each by a drill that has it.
WANTED = {
    "missing mask": "fix/tile-v-mask",
    "wrong stride": "fix/v-stride",
    "// for %": "fix/slot-split",
    "missing rescale": "fix/merge-rescale",
    "missing barrier": "fix/q-barrier",
    "modulo for GQA": "fix/kv-head",
    "int32 overflow": "fix/block-wide",
    "unguarded slot": "fix/slot-guard",
    "lost partition": "fix/lost-partition",
    "512-thread launch": "fix/threads-512",
}
each = pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)


def with_header(task: Task, text: str) -> str:
    return fix_folder.header(task) + text


# -- the table


def test_there_are_enough_of_every_kind() -> None:
    assert len(TASKS) >= 28
    assert set(WANTED.values()) <= set(fix.tasks())
    forms = [task.form for task in TASKS]
    assert forms.count("blank") >= 8
    assert forms.count("bug") >= 8
    assert {task.item.level for task in TASKS} == {1, 2, 3}
    files = {task.file for task in TASKS}
    assert files >= {
        f"kernels/{name}.py"
        for name in (
            "vllm/attention_kernels", "vllm/classic_v2", "vllm/cache", "vllm/cache_flash", "vllm/paged_2d",
            "tiny_vllm/paged", "vllm/slot_mapping",
        )
    }  # fmt: skip
    assert len({(task.file, task.cut) for task in TASKS}) == len(TASKS)


@each
def test_a_task_leads_somewhere(task: Task) -> None:
    assert set(task.steps) <= set(steps())
    assert task.source in {steps()[name].source for name in task.steps} | {""}
    assert bool(task.source) == any("@" in steps()[name].source for name in task.steps)
    assert {task.region, task.shows} <= set(concepts())
    assert len(task.hints) >= 3
    assert len(set(task.hints)) == len(task.hints)
    assert task.file in task.text
    assert task.shows in task.text
    assert bank.items()[task.item.id] is task.item


@each
def test_no_port_stands_here_a_second_time(task: Task) -> None:
    # A cut is told by a part of one line, so the table cannot be a copy of the port.
    assert "\n" not in task.cut.old + task.cut.new + task.cut.to


@each
def test_the_unsolved_file_is_the_port_but_for_the_region(task: Task) -> None:
    before, after = fix.solved(task), fix.unsolved(task)
    assert before == (ROOT / task.file).read_text("utf-8")
    assert before != after
    first, last = fix.excerpt(task)
    changed = [
        block for block in difflib.SequenceMatcher(None, before.splitlines(), after.splitlines()).get_opcodes()
        if block[0] != "equal"
    ]  # fmt: skip
    imports = 1 if task.cut.needs else 0
    assert len(changed) == 1 + imports
    _, old_first, old_last, new_first, new_last = changed[-1]
    assert first - 1 <= new_first <= new_last <= last
    assert old_last - old_first <= 5
    # It reads as Python, with its regions, and means something else.
    assert ast.dump(ast.parse(before)) != ast.dump(ast.parse(after))
    assert regions(after).keys() == regions(before).keys()
    assert (BLANK in after) == (task.form == "blank")
    assert fix_cut.blanks(after) == ([new_first + 1] if task.form == "blank" else [])


@each
def test_the_last_hint_names_the_line(task: Task) -> None:
    quoted = task.hints[-1].split("`")[1::2]
    assert quoted
    lines = [line.strip() for line in fix.unsolved(task).splitlines()]
    if task.form == "bug":
        assert quoted[0] in lines
    else:
        own = fix_cut.taken(fix.solved(task), task.cut)
        assert all(part in own for word in quoted for part in word.split())


@each
def test_the_header_is_comments_and_names_the_line(task: Task) -> None:
    text = with_header(task, fix.unsolved(task))
    above = text[: text.index('"""')].splitlines()
    assert all(line.startswith("#") or not line for line in above)
    assert max(map(len, above)) <= 120
    first, last = fix.excerpt(task, text)
    assert f"from line {first} on" in text
    assert first - fix.excerpt(task)[0] == len(above)
    assert text.splitlines()[first - 2].strip() == f"# region: {task.shows}"
    assert text.splitlines()[last].strip().startswith("# endregion")


# -- the proof


@each
def test_the_solution_passes(task: Task) -> None:
    events: list[dict[str, Any]] = []
    verdict = fix_check.check(task, with_header(task, fix.solved(task)), "sim", SEEDS, events.append)
    assert verdict.first is None
    assert verdict.passed
    assert verdict.checks == verdict.held > 0
    told = [event["where"] for event in events if event["event"] == "check"]
    assert len(told) == verdict.checks
    orders = ("", ", warps reversed", ", warps random:1")
    alone = orders if task.barrier or not task.case else ("",)
    steps_told = {f"{step}{order}" for step in task.steps for order in alone}
    held_out = {f"held-out case {seed}{order}" for seed, order in zip(SEEDS, orders, strict=True) if task.case}
    assert set(told) == steps_told | held_out
    assert [event["event"] for event in events[:1] + events[-1:]] == ["running", "verdict"]


@each
def test_the_unsolved_file_fails(task: Task) -> None:
    text = with_header(task, fix.unsolved(task))
    events: list[dict[str, Any]] = []
    verdict = fix_check.check(task, text, "sim", SEEDS, events.append)
    first = verdict.first
    assert verdict.status == "failed"
    assert first is not None
    assert first.what == "blank" if task.form == "blank" else first.what in ("check", "report")
    assert first.line > len(fix_folder.header(task).splitlines())
    assert "\n" not in first.message
    if first.what == "check":
        region = fix.excerpt(task, text)
        assert (first.line, first.last) == region
        assert first.got != first.wanted
        assert events[-2]["event"] == "check"
        assert not events[-2]["passed"]
        assert events[-2]["upstream"] == list(first.upstream)
    if task.source:
        assert first.upstream
        for place in first.upstream:
            assert place["link"].endswith(f"L{place['first']}-L{place['last']}") or place["first"] == place["last"]
            assert place["path"] in place["link"]


@pytest.mark.gpu
@each
def test_gpu_solution_and_unsolved(task: Task) -> None:
    # Each in a process of its own: a faulty kernel may take the CUDA context with it.
    (right,) = fix_judge.judge(task, fix.solved(task), ("cuda",), SEEDS[:1])
    assert right.first is None
    (wrong,) = fix_judge.judge(task, fix.unsolved(task), ("cuda",), SEEDS[:1])
    assert wrong.status == "failed"


# -- the bank's module


def test_it_is_asked_and_solved_as_every_kind() -> None:
    item = bank.item("fix/kv-head")
    question = bank.ask(item, fixed_seed(item))
    assert question.form == "file"
    assert "gqa-mapping" in question.text
    assert bank.ask(item, 5).text == question.text
    solution = bank.solve(question)
    assert "-    kv_head_idx = head_idx % num_kv_heads" in solution.answer
    assert "+    kv_head_idx = head_idx // num_queries_per_kv" in solution.answer
    assert solution.why == fix.task("fix/kv-head").why


def test_the_diff_of_a_readers_file_leaves_the_header_alone() -> None:
    task = fix.task("fix/kv-head")
    text = with_header(task, fix.unsolved(task))
    lines = fix.diff(task, text).splitlines()
    assert [line for line in lines if line.startswith(("-", "+")) and not line.startswith(("---", "+++"))] == [
        "-    kv_head_idx = head_idx % num_kv_heads",
        "+    kv_head_idx = head_idx // num_queries_per_kv",
    ]
    line = int(lines[2].split()[1].split(",")[0][1:])
    assert text.splitlines()[line - 1].strip() in "".join(lines)
    assert fix.diff(task, with_header(task, fix.solved(task))) == ""


def test_an_unknown_task_is_an_error() -> None:
    with pytest.raises(DrillError, match="no kernel to fix is called 'fix/nothing'"):
        fix.task("fix/nothing")


def test_what_is_not_in_the_port_any_more_is_an_error() -> None:
    with pytest.raises(DrillError, match=r"fix/x: 'no such text' is not in region alibi"):
        fix_cut.cut(fix.solved(TASKS[0]), Cut("alibi", "no such text"), "fix/x")
    with pytest.raises(DrillError, match="dense-attention"):
        fix_cut.cut(fix.solved(TASKS[0]), Cut("dense-attention", "qk"), "fix/x")


@pytest.mark.parametrize(
    ("body", "said"),
    [({"titel": "x"}, "is missing"), ({"extra": 1}, "nobody knows extra"), ({"mutation": "scale"}, "no mutation")],
)
def test_a_wrong_entry_is_named(body: dict[str, Any], said: str) -> None:
    whole = {
        "title": "T", "level": 1, "file": "kernels/gather.py", "region": "tail-guard", "task": "t", "hints": ["a"],
        "steps": ["paged-reference/tail"], "why": "w",
    }  # fmt: skip
    if "titel" in body:
        del whole["title"]
    with pytest.raises(DrillError, match=said):
        fix._task("odd", whole | body)


# -- cuts of every form

TEXT = """a = 1
# region: alibi
if a:
    b = 2
    # why
    c = b + 1
    d = b + 2
# endregion
e = 5
# region: alibi
f = b + 1
# endregion
"""


@pytest.mark.parametrize(
    ("cut", "before", "after"),
    [
        (Cut("alibi", "b + 1"), "c = b + 1", "c = ____"),
        (Cut("alibi", "b + 1", "b - 1", nth=1), "f = b + 1", "f = b - 1"),
        (Cut("alibi", "c = b", ""), "    c = b + 1\n", ""),
        (Cut("alibi", "# why", "", to="d = b"), "    # why\n    c = b + 1\n    d = b + 2\n", ""),
        (Cut("alibi", "b = 2", BLANK, to="c = b"), "b = 2\n    # why\n    c = b + 1", BLANK),
        (Cut("alibi"), "if a:\n    b = 2\n    # why\n    c = b + 1\n    d = b + 2", BLANK),
    ],
)
def test_cuts(cut: Cut, before: str, after: str) -> None:
    number = TEXT.index(before)
    assert fix_cut.cut(TEXT, cut, "x") == TEXT[:number] + after + TEXT[number + len(before) :]


def test_blanks_are_found_in_code_only() -> None:
    text = f'"{BLANK}"\n# {BLANK}\nx = {BLANK}\ny = a{BLANK}\nif 1:\n    {BLANK}\n'
    assert fix_cut.blanks(text) == [3, 6]
    assert fix_cut.blanks("x = (") == []
    assert fix_cut.blanks("  x\n y") == []


def test_parts_of_a_line() -> None:
    assert fix_cut.parts("v[j] if t + j < n else 0") == (["0", "else", "if", "j", "n", "t", "v"], ["+", "<"])

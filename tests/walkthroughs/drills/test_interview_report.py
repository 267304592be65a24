"""The report: read back as Markdown, with everything that was asked, typed, had and missed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from walkthroughs.drills.interview import Interview, Turn, opened, typed
from walkthroughs.drills.interview_report import counted, report, report_file, took, unused
from walkthroughs.drills.interview_score import recalled
from walkthroughs.drills.schedule import to_ms

STARTED = to_ms(datetime(2026, 3, 1, 9, 30).astimezone())
TURNS = (
    Turn("recall/table", 5, "opens", "", "It maps\nblocks.", (1,), 2, 61_000),
    Turn("find/walk", 6, "source", "recall/table", "17", (1,), 1, 4_000, "Right."),
    Turn("compute/slot", 7, "opens", "", "", (), 1, 120_000),
    Turn("compute/sum", 8, "smaller", "compute/slot", "12", (), 1, 400, "No: the carry was forgotten."),
    Turn("recall/why-paged", 9, "opens", "", "", (1, 2), 2, 3_000),
)
HELD = Interview(3, STARTED, 20, "kernel", spent=188_400, turns=TURNS)


def parsed(text: str) -> MarkdownIt:
    return MarkdownIt("commonmark").enable("table").parse(text)  # type: ignore[return-value]


def headings(text: str) -> list[tuple[str, str]]:
    tokens: Any = parsed(text)
    return [(t.tag, tokens[n + 1].content) for n, t in enumerate(tokens) if t.type == "heading_open"]


@pytest.fixture
def text(sample: ModuleType) -> str:
    return report(HELD, recalled(HELD, sample.Sample()))


def test_the_first_name_that_is_free(tmp_path: Path) -> None:
    names = []
    for _ in range(3):
        names.append(unused(tmp_path / "my.own.md").name)
        (tmp_path / names[-1]).touch()
    assert names == ["my.own.md", "my.own-2.md", "my.own-3.md"]
    (tmp_path / "link.md").symlink_to(tmp_path / "nowhere")
    assert unused(tmp_path / "link.md") == tmp_path / "link-2.md"


def test_its_parts(text: str) -> None:
    assert headings(text) == [
        ("h1", "Mock interview, 2026-03-01 09:30"),
        ("h2", "Score"),
        ("h2", "What to read next"),
        ("h2", "Questions"),
        ("h3", "1. What is a block table?"),
        ("h3", "2. Find the walk"),
        ("h3", "3. A slot"),
        ("h3", "4. A sum"),
        ("h3", "5. Why pages?"),
    ]
    assert "For a kernel engineer; 5 questions; 3 min 8 s of 20 min; seed 3." in text
    assert "**Score: 50 %** (4 of 7 points)." in text  # (1/2 + 1 + 0 + 0 + 1) / 5


def test_its_tables(text: str) -> None:
    assert "| Recall | 2 | 3 of 4 | 75 % |" in text
    assert "| Find | 1 | 1 of 1 | 100 % |" in text
    assert "| Compute | 2 | 0 of 2 | 0 % |" in text
    assert "| Block table and slots | 4 | 2 of 5 | 38 % |" in text
    assert "| Level 1 | 3 | 2 of 4 | 50 % |" in text
    tokens: Any = parsed(text)
    assert sum(token.type == "table_open" for token in tokens) == 3


def question(text: str, number: int) -> str:
    return re.split(r"^### ", text, flags=re.MULTILINE)[number]


def test_a_recall_question(text: str) -> None:
    part = question(text, 1)
    assert "`recall/table`, level 1, 1 min 1 s; a new topic." in part
    assert "**Asked.** **What is a block table?** Say it in `two` sentences." in part
    assert "```text\nIt maps\nblocks.\n```" in part
    assert "**Points: 1 of 2.**\n\n- [x] logical to physical\n- [ ] one row a sequence\n" in part
    assert "**Answer.** It maps blocks." in part
    assert "So." in part
    assert "**You.** Aloud, or not at all." in question(text, 5)


def test_a_graded_question(text: str) -> None:
    part = question(text, 2)
    assert "level 1, 4 s; show me in the source, after question 1." in part
    assert "```text\n17\n```\n\n**Graded.** Right.\n\n**Answer.** line 17" in part
    assert "pagewalk" not in part
    wrong = question(text, 4)
    assert "a smaller one on the same, after question 3." in wrong
    assert "**Graded.** No: the carry was forgotten." in wrong
    assert "- `pagewalk read slot-formula`" in wrong
    assert "**You.** No answer." in question(text, 3)


def test_what_to_read_next(text: str) -> None:
    part = text.partition("## What to read next")[2].partition("## Questions")[0]
    assert "1. `pagewalk read slot-formula` or the page `concepts/slot-formula/` (questions 3, 4)" in part
    assert "paged-reference" not in part  # the point that leads there was had


def test_nothing_missed_and_nothing_answered(sample: ModuleType) -> None:
    bank = sample.Sample()
    good = Interview(3, STARTED, turns=(TURNS[1],))
    assert "No point was missed." in report(good, recalled(good, bank))
    empty = Interview(3, STARTED)
    text = report(empty, [])
    assert headings(text) == [("h1", "Mock interview, 2026-03-01 09:30")]
    assert "Nothing was answered" in text


def test_what_is_gone_is_said(sample: ModuleType) -> None:
    gone = Interview(3, STARTED, turns=(*TURNS[:1], Turn("gone/item", 1, "opens", "", "x", (), 1, 5)))
    text = report(gone, recalled(gone, sample.Sample()))
    assert "1 question cannot be shown here" in text
    assert "2 questions;" in text


def test_an_answer_without_its_points_is_left_open(sample: ModuleType) -> None:
    item = sample.Sample().items()["recall/deeper"]
    left = typed(opened(HELD, item, "deeper", "recall/table"), "half a thought", 900)
    text = report(left, recalled(left, sample.Sample()))
    assert headings(text)[-1] == ("h2", "Left open")
    assert "`recall/deeper` was answered" in text
    assert "```text\nhalf a thought\n```" in text
    assert "5 questions" in text


LINES = st.lists(st.text("`~#*_<>[]()! ab\\|-", max_size=12), min_size=1, max_size=4)


@given(LINES)
def test_whatever_is_typed_stays_as_it_is(lines: list[str]) -> None:
    """No answer breaks out of its place: the same headings, and one code block that holds exactly it."""
    answer = "\n".join(lines)
    if not answer.strip():
        return
    from walkthroughs.drills import bank

    turn = Turn("recall/why-blocks", 1, "opens", "", answer, (1,), 4, 0)
    held = Interview(1, STARTED, turns=(turn,))
    text = report(held, recalled(held, bank))
    tokens: Any = parsed(text)
    assert [token.content for token in tokens if token.type == "fence"] == [f"{answer}\n"]
    assert [tag for tag, _ in headings(text)] == ["h1", "h2", "h2", "h2", "h3"]


@pytest.mark.parametrize(
    ("milliseconds", "said"),
    [
        (0, "0 s"),
        (499, "0 s"),
        (900, "1 s"),
        (59_499, "59 s"),
        (59_600, "1 min"),
        (61_000, "1 min 1 s"),
        (120_000, "2 min"),
    ],
)
def test_times(milliseconds: int, said: str) -> None:
    assert took(milliseconds) == said


def test_counts() -> None:
    assert (counted(0, "point"), counted(1, "point"), counted(2, "point")) == ("0 points", "1 point", "2 points")


def test_where_it_goes(tmp_path: Path) -> None:
    path = report_file(HELD, tmp_path)
    assert path == tmp_path / "interviews" / "2026-03-01-093000-kernel-3.md"
    assert report_file(Interview(3, STARTED, output="/elsewhere/r.md"), tmp_path) == Path("/elsewhere/r.md")
    # Another interview is another file; the same one, ended twice, the same.
    others = [report_file(other, tmp_path) for other in variants()]
    assert len({path, *others}) == 1 + len(others)


def variants() -> Iterator[Interview]:
    yield Interview(4, STARTED, role="kernel")
    yield Interview(3, STARTED, role="serving")
    yield Interview(3, STARTED + 1000, role="kernel")

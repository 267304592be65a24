"""Markdown headings as symbols."""

from hypothesis import given
from hypothesis import strategies as st

from annotate.headings import Section, sections


def test_sections_nest_and_end_before_the_next_of_their_level() -> None:
    text = "# A\n\nx\n\n## B `c`\ny\n### D\nz\n\n\n## E\n\n# F\n"
    assert sections(text) == [
        Section("A", 1, 11),
        Section("A > B c", 5, 8),
        Section("A > B c > D", 7, 8),
        Section("A > E", 11, 11),
        Section("F", 13, 13),
    ]


def test_fences_hide_what_looks_like_headings() -> None:
    text = "# A\n```sh\n# no\n~~~\n```\n## B\n~~~~\n# no\n~~~\n# no\n~~~~\n"
    assert [section.name for section in sections(text)] == ["A", "A > B"]


def test_what_is_no_heading() -> None:
    assert sections("#no\n    # code\n####### seven\ntext # A\n") == []


def test_closing_marks_and_carriage_returns_are_left_out() -> None:
    assert sections("## A ##\r\nx\r\n") == [Section("A", 1, 2)]


@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from("abc")), max_size=20))
def test_sections_start_at_their_headings_and_cover_only_deeper_ones(entries: list[tuple[int, str]]) -> None:
    lines = [f"{'#' * level} {name}" if level else name for level, name in entries]
    levels = {number: level for number, (level, _) in enumerate(entries, start=1) if level}
    found = sections("\n".join(lines))
    assert [section.first for section in found] == list(levels)
    for section in found:
        assert all(levels[n] > levels[section.first] for n in range(section.first + 1, section.last + 1) if n in levels)
        after = section.last + 1
        assert after > len(lines) or levels.get(after, 9) <= levels[section.first]

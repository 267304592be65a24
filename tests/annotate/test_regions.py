"""Regions in our own files: nesting, names, and every way to get a fence wrong."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotate.errors import RegionError
from annotate.regions import Region, is_fence, regions

KNOWN = {"a", "b", "c-d"}


def test_a_region_is_the_lines_between_its_fences() -> None:
    text = "x\n# region: a\none\ntwo\n# endregion\ny\n"
    assert regions(text, known=KNOWN) == {"a": [Region("a", 3, 4)]}


def test_regions_nest_and_repeat() -> None:
    text = "# region: a\n  # region: b\n  one\n  # endregion b\ntwo\n# endregion: a\n# region: a\nx\n# endregion\n"
    assert regions(text, known=KNOWN) == {"b": [Region("b", 3, 3)], "a": [Region("a", 2, 5), Region("a", 8, 8)]}


def test_ids_are_concepts_by_default(tmp_path: Path) -> None:
    file = tmp_path / "port.py"
    file.write_bytes(b"\xef\xbb\xbf# region: q-load\r\nx = 1\r\n# endregion\r\n")
    assert regions(file) == {"q-load": [Region("q-load", 2, 2)]}
    file.write_text("# region: q-laod\nx\n# endregion\n")
    with pytest.raises(RegionError, match=r"port\.py:1: .*did you mean q-load"):
        regions(file)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("# region: a\nx\n", 1, "never closed"),
        ("# region: a\nx\n# region: b\ny\n# endregion\n", 1, "region a is never closed"),
        ("x\n# endregion\n", 2, "closes nothing"),
        ("# region: a\n# endregion\n", 1, "empty"),
        ("# region: nope\nx\n# endregion\n", 1, "no concept is called 'nope'"),
        ("# region a\nx\n# endregion\n", 1, "# region: CONCEPT-ID"),
        ("# region:\nx\n# endregion\n", 1, "# region: CONCEPT-ID"),
        ("# region: A\nx\n# endregion\n", 1, "# region: CONCEPT-ID"),
        ("# region: a\n# region: b\nx\n# endregion: a\n# endregion: b\n", 4, "closes region b"),
    ],
)
def test_wrong_fences_name_their_line(text: str, line: int, words: str) -> None:
    with pytest.raises(RegionError, match=words) as caught:
        regions(text, known=KNOWN)
    assert caught.value.line == line


def test_what_only_looks_like_a_fence_is_none() -> None:
    assert regions("# regional\nx = '# region'  # region: a\n# the region: a\n", known=KNOWN) == {}


@st.composite
def nested(draw: st.DrawFn) -> tuple[list[str], list[Region]]:
    """Random well-formed text and what its regions are, kept by a second, naive count."""
    lines: list[str] = []
    found: list[Region] = []
    open_now: list[tuple[str, int]] = []
    for _ in range(draw(st.integers(0, 25))):
        choice = draw(st.sampled_from(["text", "open", "close"]))
        if choice == "open":
            name = draw(st.sampled_from(sorted(KNOWN)))
            lines.append(f"# region: {name}")
            open_now.append((name, len(lines)))
            lines.append("filled")
        elif choice == "close" and open_now:
            name, at = open_now.pop()
            lines.append("    # endregion")
            found.append(Region(name, at + 1, len(lines) - 1))
        else:
            lines.append(draw(st.sampled_from(["", "x = 1", "# a comment"])))
    while open_now:
        name, at = open_now.pop()
        lines.append("# endregion")
        found.append(Region(name, at + 1, len(lines) - 1))
    return lines, found


@given(nested())
def test_any_nesting_is_read_back(case: tuple[list[str], list[Region]]) -> None:
    lines, expected = case
    found = [region for entries in regions("\n".join(lines), known=KNOWN).values() for region in entries]
    assert sorted(found, key=str) == sorted(expected, key=str)


@pytest.mark.parametrize(
    ("line", "fence"),
    [
        ("# region: x", True),
        ("    # endregion", True),
        ("# regional", False),
        ("x = 1  # region: x", False),
        ("", False),
    ],
)
def test_a_fence_stands_alone_on_its_line(line: str, fence: bool) -> None:
    assert is_fence(line) is fence

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walkthroughs.site.directives import Directive, expand, parse
from walkthroughs.site.errors import BadDirective


def told(directive: Directive) -> list[str]:
    return [f"<{directive.name}|{directive.text}|{sorted(directive.options.items())}>"]


@pytest.mark.parametrize(
    ("line", "name", "text", "options"),
    [
        ("::: glossary", "glossary", "", {}),
        ("::: walkthrough vllm-classic", "walkthrough", "vllm-classic", {}),
        ("::: concept x-packing root=..", "concept", "x-packing", {"root": ".."}),
        ("::: svg block-table A caption, in words.", "svg", "block-table A caption, in words.", {}),
        ("::: pair a vllm@0.24.0 root=.. folder=x  ", "pair", "a vllm@0.24.0", {"root": "..", "folder": "x"}),
        ("::: concepts folder=", "concepts", "", {"folder": ""}),
    ],
)
def test_a_directive_is_taken_apart(line: str, name: str, text: str, options: dict[str, str]) -> None:
    found = parse(line)
    assert found is not None
    assert (found.name, found.text, dict(found.options)) == (name, text, options)


@pytest.mark.parametrize("line", ["", "text ::: concept a", " ::: concept a", ":: concept a", "> ::: a"])
def test_other_lines_are_not_directives(line: str) -> None:
    assert parse(line) is None


@pytest.mark.parametrize(
    "line", [":::", "::: ", ":::concept a", "::: Concept a", ":::: a", "::: 1a", "::: a root=1 root=2"]
)
def test_a_malformed_directive_is_an_error_that_shows_the_line(line: str) -> None:
    with pytest.raises(BadDirective) as caught:
        parse(line)
    assert line.strip() in str(caught.value)


def test_root_is_here_by_default() -> None:
    found = parse("::: glossary")
    assert found is not None
    assert found.root == "."


@pytest.mark.parametrize("line", ["::: concept", "::: concept a b"])
def test_an_argument_is_exactly_one_word(line: str) -> None:
    found = parse(line)
    assert found is not None
    with pytest.raises(BadDirective, match="exactly one name"):
        found.argument()


def test_a_directive_in_a_fence_is_left_alone() -> None:
    lines = ["```text", "::: concept a", "```", "::: concept b", "~~~~", "```", "~~~", "::: c", "~~~~", "::: d"]
    assert list(expand(lines, told)) == [
        *lines[:3],
        "<concept|b|[]>",
        *lines[4:9],
        "<d||[]>",
    ]


def test_a_fence_that_never_closes_keeps_the_rest() -> None:
    assert list(expand(["```", "::: a", "x"], told)) == ["```", "::: a", "x"]


@given(st.lists(st.text(alphabet="abc :`~=-", max_size=12)))
def test_lines_without_directives_come_back_unchanged(lines: list[str]) -> None:
    kept = [line for line in lines if not line.startswith(":::")]
    assert list(expand(kept, told)) == kept

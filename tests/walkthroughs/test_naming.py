"""The marks that name a claim or a step: found, taken away, and made links of; code is left alone."""

from __future__ import annotations

import pytest

from walkthroughs import naming


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("It is so [L1-18].", ("L1-18",)),
        ("It is so [vllm-classic/v2-max] [D-01]: yes.", ("vllm-classic/v2-max", "D-01")),
        ("The shape is [blocks, heads / x, 2], the table `[3, 1]`, [3].", ()),
        ("In code `[L1-18]` and `a[b/c]`.", ()),
        ("Links are none: [L1-18](x.md), [a/b][c].", ()),
        ("Not these: [L3-18], [L1-180], [Vllm/x], [a/b/c], [a /b].", ()),
    ],
)
def test_names(text: str, found: tuple[str, ...]) -> None:
    assert naming.names(text) == found
    assert (naming.without(text) == text) is (not found)


def test_without_leaves_no_gap() -> None:
    assert naming.without("It is so [L1-18] [D-01], and so [a/b].") == "It is so, and so."


def test_links() -> None:
    assert list(naming.linked(["So [L1-18].", "And so [vllm-live/max], so."], "..")) == [
        'So[L1-18](../claims.md#L1-18){ .pw-ref title="Checked as the claim L1-18" }.',
        'And so[max](../walkthroughs/vllm-live.md#step-max){ .pw-ref title="Shown by the step vllm-live/max" }, so.',
    ]


@pytest.mark.parametrize("fence", ["```", "~~~", "````"])
def test_fences_and_code_stay(fence: str) -> None:
    lines = [f"{fence}python", "a [L1-18]", fence, "`a [L1-18]`"]
    assert list(naming.linked(lines, ".")) == lines
    assert next(naming.linked(["[L1-18]"], ".")) != "[L1-18]"
    assert [*naming.linked([*lines, "b [L1-18]"], ".")][-1] != "b [L1-18]"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("One.\n\n::: rung ring\n\nTwo.", "One.\n\nTwo."),
        ("One.\n::: svg a caption\nTwo.", "One.\nTwo."),
        ("::: rungs\n\nOne.", "One."),
        ("One.\n\n::: rung ring", "One."),
        ("One ::: two [L1-18].", "One ::: two [L1-18]."),
    ],
)
def test_what_only_a_page_can_follow_is_left_out(text: str, left: str) -> None:
    assert naming.undirected(text) == left

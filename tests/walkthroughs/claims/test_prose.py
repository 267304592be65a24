"""The lister of sentences whose numbers nothing vouches for: the mechanism, and that the list only gets shorter."""

from __future__ import annotations

from dataclasses import replace

import pytest

from walkthroughs.claims import prose
from walkthroughs.evidence import Check, Evidence, load_committed
from walkthroughs.step import Step, get, steps
from walkthroughs.workbench import Workbench

# Sentences of the walkthroughs that still have to name a claim, or get a check. To be brought down to none.
LEFT = 110


def a_step(text: str) -> Step:
    def run(bench: Workbench) -> None:
        bench.check("tokens of 2 sequences", [70, 9], [70, 9])
        bench.check("in hex", 0x20, 1e4)

    run.__doc__ = text
    return replace(get("vllm-classic/normalise"), run=run)


def record(observed: str) -> Evidence:
    check = Check("weight", True, observed, observed, 0.0, 0.0, "of lane 31")
    return Evidence("s", "passed", "cuda", "a GPU", "", {}, "2026-01-02", 0, {}, (check,), 0.1)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("There are 16 of them, and 4,096 of those.", ["16", "4096"]),
        ("Since 0.24.0 there are 0.5 of 6.post1.", ["0.5"]),
        ("Two threads and twelve more.", ["2", "12"]),
        ("`x16` and v2 and K3 are names.", []),
        ("It is -1 there.", ["-1"]),
        ("None.", []),
    ],
)
def test_numbers_of_a_sentence(text: str, found: list[str]) -> None:
    assert prose.numbers(text) == found


def test_sentences_leave_out_code_and_directives() -> None:
    text = "One here.\nTwo there. And 3.\n\n```python\nx = 99\n```\n\n::: svg a 98\n\nLast: 4."
    assert list(prose.sentences(text)) == ["One here.", "Two there.", "And 3.", "Last: 4."]


@pytest.mark.parametrize(
    ("text", "loose"),
    [
        ("There are 70 tokens.", ()),
        ("There are 71 tokens.", ("71",)),
        ("Two sequences of 9.", ()),
        ("The warp has 32 lanes of 10,000.", ()),
        ("The weight is 0.25 in lane 31.", ()),
        ("The weight is 0.26.", ("0.26",)),
        ("It has 71 of them (L1-10).", ()),
        ("It has 71 of them (L1-99).", ("71", "99")),
        ("It has 71 of them, see `vllm-classic/x`.", ()),
        ("No number at all.", ()),
    ],
)
def test_a_number_needs_a_check_a_claim_or_a_step(text: str, loose: tuple[str, ...]) -> None:
    found = prose.unvouched(a_step(text), record("[0.25, 1]"))
    assert tuple(number for sentence in found for number in sentence.numbers) == loose


def test_without_a_record_only_the_code_vouches() -> None:
    assert prose.unvouched(a_step("The weight is 0.25."), None) != []
    assert prose.unvouched(a_step("There are 70."), None) == []


def test_the_list_of_the_walkthroughs_only_gets_shorter() -> None:
    records = load_committed()
    found = [sentence for step in steps().values() for sentence in prose.unvouched(step, records.get(step.id))]
    listing = "\n".join(f"{s.step}: {s.text} ({', '.join(s.numbers)})" for s in found)
    assert len(found) <= LEFT, f"more sentences than before state a number that nothing vouches for:\n{listing}"

"""The lister of sentences that nothing vouches for: on made-up prose, and empty for every walkthrough."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import pytest

from walkthroughs.claims import prose
from walkthroughs.evidence import Check, Evidence, load_committed
from walkthroughs.step import Step, Walkthrough, get, registry
from walkthroughs.workbench import Workbench

ROOT = Path(__file__).resolve().parents[3]


def a_step(text: str, like: str = "vllm-classic/normalise") -> Step:
    """A step on vLLM's lines (unless it is like another), with two checks."""

    def run(bench: Workbench) -> None:
        bench.check("tokens of 2 sequences", [70, 9], [70, 9])
        bench.check("in hex", 0x20, 1e4)

    run.__doc__ = text
    return replace(get(like), run=run)


def records(observed: str) -> dict[str, Evidence]:
    check = Check("weight", True, observed, observed, 0.0, 0.0, "of lane 31")
    made = Evidence("s", "passed", "cuda", "a GPU", "", {}, "2026-01-02", 0, {}, (check,), 0.1)
    return load_committed() | {"vllm-classic/normalise": made}


def lacks(text: str, like: str = "vllm-classic/normalise") -> list[str]:
    found = prose.of_step(a_step(text, like), records("[0.25, 1]"))
    return [lack for offence in found for lack in offence.lacks]


# -- sentences


def test_sentences_and_their_lines() -> None:
    text = (
        "One here.\nTwo there. And 3\nover a line. 70 of them. v1 too.\n\n```python\nx = 99\n```\n\n::: svg a 98\n\n"
        "Last: 4.\n- an item\n  goes on\n- another\n\n> It is **so.** (And so.)"
    )
    assert [(sentence.text, sentence.line) for sentence in prose.sentences(text)] == [
        ("One here.", 0),
        ("Two there.", 1),
        ("And 3 over a line.", 1),
        ("70 of them.", 2),
        ("v1 too.", 2),
        ("Last: 4.", 10),
        ("- an item goes on", 11),
        ("- another", 13),
        ("> It is **so.**", 15),
        ("(And so.)", 15),
    ]


def test_a_fence_of_the_other_kind_does_not_end_a_fence() -> None:
    assert list(prose.sentences("~~~\n```\n12\n~~~\nDone.")) == [prose.Sentence("Done.", 4)]


# -- numbers


@pytest.mark.parametrize(
    ("text", "loose"),
    [
        ("There are 70 tokens.", []),
        ("There are 71 tokens.", ["no check shows 71"]),
        ("Two sequences of 9.", []),
        ("It has 32 lanes of 10,000.", []),
        ("It has 320 lanes of 1,000.", ["no check shows 320, 1,000"]),
        ("The weight is 0.25 in lane 31.", []),
        ("The weight is 0.26.", ["no check shows 0.26"]),
        ("No number at all.", []),
        ("A piece has 8 bytes [L1-18].", []),
        ("A piece has 9,999 bytes [L1-18].", ["no check shows 9,999"]),
        ("It has 71 of them [L1-99].", ["nothing is called L1-99", "no check shows 71"]),
        ("So it is [vllm-classic/nothing].", ["nothing is called vllm-classic/nothing"]),
        ("It starts a launch for 58,064 tokens [vllm-classic/shared-size].", []),
        ("It starts a launch for 58,063 tokens [vllm-classic/shared-size].", ["no check shows 58,063"]),
        ("A name in code, `[L1-18]`, names nothing: 8.", ["no check shows 8"]),
    ],
)
def test_a_number_needs_a_check_or_a_claim_or_step_that_has_it(text: str, loose: list[str]) -> None:
    assert lacks(text) == loose


def test_without_a_record_only_the_code_vouches() -> None:
    assert prose.of_step(a_step("The weight is 0.25."), {}) != []
    assert prose.of_step(a_step("There are 70."), {}) == []


# -- what code does


@pytest.mark.parametrize(
    "text",
    [
        "The kernel reads it twice.",
        "Each thread takes one piece.",
        "The two threads of a group meet, and all threads read it.",
        "vLLM 0.26.0 also widens it.",
        "Our launcher passes zeros.",
        "A warp without a block waits, and a warp may be late.",
        "tiny-vllm never looks.",
        "All 64 threads compute the same.",
        "Kernels of both kinds, and thread blocks that come back: thread blocks leave at once.",
    ],
)
def test_sentences_that_say_what_code_does(text: str) -> None:
    assert prose.says_what_code_does(text)


@pytest.mark.parametrize(
    "text",
    [
        "The kernel was another one then.",
        "Picture a street of blocks.",
        "The kernel's numbers.",
        "Threads, warps and lanes.",
        "The kernel as a whole.",
        "vLLM lines on the left.",
        "It was the kernel that gave it.",
        "See the step [vllm-classic/kernel-reads].",
    ],
)
def test_sentences_that_do_not(text: str) -> None:
    assert not prose.says_what_code_does(text)


SAYS = "says what code does, and names no claim and no step"


@pytest.mark.parametrize(
    ("text", "like", "found"),
    [
        # The step shows lines of vLLM and checks: it is the voucher itself.
        ("The kernel reads it twice.", "vllm-classic/normalise", []),
        ("vLLM reads it twice.", "vllm-classic/normalise", []),
        # It says nothing of the other project's code.
        ("tiny-vllm reads it twice.", "vllm-classic/normalise", [SAYS]),
        ("tiny-vllm reads it twice [tiny-vllm/race].", "vllm-classic/normalise", []),
        ("vLLM's classic kernel reads it twice.", "tiny-vllm/race", [SAYS]),
        ("vLLM's classic kernel reads it twice [L1-09].", "tiny-vllm/race", []),
        ("tiny-vllm reads it twice.", "tiny-vllm/race", []),
        # A step on a file of ours: our kernel yes, vLLM no.
        ("The kernel reads it twice.", "paged-reference/lookup", []),
        ("vLLM reads it twice.", "paged-reference/lookup", [SAYS]),
    ],
)
def test_what_code_does_needs_lines_beside_it_or_a_name(text: str, like: str, found: list[str]) -> None:
    assert lacks(text, like) == found


def test_a_step_without_lines_or_without_checks_is_no_voucher() -> None:
    step = a_step("The kernel reads it twice.")
    assert [o.lacks for o in prose.of_step(replace(step, reads=("no-such-concept",)), {})] == [(SAYS,)]

    def idle(bench: Workbench) -> None:
        """The kernel reads it twice."""

    assert [o.lacks for o in prose.of_step(replace(step, run=idle), {})] == [(SAYS,)]


# -- introductions


def an_introduction(text: str) -> list[prose.Offence]:
    step = get("vllm-classic/slots")
    walkthrough = Walkthrough(
        "vllm-classic", "A title", text, "vllm@0.24.0", "kernels/vllm/classic_v1.py", steps=[step]
    )
    return prose.of_introduction(walkthrough, load_committed())


def test_an_introduction_names_what_it_says() -> None:
    (offence,) = an_introduction("Here it is. The kernel reads 70 tokens.")
    assert offence.lacks == ("no check shows 70", SAYS)
    assert an_introduction("The kernel reads 70 tokens [vllm-classic/block-ranges]. It is good.") == []


# -- where


def test_an_offence_says_where_it_stands() -> None:
    (offence,) = prose.of_step(a_step("All is well.\n\nThere are 70.\nHere are 71."), {})
    file, _, line = offence.where.rpartition(":")
    tree = ast.parse(Path(__file__).read_text("utf-8"))
    first = next(n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == "run").body[0].lineno
    assert (file, int(line)) == ("tests/walkthroughs/claims/test_prose.py", first + 3)
    assert str(offence) == f"{offence.where}: vllm-classic/normalise: Here are 71.\n    no check shows 71"


@pytest.mark.parametrize("name", ["vllm-classic", "findings"])
def test_places_are_those_of_the_files(name: str) -> None:
    walkthrough = registry()[name]
    without = replace(walkthrough, intro=walkthrough.intro.replace("[", "(").replace("]", ")"))
    for offence in prose.of_introduction(without, {}):
        file, _, line = offence.where.rpartition(":")
        text = "\n".join((ROOT / file).read_text("utf-8").splitlines()[int(line) - 1 :])
        start = " ".join(offence.text.replace("(", "[").split()[:3])
        assert start in " ".join(text.splitlines()[0].replace("(", "[").split() + text.splitlines()[1].split())


# -- the walkthroughs


def test_every_sentence_of_the_walkthroughs_is_vouched_for() -> None:
    found = prose.unvouched(load_committed())
    listing = "\n".join(map(str, found))
    assert not found, f"{len(found)} sentences that nothing vouches for; name a claim or a step, or reword:\n{listing}"


def test_the_lister_reads_every_page() -> None:
    read = 0
    for walkthrough in registry().values():
        for text in (walkthrough.intro, *(step.prose for step in walkthrough.steps)):
            found = list(prose.sentences(text))
            assert found, "prose without a sentence"
            read += len(found)
    assert read > 1000

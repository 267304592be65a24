"""The ledger: every entry is there, is well formed, and is refused with a reason where it is not."""

from __future__ import annotations

import re

import pytest

from annotate.concepts import concepts
from annotate.errors import UnknownName
from walkthroughs.claims.dispatch import KINDS
from walkthroughs.claims.ledger import FILES, FOLDER, claim_of, claims, of_concept, read_group
from walkthroughs.claims.model import LedgerError, Role, Verdict
from walkthroughs.step import steps

HEAD = 'group = "g"\nwho = "w"\nsource = "vllm@0.24.0"\n[claim.X-1]\n'
GOOD = {
    "says": '"It is."',
    "truth": '"It is."',
    "concepts": '["x-packing"]',
    "expected": '"holds"',
    "supports": '[{ says = "a", check = "has" }]',
}


def group(**changes: str | None) -> str:
    fields = {**GOOD, **changes}
    return HEAD + "".join(f"{key} = {value}\n" for key, value in fields.items() if value is not None)


def test_every_number_of_every_group_is_there() -> None:
    wanted = [f"L1-{n:02}" for n in range(1, 54)]
    wanted += [f"D-{n:02}" for n in range(1, 6)]
    wanted += [f"L2-{n:02}" for n in range(1, 56)]
    wanted += [f"C-{n:02}" for n in range(1, 10)]
    assert list(claims()) == wanted


def test_every_file_of_the_ledger_is_read() -> None:
    assert sorted(path.name for path in FOLDER.glob("*.toml")) == sorted(FILES)


@pytest.mark.parametrize("claim", list(claims().values()), ids=lambda claim: claim.id)
def test_a_claim_is_well_formed(claim: object) -> None:
    from walkthroughs.claims.model import Claim

    assert isinstance(claim, Claim)
    assert claim.says.rstrip("`")[-1] in ".!?"
    assert claim.truth[-1] == "."
    assert claim.concepts, "a claim touches at least one concept"
    for fact in claim.facts:
        assert fact.check in KINDS
        assert not fact.says.endswith("."), "a fact is half of a sentence on its page"
        assert KINDS[fact.check].needs <= fact.params.keys() <= KINDS[fact.check].takes, fact.says
        if fact.check == "step":
            assert fact.params["step"] in steps()
    roles = {fact.role for fact in claim.facts}
    needed = {
        Verdict.HOLDS: Role.SUPPORTS,
        Verdict.HOLDS_IF: Role.LIMITS,
        Verdict.WRONG: Role.REFUTES,
        Verdict.OPEN: Role.MISSING,
    }
    assert needed[claim.expected] in roles


def test_claims_are_found_by_concept_and_by_id() -> None:
    assert "L1-11" in [claim.id for claim in of_concept("accumulate")]
    assert of_concept("no-such") == ()
    assert claim_of("L1-11").id == "L1-11"
    with pytest.raises(UnknownName, match="L1-11"):
        claim_of("L1-11x")
    assert all(name in concepts() for claim in claims().values() for name in claim.concepts)


def test_a_good_entry_is_read() -> None:
    (claim,) = read_group(group())
    assert (claim.id, claim.group, claim.who, claim.source, claim.expected) == (
        "X-1", "g", "w", "vllm@0.24.0", Verdict.HOLDS,
    )  # fmt: skip
    assert claim.facts[0].role is Role.SUPPORTS


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"says": None}, "are needed"),
        ({"concepts": '["x-paking"]'}, "x-packing"),
        ({"expected": '"true"'}, "one of holds"),
        ({"expected": '"holds if"'}, "condition"),
        ({"condition": '"so"'}, "condition"),
        ({"supports": "[]"}, "decides"),
        ({"supports": '[{ says = "a" }]'}, "a fact is"),
        ({"suports": "[]"}, "suports"),
    ],
)
def test_a_bad_entry_is_refused_with_its_id(changes: dict[str, str | None], said: str) -> None:
    with pytest.raises(LedgerError, match=re.escape(said)) as caught:
        read_group(group(**changes))
    assert caught.value.claim == "X-1"


def test_a_file_without_its_head_is_refused() -> None:
    with pytest.raises(LedgerError, match="at its top"):
        read_group("[claim.X-1]\n")

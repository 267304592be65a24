"""A case of the ladder's grid sees a wrong rung and passes a right one; a refusal counts only where it must come."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from kernels.errors import ArgumentError
from kernels.tuned import grid_case
from kernels.tuned.grid_case import TunedCase, bound, bounds, cell
from kernels.tuned.ladder import RUNGS, Rung
from kernels.tuned.takes import AXES, FLOAT32, PORT_V1, PORT_V2, RING, TAKES, WEIGHTS, Rounding, Takes
from kernels.vllm import ops_reference
from kernels.vllm.ops_attention_case import AttentionCase

spec = importlib.util.spec_from_file_location("pagewalk_fake_rung", Path(__file__).with_name("fake_rung.py"))
assert spec is not None
assert spec.loader is not None
fake_rung = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = fake_rung
spec.loader.exec_module(fake_rung)
BROKEN, fake = fake_rung.BROKEN, fake_rung.fake

PLAIN = {
    "head_size": 64, "heads": (8, 2), "dtype": "bfloat16", "kind": "auto", "block_size": 16, "alibi": False,
    "query_len": 1,
}  # fmt: skip
LENGTHS = (0, 1, 15, 17, 33)


@pytest.fixture
def rung(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Puts a fake rung at the ladder's foot, and what it takes into the table."""

    def put(rounding: Rounding, broken: str = "", **takes: Any) -> str:
        monkeypatch.setitem(RUNGS, "fake", fake("fake", rounding, broken))
        monkeypatch.setitem(TAKES, "fake", Takes(rounding, **{"query_len": (1, 2, 3, 4), **takes}))
        return "fake"

    return put


def case(lengths: tuple[int, ...] = LENGTHS, **row: Any) -> TunedCase:
    given = {**PLAIN, **row}
    return TunedCase("fake", cell("fake", "fake", given, lengths=lengths), query_len=given["query_len"])


SOME = (
    {}, {"dtype": "float16"}, {"alibi": True}, {"kind": "fp8"}, {"kind": "fp8_e5m2", "dtype": "float16"},
    {"query_len": 3}, {"heads": (16, 1), "head_size": 96}, {"block_size": 8, "alibi": True, "query_len": 2},
)  # fmt: skip


@pytest.mark.parametrize("row", SOME, ids=str)
@pytest.mark.parametrize("rounding", [FLOAT32, WEIGHTS, RING], ids=["float32", "weights", "ring"])
def test_a_right_rung_passes_and_the_case_sees(rung: Any, rounding: Rounding, row: dict[str, Any]) -> None:
    rung(rounding)
    found = case(**row).run("cpu")
    assert found.passed, found
    assert not found.zeros_pass
    assert not found.shuffled_keys_pass
    assert not found.refused
    assert 0 < found.error <= found.tolerance


@pytest.mark.parametrize("broken", [name for name in BROKEN if name not in ("rounds-twice", "no-maximum")])
def test_a_wrong_rung_fails(rung: Any, broken: str) -> None:
    rung(WEIGHTS, broken)
    needs = {
        "no-alibi": {"alibi": True}, "scale-lost": {"kind": "fp8"}, "sees-the-future": {"query_len": 3},
    }.get(broken, {})  # fmt: skip
    assert not case(**needs).run("cpu").passed


def test_one_rounding_more_than_the_table_says_is_seen(rung: Any) -> None:
    rung(FLOAT32, "rounds-twice")
    assert not case().run("cpu").passed
    rung(replace(FLOAT32, weights=True))
    TAKES["fake"] = Takes(FLOAT32)
    assert not case().run("cpu").passed, "weights that the table does not know of"


def test_inputs_are_ours_and_queries_are_rows(rung: Any) -> None:
    rung(FLOAT32)
    given = case(query_len=3).build("cpu")
    assert given.seq_lens.tolist() == list(LENGTHS)
    assert given.query.shape == (15, 8, 64)
    assert given.query.isfinite().all()
    again = case(query_len=3).build("cpu")
    assert torch.equal(given.query, again.query)
    assert given.value_cache.isnan().any()


def test_the_truth_of_several_queries_is_that_of_each_alone(rung: Any) -> None:
    rung(FLOAT32)
    three = case(query_len=3, alibi=True)
    given = three.build("cpu")
    truth = three.truth(given)
    alone = ops_reference.attention(
        given.query[10:11], given.key_cache, given.value_cache, given.scale, given.block_tables[3:4],
        given.seq_lens[3:4] - 1, given.slopes, eps=0.0,
    )  # fmt: skip
    torch.testing.assert_close(truth.out[10:11], alone.out, rtol=1e-12, atol=1e-12)
    # A sequence of one token has one query that sees it.
    assert truth.tokens.flatten().tolist() == [0, 0, 0, 0, 0, 1, 13, 14, 15, 15, 16, 17, 31, 32, 33]


# What is refused.


def test_a_refusal_that_the_table_has_is_kept_with_its_words(rung: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rung(FLOAT32, head_step=32)

    def refuses(call: Any, zeros: Any, plan: Any) -> Any:
        call.need("head_size", call.head_size, call.head_size % 32 == 0, "must be a multiple of 32")
        return fake("fake", FLOAT32).launches(call, zeros, plan)

    monkeypatch.setitem(RUNGS, "fake", Rung(0, "fake", "", "", refuses))
    found = case(head_size=80).run("cpu")
    assert (found.passed, found.runs, found.refused) == (True, 0, "head_size = 80: must be a multiple of 32")
    assert case(head_size=96).run("cpu").passed
    # Float32 never comes as far as the rung.
    assert "query.dtype = float32" in case(dtype="float32").run("cpu").refused
    TAKES["fake"] = Takes(FLOAT32)
    with pytest.raises(ArgumentError, match="must be a multiple of 32"):
        case(head_size=80).run("cpu")


def test_a_rung_that_takes_what_its_table_refuses_is_an_error(rung: Any) -> None:
    rung(FLOAT32, block_size=(16, 32))
    with pytest.raises(RuntimeError, match="fake took what its row of TAKES refuses: block_size"):
        case(block_size=8).run("cpu")
    rung(FLOAT32, longest=20)
    with pytest.raises(RuntimeError, match="longest"):
        case().run("cpu")
    assert case(lengths=(20,)).run("cpu").passed


@pytest.mark.parametrize(
    ("takes", "row", "refused"),
    [
        ({}, {}, ""),
        ({}, {"dtype": "float32"}, "dtype"),
        ({"kind": ("auto",)}, {"kind": "fp8"}, "kind"),
        ({"alibi": (False,)}, {"alibi": True}, "alibi"),
        ({}, {"query_len": 2}, "query_len"),
        ({}, {"head_size": 120}, ""),
        ({}, {"head_size": 120, "kind": "fp8"}, "head_size"),
        ({"head_step": 16}, {"head_size": 120}, "head_size"),
        ({"fp8_head_step": 32}, {"head_size": 80}, ""),
        ({"fp8_head_step": 32}, {"head_size": 80, "kind": "fp8_e5m2"}, "head_size"),
        ({"most_in_group": 8}, {"heads": (16, 2)}, ""),
        ({"most_in_group": 8}, {"heads": (16, 1)}, "heads"),
        ({"columns": 16, "query_len": (1, 2)}, {"heads": (16, 1)}, ""),
        ({"columns": 16, "query_len": (1, 2)}, {"heads": (16, 1), "query_len": 2}, "heads"),
        ({"columns": 16, "query_len": (1, 2)}, {"heads": (40, 40), "query_len": 2}, ""),
    ],
)
def test_what_the_table_says(takes: dict[str, Any], row: dict[str, Any], refused: str) -> None:
    made = Takes(FLOAT32, **takes)
    assert made.refused(row) == refused
    assert made.takes(row) is not bool(refused)
    assert made.takes({**PLAIN, **row}) is not bool(refused)


# Bounds.


def truth_of(out: float, spread: float, total: float, tokens: float) -> ops_reference.Truth:
    made = [torch.full((1, 1, 1), value, dtype=torch.float64) for value in (out, spread, total, tokens)]
    return ops_reference.Truth(*made)


def test_the_bounds_are_what_the_roundings_add_up_to() -> None:
    truth = truth_of(0.25, 0.5, 40.0, 50.0)

    def of(rounding: Rounding, dtype: str, kind: str = "auto") -> float:
        return float(bound(truth, rounding, dtype, kind))

    assert of(FLOAT32, "bfloat16") == pytest.approx(2**-8 * 0.25 + 0.5e-5)
    assert of(FLOAT32, "float16") == pytest.approx(2**-11 * 0.25 + 2**-25 + 0.5e-5)
    assert of(WEIGHTS, "bfloat16", "fp8") == pytest.approx(2**-8 * (0.25 + 0.5) + 0.5e-5)
    assert of(WEIGHTS, "float16") == pytest.approx(2**-11 * (0.25 + 0.5) + 2**-25 * 41 + 0.5e-5)
    assert of(RING, "bfloat16") == of(WEIGHTS, "bfloat16")
    assert of(RING, "bfloat16", "fp8") == pytest.approx(2**-8 * 0.25 + 2**-11 * 0.5 + 2**-25 * 40 + 0.5e-5)
    for rounding, version in ((PORT_V1, "v1"), (PORT_V2, "v2")):
        assert of(rounding, "bfloat16") == float(ops_reference.bound(truth, "bfloat16", version))
        # No rung is allowed more than the port of v1.
        assert max(of(FLOAT32, "float16"), of(WEIGHTS, "float16")) < of(rounding, "float16")


def test_a_single_token_leaves_no_room_for_a_sum() -> None:
    assert float(bound(truth_of(0.0, 1.0, 1.0, 1.0), FLOAT32, "bfloat16", "auto")) == 5e-7


def test_the_scales_of_an_fp8_cache_are_applied_where_the_rung_applies_them(rung: Any) -> None:
    rung(FLOAT32)
    one = case(kind="fp8")
    given = one.build("cpu")
    outside = one.truth(given)
    rung(PORT_V1)
    inside = one.truth(given)
    assert not torch.equal(outside.out, inside.out)
    # Rounding after the scale moves a score and a value by no more than the port's own roundings would.
    assert ((outside.out - inside.out).abs() <= 16 * 2**-8 * inside.spread).all()


def test_vllms_tolerance_stays_vllms(rung: Any) -> None:
    rung(FLOAT32)
    base = AttentionCase(
        "vllm-fake", "fake", "bfloat16", "auto", 16, 32, ((4, 4),), (False,), lengths=(9,), tolerance=(1e-3, 1e-5),
        inputs="vllm", longest=40, num_blocks=8,
    )  # fmt: skip
    one = TunedCase("fake", base)
    truth = truth_of(0.5, 1.0, 1.0, 9.0)
    assert float(one.allowed(truth)) == pytest.approx(1e-3 + 0.5e-5)
    assert one.run("cpu").passed


def test_the_bounds_for_the_page_name_every_rung_once_a_dtype() -> None:
    rows = bounds()
    for name, takes in TAKES.items():
        assert [row["dtype"] for row in rows if name in row["rungs"]] == list(takes.dtype)
    assert all(row["why"] and row["float32_share"] == 1e-5 for row in rows)


def test_an_id_says_what_differs() -> None:
    one = case(alibi=True)
    assert one.id == "fake bfloat16 auto d64 b16 8:2 alibi"
    assert replace(one, query_len=2, cut="3", plan=grid_case.Plan(3)).id == f"{one.id} q2 cut 3"
    assert one.unit == "fake/bfloat16/auto/64/16/4"
    assert set(one.row) == set(AXES)

"""Changed cases: whatever the bounds allow builds a case and holds, and a kernel with a fault in it does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.cases import decode_case
from kernels.kernel import Backend, Kernel
from walkthroughs.mutations import MUTATIONS, mutant
from walkthroughs.server.bounds import DOUBLE, bounds
from walkthroughs.server.cases import RUNS
from walkthroughs.server.offers import OFFERS
from walkthroughs.server.parameters import Choice, Lengths, Whole
from walkthroughs.step import steps
from walkthroughs.workbench import Bench, Workbench

PORTS = sorted(OFFERS)
NOTICED = {
    "kernels/vllm/classic_v1.py": ["k-mask", "v-mask", "scale", "gqa", "table-row", "max-subtract", "group-sum"],
    "kernels/vllm/classic_v2.py": ["v2-start", "v2-note-place", "v2-row-place", "v2-rescale-sign", "v2-merge-weight"],
    "kernels/vllm/paged_2d.py": ["live-v-mask", "live-score-mask", "live-running-max", "live-acc-rescale"],
    "kernels/vllm/cache.py": ["v-stride", "k-group"],
    "kernels/vllm/cache_fixed.py": ["fixed-no-loop", "fixed-value-row", "fixed-key-shelf"],
    "kernels/vllm/cache_flash.py": ["flash-slot-offset", "flash-page-stride", "flash-head-offset"],
    "kernels/tiny_vllm/paged.py": ["tiny-scale", "tiny-shuffle", "tiny-tail", "tiny-v-offset", "tiny-divide"],
    "kernels/tiny_vllm/general.py": ["tiny-general-warps", "tiny-general-rescale"],
    "kernels/gather.py": ["rescale", "tail-guard", "life-lookup", "finding-running-sum"],
}
FAULTS = {mutation.id: mutation for mutation in MUTATIONS}


def perform(port: str, values: dict[str, Any], kernel: Kernel | None = None) -> Workbench:
    offer = OFFERS[port]
    bench = Workbench(port, Bench(Backend("sim"), kernels=((kernel.name, kernel),) if kernel else ()))
    RUNS[offer.run](bench, offer.read(values))
    return bench


@st.composite
def small(draw: st.DrawFn, port: str) -> dict[str, Any]:
    """Values inside the bounds, with few tokens: the machine is slow, and each bound is tried at its edge elsewhere."""
    values: dict[str, Any] = {}
    for field in OFFERS[port].fields:
        if isinstance(field, Choice):
            values[field.name] = draw(st.sampled_from(field.options))
        elif isinstance(field, Lengths):
            values[field.name] = draw(st.lists(st.integers(field.low, 40), min_size=1, max_size=2))
        elif isinstance(field, Whole):
            values[field.name] = draw(
                st.integers(field.low, field.high if field.name == "seed" else min(field.high, 40))
            )
    if "kv_heads" in values:
        values["heads"] = max(values["heads"], values["kv_heads"])
    if "padding" in values:
        values["padding"] = min(values["padding"], values["tokens"])
    return values


@pytest.mark.parametrize("port", PORTS)
def test_the_case_that_a_page_starts_with_holds(port: str) -> None:
    bench = perform(port, OFFERS[port].defaults())
    assert [check.name for check in bench.checks if not check.passed] == []
    assert len(bench.checks) >= 4
    assert bench.seed == 1


@pytest.mark.parametrize("port", PORTS)
@settings(max_examples=12)
@given(data=st.data())
def test_every_case_within_the_bounds_holds(port: str, data: st.DataObject) -> None:
    values = data.draw(small(port))
    assert [check for check in perform(port, values).checks if not check.passed] == []


@pytest.mark.parametrize(("port", "fault"), [(port, fault) for port, faults in NOTICED.items() for fault in faults])
def test_a_fault_in_the_kernel_is_noticed(port: str, fault: str) -> None:
    bench = perform(port, OFFERS[port].defaults(), mutant(FAULTS[fault]))
    assert [check.name for check in bench.checks if not check.passed]


@pytest.mark.parametrize("port", PORTS)
def test_a_seed_makes_the_case(port: str) -> None:
    values = OFFERS[port].defaults()
    first, again, other = (
        [check.observed for check in perform(port, {**values, "seed": seed}).checks] for seed in (5, 5, 6)
    )
    assert first == again
    assert first != other


def test_the_order_of_blocks_is_walked_as_asked() -> None:
    values = {**OFFERS["kernels/vllm/classic_v1.py"].defaults(), "seq_lens": [64], "block_size": 16}
    seen = {
        order: perform("kernels/vllm/classic_v1.py", {**values, "order": order}).checks[0].observed
        for order in ("identity", "reversed")
    }
    assert seen == {"identity": "[0, 1, 2, 3]", "reversed": "[6, 5, 4, 3]"}


def test_every_offer_is_of_a_port_that_some_step_has() -> None:
    ports = {step.port for step in steps().values()}
    assert set(OFFERS) <= ports
    assert {offer.run for offer in OFFERS.values()} == set(RUNS)
    without = ports - set(OFFERS)
    assert "kernels/vllm/slot_mapping.py" in without


# -- the bound itself


def plain(q: Any, keys: Any, values: Any, scale: float, kind: Any) -> Any:
    """Attention in one number format throughout, one operation after the other."""
    score = np.array([kind(0)] * len(keys))
    for number, key in enumerate(keys):
        total = kind(0)
        for a, b in zip(q, key, strict=True):
            total = kind(total + kind(kind(a) * kind(b)))
        score[number] = kind(kind(scale) * total)
    weight = np.exp(score - score.max()).astype(kind)
    total = kind(0)
    for item in weight:
        total = kind(total + item)
    out = np.zeros(values.shape[1], kind)
    for item, row in zip(weight, values, strict=True):
        out = (out + (item / total).astype(kind) * row.astype(kind)).astype(kind)
    return score, total, out


@settings(max_examples=25)
@given(
    length=st.integers(1, 60),
    size=st.sampled_from([4, 32, 64]),
    seed=st.integers(0, 999),
    loud=st.sampled_from([1, 30]),
)
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_the_bound_holds_for_another_way_to_compute(kind: Any, length: int, size: int, seed: int, loud: int) -> None:
    case = decode_case([length], 1, 1, size, 8, "float64", seed=seed)
    case.q[:] *= loud
    case.q[:] = case.q.astype(kind)
    for rows in (case.keys[0], case.values[0]):
        rows[:] = rows.astype(kind)
    limit = bounds(case, unit=DOUBLE if kind is np.float64 else 2.0**-24)
    args = case.q[0, 0], case.keys[0][:, 0], case.values[0][:, 0], case.scale
    score, total, out = plain(*args, kind)
    best, best_total, best_out = plain(*args, np.longdouble)
    assert np.abs(score - best).max() <= limit.score
    assert abs(total - best_total) <= limit.share * best_total
    assert np.abs(out - best_out).max() <= limit.output


@settings(max_examples=25)
@given(length=st.integers(2, 400), size=st.sampled_from([32, 128]), seed=st.integers(0, 999))
def test_the_bound_is_not_so_wide_that_a_lost_token_fits(length: int, size: int, seed: int) -> None:
    """The token with the largest weight left out: what a loop that ends too early, or a wrong block, does."""
    case = decode_case([length], 1, 1, size, 16, "float32", seed=seed)
    scores = case.scale * (case.keys[0][:, 0].astype(np.float64) @ case.q[0, 0])
    kept = np.arange(length) != scores.argmax()
    weights = np.exp(scores - scores.max())
    whole = weights / weights.sum() @ case.values[0][:, 0]
    less = weights[kept] / weights[kept].sum() @ case.values[0][kept, 0]
    assert np.abs(whole - less).max() > 3 * bounds(case).output

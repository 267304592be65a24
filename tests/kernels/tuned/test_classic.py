"""Rungs 1 and 2: the ports' own launches, kept and made later, give the ports' bits."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernels.cases_narrow import NarrowCase, narrow_decode_case
from kernels.errors import ArgumentError, LaunchError
from kernels.kernel import MAX_SHARED_BYTES, Backend
from kernels.simt.sanitize import Sanitizer
from kernels.tuned import classic
from kernels.vllm import classic_v1, classic_v2

sys.path.insert(0, str(Path(__file__).parent))
try:
    import rung_checks
finally:
    sys.path.pop(0)
from rung_checks import SCALARS, Shape

BACKENDS = ["sim", pytest.param("cuda", marks=pytest.mark.gpu)]
LAUNCHES = {"v1": classic.launches_v1, "v2": classic.launches_v2}
SHAPES = (
    Shape((37,), 2, 1, 64, 16),
    Shape((33, 1), 6, 2, 32, 32),
    Shape((20, 15), 3, 1, 80, 8, alibi=True),
    Shape((530,), 1, 1, 32, 16),
)


def attend(launches: Any, narrow: NarrowCase, backend: Any = "sim", **changes: Any) -> Any:
    """A rung's output codes. Slopes of zero are taken from the scratch memory, so it must be zeros here."""
    return rung_checks.attend(launches, narrow, None, backend, np.zeros, **changes)


def port(version: str, narrow: NarrowCase, backend: str = "sim") -> Any:
    """What the port gives when it is called itself."""
    case = narrow.case
    out = np.zeros_like(narrow.q)
    rest = (
        narrow.q, narrow.k_cache, narrow.v_cache, case.num_kv_heads, case.scale, case.block_tables, case.seq_lens,
        case.block_size, case.max_seq_len, case.alibi_slopes,
    )  # fmt: skip
    if version == "v1":
        classic_v1.paged_attention_v1(out, *rest, backend=backend)
    else:
        buffers = classic_v2.buffers(*narrow.q.shape, case.max_seq_len, narrow.q.dtype, fill=0)
        classic_v2.paged_attention_v2(out, *buffers, *rest, backend=backend)
    return out


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("scalar", SCALARS)
@pytest.mark.parametrize("version", LAUNCHES)
@pytest.mark.parametrize("shape", SHAPES)
def test_the_bits_are_the_ports(shape: Shape, version: str, scalar: str, backend: str) -> None:
    narrow = shape.case(scalar)
    np.testing.assert_array_equal(attend(LAUNCHES[version], narrow, backend), port(version, narrow, backend))


@pytest.mark.parametrize("version", LAUNCHES)
def test_another_call_gives_other_bits(version: str) -> None:
    narrow = SHAPES[0].case("bfloat16")
    right = port(version, narrow)
    for changes in ({"scale": narrow.case.scale / 2}, {"query": np.roll(narrow.q, 1, axis=1)}):
        assert (attend(LAUNCHES[version], narrow, **changes) != right).any()


@pytest.mark.parametrize("version", LAUNCHES)
def test_no_report_under_another_order(version: str) -> None:
    watch = Sanitizer()
    with watch:
        attend(LAUNCHES[version], SHAPES[0].case("bfloat16"), Backend("sim", "reversed", observers=(watch,)))
    assert watch.clean


def test_v2_is_two_kernels_and_partitions_of_512_tokens() -> None:
    narrow = SHAPES[3].case("bfloat16")
    call = rung_checks.call_of(narrow)
    found = {version: make(call) for version, make in LAUNCHES.items()}
    assert {version: [(launch.kernel.name, launch.grid) for launch in each] for version, each in found.items()} == {
        "v1": [("paged_attention_v1_kernel", (1, 1, 1))],
        "v2": [("paged_attention_v2_kernel", (1, 1, 2)), ("paged_attention_v2_reduce_kernel", (1, 1, 1))],
    }
    assert all(launch.threads == 128 for each in found.values() for launch in each)


def test_nothing_runs_before_its_time() -> None:
    call = rung_checks.call_of(SHAPES[0].case("bfloat16"))
    for make in LAUNCHES.values():
        make(call)
    assert (call.out == 0x7FFF).all()


def test_scratch_memory_comes_from_the_caller() -> None:
    asked: list[tuple[int, Any]] = []

    def zeros(size: int, dtype: Any) -> Any:
        asked.append((size, np.dtype(dtype)))
        return np.zeros(size, dtype)

    classic.launches_v2(rung_checks.call_of(SHAPES[3].case("float16")), zeros)
    assert (2 * 32, np.dtype(np.float16)) in asked
    assert asked.count((2, np.dtype(np.float32))) == 2


@pytest.mark.parametrize(("tokens", "room"), [(48, False), (12288 - 16, True), (20000, True)])
def test_static_shared_memory_counts_where_it_passes_the_limit(tokens: int, room: bool) -> None:
    narrow = SHAPES[0].case("bfloat16")
    table = np.zeros((1, 1250), np.int32)
    (launch,) = classic.launches_v1(rung_checks.call_of(narrow, max_seq_len=tokens, block_tables=table))
    assert (launch.shared > MAX_SHARED_BYTES) == room


def test_what_no_launch_could_use_is_refused() -> None:
    narrow = SHAPES[0].case("bfloat16")
    for make in LAUNCHES.values():
        with pytest.raises(ArgumentError, match="num_kv_heads"):
            attend(make, narrow, num_kv_heads=3)
        with pytest.raises(ArgumentError, match="must be auto"):
            attend(make, narrow_decode_case((5,), 1, 1, 32, 16, "bfloat16", "fp8"), kv_cache_dtype="fp8")
        with pytest.raises(ArgumentError, match="must be one of"):
            attend(make, Shape((5,), 1, 1, 40, 16).case("bfloat16"))
    with pytest.raises(LaunchError, match="shorten the sequence or partition it"):
        attend(LAUNCHES["v1"], narrow, max_seq_len=70000, block_tables=np.zeros((1, 4375), np.int32))

"""The ops' cases one by one: their inputs, what a right op gives, and that wrong ones fail.

`fake_ops` are vLLM's ops in vectorised torch; broken on purpose, each of them must fail.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from kernels.vllm import ops_attention_case, ops_grid, ops_writer_case
from kernels.vllm.ops_attention_case import AttentionCase
from kernels.vllm.ops_writer_case import WriterCase

spec = importlib.util.spec_from_file_location("pagewalk_fake_ops", Path(__file__).with_name("fake_ops.py"))
assert spec is not None
assert spec.loader is not None
fake_ops = importlib.util.module_from_spec(spec)
spec.loader.exec_module(fake_ops)

GROUPS = ops_grid.groups()


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Other tests run beside these, and torch's threads would wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def small(**changes: Any) -> AttentionCase:
    base = AttentionCase("attention", "v1", "bfloat16", "auto", 8, 32, ((4, 2),), (True,), (0, 1, 8, 9, 21))
    return replace(base, **changes)


@pytest.mark.parametrize("kind", ["auto", "fp8", "fp8_e5m2"])
def test_our_inputs_are_nan_wherever_nobody_may_look(kind: str) -> None:
    case = small(kv_cache_dtype=kind)
    given = case.build("cpu", (4, 2), alibi=True)
    assert given.seq_lens.tolist() == [0, 1, 8, 9, 21]
    keys, values = (
        cache.float() if kind == "auto" else cache.view(ops_attention_case.FP8[kind]).float()
        for cache in (given.key_cache, given.value_cache)
    )
    owned: list[int] = []
    for row, length in zip(given.block_tables.tolist(), given.seq_lens.tolist(), strict=True):
        used = -(-length // 8)
        assert all(0 <= block < len(keys) for block in row[:used])
        assert all(not 0 <= block < len(keys) for block in row[used:])
        assert len(row) >= used + 2
        owned += row[:used]
        for at, block in enumerate(row[:used]):
            here = min(8, length - 8 * at)
            assert keys[block, :, :, :here].isfinite().all()
            assert values[block, :, :, :here].isfinite().all()
            assert keys[block, :, :, here:].isnan().all()
            assert values[block, :, :, here:].isnan().all()
    assert len(owned) == len(set(owned)) == len(keys) - 3
    free = [block for block in range(len(keys)) if block not in owned]
    assert keys[free].isnan().all()
    assert values[free].isnan().all()


def test_our_queries_are_slices_and_the_weights_differ() -> None:
    case = small(lengths=(400, 400), alibi=(False,), dtype="float32")
    given = case.build("cpu", (4, 2), alibi=False)
    assert not given.query.is_contiguous()
    assert given.query.stride() == (8 * 32, 32, 1)
    assert given.slopes is None
    out = case.truth(given).out
    # With equal weights the mean of 400 would have a standard deviation of a twentieth.
    assert float(out.std()) > 0.15
    again = case.build("cpu", (4, 2), alibi=False)
    assert torch.equal(again.query, given.query)
    assert torch.equal(again.key_cache.view(torch.int32), given.key_cache.view(torch.int32))


@pytest.mark.parametrize("kind", ["auto", "fp8"])
def test_vllms_inputs_are_uniform_and_small(kind: str) -> None:
    case = small(inputs="vllm", kv_cache_dtype=kind, longest=300, num_blocks=50, head_size=64, lengths=())
    given = case.build("cpu", (16, 2), alibi=True)
    far = 64**-0.5
    caches = [given.key_cache, given.value_cache]
    if kind == "fp8":
        assert given.key_cache.shape == (50, 2, 4, 8, 16)
        caches = [cache.view(torch.float8_e4m3fn) for cache in caches]
    else:
        assert given.key_cache.shape == (50, 2, 8, 8, 8)
    for tensor in (given.query, *caches):
        assert 0.9 * far < float(tensor.float().abs().max()) <= far * 1.01
        assert abs(float(tensor.float().mean())) < 0.1 * far
    assert given.query.is_contiguous()
    assert given.scale == far
    assert (given.k_scale, given.v_scale) == (1.0, 1.0)
    assert given.block_tables.shape == (7, -(-300 // 8))
    assert 0 <= int(given.block_tables.min()) <= int(given.block_tables.max()) < 50
    assert given.slopes is not None
    assert given.slopes.min() < 0 < given.slopes.max()


# Right ops pass, and are not far inside the bounds; wrong ones fail.


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Any:
    def put(broken: str = "", **changes: Any) -> Any:
        made = fake_ops.FakeOps(broken)
        for name, value in changes.items():
            setattr(made, name, value)
        monkeypatch.setattr(ops_attention_case, "ops", made)
        monkeypatch.setattr(ops_writer_case, "ops", made)
        return made

    return put


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("version", ["v1", "v2"])
def test_a_right_kernel_passes_our_matrix_with_little_slack(use: Any, version: str, dtype: str) -> None:
    use()
    shares = []
    for case in GROUPS["attention"]:
        assert isinstance(case, AttentionCase)
        if (case.version, case.dtype, case.block_size) != (version, dtype, 16) or case.head_size > 64:
            continue
        found = replace(case, heads=((4, 2),), lengths=(0, 1, 15, 16, 17, 513)).run("cpu")
        assert found.passed, case.id
        assert found.runs == 2
        assert not found.zeros_pass, case.id
        assert not found.shuffled_keys_pass, case.id
        shares.append(found.share)
    assert len(shares) == 6
    assert max(shares) > {"bfloat16": 0.5, "float16": 0.3, "float32": 0.05}[dtype]


WRONG_WHERE = {
    "zeros": ("float32", "auto"),
    "mispaired": ("bfloat16", "fp8"),
    "head-shift": ("float16", "auto"),
    "no-tail-mask": ("bfloat16", "auto"),
    "no-epsilon": ("float32", "auto"),
    "no-alibi": ("float16", "auto"),
    "last-token-lost": ("bfloat16", "fp8_e5m2"),
    "scale-lost": ("float16", "fp8"),
}


@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.parametrize("broken", fake_ops.BROKEN)
def test_a_wrong_output_fails_our_matrix(use: Any, broken: str, version: str) -> None:
    dtype, kind = WRONG_WHERE[broken]
    cases = {case.id: case for case in GROUPS["attention"]}
    case = cases[f"{version} {dtype} {kind} d32 b8"]
    assert isinstance(case, AttentionCase)
    less = replace(case, heads=((4, 2),), lengths=tuple(n for n in case.lengths if n < 512))
    use(broken)
    found = less.run("cpu")
    assert not found.passed
    assert found.error > found.tolerance
    use()
    assert less.run("cpu").passed


def test_a_nan_fails() -> None:
    case = small()
    given = case.build("cpu", (4, 2), alibi=True)
    truth = case.truth(given)
    out = truth.out.clone()
    out[1, 0, 0] = math.nan
    assert ops_attention_case.ops_reference.worst(out, truth.out, case.allowed(truth))[0] == math.inf


def test_on_vllms_inputs_zeros_and_mispaired_keys_pass_too(use: Any) -> None:
    """Long sequences of uniform numbers: the output is small against vLLM's tolerance for fp8."""
    use()
    chosen = [case for case in GROUPS["vllm-attention"] if case.kv_cache_dtype == "fp8" and case.head_size == 256]
    case = chosen[0]
    assert isinstance(case, AttentionCase)
    found = replace(case, longest=4000, heads=((4, 1),), alibi=(False,), num_blocks=300).run("cpu")
    assert found.passed
    assert found.zeros_pass
    assert found.shuffled_keys_pass
    use("zeros")
    assert replace(case, longest=4000, heads=((4, 1),), alibi=(False,), num_blocks=300).run("cpu").passed


# Writers.


def writer(op: str, kind: str, **changes: Any) -> WriterCase:
    layouts = ("classic",) if op == "reshape" else ("apart", "NHD", "HND", "beside")
    base = WriterCase(op, op, "bfloat16", kind, 32, (8,), (3,), layouts, ("tensor",), num_blocks=6, tokens=15)
    return replace(base, **changes)


@pytest.mark.parametrize("inputs", ["ours", "vllm"])
@pytest.mark.parametrize("kind", ["auto", "fp8", "fp8_e5m2"])
@pytest.mark.parametrize("op", ["reshape", "flash"])
def test_a_right_writer_passes_and_wrong_ones_fail(use: Any, op: str, kind: str, inputs: str) -> None:
    tolerance = (
        None if inputs == "ours" else (1e-3, 0.1 if kind == "fp8" else 0.25) if kind != "auto" else (1e-5, 1.6e-2)
    )
    case = writer(op, kind, inputs=inputs, tolerance=tolerance)
    if op == "flash":
        case = replace(case, scales=("tensor", "attn_head"))
    use()
    found = case.run("cpu")
    assert found.passed
    assert found.runs == (1 if op == "reshape" else 8)
    assert (found.zeros_pass, found.shuffled_keys_pass) == (None, None)
    for broken in (
        "head-shift",
        *(["mispaired"] if op == "reshape" else []),
        *(["scale-lost"] if kind != "auto" else []),
    ):
        use(broken)
        assert not case.run("cpu").passed, broken


@pytest.mark.parametrize("op", ["reshape", "flash"])
def test_writing_where_nobody_should_fails(use: Any, op: str) -> None:
    name = "reshape_and_cache" if op == "reshape" else "reshape_and_cache_flash"
    case = writer(op, "auto")

    def at_minus_one(key, value, key_cache, value_cache, slots, *rest):  # type: ignore[no-untyped-def]
        # A negative slot that is not skipped: the last row of the cache.
        last = slots % (len(value_cache) * 8)
        return getattr(fake_ops.FakeOps(), name)(key, value, key_cache, value_cache, last, *rest)

    def a_row_too_many(key, value, key_cache, value_cache, slots, *rest):  # type: ignore[no-untyped-def]
        free = torch.tensor([slot for slot in range(48) if slot not in slots.tolist()][:1])
        return getattr(fake_ops.FakeOps(), name)(key, value, key_cache, value_cache, torch.cat([slots, free]), *rest)

    for wrong in (at_minus_one, a_row_too_many):
        use(**{name: wrong})
        found = case.run("cpu")
        assert not found.passed, wrong.__name__
        assert found.error == math.inf
    use(**{name: lambda *everything: None})
    nothing = case.run("cpu")
    assert not nothing.passed
    assert 0 < nothing.error < math.inf


def test_unchanged_compares_every_bit() -> None:
    whole = torch.tensor([1.0, math.nan, 0.0])
    before = whole.clone()
    assert ops_writer_case.unchanged(whole, before)
    whole[2] = -0.0
    assert not ops_writer_case.unchanged(whole, before)
    filled = torch.empty(5, dtype=torch.bfloat16)
    filled.view(torch.uint8).fill_(ops_writer_case.FILL)
    assert ops_writer_case.unchanged(filled, None)
    filled[4] = 0
    assert not ops_writer_case.unchanged(filled, None)


# Beyond 2**31, with a smaller number in its place.


@pytest.fixture
def near(monkeypatch: pytest.MonkeyPatch) -> int:
    for module in (ops_attention_case, ops_writer_case):
        monkeypatch.setattr(module, "BEYOND", 1 << 16)
    return 1 << 16


@pytest.mark.parametrize("kind", ["auto", "fp8"])
def test_every_block_that_is_read_lies_beyond(use: Any, near: int, kind: str) -> None:
    use()
    case = small(beyond=True, kv_cache_dtype=kind)
    given = case.build("cpu", (4, 2), alibi=False)
    used = [
        block
        for row, n in zip(given.block_tables.tolist(), given.seq_lens.tolist(), strict=True)
        for block in row[: -(-n // 8)]
    ]
    assert min(used) * 2 * 32 * 8 >= near
    assert given.key_cache.numel() > near
    assert case.run("cpu").passed


@pytest.mark.parametrize(("op", "layout"), [("reshape", "classic"), ("flash", "NHD"), ("flash", "HND")])
@pytest.mark.parametrize("kind", ["auto", "fp8"])
def test_every_slot_that_is_written_lies_beyond(use: Any, near: int, op: str, layout: str, kind: str) -> None:
    case = writer(op, kind, beyond=True, layouts=(layout,))
    seen: list[int] = []
    name = "reshape_and_cache" if op == "reshape" else "reshape_and_cache_flash"

    def watch(key, value, key_cache, value_cache, slots, *rest):  # type: ignore[no-untyped-def]
        seen.extend(int(slot) // 8 * value_cache.stride(0) for slot in slots if slot >= 0)
        return getattr(fake_ops.FakeOps(), name)(key, value, key_cache, value_cache, slots, *rest)

    use(**{name: watch})
    assert case.run("cpu").passed
    width = 3 * 32 * 8 * (1 if op == "reshape" else 2)
    assert min(seen) >= near - width

    def wrapped(key, value, key_cache, value_cache, slots, *rest):  # type: ignore[no-untyped-def]
        # What an int32 would make of it: another row, in front.
        low = torch.where(slots < 0, slots, slots % 48)
        return getattr(fake_ops.FakeOps(), name)(key, value, key_cache, value_cache, low, *rest)

    use(**{name: wrapped})
    assert not case.run("cpu").passed


# The real ops.

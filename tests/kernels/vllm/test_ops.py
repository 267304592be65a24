"""vLLM's attention ops on torch tensors: whose memory they use, where they run, what they give and refuse."""

from __future__ import annotations

import inspect
import math
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from kernels import layout
from kernels.errors import ArgumentError, LaunchError
from kernels.vllm import ops, ops_reference
from kernels.vllm.classic_v1 import HEAD_SIZES
from kernels.vllm.strided import address, strides

DTYPES = ops_reference.DTYPES
KINDS = ("auto", "fp8", "fp8_e5m2")
K_SCALE, V_SCALE = 0.37, 0.21
CACHE = {"k_scale": K_SCALE, "v_scale": V_SCALE}


def arguments(
    dtype: str = "bfloat16", kind: str = "auto", *, lengths: tuple[int, ...] = (19, 8), heads: tuple[int, int] = (2, 1),
    size: int = 32, block: int = 8, seed: int = 0, alibi: bool = False, device: str = "cpu", apart: str = "",
) -> dict[str, Any]:  # fmt: skip
    """An op's arguments from `query` on; blocks in random order, NaN where no token is, garbage behind the tables.

    The query is a slice of a fused projection. `apart`: the caches as two tensors, or `stacked` or `by block` in one.
    """
    make = torch.Generator().manual_seed(seed)
    counts = [-(-length // block) for length in lengths]
    blocks = sum(counts) + 2
    cache_dtype = torch.uint8 if kind != "auto" else DTYPES[dtype]
    x = 16 // cache_dtype.itemsize
    shapes = (blocks, heads[1], size // x, block, x), (blocks, heads[1], size, block)
    order = torch.randperm(blocks, generator=make).tolist()
    tables = torch.full((len(lengths), max(counts) + 1), 2**31 - 1, dtype=torch.int32)
    halves = one_tensor(apart, blocks, heads[1] * size * block, cache_dtype)
    caches = [half.view(shape) for half, shape in zip(halves, shapes, strict=True)]
    scales = (K_SCALE, V_SCALE) if kind != "auto" else (1.0, 1.0)
    for cache, scale in zip(caches, scales, strict=True):
        numbers = torch.randn(cache.shape, generator=make)
        cache.copy_(coded(numbers / scale, kind) if kind != "auto" else numbers)
        place, nan = iter(order), 0x7F if kind != "auto" else math.nan
        for row, (length, count) in enumerate(zip(lengths, counts, strict=True)):
            for column in range(count):
                tables[row, column] = next(place)
            if length % block:
                last = cache[int(tables[row, count - 1])]
                tokens = last.movedim(-2 if cache.dim() == 5 else -1, 0)
                tokens[length % block :] = nan
        for spare in place:
            cache[spare] = nan
    fused = 2 * torch.randn((len(lengths), sum(heads) + heads[1], size), generator=make)
    fused = fused.to(device, DTYPES[dtype])
    moved = one_tensor(apart, blocks, heads[1] * size * block, cache_dtype, device)
    for there, here in zip(moved, halves, strict=True):
        there.copy_(here)
    return {
        "query": fused[:, 1 : 1 + heads[0]],
        "key_cache": moved[0].view(shapes[0]),
        "value_cache": moved[1].view(shapes[1]),
        "num_kv_heads": heads[1],
        "scale": size**-0.5,
        "block_tables": tables.to(device),
        "seq_lens": torch.tensor(lengths, dtype=torch.int32, device=device),
        "block_size": block,
        "max_seq_len": max(1, *lengths),
        "alibi_slopes": 2.0 ** -torch.arange(1.0, heads[0] + 1, device=device) if alibi else None,
        "kv_cache_dtype": kind,
        "k_scale": torch.tensor(scales[0], device=device),
        "v_scale": torch.tensor(scales[1], device=device),
    }


def one_tensor(apart: str, blocks: int, width: int, dtype: torch.dtype, device: str = "cpu") -> tuple[Tensor, Tensor]:
    """Two caches, [blocks, width]: tensors of their own, or views of one."""
    if apart == "stacked":
        both = torch.zeros((2, blocks, width), dtype=dtype, device=device)
        return both[0], both[1]
    if apart == "by block":
        both = torch.zeros((blocks, 2, width), dtype=dtype, device=device)
        return both[:, 0], both[:, 1]
    return (
        torch.zeros((blocks, width), dtype=dtype, device=device),
        torch.zeros((blocks, width), dtype=dtype, device=device),
    )


def coded(numbers: Tensor, kind: str) -> Tensor:
    """Numbers as fp8 codes, by torch."""
    fp8 = ops_reference.FP8[kind]
    return numbers.clamp(-torch.finfo(fp8).max, torch.finfo(fp8).max).to(fp8).view(torch.uint8)


def outputs(version: str, given: dict[str, Any]) -> list[Tensor]:
    """What an op writes, all NaN: out, and for v2 the three buffers."""
    query, device = given["query"], given["query"].device
    out = torch.full(query.shape, math.nan, dtype=query.dtype, device=device)
    if version == "v1":
        return [out]
    notes = (*query.shape[:2], -(-given["max_seq_len"] // 512))
    sums, tops = (torch.full(notes, math.nan, device=device) for _ in range(2))
    return [out, sums, tops, torch.full((*notes, query.shape[2]), math.nan, dtype=query.dtype, device=device)]


def run(version: str, given: dict[str, Any]) -> Tensor:
    """The op's output, called as vLLM calls it: by position."""
    made = outputs(version, given)
    getattr(ops, f"paged_attention_{version}")(*made, *given.values())
    return made[0]


def read(cache: Tensor, kind: str, scale: Tensor, dtype: torch.dtype, *, by_half: bool) -> Tensor:
    """A cache's elements as a kernel has them: fp8 codes times their scale, rounded to the query's type.

    `by_half`: vLLM takes several codes at once to float32 by way of float16.
    """
    if kind == "auto":
        return cache
    numbers = cache.view(ops_reference.FP8[kind]).float() * scale
    return numbers.half().float() if by_half and dtype == torch.float32 else numbers.to(dtype)


def agrees(out: Tensor, version: str, given: dict[str, Any], **changes: Any) -> bool:
    """Within the bound of float64 attention over what the caches hold."""
    used = given | changes
    kind, dtype = used["kv_cache_dtype"], out.dtype
    # In blocks of 8 four threads share a float32 key: each loads one element at a time.
    keys = read(used["key_cache"], kind, used["k_scale"], dtype, by_half=used["block_size"] > 8)
    values = read(used["value_cache"], kind, used["v_scale"], dtype, by_half=True)
    truth = ops_reference.attention(
        used["query"], keys, values, used["scale"], used["block_tables"], used["seq_lens"], used["alibi_slopes"]
    )
    name = next(name for name, dtype in DTYPES.items() if dtype == out.dtype)
    error, allowed = ops_reference.worst(out, truth.out, ops_reference.bound(truth, name, version))
    return error <= allowed


# -- end to end, on the SIMT machine


@pytest.mark.parametrize(("dtype", "kind"), list(product(DTYPES, KINDS)))
def test_v1(dtype: str, kind: str) -> None:
    given = arguments(dtype, kind, lengths=(19, 0, 1), block=8 if kind == "fp8" else 16, alibi=kind != "fp8", seed=1)
    out = run("v1", given)
    assert agrees(out, "v1", given)
    assert not out[1].any()
    assert not agrees(out, "v1", given, scale=given["scale"] * 1.2)


@pytest.mark.parametrize(("dtype", "kind"), [("bfloat16", "fp8"), ("float16", "auto"), ("float32", "fp8_e5m2")])
def test_v2(dtype: str, kind: str) -> None:
    given = arguments(dtype, kind, lengths=(19, 0, 8), alibi=True, seed=2)
    out = run("v2", given)
    assert agrees(out, "v2", given)
    assert torch.equal(out[[0, 2]], run("v1", given)[[0, 2]]), "one partition: the same bits"
    assert not out[1].any()


def test_v2_with_two_partitions() -> None:
    given = arguments("bfloat16", "fp8", lengths=(515,), heads=(1, 1), block=32, seed=3)
    made = outputs("v2", given)
    ops.paged_attention_v2(*made, **given)
    assert agrees(made[0], "v2", given)
    assert all(buffer.isfinite().all() for buffer in made), "both partitions are noted"
    assert made[1].shape == (1, 1, 2)


def test_called_by_name_as_well() -> None:
    given = arguments(seed=4)
    out = torch.empty(given["query"].shape, dtype=torch.bfloat16)
    ops.paged_attention_v1(out=out, tp_rank=3, blocksparse_block_size=16, **given)
    assert torch.equal(out, run("v1", given))


@pytest.mark.parametrize("apart", ["stacked", "by block"])
@pytest.mark.parametrize("kind", ["auto", "fp8"])
def test_caches_may_be_views_of_one_tensor(kind: str, apart: str) -> None:
    given, plain = arguments(kind=kind, apart=apart), arguments(kind=kind)
    assert given["key_cache"].untyped_storage().data_ptr() == given["value_cache"].untyped_storage().data_ptr()
    for version in ("v1", "v2"):
        assert torch.equal(run(version, given), run(version, plain))


def test_a_cache_may_have_torchs_own_fp8_types_and_a_scale_one_axis() -> None:
    for kind, fp8 in (("fp8", torch.float8_e4m3fn), ("fp8_e4m3", torch.float8_e4m3fn), ("fp8_e5m2", torch.float8_e5m2)):
        given = arguments("float16", kind)
        typed = given | {name: given[name].view(fp8) for name in ("key_cache", "value_cache")}
        typed |= {name: given[name].reshape(1) for name in CACHE}
        assert torch.equal(run("v1", typed), run("v1", given))


def test_a_query_that_wants_a_gradient_is_read_all_the_same() -> None:
    given = arguments()
    wanting = given | {"query": given["query"].clone().requires_grad_()}
    assert torch.equal(run("v1", wanting), run("v1", given))


# -- whose memory


def handed_over(monkeypatch: pytest.MonkeyPatch, version: str, given: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    """What the port's host function is handed for an op's arguments, by name; and its backend. Nothing runs."""
    seen: list[Any] = []
    module = getattr(ops, f"classic_{version}")
    host = getattr(module, f"paged_attention_{version}")
    monkeypatch.setattr(module, host.__name__, lambda *args, backend: seen.extend([args, backend]))
    run(version, given)
    names = list(inspect.signature(host).parameters)
    return dict(zip(names, seen[0], strict=False)), seen[1]


def same_memory(given: dict[str, Any], seen: dict[str, Any]) -> None:
    for name in ("query", "key_cache", "value_cache", "block_tables", "seq_lens", "k_scale", "v_scale", "alibi_slopes"):
        tensor, array = given[name], seen[name]
        assert address(array) == tensor.data_ptr(), name
        if tensor.dim():
            assert tuple(array.shape) == tuple(tensor.shape), name
            assert strides(array) == tensor.stride(), name
        assert array.dtype.itemsize == tensor.dtype.itemsize


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_nothing_is_copied(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given = arguments(kind="fp8", alibi=True, apart="by block")
    assert given["query"].storage_offset(), "not even what starts in the middle of its storage"
    seen, backend = handed_over(monkeypatch, version, given)
    same_memory(given, seen)
    assert backend.name == "sim"
    assert [seen[name] for name in ("num_kv_heads", "block_size", "max_seq_len", "kv_cache_dtype")] == [1, 8, 19, "fp8"]
    assert [str(seen[name].dtype) for name in ("out", "query", "key_cache")] == ["uint16", "uint16", "uint8"]


# -- how long a sequence can be


def test_v1_takes_57600_tokens_and_refuses_only_what_no_block_can_hold() -> None:
    given = arguments("float16", size=128, block=16, lengths=(19, 3), heads=(1, 1))
    short = run("v1", given)
    for max_seq_len in (12_209, 57_600, 58_032):
        assert torch.equal(run("v1", given | {"max_seq_len": max_seq_len}), short)
    out = torch.zeros_like(short)
    with pytest.raises(LaunchError, match=r"max_seq_len = 58033: 232192 \+ 288 bytes .* 232448 at most; .*partition"):
        ops.paged_attention_v1(out, **given | {"max_seq_len": 58_033})
    assert not out.any()
    assert torch.equal(run("v2", given | {"max_seq_len": 58_033}), short), "v2 does not mind"


@pytest.mark.parametrize("block", [8, 16, 32])
def test_57600_tokens_fit_at_every_head_size_and_type(block: int) -> None:
    for size, itemsize in product(HEAD_SIZES, (2, 4)):
        static = layout.v1_static_shared_bytes(size, itemsize)
        assert layout.v1_shared_bytes(57_600, block, size) + static <= 232_448


# -- what is refused


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_block_sparse_attention_is_refused_where_vllm_would_do_it(version: str) -> None:
    given = arguments()
    op, made = getattr(ops, f"paged_attention_{version}"), outputs(version, given)
    for stride in (2, 64):
        with pytest.raises(ArgumentError, match=f"blocksparse_vert_stride = {stride}: must be 0 or 1: block-sparse"):
            op(*made, **given, blocksparse_vert_stride=stride)
    assert made[0].isnan().all()
    op(*made, **given, blocksparse_vert_stride=1, blocksparse_local_blocks=4, blocksparse_head_sliding_step=1)
    assert torch.equal(made[0], run(version, given))


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"query": torch.zeros((2, 2, 32), dtype=torch.float64)}, r"(query|out)\.dtype = float64: must be float32 or"),
    ({"query": torch.zeros((2, 2, 32), dtype=torch.int16)}, r"query\.dtype = int16"),
    ({"key_cache": torch.zeros((6, 1, 4, 8, 8))}, r"key_cache\.dtype = float32: must be uint16"),
    ({"key_cache": torch.zeros((6, 1, 4, 8, 8), dtype=torch.float16)}, r"key_cache\.dtype = float16: must be uint16"),
    ({"kv_cache_dtype": "fp8"}, r"key_cache\.shape"),
    ({"kv_cache_dtype": "int8"}, r"kv_cache_dtype = int8: must be one of auto, fp8, fp8_e4m3, fp8_e5m2"),
    ({"seq_lens": torch.zeros(2, dtype=torch.int64)}, r"seq_lens\.dtype = int64: must be int32"),
    ({"block_tables": torch.zeros((2, 8), dtype=torch.int32)[:, ::2]}, r"block_tables\.strides = .*contiguous"),
    ({"seq_lens": torch.tensor([20, 8], dtype=torch.int32)}, r"seq_lens\[0\] = 20: must be from 0 to max_seq_len = 19"),
    ({"k_scale": torch.ones(2)}, r"k_scale\.shape = \(2,\): must be \(1\)"),
    ({"v_scale": torch.ones(1, dtype=torch.float64)}, r"v_scale\.dtype = float64: must be float32"),
    ({"alibi_slopes": torch.ones(3)}, r"alibi_slopes\.shape = \(3,\): must be \(2\)"),
    ({"num_kv_heads": 2}, r"key_cache\.shape"),
    ({"query": torch.zeros((2, 2, 32), dtype=torch.bfloat16, device="meta")}, r"device = meta: must be cpu"),
    ({"seq_lens": torch.ones(2, dtype=torch.int32, device="meta")}, r"device = meta: must be cpu, as the first"),
    ({"v_scale": torch.ones((), device="meta")}, r"device = meta: must be cpu"),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED)
def test_a_bad_argument_is_named_and_out_stays(changes: dict[str, Any], message: str) -> None:
    given = arguments()
    for version in ("v1", "v2"):
        made = outputs(version, given)
        with pytest.raises(ArgumentError, match=message):
            getattr(ops, f"paged_attention_{version}")(*made, **given | changes)
        assert all(tensor.isnan().all() for tensor in made)


def test_a_device_that_runs_neither() -> None:
    given = arguments()
    out = torch.zeros(given["query"].shape, dtype=torch.bfloat16, device="meta")
    with pytest.raises(
        ArgumentError, match=r"device = meta: must be cuda \(runs the GPU\) or cpu \(the SIMT machine\)"
    ):
        ops.paged_attention_v1(out, **given)


# -- the same on a GPU

COMPILED = [
    ("v1", "bfloat16", "fp8"),
    ("v2", "bfloat16", "auto"),
    ("v1", "float16", "fp8_e5m2"),
    ("v1", "float32", "auto"),
]


@pytest.mark.gpu
@pytest.mark.parametrize(("version", "dtype", "kind"), COMPILED)
def test_gpu_attention(version: str, dtype: str, kind: str) -> None:
    for apart, alibi in (("", True), ("stacked", False), ("by block", True)):
        given = arguments(dtype, kind, lengths=(19, 0, 1, 601), apart=apart, alibi=alibi, device="cuda")
        out = run(version, given)
        torch.cuda.synchronize()
        assert agrees(out, version, given)
        assert not out[1].any()
        assert not agrees(out, version, given, scale=given["scale"] * 1.2)


@pytest.mark.gpu
@pytest.mark.parametrize("version", ["v1", "v2"])
def test_gpu_nothing_is_copied(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given = arguments(kind="fp8", alibi=True, apart="by block", device="cuda")
    seen, backend = handed_over(monkeypatch, version, given)
    same_memory(given, seen)
    assert (backend.name, backend.stream) == ("cuda", 0)


@pytest.mark.gpu
@pytest.mark.parametrize("version", ["v1", "v2"])
def test_gpu_the_op_runs_on_torchs_current_stream_and_the_host_goes_on(version: str) -> None:
    given = arguments(lengths=(19, 601), device="cuda")
    expected = run(version, given)  # compiled, and all of it done, before the host is watched
    query = given["query"].clone()
    torch.cuda.synchronize()
    for stream in (torch.cuda.Stream(), torch.cuda.default_stream()):
        given["query"].zero_()
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            # About a second of waiting, then the real query: an op on another stream would see zeros.
            torch.cuda._sleep(1_500_000_000)
            given["query"].copy_(query)
            out = run(version, given)
            assert not stream.query(), "the stream is still asleep, the host is back"
        torch.cuda.synchronize()
        assert torch.equal(out, expected)
    given["query"].zero_()
    assert not torch.equal(run(version, given), expected)


@pytest.mark.gpu
def test_gpu_57600_tokens_are_attended() -> None:
    given = arguments("float32", size=128, block=16, lengths=(57_600, 3), heads=(2, 1), device="cuda")
    given["query"] /= 2  # so that many tokens count
    out = run("v1", given)
    torch.cuda.synchronize()
    assert agrees(out, "v1", given)
    assert not agrees(out, "v1", given, seq_lens=given["seq_lens"] - 30_000 * (given["seq_lens"] > 57_000))
    assert agrees(run("v2", given), "v2", given)
    limit = torch.cuda.get_device_properties(0).shared_memory_per_block_optin
    with pytest.raises(LaunchError, match=f"a block has {limit} at most"):
        ops.paged_attention_v1(out, **given | {"max_seq_len": limit // 4})


@pytest.mark.gpu
def test_gpu_refuses_tensors_of_two_devices() -> None:
    given = arguments(device="cuda")
    out = torch.empty(given["query"].shape, dtype=torch.bfloat16, device="cuda")
    for name in ("query", "key_cache", "block_tables", "seq_lens", "k_scale"):
        with pytest.raises(ArgumentError, match="device = cpu: must be cuda:0, as the first tensor's"):
            ops.paged_attention_v1(out, **given | {name: given[name].cpu()})

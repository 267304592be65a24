"""The ladder on torch tensors: vLLM's argument list, whose memory is used, where it runs, and what is refused."""

from __future__ import annotations

import inspect
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from kernels.errors import ArgumentError
from kernels.kernel import Backend
from kernels.tuned import ops
from kernels.tuned.ladder import RUNGS, Rung
from kernels.tuned.plan import Plan
from kernels.vllm import ops as vllm_ops
from kernels.vllm.strided import address, on_gpu


class Spy:
    """A rung that keeps what it was given and writes ones."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.plans: list[Plan | None] = []
        self.backends: list[Backend] = []
        self.scratch: list[Any] = []

    def launches(self, call: Any, zeros: Any, plan: Plan | None) -> Any:
        self.calls.append(call)
        self.plans.append(plan)
        self.scratch.append((zeros(5, np.float32), zeros(3, np.uint32)))
        return (self,)

    def run(self, backend: Backend) -> None:
        self.backends.append(backend)
        self.calls[-1].out[...] = 0x3F80  # bfloat16's one


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch) -> Spy:
    made = Spy()
    monkeypatch.setitem(RUNGS, "spy", Rung(0, "spy", "", "", made.launches))
    return made


def arguments(device: str = "cpu", seqs: int = 2, query_len: int = 1, **changes: Any) -> dict[str, Any]:
    fused = torch.randn((seqs * query_len, 8, 32), device=device).bfloat16()
    return {
        "query": fused[:, 1:5],
        "key_cache": torch.randn((4, 2, 4, 16, 8), device=device).bfloat16(),
        "value_cache": torch.randn((4, 2, 32, 16), device=device).bfloat16(),
        "num_kv_heads": 2,
        "scale": 32**-0.5,
        "block_tables": torch.tensor([[3, 1]] * seqs, dtype=torch.int32, device=device),
        "seq_lens": torch.tensor([20] * seqs, dtype=torch.int32, device=device),
        "block_size": 16,
        "max_seq_len": 20,
        "alibi_slopes": None,
        "kv_cache_dtype": "auto",
        "k_scale": torch.tensor(1.0, device=device),
        "v_scale": torch.tensor(1.0, device=device),
    } | changes


def attend(given: dict[str, Any], rung: str = "spy", **more: Any) -> Tensor:
    query = given["query"]
    out = torch.full(query.shape, math.nan, dtype=query.dtype, device=query.device)
    ops.paged_attention(rung, out, *given.values(), **more)
    return out


def test_the_argument_lists_are_those_of_vllms_ops() -> None:
    assert inspect.signature(ops.reshape_and_cache) == inspect.signature(vllm_ops.reshape_and_cache)
    mine = inspect.signature(ops.paged_attention).parameters
    vllm = inspect.signature(vllm_ops.paged_attention_v1).parameters
    positional = {name: p for name, p in mine.items() if p.kind is p.POSITIONAL_OR_KEYWORD and name != "rung"}
    assert [(n, p.default, p.annotation) for n, p in positional.items()] == [
        (n, p.default, p.annotation) for n, p in vllm.items()
    ]
    rest = {name: p.default for name, p in mine.items() if p.kind is p.KEYWORD_ONLY}
    assert rest == {"plan": None, "query_len": 1, "lengths": None}


def test_the_tensors_memory_is_used_and_the_query_is_brought_together(spy: Spy) -> None:
    given = arguments()
    assert not given["query"].is_contiguous()
    out = attend(given)
    assert (out == 1).all(), "written in place"
    (call,) = spy.calls
    for name in ("key_cache", "value_cache", "block_tables", "seq_lens"):
        assert address(getattr(call, name)) == given[name].data_ptr(), name
    assert call.query.flags.c_contiguous
    np.testing.assert_array_equal(call.query, given["query"].contiguous().view(torch.uint16).numpy())
    whole = arguments(query=torch.zeros((2, 4, 32), dtype=torch.bfloat16))
    attend(whole)
    assert address(spy.calls[1].query) == whole["query"].data_ptr(), "no copy without need"


def test_everything_arrives(spy: Spy) -> None:
    slopes = torch.tensor([0.5, 0.25, 0.125, 0.0625])
    given = arguments(query_len=2, alibi_slopes=slopes)
    attend(given, plan=Plan(3), query_len=2, lengths=[20, 20])
    (call,) = spy.calls
    assert (call.scalar, call.group, call.query_len, call.lengths) == ("bfloat16", 2, 2, [20, 20])
    assert call.alibi_slopes.tolist() == slopes.tolist()
    assert spy.plans == [Plan(3)]
    assert spy.backends == [Backend("sim")]
    assert [part.tolist() for part in spy.scratch[0]] == [[0.0] * 5, [0] * 3]
    assert spy.scratch[0][1].dtype == np.uint32
    attend(arguments(kv_cache_dtype="bfloat16"))
    assert (spy.calls[-1].kv_cache_dtype, spy.calls[-1].alibi_slopes) == ("auto", None)


def test_an_fp8_cache_may_be_torchs_own_dtype(spy: Spy) -> None:
    caches = {
        "key_cache": torch.zeros((4, 2, 2, 16, 16)).to(torch.float8_e4m3fn),
        "value_cache": torch.zeros((4, 2, 32, 16), dtype=torch.uint8),
    }
    attend(arguments(**caches, kv_cache_dtype="fp8", k_scale=torch.tensor(0.5)))
    (call,) = spy.calls
    assert str(call.key_cache.dtype) == str(call.value_cache.dtype) == "uint8"
    assert call.k_scale.tolist() == [0.5]


@pytest.mark.parametrize(
    ("changes", "more", "said"),
    [
        ({}, {"rung": "nothing"}, "rung = nothing: must be one of"),
        ({}, {"blocksparse_vert_stride": 8}, "block-sparse"),
        ({}, {"query_len": 3}, "query_len = 3"),
        ({"query": torch.zeros((2, 4, 32))}, {}, "key_cache.shape"),
        ({"max_seq_len": 10}, {}, "max_seq_len = 10"),
        ({"seq_lens": torch.zeros(2, dtype=torch.int64)}, {}, "seq_lens.dtype"),
        ({"kv_cache_dtype": "int4"}, {}, "kv_cache_dtype = int4"),
        ({"block_tables": torch.zeros((2, 2), dtype=torch.int32, device="meta")}, {}, "device = meta"),
    ],
)
def test_what_is_wrong_is_refused(spy: Spy, changes: dict[str, Any], more: dict[str, Any], said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        attend(arguments(**changes), **more)
    assert not spy.backends


def test_an_output_that_is_no_row_is_refused(spy: Spy) -> None:
    given = arguments()
    out = torch.zeros((2, 8, 32), dtype=torch.bfloat16)[:, :4]
    with pytest.raises(ArgumentError, match="out"):
        ops.paged_attention("spy", out, *given.values())


@pytest.mark.gpu
def test_on_a_gpu_memory_and_scratch_stay_there(spy: Spy) -> None:
    given = arguments("cuda")
    stream = torch.cuda.Stream()
    spy.run = lambda backend: spy.backends.append(backend)  # type: ignore[method-assign]
    with torch.cuda.stream(stream):
        attend(given)
    (call,) = spy.calls
    assert address(call.key_cache) == given["key_cache"].data_ptr()
    assert all(map(on_gpu, spy.scratch[0]))
    assert spy.scratch[0][0].copy_to_host().tolist() == [0.0] * 5
    assert spy.backends[0].name == "cuda"
    assert spy.backends[0].stream.handle.value == stream.cuda_stream

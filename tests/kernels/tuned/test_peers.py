"""Peers: torch's operators are right on the paged cache, what is not here says so, and other modules join."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch

from kernels.tuned import bench_inputs, goals, peers
from kernels.tuned.bench_cells import BOUNDS
from kernels.tuned.peers import Unsupported
from kernels.tuned.shapes import Shape, uniform


def error(maker: peers.Maker, shape: Shape) -> float:
    case = bench_inputs.make(shape, 1, "cpu")
    call = maker(case)
    bench_inputs.poison(call.out)
    call()
    return bench_inputs.relative_error(call.out, case, [(seq, case.truth(seq)) for seq in range(case.batch)])


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("name", ["torch-sdpa", "torch-flex"])
@pytest.mark.parametrize(
    "shape",
    [
        uniform("", 2, 256, 8, 2, 32),
        uniform("", 3, 128, 4, 4, 64, dtype="float16"),
        uniform("", 1, 384, 7, 1, 32, block_size=32),
    ],
)
def test_torch_is_right_on_a_paged_cache(name: str, shape: Shape) -> None:
    assert error(peers.PEERS[name], shape) < BOUNDS[shape.dtype]


def test_gathering_takes_a_last_block_that_is_not_full() -> None:
    assert error(peers.PEERS["torch-sdpa"], uniform("", 2, 37, 4, 2, 32)) < BOUNDS["bfloat16"]


@pytest.mark.parametrize(
    ("name", "shape", "said"),
    [
        ("torch-sdpa", Shape("", (37, 16), 4, 2, 32), "one length"),
        ("torch-sdpa", uniform("", 2, 32, 4, 2, 32, kv_cache_dtype="fp8_e4m3"), "no fp8"),
        ("torch-flex", uniform("", 2, 100, 4, 2, 32), "pages of 128"),
    ],
)
def test_what_a_peer_does_not_take_is_refused(name: str, shape: Shape, said: str) -> None:
    with pytest.raises(Unsupported, match=said):
        peers.PEERS[name](bench_inputs.make(shape, 1, "cpu"))


class FakeWrapper:
    """Stands in for FlashInfer's: keeps what it is given, and attends over its own layout."""

    made: list[FakeWrapper] = []  # noqa: RUF012

    def __init__(self, workspace: torch.Tensor, layout: str, **given: Any) -> None:
        self.workspace, self.layout, self.given = workspace, layout, given
        FakeWrapper.made.append(self)

    def plan(self, starts: torch.Tensor, indices: torch.Tensor, last: torch.Tensor, *sizes: int, **more: Any) -> None:
        self.starts, self.indices, self.last, self.sizes, self.more = starts, indices, last, sizes, more

    def run(self, query: torch.Tensor, pages: torch.Tensor, out: torch.Tensor) -> None:
        heads, kv_heads, _, block_size = self.sizes
        for seq in range(len(query)):
            used = self.indices[self.starts[seq] : self.starts[seq + 1]].long()
            length = (len(used) - 1) * block_size + int(self.last[seq])
            keys, values = (pages[used, half].flatten(0, 1)[:length].double() for half in (0, 1))
            for head in range(heads):
                scores = keys[:, head * kv_heads // heads] @ query[seq, head].double() * self.more["sm_scale"]
                out[seq, head] = (scores.softmax(0) @ values[:, head * kv_heads // heads]).to(out.dtype)


@pytest.mark.parametrize("cache", ["auto", "fp8_e4m3"])
def test_flashinfer_is_given_the_same_numbers_in_its_own_layout(cache: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = types.SimpleNamespace(BatchDecodeWithPagedKVCacheWrapper=FakeWrapper)
    monkeypatch.setitem(sys.modules, "flashinfer", fake)  # type: ignore[arg-type]
    monkeypatch.setattr(peers, "WORKSPACE_BYTES", 1 << 10)
    FakeWrapper.made.clear()
    shape = Shape("", (37, 16, 1), 4, 2, 32, kv_cache_dtype=cache)
    assert error(peers.PEERS[peers.FLASHINFER], shape) < BOUNDS["bfloat16"]
    (wrapper,) = FakeWrapper.made
    assert wrapper.layout == "NHD"
    assert wrapper.given["use_tensor_cores"] is True
    assert wrapper.given["use_cuda_graph"] is True
    assert wrapper.more["kv_data_type"] == (torch.bfloat16 if cache == "auto" else torch.float8_e4m3fn)
    shared: dict[str, Any] = {}
    for seed in (1, 2):
        peers.PEERS[peers.FLASHINFER_PLAIN](bench_inputs.make(shape, seed, "cpu", shared))
    first, second = FakeWrapper.made[1:]
    assert first.workspace is second.workspace, "the sets of a cell share it"
    assert first.given["use_tensor_cores"] is False


def test_vllm_is_given_its_own_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, tuple[Any, ...]]] = []
    ops = types.SimpleNamespace(
        paged_attention_v1=lambda *args: calls.append(("v1", args)),
        paged_attention_v2=lambda *args: calls.append(("v2", args)),
    )
    monkeypatch.setitem(sys.modules, "vllm", types.ModuleType("vllm"))
    monkeypatch.setitem(sys.modules, "vllm._custom_ops", ops)  # type: ignore[arg-type]
    case = bench_inputs.make(uniform("", 2, 600, 4, 2, 32, kv_cache_dtype="fp8_e4m3"), 1, "cpu")
    for name in (peers.VLLM_V1, peers.VLLM_V2):
        peers.PEERS[name](case)()
    (first, one), (second, two) = calls
    assert (first, second) == ("v1", "v2")
    assert one[0] is case.out
    assert one[4:6] == (2, case.scale)
    assert one[8:12] == (16, 600, None, "fp8")
    assert [tuple(buffer.shape) for buffer in two[1:4]] == [(2, 4, 2), (2, 4, 2), (2, 4, 2, 32)]
    assert two[4:] == (*one[1:],)
    with pytest.raises(Unsupported, match="e4m3"):
        peers.PEERS[peers.VLLM_V1](bench_inputs.make(uniform("", 1, 16, 4, 2, 32, kv_cache_dtype="fp8_e5m2"), 1, "cpu"))


def test_a_peer_that_is_not_installed_says_so() -> None:
    case = bench_inputs.make(uniform("", 1, 16, 4, 2, 32), 1, "cpu")
    for name in (peers.FLASHINFER, peers.VLLM_V2):
        with pytest.raises(ImportError, match="No module named"):
            peers.PEERS[name](case)


def test_other_modules_join(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_peers_of_a_test.py").write_text("PEERS = {'mine': len}\nVERSIONS = {'mine': 'built by hand'}\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert peers.also(["own_peers_of_a_test"]) == ({"mine": len}, {"mine": "built by hand"})
    assert peers.also([]) == ({}, {})
    with pytest.raises(ImportError):
        peers.also(["no_such_module_of_a_test"])


def test_every_peer_has_a_title() -> None:
    assert set(peers.TITLES) == {*peers.PEERS, *goals.DENSE}
    assert "torch" in peers.versions()

"""Shared memory beyond 48 KiB, streams, and arrays that lie on the GPU already: what a launch does about them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import cuda, float32

from kernels import kernel as module
from kernels.errors import BackendUnavailable, LaunchError
from kernels.kernel import MAX_SHARED_BYTES, OPT_IN_SHARED_BYTES, Backend, check_launch, kernel
from kernels.probe import Probed, Watch
from kernels.simt.report import OutOfBounds
from kernels.vllm.classic_v1 import paged_attention_v1

HOPPER = 232_448


@kernel()
def last_kernel(out, at):
    memory = cuda.shared.array(0, float32)
    seen = cuda.threadIdx.x + 1
    memory[at - cuda.threadIdx.x] = float32(seen)
    cuda.syncthreads()
    out[cuda.threadIdx.x] = memory[at - cuda.threadIdx.x]


def fill(launcher: Any, shared_bytes: int, at: int) -> list[float]:
    """Two threads write the floats `at` and `at - 1` of dynamic shared memory and read them back."""
    out = np.zeros(2, np.float32)
    launcher[1, 2, 0, shared_bytes](out, at)
    return out.tolist()


# -- the limit


def test_what_a_block_can_have() -> None:
    assert Backend("sim").shared_limit == HOPPER == OPT_IN_SHARED_BYTES == 227 * 1024
    assert MAX_SHARED_BYTES == 48 * 1024


def test_a_gpu_is_asked_for_its_own_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    ada = SimpleNamespace(MAX_SHARED_MEMORY_PER_BLOCK_OPTIN=101_376)
    monkeypatch.setattr(cuda, "get_current_device", lambda: ada)
    monkeypatch.setattr(module, "cuda_unavailable", lambda: None)
    assert Backend("cuda").shared_limit == 101_376
    launcher = last_kernel.on("cuda")
    assert launcher.opt_in(101_376).max_shared == 101_376
    with pytest.raises(LaunchError, match="shared_bytes = 101377: a block has 101376 at most"):
        launcher.opt_in(101_377)


def test_without_an_opt_in_48_kib_are_all() -> None:
    assert fill(last_kernel.on("sim"), 49_152, 12_287) == [1, 2]
    with pytest.raises(LaunchError, match="shared_bytes = 49153: must be from 0 to 49152"):
        fill(last_kernel.on("sim"), 49_153, 0)


def test_after_an_opt_in_so_much_and_no_more() -> None:
    launcher = last_kernel.on("sim")
    more = launcher.opt_in(60_000)
    assert fill(more, 60_000, 14_999) == [1, 2]
    with pytest.raises(LaunchError, match="shared_bytes = 60004: must be from 0 to 60000"):
        fill(more, 60_004, 0)
    with pytest.raises(LaunchError, match="must be from 0 to 49152"):
        fill(launcher, 60_000, 0)
    assert fill(launcher.opt_in(HOPPER), HOPPER, HOPPER // 4 - 1) == [1, 2]


def test_the_memory_ends_where_the_launch_says_and_not_where_the_opt_in_does() -> None:
    with pytest.raises(OutOfBounds):
        fill(last_kernel.on("sim").opt_in(HOPPER), 60_000, 15_000)


def test_an_opt_in_never_takes_away() -> None:
    launcher = last_kernel.on("sim")
    assert launcher.opt_in(0) == launcher
    assert launcher.opt_in(60_000).opt_in(100).max_shared == 60_000
    for much in (HOPPER + 1, 10**9):
        with pytest.raises(LaunchError, match=f"shared_bytes = {much}: a block has 232448 at most; shorten"):
            launcher.opt_in(much)


@given(st.integers(-5, 300_000), st.integers(0, 300_000))
def test_check_launch_takes_the_limit_it_is_given(shared: int, limit: int) -> None:
    if 0 <= shared <= limit:
        check_launch((1, 1, 1), (32, 1, 1), shared, limit)
        return
    with pytest.raises(LaunchError, match=f"shared_bytes = {shared}: must be from 0 to {limit}"):
        check_launch((1, 1, 1), (32, 1, 1), shared, limit)


def test_a_probed_launcher_opts_in_and_still_records() -> None:
    probed = Probed(last_kernel, [Watch("seen", "seen", (1, 999), "seen")])
    assert fill(probed.on("sim").opt_in(60_000), 60_000, 14_999) == [1, 2]
    assert [reading.value for reading in probed.readings("seen")] == [1, 2]
    with pytest.raises(LaunchError, match="must be from 0 to 49152"):
        fill(probed.on("sim"), 60_000, 0)
    with pytest.raises(LaunchError, match="a block has 232448 at most"):
        probed.on("sim").opt_in(HOPPER + 1)


# -- the backend


def test_of_takes_a_name_or_a_backend() -> None:
    chosen = Backend("sim", "reversed")
    assert Backend.of(chosen) is chosen
    assert Backend.of("cuda") == Backend("cuda")
    with pytest.raises(BackendUnavailable, match="backend = 'metal'"):
        Backend.of("metal")


def test_a_stream_is_no_part_of_what_a_backend_is() -> None:
    # Evidence and caches are kept by backend: the stream changes no result.
    assert Backend("cuda", stream=object()) == Backend("cuda")
    assert hash(Backend("cuda", stream=7)) == hash(Backend("cuda"))
    assert Backend("cuda").stream == 0
    assert Backend("cuda", "reversed") != Backend("cuda")


# -- what is handed to CUDA, with a driver that only takes notes


class Notes:
    """Stands for numba-cuda: what a launch asked of it, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.said: list[Any] = []
        monkeypatch.setattr(module, "cuda_unavailable", lambda: None)
        monkeypatch.setattr(module, "compile_cuda", lambda kern: self)
        monkeypatch.setattr(module, "_allow_shared", lambda compiled, args, shared: self.said.append(("allow", shared)))
        monkeypatch.setattr(cuda, "to_device", self.to_device)
        monkeypatch.setattr(cuda, "synchronize", lambda: self.said.append("synchronize"))
        limit = SimpleNamespace(MAX_SHARED_MEMORY_PER_BLOCK_OPTIN=HOPPER)
        monkeypatch.setattr(cuda, "get_current_device", lambda: limit)

    def to_device(self, array: Any) -> Any:
        self.said.append(("to", array.shape))
        return SimpleNamespace(copy_to_host=lambda host: self.said.append(("back", host.shape)))

    def __getitem__(self, config: tuple[Any, ...]) -> Any:
        return lambda *args: self.said.append(("launch", config[2], config[3]))


def test_a_launch_on_arrays_of_the_host_copies_both_ways_and_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    notes = Notes(monkeypatch)
    fixed = np.zeros(3)
    fixed.flags.writeable = False
    last_kernel.on("cuda")[1, 2](fixed, 1)
    last_kernel.on("cuda")[1, 2](np.zeros(2), 1)
    assert notes.said == [
        ("to", (3,)), ("launch", 0, 0), "synchronize",
        ("to", (2,)), ("launch", 0, 0), "synchronize", ("back", (2,)),
    ]  # fmt: skip


def test_a_launch_on_arrays_of_the_gpu_copies_nothing_and_waits_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    notes = Notes(monkeypatch)
    last_kernel.on("cuda")[1, 2](SimpleNamespace(), 1)
    assert notes.said == [("launch", 0, 0)]


def test_a_launch_goes_to_the_backends_stream_unless_it_names_one(monkeypatch: pytest.MonkeyPatch) -> None:
    notes, mine, other = Notes(monkeypatch), object(), object()
    launcher = last_kernel.on(Backend("cuda", stream=mine))
    launcher[1, 2](SimpleNamespace(), 1)
    launcher[1, 2, 0, 16](SimpleNamespace(), 1)
    launcher[1, 2, other](SimpleNamespace(), 1)
    assert notes.said == [("launch", mine, 0), ("launch", mine, 16), ("launch", other, 0)]


def test_the_limit_is_raised_on_the_gpu_only_after_an_opt_in(monkeypatch: pytest.MonkeyPatch) -> None:
    notes = Notes(monkeypatch)
    last_kernel.on("cuda").opt_in(49_152)[1, 2, 0, 49_152](SimpleNamespace(), 1)
    last_kernel.on("cuda").opt_in(60_000)[1, 2, 0, 59_996](SimpleNamespace(), 1)
    assert notes.said == [("launch", 0, 49_152), ("allow", 59_996), ("launch", 0, 59_996)]


@pytest.mark.parametrize(("max_seq_len", "allowed"), [(12_208, []), (12_209, [48_896]), (57_600, [230_400])])
def test_v1_opts_in_where_scores_and_static_memory_together_need_it(
    max_seq_len: int, allowed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    # 12,209 tokens: 48,896 bytes of scores alone would fit into 49,152; the 288 static bytes beside them do not.
    notes = Notes(monkeypatch)
    paged_attention_v1(
        np.zeros((1, 1, 128), np.float16), np.zeros((1, 1, 128), np.float16), np.zeros((1, 1, 16, 16, 8), np.float16),
        np.zeros((1, 1, 128, 16), np.float16), 1, 1.0, np.zeros((1, 1), np.int32), np.ones(1, np.int32), 16,
        max_seq_len, backend="cuda",
    )  # fmt: skip
    assert [note[1] for note in notes.said if note[0] == "allow"] == allowed


# -- the same on a GPU


@pytest.mark.gpu
def test_gpu_gives_what_was_asked_for() -> None:
    launcher = last_kernel.on("cuda")
    limit = launcher.backend.shared_limit
    assert limit > MAX_SHARED_BYTES
    for shared in (MAX_SHARED_BYTES, MAX_SHARED_BYTES + 4, limit, 1024):
        assert fill(launcher.opt_in(shared), shared, shared // 4 - 1) == [1, 2]
    with pytest.raises(LaunchError, match="must be from 0 to 49152"):
        fill(launcher, MAX_SHARED_BYTES + 4, 0)
    with pytest.raises(LaunchError, match=f"a block has {limit} at most"):
        launcher.opt_in(limit + 1)
    probed = Probed(last_kernel, [Watch("seen", "seen", (1, 999), "seen")])
    assert fill(probed.on("cuda").opt_in(60_000), 60_000, 14_999) == [1, 2]
    assert [reading.value for reading in probed.readings("seen")] == [1, 2]


@pytest.mark.gpu
def test_gpu_static_memory_counts_too() -> None:
    q = np.ones((1, 1, 128), np.float16)
    caches = np.ones((1, 1, 16, 16, 8), np.float16), np.ones((1, 1, 128, 16), np.float16)
    for max_seq_len in (12_208, 12_209, 12_288, 12_289, 12_208):
        out = np.zeros_like(q)
        paged_attention_v1(
            out, q, *caches, 1, 1.0, np.zeros((1, 1), np.int32), np.full(1, 4, np.int32), 16, max_seq_len,
            backend="cuda",
        )  # fmt: skip
        assert (out == 1).all()

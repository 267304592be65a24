"""The read-only kernel reads every word once: a thread's exclusive or is right, and any other is not taken."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.tuned import ceilings
from kernels.tuned.call import Launch

BACKENDS = ["sim", pytest.param("cuda", marks=pytest.mark.gpu)]


def run(words: np.ndarray, blocks: int, threads: int, expected: int, backend: str) -> int:
    answer = np.zeros(1, np.int32)
    launch = ceilings.read_launch(words, answer, blocks, threads)
    kernel, args = launch.kernel, (*launch.args[:3], expected)
    Launch(kernel, launch.grid, launch.threads, args).run(backend)
    return int(answer[0])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("count", [1, 7, 8, 9, 8 * 32, 8 * 32 + 5, 700])
def test_a_thread_reads_what_is_its_own_and_no_more(count: int, backend: str) -> None:
    words = np.random.default_rng(count).integers(-(2**31), 2**31, 4 * count + 3, dtype=np.int32)
    threads = 32
    for thread in {0, min(5, count - 1)}:
        own = words[: 4 * count].reshape(count, 4)[thread::threads]
        right = int(np.bitwise_xor.reduce(own.reshape(-1)))
        assert run(words, 1, threads, right, backend) == right, "the words behind the last 16 bytes are not read"
        assert run(words, 1, threads, right ^ 1, backend) == 0
    # Over several blocks thread 40 is the ninth of the second one.
    own = words[: 4 * count].reshape(count, 4)[40::64]
    if len(own):
        right = int(np.bitwise_xor.reduce(own.reshape(-1)))
        assert run(words, 2, threads, right, backend) == right


def test_a_launch_covers_whole_loads_and_nothing_is_expected_of_it() -> None:
    launch = ceilings.read_launch(np.zeros(4 * 10 + 3, np.int32), np.zeros(1, np.int32), 7)
    assert launch.args[1] == 10
    assert -(2**31) <= launch.args[3] < 2**31
    assert launch.grid == (7, 1, 1)


def test_several_grids_are_tried() -> None:
    assert ceilings.grids(132) == (528, 1056, 2112)


def test_an_empty_launch_writes_nothing() -> None:
    answer = np.full(1, 7, np.int32)
    ceilings.empty_launch(answer).run("sim")
    assert answer[0] == 7

"""The kernels that can be launched by name: each case runs, the same way each time, and gives the right answer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from annotate.errors import UnknownName
from kernels.cases import lesson_case
from kernels.kernel import Backend
from walkthroughs.launchables import launchable, names

ROOT = Path(__file__).resolve().parents[2]
CASES = [(name, case) for name in names() for case in launchable(name).cases]


@pytest.mark.parametrize(("name", "case"), CASES)
def test_every_case_runs_twice_alike_and_writes_numbers(name, case):
    chosen = launchable(name).case(case)
    first, second = (chosen.run(Backend("sim")) for _ in range(2))
    assert first
    for key, array in first.items():
        assert np.array_equal(array, second[key], equal_nan=True)
        assert np.isfinite(array).any(), key
    assert chosen.name == case
    assert chosen.title


@pytest.mark.parametrize("name", names())
def test_a_kernel_names_its_file_and_its_first_case_is_the_default(name):
    found = launchable(name)
    assert found.name == name
    assert (ROOT / found.port).is_file()
    assert found.case() is next(iter(found.cases.values()))


def test_the_lessons_answer():
    out = launchable("gather").case("lesson").run(Backend("sim"))["out"]
    assert np.allclose(out, (0.363083, 0.449897, 0.392487, 0.386499), atol=5e-7)
    case = lesson_case("float64")
    assert out.shape == (case.head_size,)


def test_the_scattered_tokens_stand_where_the_block_table_says():
    pools = launchable("scatter").case().run(Backend("sim"))
    written = np.isfinite(pools["k_pool"]).all(axis=2)
    assert written.tolist() == [[False] * 4, [True, True, False, False], [False] * 4, [True] * 4]


def test_unknown_names_answer_with_the_nearest():
    with pytest.raises(UnknownName) as caught:
        launchable("classic_v1")
    assert caught.value.nearest[0] == "classic-v1"
    with pytest.raises(UnknownName) as caught:
        launchable("classic-v1").case("smal")
    assert "small" in caught.value.nearest
    with pytest.raises(UnknownName) as caught:
        launchable("zzzz")
    assert set(caught.value.nearest) == set(names())

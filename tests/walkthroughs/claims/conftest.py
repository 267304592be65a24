"""What these tests share, loaded by path, since tests are no package; and the stand-in for tiny-vllm."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from annotate import sources
from annotate.errors import AnnotateError
from annotate.sourcetree import SourceTree
from walkthroughs.claims.model import Verdict

STAND_IN = Path(__file__).parents[2] / "fixtures" / "tiny_vllm"


@pytest.fixture(scope="session")
def doctored(loaded: Callable[[Path], ModuleType]) -> ModuleType:
    return loaded(Path(__file__).with_name("doctored.py"))


@pytest.fixture(scope="session")
def by_hand(loaded: Callable[[Path], ModuleType]) -> dict[str, Verdict]:
    """The verdict of every claim, as `test_table.py` has it typed in by hand."""
    found: dict[str, Verdict] = loaded(Path(__file__).with_name("test_table.py")).BY_HAND
    return found


@pytest.fixture(scope="session")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> SourceTree:
    """Our own code in the structure of tiny-vllm, opened as a reader's own copy would be, in a cache of its own."""
    return sources.fetch("tiny-vllm@e25bf19", cache=tmp_path_factory.mktemp("stand-in"), from_dir=STAND_IN)


@pytest.fixture(scope="session")
def vllm_066() -> SourceTree:
    try:
        return sources.open_tree("vllm@0.6.6.post1")
    except AnnotateError as error:
        pytest.skip(f"a release of drift's: {error}")

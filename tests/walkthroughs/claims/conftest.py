"""What these tests share, loaded by path, since tests are no package; and the stand-in for tiny-vllm."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from annotate import sources
from annotate.errors import AnnotateError
from annotate.sourcetree import SourceTree
from walkthroughs.claims.model import Verdict

STAND_IN = Path(__file__).parents[2] / "fixtures" / "tiny_vllm"


def beside(name: str) -> ModuleType:
    """Load a file of this folder once."""
    module_name = f"pagewalk_{name}"
    if module_name not in sys.modules:
        spec = importlib.util.spec_from_file_location(module_name, Path(__file__).with_name(f"{name}.py"))
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[module_name] = module
        spec.loader.exec_module(module)
    return sys.modules[module_name]


@pytest.fixture(scope="session")
def doctored() -> ModuleType:
    return beside("doctored")


@pytest.fixture(scope="session")
def by_hand() -> dict[str, Verdict]:
    """The verdict of every claim, as `test_table.py` has it typed in by hand."""
    found: dict[str, Verdict] = beside("test_table").BY_HAND
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

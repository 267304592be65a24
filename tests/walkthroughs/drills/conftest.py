"""The made-up bank, a store in a folder of its own, and a clock that stands where it is told."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from walkthroughs.drills.store import Store

SAMPLE = Path(__file__).with_name("sample.py")


@pytest.fixture(scope="session")
def sample() -> ModuleType:
    """The module of the made-up bank."""
    spec = importlib.util.spec_from_file_location("drills_sample", SAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An empty store."""
    with Store(tmp_path / "drills.db") as made:
        yield made

"""The doctored sources, loaded by path: tests are no package."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from annotate import sources
from annotate.errors import AnnotateError
from annotate.sourcetree import SourceTree


@pytest.fixture(scope="session")
def doctored() -> ModuleType:
    name = "pagewalk_doctored"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name("doctored.py"))
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


@pytest.fixture(scope="session")
def vllm_066() -> SourceTree:
    try:
        return sources.open_tree("vllm@0.6.6.post1")
    except AnnotateError as error:
        pytest.skip(f"a release of drift's: {error}")

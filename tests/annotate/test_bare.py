"""The modules that a bare GPU machine needs import with the standard library alone; the network stays in one place."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BARE = ["annotate.errors", "annotate.concepts", "annotate.regions", "annotate.spans", "annotate.landmarks"]


@pytest.mark.parametrize("module", BARE)
def test_imports_without_any_installed_package(module: str) -> None:
    code = (
        f"import sys; sys.path[:] = [p for p in sys.path if 'site-packages' not in p] + [{str(ROOT)!r}];"
        f"import {module}; from annotate.spans import digest_of; print(digest_of('vllm@0.24.0', 'key-loop'))"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.strip()) == 32


def test_opening_a_source_does_not_load_the_network_libraries() -> None:
    code = "import sys, annotate.sources; print(any(n in sys.modules for n in ('requests', 'pypi_simple', 'urllib3')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.stdout.strip(), done.stderr) == ("False", "")

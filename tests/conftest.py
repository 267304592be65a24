"""Fixtures that every test may use: the pinned sources, a browser, the command line.

What is missing skips with the reason on a reader's machine and fails in CI, where all of it must be there.
"""

from __future__ import annotations

import gc
import gzip
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from annotate.sources import SourceTree

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"
IN_CI = os.environ.get("CI") == "true"

# The same examples at each run, and no deadline: a slow machine is not a bug.
settings.register_profile(
    "pagewalk",
    derandomize=True,
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("pagewalk")

STATUSES = {"passed", "failed", "error", "stale", "unavailable"}
REAL_ADDRESS = "http://127.0.0.1:8000/"
# The files and folders that take longest. Begun late, one of them would keep its worker at work long after the others
# are done. All else follows in its usual order.
LONG = (
    "browser/test_real_site.py",
    "browser/test_pages.py",
    "walkthroughs/export/test_notebook.py",
    "walkthroughs/commands/test_site.py",
    "walkthroughs/test_against.py",
    "browser",
    "site/test_real_site.py",
    "kernels/vllm/test_ops_grid.py",
    "walkthroughs/server/test_server.py",
    "walkthroughs/test_mutations.py",
    "walkthroughs/test_ladder_mutations.py",
    "walkthroughs/stepper/test_app.py",
    "walkthroughs/lab",
    "walkthroughs/drills/test_merge.py",
    "walkthroughs/drills/test_fix.py",
    "walkthroughs/drills/test_fix_check.py",
    "walkthroughs/test_catalog.py",
    "kernels/tuned/test_grid.py",
    "kernels/tuned/test_rungs.py",
    "kernels/vllm/test_narrow_attention.py",
    "walkthroughs/commands/test_walk.py",
    "walkthroughs/server/test_cases.py",
    "walkthroughs/test_grid.py",
    "walkthroughs/test_grid_workers.py",
    "walkthroughs/test_tiny_vllm.py",
)
MadeOnce = Callable[[str, Callable[[Path], None]], Path]
RunCli = Callable[..., "subprocess.CompletedProcess[str]"]


def missing(reason: str) -> NoReturn:
    """Skip with the reason on a reader's machine; fail in CI."""
    if IN_CI:
        pytest.fail(f"{reason} (CI=true: this must run)", pytrace=False)
    pytest.skip(reason)


def pytest_configure() -> None:
    """Hear Ctrl-C again: a run in the background ignores it, and so would every program that a test starts."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep Python's garbage collector away from the million objects that collection makes, then and ever after.

    They stay to the end of the run: to look through them again and again took longer than many a test.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def place_of(path: Path) -> int:
    """The place in `LONG` of a test file or of a folder that it is in, the file's own first."""
    if not path.is_relative_to(TESTS):
        return len(LONG)
    name = path.relative_to(TESTS)
    return next((LONG.index(part.as_posix()) for part in (name, *name.parents) if part.as_posix() in LONG), len(LONG))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the long files first, and skip GPU tests where there is no GPU."""
    gone = [name for name in LONG if not (TESTS / name).exists()]
    assert gone == [], f"LONG in tests/conftest.py names what is not there: {gone}"
    places = {path: place_of(path) for path in {item.path for item in items}}
    items.sort(key=lambda item: places[item.path])
    gpu_reason: str | None = None
    asked = False
    for item in items:
        if item.get_closest_marker("gpu"):
            if not asked:
                from kernels.kernel import cuda_unavailable

                gpu_reason, asked = cuda_unavailable(), True
            if gpu_reason:
                item.add_marker(pytest.mark.skip(reason=f"no GPU: {gpu_reason}"))


def _open(pin_id: str) -> SourceTree:
    from annotate.errors import AnnotateError
    from annotate.sources import fetch, open_tree

    try:
        return open_tree(pin_id)
    except AnnotateError:
        pass
    try:
        return fetch(pin_id)
    except (AnnotateError, OSError) as error:
        missing(f"{pin_id} is not here and could not be fetched: {error}")


@pytest.fixture(scope="session")
def vllm_024() -> SourceTree:
    """The last vLLM release with the classic CUDA kernel."""
    return _open("vllm@0.24.0")


@pytest.fixture(scope="session")
def vllm_026() -> SourceTree:
    """The lessons' vLLM release."""
    return _open("vllm@0.26.0")


@pytest.fixture(scope="session")
def vllm_release() -> Callable[[str], SourceTree]:
    """Open one of vLLM's pinned releases by its number, such as 0.25.0."""
    return lambda revision: _open(f"vllm@{revision}")


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> MadeOnce:
    """Answers the folder of a name, which one of the run's processes makes by a function, for all of them to read."""
    run = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        run = run.parent

    def once(name: str, fill: Callable[[Path], None]) -> Path:
        from filelock import FileLock

        folder = run / f"once-{name}"
        with FileLock(f"{folder}.lock"):
            if not folder.exists():
                begun = folder.with_name(f"{folder.name}-begun")
                shutil.rmtree(begun, ignore_errors=True)
                begun.mkdir()
                fill(begun)
                begun.rename(folder)
        return folder

    return once


@pytest.fixture(scope="session")
def real_site(made_once: MadeOnce, vllm_024: SourceTree, vllm_026: SourceTree) -> Path:
    """The real site, built for `REAL_ADDRESS`; only to be read. Steps that no record proves are run first, as

    `pagewalk site build` would.
    """

    def build_into(folder: Path) -> None:
        from mkdocs.commands.build import build
        from mkdocs.config import load_config

        from kernels.kernel import Backend
        from walkthroughs import runner
        from walkthroughs import step as catalog
        from walkthroughs.site import code

        # In this process: forking one that has threads is a warning in newer Pythons, and warnings are errors here.
        records = list(runner.run_many(list(catalog.steps().values()), Backend("sim"), jobs=1))
        assert [record.step for record in records if record.status != "passed"] == []
        code.tree_of.cache_clear()
        settings = load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder))
        assert settings["site_url"] == REAL_ADDRESS
        build(settings)

    return made_once("real-site", build_into)


@pytest.fixture(scope="session")
def loaded() -> Callable[[Path], ModuleType]:
    """A file of the tests as a module, loaded once by its path: the tests are no package."""

    def load(path: Path) -> ModuleType:
        name = f"pagewalk_{path.stem}"
        if name not in sys.modules:
            spec = importlib.util.spec_from_file_location(name, path)
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[name] = module
            spec.loader.exec_module(module)
        assert sys.modules[name].__file__ == str(path), f"two files of the tests are called {path.stem}"
        return sys.modules[name]

    return load


@pytest.fixture(scope="session")
def sample(loaded: Callable[[Path], ModuleType]) -> ModuleType:
    """The made-up site."""
    return loaded(TESTS / "site" / "sample.py")


@pytest.fixture(scope="session")
def sample_site(sample: ModuleType, made_once: MadeOnce, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The made-up site, built for `REAL_ADDRESS`; only to be read."""
    return made_once("sample-site", lambda folder: sample.build(tmp_path_factory.mktemp("docs"), folder))


@pytest.fixture(scope="session")
def put_site() -> Callable[[Path, Path, str], None]:
    """Puts a copy of a built site into a folder, as if it had been built for another address."""

    def put(built: Path, folder: Path, address: str) -> None:
        shutil.copytree(built, folder, dirs_exist_ok=True)
        for path in (folder / "sitemap.xml", *folder.rglob("index.html")):
            text = path.read_text("utf-8")
            assert REAL_ADDRESS in text, path
            path.write_text(text.replace(REAL_ADDRESS, address), "utf-8")
        (folder / "sitemap.xml.gz").write_bytes(gzip.compress((folder / "sitemap.xml").read_bytes()))

    return put


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of a Chromium or Chrome."""
    from walkthroughs.commands.doctor import find_browser

    found = find_browser()
    if found is None:
        missing("no Chromium or Chrome on PATH; PAGEWALK_BROWSER can name one")
    return found


@pytest.fixture(scope="session")
def run_cli() -> RunCli:
    """Run ``pagewalk ARGS`` as a reader would; keyword ``env`` adds variables, ``timeout`` is in seconds."""

    def run(*args: str, env: dict[str, str] | None = None, timeout: float = 300) -> subprocess.CompletedProcess[str]:
        program = Path(sys.executable).with_name("pagewalk")
        if not program.exists():
            pytest.fail(f"{program} is not installed: run make setup")
        return subprocess.run(
            [str(program), *args],
            cwd=ROOT,
            env={**os.environ, "COLUMNS": "100", **(env or {})},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            stdin=subprocess.DEVNULL,
        )

    return run


@pytest.fixture(scope="session")
def json_rows() -> Callable[[subprocess.CompletedProcess[str], str], list[dict[str, Any]]]:
    """Check a --json answer's envelope (one object on stdout, nothing else) and return its rows."""

    def rows(done: subprocess.CompletedProcess[str], plural: str) -> list[dict[str, Any]]:
        answer = json.loads(done.stdout or "null")
        assert answer, done.stderr
        assert set(answer) == {"schema", plural}
        assert answer["schema"] == 1
        found: list[dict[str, Any]] = answer[plural]
        assert all(isinstance(row["id"], str) and row["status"] in STATUSES for row in found)
        assert len({row["id"] for row in found}) == len(found)
        return found

    return rows


@pytest.fixture
def empty_cache(tmp_path: Path) -> dict[str, str]:
    """An environment in which nothing was ever fetched, and the network cannot be reached."""
    nowhere = "http://127.0.0.1:9"
    proxies = {"http_proxy": nowhere, "https_proxy": nowhere, "no_proxy": ""}
    shouted = {name.upper(): value for name, value in proxies.items()}
    return {"PAGEWALK_CACHE": str(tmp_path / "cache"), **proxies, **shouted}

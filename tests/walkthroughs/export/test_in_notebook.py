"""What a notebook's cells call: the lines of the port, a run as a table, and a failure that is seen."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from bs4 import BeautifulSoup

from annotate.regions import is_fence, regions
from kernels.errors import BackendUnavailable
from kernels.kernel import Backend
from walkthroughs import digest, runner
from walkthroughs.evidence import Check, Measurement
from walkthroughs.export import in_notebook as calls
from walkthroughs.step import Step, UnknownStep, steps

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def fresh_start() -> Iterator[None]:
    calls._chosen.clear()
    yield
    calls._chosen.clear()


BARE = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] in {banned!r}:
            raise ModuleNotFoundError('not on a GPU machine: ' + name, name=name)
        return None

sys.meta_path.insert(0, Refuse())
from walkthroughs.export.in_notebook import lines, run, start
print(start('sim'))
print(lines('vllm-classic/gqa'))
seen = run('vllm-classic/gqa')
print(seen, seen._repr_html_())
seen.must_pass()
"""


def test_it_runs_a_step_where_a_gpu_machine_has_little_else() -> None:
    """numba-cuda, NumPy, torch, greenlet for the SIMT machine, and the standard library."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    named = [*project["dependencies"], *(text for extra in extras for text in extra)]
    there = {"numpy", "numba-cuda", "llvmlite", "torch", "greenlet", "cuda-bindings"}
    banned = {re.split(r"[<>=]", text)[0].lower().replace("-", "_") for text in named} - {
        name.replace("-", "_") for name in there
    }
    assert {"click", "rich", "nbformat", "pygments", "markdown"} <= banned
    program = BARE.format(banned=banned | {"pymdownx", "IPython", "yaml"})
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    assert "Steps run on: sim (the SIMT machine, as asked)" in done.stdout
    assert "vllm-classic/gqa: passed on SIMT machine" in done.stdout
    assert done.stderr == ""


# The start


def test_start_says_the_backend_and_the_versions() -> None:
    said = str(calls.start("sim"))
    assert said.startswith("Steps run on: sim (the SIMT machine, as asked)\n")
    assert f"numpy {runner.versions('sim')['numpy']}" in said
    assert calls.backend() == Backend("sim")


def test_start_without_a_gpu_says_why_not(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("kernels.kernel", "walkthroughs.runner"):
        monkeypatch.setattr(f"{module}.cuda_unavailable", lambda: "no GPU in this test")
    assert "since no GPU in this test" in str(calls.start())
    with pytest.raises(BackendUnavailable, match="no GPU in this test"):
        calls.start("cuda")


def test_a_run_before_the_start_says_what_to_do() -> None:
    with pytest.raises(calls.NotReady, match="first code cell"):
        calls.run("paged-reference/dense")


@pytest.mark.parametrize("gone", ["numpy", "numba", "torch"])
def test_a_missing_package_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch, gone: str) -> None:
    there = calls.find_spec
    monkeypatch.setattr(calls, "find_spec", lambda name: None if name == gone else there(name))
    with pytest.raises(calls.NotReady, match=rf"%pip install \"{'numba-cuda' if gone == 'numba' else gone}"):
        calls.start("sim")


def test_the_simt_machine_needs_greenlet(monkeypatch: pytest.MonkeyPatch) -> None:
    there = calls.find_spec
    monkeypatch.setattr(calls, "find_spec", lambda name: None if name == "greenlet" else there(name))
    with pytest.raises(calls.NotReady, match="greenlet"):
        calls.start("sim")


def test_numba_without_numba_cuda_is_not_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib import metadata

    def version(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(calls.metadata, "version", version)
    with pytest.raises(calls.NotReady, match=r"numba-cuda(\[cu1\d\])?==0\.30\.4"):
        calls.start("sim")


def test_another_package_of_our_name_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    import kernels

    monkeypatch.setattr(kernels, "__file__", "/elsewhere/kernels/__init__.py")
    with pytest.raises(calls.NotReady, match="/elsewhere/kernels"):
        calls.start("sim")


# Lines


def wanted_lines(step: Step) -> set[tuple[str, int]]:
    """Every line of ours that a step reads, fences and blank ends aside: straight from the regions."""
    files = {*digest.port_files(step.port), *([] if "@" in step.source else [step.source])}
    found = set()
    for path in files:
        text = (ROOT / path).read_text("utf-8").split("\n")
        for name, entries in regions(ROOT / path).items():
            if name in step.reads:
                found |= {
                    (path, number)
                    for region in entries
                    for number in range(region.first, region.last + 1)
                    if text[number - 1].strip() and not is_fence(text[number - 1])
                }
    return found


@pytest.mark.parametrize("step", steps().values(), ids=lambda step: step.id)
def test_the_lines_of_a_step_are_its_regions(step: Step) -> None:
    pieces = calls.lines(step.id).pieces
    shown: list[tuple[str, str]] = []
    for piece in pieces:
        text = (ROOT / piece.path).read_text("utf-8").split("\n")
        assert piece.text
        assert piece.text[0].strip()
        assert piece.text[-1].strip()
        assert text[piece.first - 1] == piece.text[0]
        shown += [(piece.path, line) for line in piece.text if line.strip()]
    wanted = [(path, (ROOT / path).read_text("utf-8").split("\n")[n - 1]) for path, n in wanted_lines(step)]
    assert sorted(shown) == sorted(wanted)
    assert not any(is_fence(line) for _, line in shown)


def test_most_steps_show_lines() -> None:
    assert sum(bool(calls.lines(name).pieces) for name in steps()) > 0.9 * len(steps())


def test_lines_as_text_and_as_markdown() -> None:
    shown = calls.lines("vllm-classic/block-table")
    assert repr(shown).startswith("kernels/vllm/attention_kernels.py, from line ")
    said = shown._repr_markdown_()
    assert said.count("```python\n") == len(shown.pieces)
    assert "physical_block_number" in said
    assert all(not line.startswith("    ") for line in said.split("```python\n")[1].splitlines()[:1])


def test_no_lines_are_said_in_words() -> None:
    assert "No lines" in repr(calls.Lines(()))
    assert "No lines" in calls.Lines(())._repr_markdown_()


def test_an_unknown_step_names_the_nearest() -> None:
    with pytest.raises(UnknownStep, match="vllm-classic/grid"):
        calls.lines("vllm-classic/gird")
    calls.start("sim")
    with pytest.raises(UnknownStep, match="vllm-classic/grid"):
        calls.run("vllm-classic/gird")


# Runs


@pytest.fixture
def seen() -> calls.Seen:
    calls.start("sim")
    return calls.run("paged-reference/slots")


def test_a_run_is_a_table_of_every_check(seen: calls.Seen) -> None:
    record = seen.record
    page = BeautifulSoup(seen._repr_html_(), "html.parser")
    assert [cell.text for cell in page.select("thead th")] == list(calls.HEAD)
    rows = [[cell.text for cell in row.select("td")] for row in page.select("tbody tr")]
    assert [row[0] for row in rows] == [check.name for check in record.checks]
    assert [row[1] for row in rows] == [check.observed for check in record.checks]
    assert [row[2] for row in rows] == [check.expected for check in record.checks]
    assert {row[5] for row in rows} == {"passed"}
    caption = page.select_one("caption")
    assert caption is not None
    assert caption.text.startswith("paged-reference/slots: passed on SIMT machine in ")
    seen.must_pass()


def test_a_run_as_text_has_columns(seen: calls.Seen) -> None:
    lines = repr(seen).splitlines()
    assert lines[0].split() == list(calls.HEAD)
    assert len(lines) == len(seen.record.checks) + 2
    column = lines[0].index("verdict")
    assert all(line[column:] == "passed" for line in lines[1:-1])


def changed(seen: calls.Seen, **fields: object) -> calls.Seen:
    return calls.Seen(dataclasses.replace(seen.record, **fields))


def test_a_failed_check_is_seen_and_raises(seen: calls.Seen) -> None:
    bad = Check("the <sum>", False, "[1, 2]", "[1, 3]", 1.0, 0.5, "why")
    failed = changed(seen, status="failed", checks=(*seen.record.checks, bad))
    assert "FAILED" in repr(failed)
    assert "the &lt;sum&gt; (why)" in failed._repr_html_()
    with pytest.raises(calls.StepDidNotPass) as raised:
        failed.must_pass()
    said = str(raised.value)
    assert said.startswith("paged-reference/slots failed.")
    assert "the <sum>: observed [1, 2], expected [1, 3], error 1, tolerance 0.5" in said
    assert seen.record.checks[0].name not in said


def test_a_step_that_broke_off_raises_with_its_message(seen: calls.Seen) -> None:
    broken = changed(seen, status="error", checks=(), message="KernelError: no")
    assert "ERROR" in repr(broken)
    with pytest.raises(calls.StepDidNotPass, match=r"paged-reference/slots error\. KernelError: no"):
        broken.must_pass()


def test_measured_values_have_no_verdict(seen: calls.Seen) -> None:
    more = changed(seen, measured=(Measurement("time", 2.5, "ms"),))
    assert more.rows[-1] == ("time", "2.5 ms", "", "", "", "")
    assert "2.5 ms" in repr(more)

"""`pagewalk read` of an idea that several kernels have: side by side, at any width, with and without the sources."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from annotate.errors import SourceUnavailable
from annotate.sources import open_tree, pins

ROOT = Path(__file__).resolve().parents[3]
TINY = "tiny-vllm@e25bf19"
# Kernel, where it is from, a file of upstream with the first of its lines, a file of ours.
FOUR = (
    ("Classic kernel", "vllm@0.24.0", "attention_kernels.cuh", 219, "attention_kernels.py"),
    ("2d kernel", "vllm@0.26.0", "chunked_prefill_paged_decode.py", 152, "paged_2d.py"),
    ("tiny-vllm's kernel", TINY, "src/kernels.cu", 478, "paged.py"),
    ("Our smallest kernel", "our own", "", 0, "gather.py"),
)
RunCli = Callable[..., "subprocess.CompletedProcess[str]"]
Rows = Callable[..., list[dict[str, Any]]]


def fetched(source: str) -> bool:
    try:
        open_tree(source)
    except SourceUnavailable:
        return False
    return True


@pytest.mark.source
@pytest.mark.parametrize("columns", [40, 60, 80, 99, 100, 120, 159, 160, 200, 260])
def test_four_kernels_at_any_width(run_cli: RunCli, vllm_024: object, vllm_026: object, columns: int) -> None:
    done = run_cli("read", "block-table-walk", env={"COLUMNS": str(columns), "NO_COLOR": "1"})
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert max(map(cell_len, lines)) <= columns
    assert "\x1b" not in done.stdout
    assert "endregion" not in done.stdout
    rows = []
    for title, origin, _, first, ours in FOUR:
        # The introduction may speak of a kernel too, but it comes first.
        rows.append(max(number for number, line in enumerate(lines) if title in line))
        assert origin in done.stdout
        assert f"{ours}:" in done.stdout
        if first and (origin != TINY or fetched(TINY)):
            assert re.search(rf"(^|\s){first}\s+┃", done.stdout, re.MULTILINE), first
    abreast = 4 if columns >= 160 else 2 if columns >= 100 else 1
    assert [rows.index(row) for row in rows] == [index - index % abreast for index in range(4)]


@pytest.mark.source
def test_every_line_of_ours_is_there_beside_a_bar(run_cli: RunCli, vllm_024: object, vllm_026: object) -> None:
    """The lines are counted in the files themselves: those between the fences of the idea's concepts."""
    done = run_cli("read", "block-table-walk", env={"COLUMNS": "200"})
    shown = {int(number) for number in re.findall(r"(?:^|\s)(\d+)\s+┃", done.stdout, re.MULTILINE)}
    for file, name in (("kernels/gather.py", "block-table-walk"), ("kernels/vllm/paged_2d.py", "paged-2d-table")):
        text = (ROOT / file).read_text("utf-8").splitlines()
        start = text.index(next(line for line in text if line.strip() == f"# region: {name}"))
        depth, wanted = 0, set()
        for number, line in enumerate(text[start:], start + 1):
            fence = re.match(r"\s*# (end)?region", line)
            depth += (-1 if fence[1] else 1) if fence else 0
            if depth == 0:
                break
            wanted |= set() if fence else {number}
        assert wanted
        assert wanted <= shown, file


def test_a_pipe_gets_four_columns(empty_cache: dict[str, str]) -> None:
    """Without COLUMNS a file or a pipe is wide, as for every other command."""
    env = {name: value for name, value in os.environ.items() if name != "COLUMNS"} | empty_cache
    program = Path(sys.executable).with_name("pagewalk")
    done = subprocess.run(
        [str(program), "read", "block-table-walk"],
        env=env, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    (row,) = [line for line in done.stdout.splitlines() if "Classic kernel" in line]
    assert all(title in row for title, *_ in FOUR)


def test_without_the_sources_every_port_is_shown_and_how_to_fetch(run_cli: RunCli, empty_cache: dict[str, str]) -> None:
    done = run_cli("read", "block-table-walk", env={**empty_cache, "COLUMNS": "80"})
    assert done.returncode == 1, "two sources that are not optional are missing"
    for title, origin, upstream, first, ours in FOUR:
        assert title in done.stdout
        assert re.search(rf"{re.escape(ours)}:\d", done.stdout)
        if first:
            assert f"Not here: pagewalk fetch {origin}" in done.stdout
            assert f"pagewalk fetch {origin}" in done.stderr
            assert re.search(rf"{re.escape(upstream)}:{first}-", done.stdout), "it says where the lines are"
    assert "(optional" in done.stderr
    assert done.stdout.count("port, runs here") == 4


@pytest.mark.source
def test_an_optional_source_may_be_missing(run_cli: RunCli, vllm_024: object, vllm_026: object) -> None:
    if fetched(TINY):
        pytest.skip(f"{TINY} is here")
    done = run_cli("read", "tail-guard")
    assert done.returncode == 0
    assert f"pagewalk fetch {TINY}" in done.stderr
    asked = run_cli("read", "tail-guard", "--source", TINY)
    assert asked.returncode == 1, "asked for by name it must be there"


@pytest.mark.source
def test_permanent_links_and_licences_stand_with_upstream_lines(
    run_cli: RunCli, vllm_024: object, vllm_026: object
) -> None:
    done = run_cli("read", "k-address", env={"COLUMNS": "200"})
    assert "/blob/v0.24.0/csrc/libtorch_stable/attention/attention_kernels.cuh#L263-L282" in done.stdout
    assert "/blob/v0.26.0/vllm/v1/attention/ops/chunked_prefill_paged_decode.py#L169-L176" in done.stdout
    assert "#L484" in done.stdout
    for source in ("vllm@0.24.0", "vllm@0.26.0"):
        assert f"{source}, {pins()[source].licence}" in done.stdout


def test_where_else_the_idea_is_goes_to_stderr(run_cli: RunCli, empty_cache: dict[str, str]) -> None:
    done = run_cli("read", "block-table-walk", env=empty_cache)
    assert "kernels/tiny_vllm/general.py:" in done.stderr
    assert "kernels/reference.py:" in done.stderr
    assert "Without a port: AMD kernel (gfx9) in vllm@0.26.0 (pagewalk read rocm-table)" in done.stderr
    assert "See also:" in done.stderr
    assert "rocm-table" not in done.stdout


@pytest.mark.source
def test_what_was_asked_for_comes_first_even_without_a_port(
    run_cli: RunCli, vllm_024: object, vllm_026: object
) -> None:
    done = run_cli("read", "unified-table", env={"COLUMNS": "90"})
    assert done.returncode == 0, done.stderr
    places = [done.stdout.index(title) for title in ("Unified kernel", "Classic kernel", "2d kernel (")]
    assert places == sorted(places)
    assert "no port" in done.stdout
    assert re.search(r"(^|\s)419\s+┃", done.stdout, re.MULTILINE)


@pytest.mark.source
def test_one_source_alone_is_shown_as_a_pair(run_cli: RunCli, vllm_024: object) -> None:
    done = run_cli("read", "block-table-walk", "--source", "vllm@0.24.0", env={"COLUMNS": "200"})
    assert done.returncode == 0, done.stderr
    assert "port, runs here" not in done.stdout
    first = next(line for line in done.stdout.splitlines() if "attention_kernels.cuh" in line)
    assert "kernels/" in first.partition("attention_kernels.cuh")[2], "the port stands beside it"


@pytest.mark.source
@pytest.mark.parametrize("name", ["shared-logits", "v2-reduce", "slot-pad"])
def test_a_concept_of_one_kernel_is_shown_as_before(
    run_cli: RunCli, vllm_024: object, vllm_026: object, name: str
) -> None:
    done = run_cli("read", name, env={"COLUMNS": "120"})
    assert done.returncode == 0, done.stderr
    assert "port, runs here" not in done.stdout
    assert "Across kernels" not in done.stdout
    assert "┃" in done.stdout


def test_as_json_the_idea_has_all_its_kernels(json_rows: Rows, run_cli: RunCli, empty_cache: dict[str, str]) -> None:
    done = run_cli("read", "block-table-walk", "--json", env=empty_cache)
    assert done.returncode == 0, "it needs no source"
    (concept,) = json_rows(done, "concepts")
    idea = concept["idea"]
    assert idea["id"] == "block-table-walk"
    assert idea["differs"]
    assert {"block-table-walk", "paged-2d-table", "unified-table", "rocm-table"} == set(idea["concepts"])
    kernels = {kernel["id"]: kernel for kernel in idea["kernels"]}
    assert list(kernels) == ["classic", "paged-2d", "unified", "rocm", "tiny-vllm", "smallest"]
    assert {name: kernel["status"] for name, kernel in kernels.items() if kernel["source"]} == dict.fromkeys(
        ("classic", "paged-2d", "unified", "rocm", "tiny-vllm"), "unavailable"
    )
    assert (kernels["smallest"]["source"], kernels["smallest"]["status"]) == (None, "passed")
    (span,) = kernels["classic"]["upstream"]
    assert (span["first"], span["last"], span["permalink"][-10:]) == (219, 250, "#L219-L250")
    for kernel in kernels.values():
        assert kernel["concepts"]
        for lines in (*kernel["port"], *kernel["variants"]):
            text = (ROOT / lines["path"]).read_text("utf-8").splitlines()
            above = [line.strip() for line in text[: lines["first"] - 1]]
            assert f"# region: {lines['concept']}" in above[-3:], lines


def test_as_json_a_concept_alone_is_an_idea_of_its_own(json_rows: Rows, run_cli: RunCli) -> None:
    (concept,) = json_rows(run_cli("read", "shared-logits", "--json"), "concepts")
    assert concept["idea"]["concepts"] == ["shared-logits"]
    assert [kernel["id"] for kernel in concept["idea"]["kernels"]] == ["classic"]
    (concept,) = json_rows(run_cli("read", "doc-query", "--json"), "concepts")
    assert concept["idea"]["kernels"] == []


def test_every_idea_is_shown_at_every_width(empty_cache: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    from click.testing import CliRunner

    from annotate.ideas import tables
    from walkthroughs.commands.read import read_command

    monkeypatch.setenv("PAGEWALK_CACHE", empty_cache["PAGEWALK_CACHE"])
    for width in (50, 110, 170):
        monkeypatch.setenv("COLUMNS", str(width))
        for name, idea in tables().ideas.items():
            result = CliRunner().invoke(read_command, [name])
            assert result.exit_code in (0, 1), (name, result.output, result.exception)
            several = "port, runs here" in result.stdout
            assert ("Across kernels: " + idea.differs.split()[0] in result.stdout) == several
            assert max(map(cell_len, result.stdout.splitlines())) <= width, name

"""`pagewalk sources` and `fetch`: states, failures that leave nothing behind, and progress."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any

import pytest

RunCli = Callable[..., "subprocess.CompletedProcess[str]"]
Rows = Callable[..., list[dict[str, Any]]]


def test_sources_lists_every_pin(json_rows: Rows, run_cli: RunCli, empty_cache: dict[str, str]) -> None:
    done = run_cli("sources", "--json", env=empty_cache)
    assert done.returncode == 0
    found = {row["id"]: row for row in json_rows(done, "sources")}
    assert set(found) >= {"vllm@0.24.0", "vllm@0.26.0", "tiny-vllm@e25bf19"}
    assert all(row["status"] == "unavailable" and row["licence"] for row in found.values())
    assert [name for name, row in found.items() if row["optional"]] == ["tiny-vllm@e25bf19"]


def test_fetch_without_a_network_leaves_the_cache_as_it_was(
    json_rows: Rows, run_cli: RunCli, empty_cache: dict[str, str]
) -> None:
    done = run_cli("fetch", "vllm@0.24.0", "--json", env=empty_cache)
    assert done.returncode == 1
    assert json_rows(done, "sources")[0]["status"] == "error"
    assert "vllm@0.24.0" in done.stderr
    assert "Traceback" not in done.stderr
    after = json_rows(run_cli("sources", "--json", env=empty_cache), "sources")
    assert {row["status"] for row in after} == {"unavailable"}


def test_an_optional_source_fails_only_when_asked_for(
    json_rows: Rows, run_cli: RunCli, empty_cache: dict[str, str]
) -> None:
    named = run_cli("fetch", "tiny-vllm@e25bf19", "--json", env=empty_cache)
    assert named.returncode == 1
    assert json_rows(named, "sources")[0]["status"] == "unavailable"


@pytest.mark.source
def test_fetch_again_does_nothing(json_rows: Rows, run_cli: RunCli, vllm_024: object) -> None:
    done = run_cli("fetch", "vllm@0.24.0", "--json")
    assert done.returncode == 0
    assert [row["status"] for row in json_rows(done, "sources")] == ["passed"]
    assert "here already" in done.stderr


def test_progress_without_a_terminal_is_a_few_lines(capsys: pytest.CaptureFixture[str]) -> None:
    from walkthroughs.commands.sources import plain_progress

    progress = plain_progress("x@1")
    progress("find", 0, None)
    for done in range(1001):
        progress("download", done * 1000, 1_000_000)
    for done in range(50):
        progress("unpack", done, None)
    assert capsys.readouterr().err.splitlines() == [
        "x@1: asking the package index",
        "x@1: downloading, 0.0 of 1.0 MB",
        "x@1: downloading, 0.2 of 1.0 MB",
        "x@1: downloading, 0.5 of 1.0 MB",
        "x@1: downloading, 0.8 of 1.0 MB",
        "x@1: downloading, 1.0 of 1.0 MB",
        "x@1: keeping the files of interest",
    ]


def test_progress_of_unknown_length_says_so_once(capsys: pytest.CaptureFixture[str]) -> None:
    from walkthroughs.commands.sources import plain_progress

    progress = plain_progress("x@1")
    for done in range(100):
        progress("download", done, None)
    assert capsys.readouterr().err == "x@1: downloading\n"


def test_progress_on_a_terminal_is_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    from rich.console import Console

    from walkthroughs.commands import sources

    screen = Console(file=io.StringIO(), force_terminal=True, width=100)
    monkeypatch.setattr(sources, "console", lambda stderr: screen)
    with sources.progress_bar("x@1") as progress:
        progress("find", 0, None)
        for done in range(0, 1001, 100):
            progress("download", done * 1000, 1_000_000)
        progress("a stage of later", 1, None)
    written = screen.file.getvalue()  # type: ignore[attr-defined]
    assert "x@1: downloading" in written
    assert "1.0/1.0 MB" in written

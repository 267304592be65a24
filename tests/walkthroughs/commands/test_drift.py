"""`pagewalk drift`: from the committed facts, from real releases, and when a release cannot be had."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from annotate.drift import lanes_of
from annotate.history import VERDICTS, committed
from annotate.tracks import tracks
from walkthroughs.commands.drift import event, story

if TYPE_CHECKING:
    from annotate.sources import SourceTree

RunCli = Callable[..., "subprocess.CompletedProcess[str]"]
Rows = Callable[..., list[dict[str, Any]]]
Release = Callable[[str], "SourceTree"]


def test_it_answers_without_any_source(json_rows: Rows, run_cli: RunCli, empty_cache: dict[str, str]) -> None:
    done = run_cli("drift", "--json", env=empty_cache)
    assert done.returncode == 0, done.stderr
    found = {row["id"]: row for row in json_rows(done, "anchors")}
    assert [*found] == [f"vllm/{track}" for track in tracks()]
    releases = {entry["id"]: entry for entry in found["vllm/signature"]["releases"]}
    assert len(releases) == 14
    gone = releases["vllm@0.25.0"]
    assert (gone["verdict"], gone["since"], gone["as_written"], "path" in gone) == (
        "gone",
        "vllm@0.25.0",
        "gone",
        False,
    )
    moved = releases["vllm@0.23.0"]
    assert moved["verdict"] == "moved"
    assert moved["permalink"].endswith(f"/v0.23.0/{moved['path']}#L{moved['first']}-L{moved['last']}")
    assert {entry["verdict"] for row in found.values() for entry in row["releases"]} <= {None, *VERDICTS}
    assert "committed facts" in done.stderr


def test_one_concept_in_plain_words(run_cli: RunCli, empty_cache: dict[str, str]) -> None:
    done = run_cli("drift", "signature", env={**empty_cache, "COLUMNS": "300"})
    assert done.returncode == 0
    (line,) = done.stdout.strip().splitlines()
    assert re.search(r"^vllm/signature .*0\.9\.2 changed \(\+2 -0 tokens\); 0\.23\.0 moved to .*; 0\.25\.0 gone$", line)


def test_where_files_moved(json_rows: Rows, run_cli: RunCli, empty_cache: dict[str, str]) -> None:
    done = run_cli("drift", "--files", "--json", env=empty_cache)
    assert done.returncode == 0
    found = {row["id"]: row for row in json_rows(done, "files")}
    assert [move["id"] for move in found["vllm/cache_kernels.cu"]["moves"]] == [
        "vllm@0.6.6.post1",
        "vllm@0.23.0",
        "vllm@0.32.0",
    ]
    assert "0.33.0 gone" in found["vllm/attention.cu"]["message"]


@pytest.mark.source
def test_a_named_release_is_read_and_compared(
    json_rows: Rows, run_cli: RunCli, vllm_024: object, vllm_026: object, vllm_release: Release
) -> None:
    vllm_release("0.33.0")
    done = run_cli("drift", "write-to-paged-cache", "--to", "0.33.0", "--diff", "--json")
    assert done.returncode == 0, done.stderr
    (row,) = json_rows(done, "anchors")
    assert [entry["id"] for entry in row["releases"]] == ["vllm@0.24.0", "vllm@0.26.0", "vllm@0.33.0"]
    assert [entry["verdict"] for entry in row["releases"]] == [None, "same", "changed"]
    last = row["releases"][-1]
    assert last["delta"]["new"] == ["param(interleaved_v)"]
    assert all("interleaved_v" in hunk["new"] and not hunk["old"] for hunk in last["diff"])
    shown = run_cli("drift", "write-to-paged-cache", "--to", "0.33.0", "--diff")
    assert re.search(r"^ +\+ interleaved_v", shown.stdout, re.MULTILINE)


@pytest.mark.source
def test_a_release_that_cannot_be_had_is_reported_and_the_rest_answered(
    json_rows: Rows, run_cli: RunCli, vllm_024: object, vllm_026: object, vllm_release: Release
) -> None:
    vllm_release("0.25.0")
    nowhere = {"PAGEWALK_INDEX": "http://127.0.0.1:9/simple"}
    done = run_cli("drift", "signature", "--to", "0.25.0", "--to", "0.29.0", "--json", env=nowhere)
    assert done.returncode == 1
    (row,) = json_rows(done, "anchors")
    assert row["status"] == "unavailable"
    told = {entry["id"]: entry for entry in row["releases"]}
    assert told["vllm@0.25.0"]["verdict"] == "gone"
    assert told["vllm@0.29.0"]["status"] == "unavailable"
    assert "cannot be asked" in told["vllm@0.29.0"]["message"]
    assert "vllm@0.29.0" in done.stderr


def test_with_nothing_and_no_network_every_row_says_so(
    json_rows: Rows, run_cli: RunCli, empty_cache: dict[str, str]
) -> None:
    done = run_cli(
        "drift",
        "signature",
        "--to",
        "0.25.0",
        "--json",
        env={**empty_cache, "PAGEWALK_INDEX": "http://127.0.0.1:9/simple"},
    )
    assert done.returncode == 1
    (row,) = json_rows(done, "anchors")
    assert (row["status"], {entry["status"] for entry in row["releases"]}) == ("unavailable", {"unavailable"})
    latest = run_cli("drift", "--latest", "--json", env={**empty_cache, "PAGEWALK_INDEX": "http://127.0.0.1:9/simple"})
    assert latest.returncode == 1
    assert {row["status"] for row in json_rows(latest, "walkthroughs")} == {"unavailable"}


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("sgnature",), "signature"),
        (("--source", "vlm"), "vllm"),
        (("--to", "0.25.0", "--all-pinned"), "--all-pinned goes alone"),
        (("--write",), "--all-pinned"),
        (("--latest", "signature"), "walkthroughs"),
        (("--latest", "--files"), "walkthroughs"),
    ],
)
def test_wrong_use_names_what_would_be_right(run_cli: RunCli, args: tuple[str, ...], said: str) -> None:
    done = run_cli("drift", *args)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stdout == ""


def test_a_story_tells_only_what_happened() -> None:
    lanes = lanes_of(committed())
    for lane in lanes.values():
        told = story(lane).split("; ")
        happened = [cell for cell in lane.cells[1:] if cell.verdict not in (None, "same")]
        assert len(told) == 1 + len(happened)
        assert told[0].startswith("not in 0.6.6.post1") or told[0].startswith("0.6.6.post1 ")
    guess = lanes["slot-kernel"]
    assert "a guess: ComputeSlotMappingKernel.kernel" in story(guess)
    before, after = guess.cells[-2:]
    assert after.verdict in (None, "same") or event(before, after).startswith(str(after.verdict))

"""The record of `lab serve`: written and read back, thinned and saying so, stale, refused, and the committed one."""

from __future__ import annotations

import itertools
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from walkthroughs.lab import serve_record
from walkthroughs.lab.environment import Lab
from walkthroughs.lab.errors import EngineFailed
from walkthroughs.lab.phases import Outcome, Phase, Sample, phases
from walkthroughs.lab.serve_record import Kept, Record, thinned

SINGLE = phases()[0]
BY_ID = {phase.id: phase for phase in phases()}


def readings(count: int) -> list[Sample]:
    line = SINGLE.line() or ()
    return [Sample(n / 100, n, line[n], line[n], line[n], (n,)) for n in range(count)]


def sample(samples: list[Sample] | None = None) -> Record:
    outcome = Outcome(SINGLE, readings(300) if samples is None else samples, 0, 0)
    return serve_record.made([outcome], {"vllm": "0.32.0", "torch": "2.13.0"}, "CPU", "2026-01-01T00:00:00Z", 3.21)


def test_it_reads_back_as_written_a_reading_a_line(tmp_path: Path) -> None:
    made, path = sample(), tmp_path / "serve.json"
    serve_record.write(made, path)
    assert serve_record.load(path) == made
    assert serve_record.load(tmp_path / "none.json") is None
    lines = path.read_text("utf-8").splitlines()
    assert "    [0.0, 0, 0, 0, 0, 0]," in lines
    assert len(lines) < 150


def test_it_counts_all_readings_and_keeps_some() -> None:
    (kept,) = sample().phases
    assert (kept.readings, kept.fit, kept.exact, kept.status, kept.left) == (300, 300, 300, "passed", 0)
    assert (kept.most, kept.seconds) == (11, 2.99)
    assert len(kept.samples) == serve_record.MOST
    assert sample().badge == "CPU, vLLM 0.32.0, torch 2.13.0"


def test_thinning_keeps_the_ends_spreads_over_the_tokens_and_loses_no_misfit() -> None:
    few = readings(90)
    assert thinned(few) == tuple(few)
    crowded = [*readings(300), *(Sample(3 + n / 1000, 299, 10, 10, 10, (299,)) for n in range(500))]
    wrong = [replace(crowded[n], used=40) for n in (7, 8, 9)]
    crowded[7:10] = wrong
    found = thinned(crowded)
    assert (found[0], found[-1]) == (crowded[0], crowded[-1])
    assert set(wrong) <= set(found)
    assert len(found) <= serve_record.MOST + len(wrong)
    gaps = [later.generated - one.generated for one, later in itertools.pairwise(found)]
    assert max(gaps) <= 7
    assert all(gap >= 0 for gap in gaps)


def test_readings_of_one_moment_are_no_trouble() -> None:
    assert len(thinned([Sample(n / 10, 5, 2, 2, 2, (5,)) for n in range(200)])) == 2
    (kept,) = sample([]).phases
    assert (kept.readings, kept.samples, kept.status) == (0, (), "failed")


def test_a_change_makes_it_stale() -> None:
    assert serve_record.fresh(sample())
    assert not serve_record.fresh(replace(sample(), digest="0"))


def test_what_is_no_record_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "serve.json"
    serve_record.write(sample(), path)
    good = json.loads(path.read_text("utf-8"))
    short = {**good, "phases": [{**good["phases"][0], "samples": [[1, 2]]}]}
    for data in ({"schema": 9}, {"schema": 1}, {**good, "phases": [{"id": "x"}]}, short):
        path.write_text(json.dumps(data))
        with pytest.raises(ValueError, match=r"serve\.json"):
            serve_record.load(path)


def test_a_python_that_cannot_say_its_versions_is_named(tmp_path: Path) -> None:
    """As one without torch: the device is not known."""
    lab = Lab(tmp_path / "python", tmp_path, tmp_path)
    lab.python.write_text("#!/bin/sh\necho half of it\necho No module named torch >&2\n")
    lab.python.chmod(0o755)
    with pytest.raises(EngineFailed, match="does not say its versions: No module named torch"):
        serve_record.about(lab)


def test_our_own_python_says_its_versions(tmp_path: Path) -> None:
    versions, device = serve_record.about(Lab(Path(sys.executable), tmp_path, tmp_path))
    assert versions["python"] == ".".join(map(str, sys.version_info[:3]))
    assert versions["torch"].startswith("2.13.0")
    assert device


@pytest.fixture(scope="module")
def committed() -> Record:
    made = serve_record.load()
    assert made is not None
    return made


def test_the_committed_record_is_whole_and_fresh(committed: Record) -> None:
    assert serve_record.fresh(committed)
    assert (committed.device, committed.versions["vllm"]) == ("CPU", "0.32.0")
    assert [kept.id for kept in committed.phases] == [phase.id for phase in phases()]
    assert sum(len(kept.samples) for kept in committed.phases) <= 4 * serve_record.MOST


@pytest.mark.parametrize("phase", phases(), ids=lambda phase: phase.id)
def test_each_committed_phase_is_as_predicted(committed: Record, phase: Phase) -> None:
    """Not by its own word: the bounds are computed anew from how far each request was."""
    kept = next(one for one in committed.phases if one.id == phase.id)
    assert (kept.status, kept.problems, kept.left, kept.hits) == ("passed", (), 0, phase.hits)
    assert kept.readings == kept.fit >= len(kept.samples) > 20
    for reading in kept.samples:
        low, high = phase.expected(reading.generated, reading.received)
        assert (reading.low, reading.high) == (low, high)
        assert low <= reading.used <= high
    if phase.line():
        assert kept.exact == kept.readings
    assert max(reading.used for reading in kept.samples) > 4


def test_the_committed_readings_cover_each_phase(committed: Record) -> None:
    for kept in committed.phases:
        counts = [0, *(reading.generated for reading in kept.samples), BY_ID[kept.id].generate]
        steps = [later - one for one, later in itertools.pairwise(counts)]
        assert max(steps) <= 64, kept.id


def test_kept_and_outcome_agree() -> None:
    outcome = Outcome(SINGLE, [*readings(5), Sample(1.0, 5, 9, 2, 2, (5,))], 32, 1)
    kept: Kept = serve_record.keep(outcome)
    assert (kept.status, kept.fit, kept.hits, kept.left) == ("failed", 5, 32, 1)
    assert kept.problems == tuple(outcome.problems)

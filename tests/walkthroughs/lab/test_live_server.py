"""The real server on loopback: every reading of its metrics fits, those of a single request exactly."""

from __future__ import annotations

from walkthroughs.lab.environment import Lab
from walkthroughs.lab.process import Limits
from walkthroughs.lab.server import phases, serving


def test_every_reading_fits_and_nothing_is_left(lab: Lab) -> None:
    with serving(lab, limits=Limits(seconds=300.0)) as server:
        kin = server.child.kin
        outcomes = {phase.id: server.run(phase) for phase in phases()}
    assert [problem for outcome in outcomes.values() for problem in outcome.problems] == []
    assert all(sample.low == sample.high for sample in outcomes["single"].samples)
    assert max(sample.used for sample in outcomes["several"].samples) > 3
    assert outcomes["again"].hits == 96
    assert kin.processes() == []

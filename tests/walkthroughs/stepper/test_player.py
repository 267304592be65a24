"""Every move against the plain list of events, and what a move says where it cannot be made."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kernels.simt.trace import Event
from walkthroughs.digest import ROOT
from walkthroughs.stepper.player import Player
from walkthroughs.stepper.shots import Shot

from .conftest import QUICK  # isort: skip


def events_of(shot: Shot) -> list[Event]:
    return [shot.trace.events[number] for number in shot.trace.events_of(shot.thread)]


def draw_place(shots: dict[str, Shot], data: st.DataObject) -> tuple[Shot, int]:
    shot = shots[data.draw(st.sampled_from(QUICK))]
    return shot, data.draw(st.integers(0, len(shot.history)))


@given(st.data())
def test_moments_are_the_threads_own_events(shots: dict[str, Shot], data: st.DataObject) -> None:
    shot, moment = draw_place(shots, data)
    player = Player(shot, moment)
    assert player.moment == moment
    said = player.forward()
    assert (player.moment, bool(said)) == ((moment + 1, False) if moment < player.last else (moment, True))
    player.go(moment)
    said = player.backward()
    assert (player.moment, bool(said)) == ((moment - 1, False) if moment else (0, True))


@given(st.data())
def test_there_and_back_is_the_same_state(shots: dict[str, Shot], data: st.DataObject) -> None:
    shot, moment = draw_place(shots, data)
    player = Player(shot, moment)
    before = player.state.copy()
    there = data.draw(st.sampled_from(["forward", "next_line", "next_iteration", "next_barrier", "previous_line"]))
    getattr(player, there)()
    player.go(moment)
    assert player.state == before


@given(st.data())
def test_next_iteration_is_the_next_time_of_the_same_line(shots: dict[str, Shot], data: st.DataObject) -> None:
    shot, moment = draw_place(shots, data)
    events = events_of(shot)
    player = Player(shot, moment)
    said = player.next_iteration()
    here = events[moment - 1] if moment else None
    times = [
        at + 1
        for at, event in enumerate(events)
        if here is not None and event.kind == "line" and (event.function, event.line) == (here.function, here.line)
    ]
    later = [at for at in times if at > moment]
    assert player.moment == (later[0] if later else moment)
    assert bool(said) == (not later)


@given(st.data())
def test_next_barrier(shots: dict[str, Shot], data: st.DataObject) -> None:
    shot, moment = draw_place(shots, data)
    later = [at + 1 for at, event in enumerate(events_of(shot)) if event.kind == "barrier" and at + 1 > moment]
    player = Player(shot, moment)
    said = player.next_barrier()
    assert (player.moment, bool(said)) == ((later[0], False) if later else (moment, True))


@given(st.data())
def test_run_to_a_line_that_runs(shots: dict[str, Shot], data: st.DataObject) -> None:
    shot, moment = draw_place(shots, data)
    events = events_of(shot)
    places = sorted({(e.function, e.line) for e in events if e.kind == "line"})
    function, line = data.draw(st.sampled_from(places))
    file = shot.trace.files[shot.trace.functions[function].file].path
    same = {n for n, f in enumerate(shot.trace.functions) if shot.trace.files[f.file].path == file}
    times = [at + 1 for at, e in enumerate(events) if e.kind == "line" and e.line == line and e.function in same]
    later = [at for at in times if at > moment]
    player = Player(shot, moment)
    said = player.run_to(line, file)
    assert player.moment == (later or times)[0]
    assert ("back to its first time" in said) == (not later)


def test_run_to_a_comment_means_the_next_line_that_runs(classic: Shot) -> None:
    file = "kernels/vllm/attention_kernels.py"
    lines = sorted({e.line for e in events_of(classic) if e.kind == "line" and e.function == 1})
    gap = next(line for line in lines if line + 1 not in lines and line + 2 in lines)
    player = Player(classic)
    said = player.run_to(gap + 1, file)
    assert classic.history.line(player.moment) in (gap, gap + 2)
    assert said == "" or str(gap + 2) in said


def test_run_to_the_middle_of_a_statement_means_the_statement(classic: Shot) -> None:
    """`k_ptr = (` takes three lines; the trace knows its first."""
    file = "kernels/vllm/attention_kernels.py"
    text = (ROOT / file).read_text().split("\n")
    first = next(number for number, line in enumerate(text, 1) if line.strip() == "k_ptr = (")
    player = Player(classic)
    assert player.run_to(first + 1, file) == ""
    assert classic.history.line(player.moment) == first


def test_run_to_nowhere(classic: Shot) -> None:
    player = Player(classic, 7)
    assert "No line from 99999 on runs" in player.run_to(99999, "kernels/vllm/attention_kernels.py")
    assert "No line" in player.run_to(1, "kernels/oracle.py")
    assert player.moment == 7


@given(st.data())
def test_line_moves_stay_out_of_the_functions_that_a_line_calls(classic: Shot, data: st.DataObject) -> None:
    moment = data.draw(st.integers(1, len(classic.history) - 1))
    events = events_of(classic)
    depth = max(events[moment - 1].depth, 0)
    player = Player(classic, moment)
    player.next_line()
    later = [at + 1 for at, e in enumerate(events) if at + 1 > moment and e.kind == "line" and e.depth <= depth]
    assert player.moment == (later[0] if later else moment)
    player.go(moment)
    player.previous_line()
    earlier = [at + 1 for at, e in enumerate(events) if at + 1 < moment and e.kind == "line" and e.depth <= depth]
    assert player.moment == (earlier[-1] if earlier else moment)


def test_moments_outside_mean_the_ends(classic: Shot) -> None:
    player = Player(classic, 10**9)
    assert player.moment == player.last == len(classic.history)
    assert "end of the run" in player.forward()
    player.go(-5)
    assert player.moment == 0
    assert "start of the run" in player.backward()
    assert "has not begun" in player.next_iteration()

"""trace.js against the Python that made the trace: states, elements and lanes, at places of several films."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from playwright.sync_api import Browser, Page

from kernels.simt.cursor import Cursor
from kernels.simt.trace import State, ThreadState, Trace, Value
from kernels.simt.trace_json import _number
from walkthroughs.stepper import film_files
from walkthroughs.stepper.films import film, record

pytestmark = pytest.mark.browser
ROOT = Path(__file__).resolve().parents[2]
# One writer, one loop of one thread, two attention kernels with device functions and barriers, one with a race.
FILMS = ("reshape-and-cache", "gather", "classic-v2-reduce", "classic-v1", "paged-2d", "tiny-vllm-attention")


@cache
def content(name: str) -> dict[str, Any]:
    """A film's file as the page gets it: through JSON."""
    return dict(json.loads(json.dumps(film_files.content(film(name)))))


@pytest.fixture(scope="module")
def reader(browser: Browser) -> Iterator[Page]:
    """An empty page with trace.js and every film read by it."""
    page = browser.new_page()
    page.add_script_tag(path=str(ROOT / "docs" / "assets" / "js" / "trace.js"))
    page.evaluate("window.traces = {}")
    for name in FILMS:
        given_trace = content(name)["trace"]
        page.evaluate("([name, json]) => { traces[name] = pagewalkTrace.read(json); }", [name, given_trace])
    yield page
    page.close()


def value(name: str, number: int) -> Any:
    return json.dumps(content(name)["trace"]["values"][number])


def written(value: Value) -> str:
    """A value as the format writes it, as text, so that -0.0 is not 0.0 and True is not 1."""
    data = list(value.data) if isinstance(value.data, tuple) else _number(value.type, value.data)
    return json.dumps([value.type, data])


def expected_thread(thread: ThreadState) -> dict[str, Any]:
    return {
        "frames": [
            {"function": f.function, "line": f.line, "variables": {k: written(v) for k, v in f.variables.items()}}
            for f in thread.frames
        ],
        "seen": {
            str(array): {str(index): [written(v), event] for index, (v, event) in cells.items()}
            for array, cells in thread.seen.items()
            if cells
        },
        "interval": thread.interval,
        "last_access": thread.last_access,
        "doing": thread.doing,
    }


def given_thread(name: str, thread: dict[str, Any]) -> dict[str, Any]:
    for frame in thread["frames"]:
        frame["variables"] = {key: value(name, number) for key, number in frame["variables"].items()}
    for cells in thread["seen"].values():
        for cell in cells.values():
            cell[0] = value(name, cell[0])
    return thread


def assert_same(name: str, state: State, found: dict[str, Any]) -> None:
    assert found["at"] == state.at
    assert len(found["threads"]) == len(state.threads)
    for number, (ours, theirs) in enumerate(zip(state.threads, found["threads"], strict=True)):
        assert given_thread(name, theirs) == expected_thread(ours), f"{name}, after {state.at} events, thread {number}"


def state_of(page: Page, name: str, at: int) -> dict[str, Any]:
    return dict(page.evaluate("([name, at]) => traces[name].state(at)", [name, at]))


@pytest.mark.parametrize("name", FILMS)
def test_the_state_is_the_same_at_every_part_of_a_film(reader: Page, name: str) -> None:
    trace = record(film(name))
    assert reader.evaluate("name => traces[name].length", name) == len(trace)
    for at in {0, 1, 2, *range(3, len(trace), max(1, len(trace) // 25)), len(trace) - 1, len(trace)}:
        assert_same(name, trace.state(at), state_of(reader, name, at))


@settings(max_examples=60)
@given(data=st.data())
def test_the_state_is_the_same_anywhere(reader: Page, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(FILMS))
    trace = record(film(name))
    at = data.draw(st.integers(0, len(trace)))
    assert_same(name, trace.state(at), state_of(reader, name, at))


@settings(max_examples=40)
@given(data=st.data())
def test_a_walk_of_a_cursor_meets_the_same_states(reader: Page, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(FILMS))
    trace = record(film(name))
    cursor = Cursor(trace, data.draw(st.integers(0, len(trace.threads) - 1)))
    for move in data.draw(st.lists(st.sampled_from(["forward", "next_line", "next_time", "next_barrier", "backward"]))):
        getattr(cursor, move)()
        assert_same(name, cursor.state, state_of(reader, name, cursor.at))


@settings(max_examples=40)
@given(data=st.data())
def test_elements_are_those_that_any_thread_last_saw(reader: Page, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(FILMS))
    trace = record(film(name))
    at = data.draw(st.integers(0, len(trace)))
    array = data.draw(st.integers(0, len(trace.arrays) - 1))
    found = reader.evaluate(
        """([name, array, at]) => [...(traces[name].cells.get(array) || new Map()).keys()]
             .map(index => [index, traces[name].cell(array, index, at)]).filter(([, cell]) => cell)""",
        [name, array, at],
    )
    ours = {index: written(seen) for index, seen in trace.state(at).cells(array).items()}
    assert {index: value(name, cell[0]) for index, cell in found} == ours


def lanes_by_hand(trace: Trace, focus: int) -> list[list[tuple[bool, int]]]:
    """For each moment of a thread and each lane of its warp: whether it is there, and its last event."""
    here = trace.threads[focus]
    warp = here.number // 32
    lanes = {t.number % 32: n for n, t in enumerate(trace.threads) if t.block == here.block and t.number // 32 == warp}
    mine = [trace.events[number] for number in trace.events_of(focus)]
    last = [-1] * 32
    found = []
    for moment, event in enumerate(mine):
        # The line that the thread stands at, and how often it came there until now.
        lines = [place for place in range(moment + 1) if mine[place].kind == "line"]
        begun = lines[-1] if lines else -1
        spot = (mine[begun].function, mine[begun].line)
        count = sum((mine[place].function, mine[place].line) == spot for place in lines)
        row = []
        for lane in range(32):
            own = trace.events_of(lanes[lane]) if lane in lanes else []
            theirs = [trace.events[number] for number in own]
            visits = [i for i, e in enumerate(theirs) if e.kind == "line" and (e.function, e.line) == spot]
            start = -1 if begun < 0 else visits[count - 1] if len(visits) >= count else None
            there = False
            if start is not None:
                # As many events further, and the same kinds of events on the way.
                way = [e.kind for e in theirs[start + 1 : start + 1 + moment - begun]]
                there = bool(theirs) and way == [e.kind for e in mine[begun + 1 : moment + 1]]
            if there and start is not None:
                last[lane] = own[start + moment - begun]
            row.append((there, last[lane]))
        found.append(row)
        assert row[here.number % 32] == (True, trace.events_of(focus)[moment]), event
    return found


@pytest.mark.parametrize(("name", "thread"), [("reshape-and-cache", 0), ("classic-v2-reduce", 5), ("gather", 0)])
def test_lanes_stand_at_their_nth_visit_of_the_line(reader: Page, name: str, thread: int) -> None:
    trace = record(film(name))
    found = reader.evaluate(
        """([name, focus]) => { const steps = new pagewalkTrace.Lockstep(traces[name], focus);
             return steps.own.map((_, moment) => steps.lanes.map((_, lane) => [steps.on[lane][moment] === 1,
               steps.lanes[lane] < 0 ? -1 : steps.at[lane][moment]])); }""",
        [name, thread],
    )
    assert [[tuple(lane) for lane in moment] for moment in found] == lanes_by_hand(trace, thread)


def elements_by_hand(trace: Trace, array: int) -> list[dict[int, str]]:
    """What the lanes in lockstep have seen of an array at each moment of lane 0: the last that was reached."""
    lanes = lanes_by_hand(trace, 0)
    own = trace.events_of(0)
    numbers = [t.number for t in trace.threads]
    told: dict[int, tuple[int, int, str]] = {}
    found = []
    reached: set[int] = set()
    for moment, row in enumerate(lanes):
        fresh = []
        for thread, number in enumerate(numbers):
            until = row[number][1] if number < 32 else own[moment]
            fresh += [n for n in trace.events_of(thread) if n <= until and n not in reached]
        for n in sorted(fresh):
            event = trace.events[n]
            value = event.result if event.kind == "atomic" else event.value
            if event.array == array and value is not None and event.kind in ("read", "write", "atomic"):
                told[event.index] = (moment, n, written(value))
        reached |= set(fresh)
        found.append({index: text for index, (_, _, text) in told.items()})
    return found


def test_elements_in_lockstep_are_those_last_reached(reader: Page) -> None:
    name = "classic-v2-reduce"
    trace = record(film(name))
    for array in (n for n, info in enumerate(trace.arrays) if info.space == "shared"):
        found = reader.evaluate(
            """([name, array]) => { const steps = new pagewalkTrace.Lockstep(traces[name], 0);
                 const cells = [...(traces[name].cells.get(array) || new Map()).keys()];
                 return steps.own.map((_, moment) => cells.map(index => [index, steps.element(array, index, moment)])
                   .filter(([, value]) => value >= 0)); }""",
            [name, array],
        )
        ours = elements_by_hand(trace, array)
        assert [{index: value(name, number) for index, number in moment} for moment in found] == ours
        assert ours[-1]


def test_another_version_is_refused(reader: Page) -> None:
    for wrong in ({}, {"format": "pagewalk-trace", "version": 2}, {"format": "other", "version": 1}):
        said = reader.evaluate("json => { try { pagewalkTrace.read(json); } catch (e) { return e.message; } }", wrong)
        assert "not a trace of version 1" in said


def test_a_damaged_row_is_refused(reader: Page) -> None:
    head = json.loads(record(film("gather")).to_json())
    for events in ([["L", 0, 3, []]], [["C", 0, 0, 1]], [["C", 0, 0, 1, []], ["R", 0, 0, 0]]):
        said = reader.evaluate(
            "json => { try { pagewalkTrace.read(json); } catch (e) { return e.message; } }", {**head, "events": events}
        )
        assert said.startswith("damaged trace, events[")


def test_rows_as_the_format_has_them_are_read_too(reader: Page) -> None:
    trace = record(film("gather"))
    reader.evaluate("json => { traces.rows = pagewalkTrace.read(json); }", json.loads(trace.to_json()))
    for at in range(0, len(trace), 17):
        assert_same("gather", trace.state(at), dict(reader.evaluate("at => traces.rows.state(at)", at)))


@pytest.mark.parametrize(
    ("given_value", "digits", "text"),
    [
        (["float32", 0.123456789], 6, "0.123457"),
        (["float32", 0.123456789], 0, "0.123456789"),
        (["float32", "nan"], 6, "nan"),
        (["int32", -7], 6, "-7"),
        (["int", 1234567890], 6, "1234567890"),
        (["bool", True], 6, "true"),
        (["none", None], 6, "none"),
        (["array", [2, 8, 4, 2]], 6, "[4 × 2] from 8"),
        (["text", "<x>"], 6, "<x>"),
    ],
)
def test_values_are_said_in_few_digits(reader: Page, given_value: list[Any], digits: int, text: str) -> None:
    assert reader.evaluate("([value, digits]) => pagewalkTrace.text(value, digits)", [given_value, digits]) == text

"""Predictions against a walk of their own over the trace's events, and against the formulas in plain arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walkthroughs.digest import ROOT
from walkthroughs.drills import predict
from walkthroughs.drills.errors import DrillError
from walkthroughs.drills.item import Question
from walkthroughs.drills.moments import Line, Moment, find_line, visits
from walkthroughs.drills.predict_bank import SPECS, Spec
from walkthroughs.stepper.films import film, record

SEEDS = range(12)
NAMES = [spec.name for spec in SPECS]


@dataclass
class Walk:
    """What a thread does at a line, read off the events one by one: no cursor, no keyframes."""

    before: dict[str, Any]
    after: dict[str, Any] = field(default_factory=dict)
    reads: list[tuple[str, int, Any]] = field(default_factory=list)
    writes: list[tuple[str, int, Any]] = field(default_factory=list)
    shuffled: list[tuple[Any, Any, int]] = field(default_factory=list)
    barriers: int = 0


def walk(name: str, thread: int, path: str, line: int, nth: int) -> Walk | None:
    """The nth visit of a line, or None where there is none."""
    trace = record(film(name))
    frames: list[dict[str, Any]] = []
    found: Walk | None = None
    depth = barriers = count = 0
    for event in trace.events:
        if event.thread != thread:
            continue
        if event.kind == "call":
            frames.append({})
        for variable, value in event.changed:
            frames[-1].pop(variable, None)
            if value is not None:
                frames[-1][variable] = value.data
        if found and event.kind in ("line", "return") and event.depth == depth:
            found.after = dict(frames[-1])
            return found
        if event.kind == "return":
            frames.pop()
        barriers += event.kind == "barrier"
        if found:
            place = (trace.arrays[event.array].name if event.array >= 0 else "", event.index)
            if event.kind in ("read", "write"):
                assert event.value is not None
                (found.reads if event.kind == "read" else found.writes).append((*place, event.value.data))
            if event.kind == "warp":
                assert event.value is not None
                assert event.result is not None
                found.shuffled.append((event.value.data, event.result.data, event.source))
        elif (event.kind, event.line, trace.files[trace.functions[event.function].file].path) == ("line", line, path):
            count += 1
            if count == nth:
                found, depth = Walk(dict(frames[-1]), barriers=barriers), event.depth
    return found


def walk_of(question: Question) -> Walk:
    state = question.state
    found = walk(str(state["film"]), *(state[key] for key in ("thread", "path", "line", "nth")))  # type: ignore[arg-type]
    assert found is not None
    return found


def lanes_at(question: Question) -> int:
    """How many lanes of warp 0 make the same visit."""
    state = question.state
    return sum(
        walk(str(state["film"]), lane, *(state[key] for key in ("path", "line", "nth"))) is not None  # type: ignore[arg-type]
        for lane in range(32)
    )


def data(name: str, array: str) -> tuple[Any, ...]:
    found = next(known for known in record(film(name)).arrays if known.name == array)
    assert found.data is not None
    return found.data


def element(v: dict[str, Any], block: str) -> int:
    """The place of a key's element, from the shape [blocks, heads, pieces, block size = 16, x = 4]."""
    start = v[block] * v["kv_block_stride"] + v["kv_head_idx"] * v["kv_head_stride"]
    return int(start + (v["offset1"] * 16 + v["physical_block_offset"]) * 4 + v["offset2"] + v["e"])


def stored(v: dict[str, Any]) -> int:
    index = v["block_idx"]
    for size, at in (("num_heads", "head_idx"), ("h_block_count", "h_block"), ("block_size", "block_offset")):
        index = index * v[size] + v[at]
    return int(index * v["x"] + v["i"])


# The same answer by arithmetic: what the state shows is enough to work it out.
FORMULAS: dict[str, Callable[[Walk, Question], float]] = {
    "physical-block": lambda w, q: data("classic-v1", "block_tables")[w.before["block_table"] + w.before["block_idx"]],
    "tile-block": lambda w, q: data("paged-2d", "block_tables_ptr")[w.before["abs_token_idx"] // 16],
    "running-max": lambda w, q: max(w.before["m"], w.before["score"]),
    "running-sum": lambda w, q: w.before["d"] * w.before["correction_factor"] + w.before["exp_score"],
    "accumulator": lambda w, q: w.before["acc"] * w.before["correction_factor"] + w.before["exp_score"] * w.before["v"],
    "second-shuffle": lambda w, q: neighbour(q, 8).before["qk"],
    "butterfly": lambda w, q: max(w.before["qk_max"], xor_neighbour(q, w.before["lane_mask"]).before["qk_max"]),
    "slot": lambda w, q: data("slot-mapping", "block_table_ptr")[w.before["pos"] // 16] * 16 + w.before["pos"] % 16,
    "stored-element": lambda w, q: stored(w.before),
    "loaded-element": lambda w, q: element(w.before, "physical_block_number"),
    "weight": lambda w, q: math.exp(w.reads[0][2] - w.before["qk_max"]),
    "tail-value": lambda w, q: w.reads[0][2] if w.before["token_idx"] + w.before["j"] < w.before["seq_len"] else 0.0,
    "rescaled-sum": lambda w, q: w.reads[0][2] * math.exp(w.before["l"] - w.before["max_logit"]),
    "merged-row": lambda w, q: w.before["acc"] + w.reads[0][2] * w.reads[1][2] * w.before["inv_global_exp_sum"],
    "active-lanes": lambda w, q: min(16, w.before["seq_len"] - w.before["start_n"]),
    "barriers": lambda w, q: 2 * (16 * w.before["logical_block_idx"] + w.before["token"] + 1),
}
# And once more as the trace has it.
RECORDED: dict[str, Callable[[Walk, Question], float]] = {
    "physical-block": lambda w, q: w.reads[0][2],
    "tile-block": lambda w, q: w.reads[0][2],
    "running-max": lambda w, q: w.after["m_new"],
    "running-sum": lambda w, q: w.after["d"],
    "accumulator": lambda w, q: w.after["acc"],
    "second-shuffle": lambda w, q: w.shuffled[0][1],
    "butterfly": lambda w, q: w.after["qk_max"],
    "slot": lambda w, q: w.after["slot_ids"],
    "stored-element": lambda w, q: w.writes[0][1],
    "loaded-element": lambda w, q: w.reads[0][1],
    "weight": lambda w, q: w.after["val"],
    "tail-value": lambda w, q: w.writes[0][2],
    "rescaled-sum": lambda w, q: w.after["rescaled_exp_sum"],
    "merged-row": lambda w, q: w.after["acc"],
    "active-lanes": lambda w, q: lanes_at(q),
    "barriers": lambda w, q: w.barriers,
}


def neighbour(question: Question, distance: int) -> Walk:
    """The same visit of the lane so much higher, or of the lane itself."""
    lane = question.state["thread"]
    assert isinstance(lane, int)
    other = Question(question.item, 0, "", "number", state={**question.state, "thread": lane + distance})
    return walk_of(other if lane + distance < 32 else question)


def xor_neighbour(question: Question, mask: int) -> Walk:
    lane = question.state["thread"]
    assert isinstance(lane, int)
    return neighbour(question, (lane ^ mask) - lane)


def ask(name: str, seed: int) -> Question:
    return predict.ask(next(item for item in predict.items() if item.id == f"predict/{name}"), seed)


def test_every_prediction_has_its_oracles() -> None:
    assert len(NAMES) >= 10
    assert FORMULAS.keys() == RECORDED.keys() == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_the_answer_is_the_traces_and_the_formulas(name: str) -> None:
    for seed in SEEDS:
        question = ask(name, seed)
        answer, found = question.state["answer"], walk_of(question)
        assert answer == RECORDED[name](found, question)
        assert answer == pytest.approx(FORMULAS[name](found, question), rel=1e-5, abs=1e-9)
        assert isinstance(answer, int | float)
        assert math.isfinite(answer)


@pytest.mark.parametrize("name", NAMES)
def test_the_state_shown_is_the_state_before(name: str) -> None:
    spec = next(spec for spec in SPECS if spec.name == name)
    for seed in SEEDS:
        question = ask(name, seed)
        before = walk_of(question).before
        for variable in spec.shows:
            (shown,) = [line for line in question.text.splitlines() if line.startswith(f"- `{variable}` = ")]
            assert float(shown.split(" = ")[1]) == pytest.approx(before[variable], rel=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_the_line_shown_is_our_own(name: str) -> None:
    question = ask(name, 3)
    path, line = str(question.state["path"]), question.state["line"]
    assert isinstance(line, int)
    text = (ROOT / path).read_text(encoding="utf-8").splitlines()[line - 1].strip()
    assert f"\n    {text}\n" in question.text
    assert f"line {line} of `{path}`" in question.text


@pytest.mark.parametrize("name", NAMES)
def test_a_seed_is_a_question_and_seeds_differ(name: str) -> None:
    assert ask(name, 5) == ask(name, 5)
    assert len({ask(name, seed).text for seed in range(30)}) > 1
    assert ask(name, 5).form == "number"


@pytest.mark.parametrize("name", NAMES)
def test_right_wrong_and_the_named_mistakes(name: str) -> None:
    spec = next(spec for spec in SPECS if spec.name == name)
    seen = set()
    for seed in range(40):
        question = ask(name, seed)
        answer, wrong = question.state["answer"], question.state["wrong"]
        assert isinstance(answer, int | float)
        assert isinstance(wrong, dict)
        assert predict.grade(question, predict.solve(question).answer).right
        assert predict.grade(question, repr(answer)).right
        off = answer + 1 if isinstance(answer, int) else answer + 0.001 * (1 + abs(answer))
        assert predict.grade(question, repr(off)).right is False
        for mistake, value in wrong.items():
            graded = predict.grade(question, repr(value))
            assert graded.right is False
            # Two mistakes may lead to one value; one of them is named.
            assert predict.same(wrong[graded.mistake], value)
            assert graded.mistake in graded.said
            seen.add(mistake)
    assert seen == all_mistakes(spec)


def all_mistakes(spec: Spec) -> set[str]:
    """Every mistake that the spec names at any place where it can be asked."""
    wanted = film(spec.film)
    line = find_line(wanted, spec.concept, spec.begins)
    return {
        mistake
        for thread, known in enumerate(record(wanted).threads)
        if known.number < 32 and visits(wanted, thread, line)
        for mistake in spec.wrong(Moment(wanted, thread, line, 1))
    }


@pytest.mark.parametrize("name", NAMES)
def test_the_solution_says_why(name: str) -> None:
    solution = predict.solve(ask(name, 1))
    (point,) = solution.points
    assert point.steps
    assert point.concepts
    assert point.text in solution.why


@given(st.floats(-1e6, 1e6), st.floats(-3e-4, 3e-4))
def test_floats_are_right_within_a_ten_thousandth(value: float, off: float) -> None:
    typed = value * (1 + off)
    assert predict.same(typed, value) is (abs(typed - value) <= 1e-4 * abs(value))


@given(st.integers(-(10**9), 10**9), st.integers(-5, 5))
def test_whole_numbers_are_right_exactly(value: int, off: int) -> None:
    assert predict.same(value + off, value) is (off == 0)
    assert predict.same(float(value + off), value) is (off == 0)


def test_what_is_not_finite() -> None:
    assert predict.same(math.nan, math.nan)
    assert not predict.same(math.nan, 1.0)
    assert not predict.same(math.inf, 1.0)
    assert predict.same(-math.inf, -math.inf)


@pytest.mark.parametrize("right", [1.5, math.inf, -math.inf, math.nan])
def test_a_whole_number_that_no_float_holds_is_wrong(right: float) -> None:
    assert not predict.same(10**400, right)
    assert not predict.same(-(10**400), right)
    assert predict.same(10**400, 10**400)


@given(st.one_of(st.integers(-(10**12), 10**12), st.floats(allow_nan=False)))
def test_a_number_is_read_as_it_is_printed(value: float) -> None:
    assert predict.read_number(f"  {value!r} ") == value


@pytest.mark.parametrize("typed", ["", "seven", "1 2", "0x10", "1/2"])
def test_what_is_no_number_is_refused(typed: str) -> None:
    with pytest.raises(DrillError, match="is no number"):
        predict.read_number(typed)


def test_a_line_or_visit_that_is_not_there() -> None:
    gather = film("gather")
    with pytest.raises(DrillError, match="no line of running-max begins with 'nothing'"):
        find_line(gather, "running-max", "nothing")
    line = find_line(gather, "running-max", "m_new =")
    assert Moment(gather, 0, line, 6).nth == 6
    with pytest.raises(DrillError, match="is not 7 times at line"):
        Moment(gather, 0, line, 7)


def test_a_masked_lane_has_no_such_moment() -> None:
    tile = film("paged-2d")
    line = find_line(tile, "block-table-lookup", "physical =")
    first, second = Moment(tile, 0, line, 1), Moment(tile, 0, line, 2)
    assert first.of(5) is not None
    assert second.of(5) is None  # 20 tokens: four are left for the second tile
    assert (first.lanes, second.lanes) == (tuple(range(16)), tuple(range(4)))


def test_a_line_is_found_by_its_number() -> None:
    line = find_line(film("gather"), "running-max", "m_new =")
    assert line == Line("kernels/gather.py", line.number, "m_new = max(m, score)")

"""Every compute drill, 200 times with random numbers, against an independent computation; how answers are judged."""

from __future__ import annotations

import importlib.util
import json
import random
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from annotate.concepts import concepts
from annotate.sources import SourceTree
from walkthroughs import step
from walkthroughs.claims.ledger import claims
from walkthroughs.drills import bank, compute
from walkthroughs.drills.compute import problem, quantities
from walkthroughs.drills.compute.grading import ask, grade, solve
from walkthroughs.drills.errors import DrillError
from walkthroughs.drills.item import Item, Question

ROUNDS = 200
ITEMS = {item.id: item for item in compute.items()}


def _truth() -> dict[str, Any]:
    spec = importlib.util.spec_from_file_location("drills_truth", Path(__file__).with_name("truth.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: dict[str, Any] = module.TRUTH
    return found


TRUTH = _truth()


def name(item: Item) -> str:
    return item.id.removeprefix("compute/")


def seeds(item: Item) -> list[int]:
    rng = random.Random(f"test {item.id}")
    return [rng.randrange(2**31) for _ in range(ROUNDS)]


def decimal(value: Fraction) -> str:
    """A fraction whose decimals end, in full."""
    places = 0
    while (value * 10**places).denominator != 1:
        places += 1
    digits = f"{int(value * 10**places):0{places + 1}d}"
    return f"{digits[: len(digits) - places]}.{digits[len(digits) - places :]}" if places else digits


def spellings(value: Any, unit: str) -> list[str]:
    """Every way in which an exact value may be typed."""
    if isinstance(value, bool):
        return ["yes", "Y", "true"] if value else ["no", "N.", "False"]
    if isinstance(value, list):
        plain = ", ".join(map(str, value))
        run = value == list(range(value[0], value[0] + len(value))) if value else False
        ways = [plain, f"[{plain}]", plain.replace(",", " "), plain.replace(", ", ";")] if value else ["none", "[]"]
        return [*ways, *([f"{value[0]}-{value[-1]}", f"{value[0]} to {value[-1]}"] if run else [])]
    exact = Fraction(value)
    ways = [decimal(exact) if isinstance(value, float) else str(value), f" {value!r} "]
    if isinstance(value, int):
        ways += [f"{value:,}", f"{value:_}", f"{value:,}".replace(",", " "), hex(value), f"{value}.0", f"= {value}"]
        ways += [f"2^{value.bit_length() - 1}"] if value and value & (value - 1) == 0 else []
    if unit == "bytes":
        scales = {"KiB": 1 << 10, "MiB": 1 << 20, "gib": 1 << 30, "kB": 10**3, "MB": 10**6, "GB": 10**9, "bytes": 1}
        ways += [f"{decimal(exact / scale)} {word}" for word, scale in scales.items()]
        ways += [f"{value:,}B"]
    elif unit == "us":
        scales = {"us": 1, "µs": 1, "ms": 1000, "s": 10**6, "ns": Fraction(1, 1000), "microseconds": 1}
        ways += [f"{decimal(exact / scale)} {word}" for word, scale in scales.items()]
    elif unit:
        ways += [f"{ways[0]} {unit}", f"{ways[0]}{unit.removesuffix('s')}"]
    return ways


def shows(text: str, value: Any) -> bool:
    """Whether a given value stands in the text, as a whole word."""
    return re.search(rf"(?<![\w.]){re.escape(str(value))}(?![\w]|\.\d)", text) is not None


@pytest.mark.parametrize("item", ITEMS.values(), ids=name)
def test_against_an_independent_computation(item: Item) -> None:
    texts = set()
    for seed in seeds(item):
        question = ask(item, seed)
        texts.add(question.text)
        given: Any = question.state["given"]
        assert given
        hidden = [key for key, value in given.items() if not shows(question.text, value)]
        assert not hidden, (hidden, question.text)
        expected, answer = TRUTH[name(item)](given), question.state["answer"]
        assert type(expected) is type(answer), question.text
        if isinstance(expected, float):
            assert answer == pytest.approx(expected, rel=1e-8), question.text
        else:
            assert answer == expected, question.text
    assert len(texts) >= 12


def hides(question: Question, typed: str) -> bool:
    """Whether a size with a prefix is so round that the right answer rounds to it too: it must not be judged then."""
    unit = typed.strip()[-3:].strip(" .0123456789")
    scale = {"KiB": 1 << 10, "MiB": 1 << 20, "gib": 1 << 30, "kB": 10**3, "MB": 10**6, "GB": 10**9}.get(unit)
    if question.unit != "bytes" or scale is None:
        return False
    plain = typed.removesuffix(unit).strip()
    last = Fraction(scale, 10 ** len(plain.partition(".")[2]))
    right = question.state["answer"]
    assert isinstance(right, int)
    if abs(Fraction(plain) * scale - right) > last / 2 or len(plain.replace(".", "").lstrip("0")) < 3:
        return False
    with pytest.raises(DrillError, match="rounded too far"):
        grade(question, typed)
    return True


@pytest.mark.parametrize("item", ITEMS.values(), ids=name)
def test_the_right_answer_is_right_and_the_wrong_ones_are_named(item: Item) -> None:
    named = set()
    for number, seed in enumerate(seeds(item)):
        question = ask(item, seed)
        answer, slips = question.state["answer"], question.state["slips"]
        for typed in spellings(answer, question.unit):
            graded = grade(question, typed)
            assert graded.right, (typed, graded, question.text)
            assert graded.said.startswith("Right: ")
            assert not graded.mistake
        assert isinstance(slips, list)
        assert slips, question.text
        for value, mistake in slips:
            # Every spelling of every wrong value in some rounds, the plain one in all.
            for typed in spellings(value, question.unit)[: None if number < ROUNDS // 4 else 1]:
                if hides(question, typed):
                    continue
                graded = grade(question, typed)
                assert graded.right is False, (typed, mistake, question.text)
                assert graded.mistake == mistake, (typed, question.text)
                assert mistake in graded.said
            named.add(mistake)
    assert len(named) >= 3 or isinstance(answer, bool)


@pytest.mark.parametrize("item", ITEMS.values(), ids=name)
def test_a_seed_is_a_question(item: Item) -> None:
    first, again, other = ask(item, 7), ask(item, 7), [ask(item, seed).text for seed in range(8, 20)]
    assert first == again
    assert first.item is item
    assert first.seed == 7
    assert set(other) - {first.text}
    assert json.loads(json.dumps(first.state)) == first.state
    assert first.form == ("text" if isinstance(first.state["answer"], bool | list) else "number")


@pytest.mark.parametrize("item", ITEMS.values(), ids=name)
def test_the_solution_ends_with_the_answer(item: Item) -> None:
    for seed in range(20):
        question = ask(item, seed)
        solution = solve(question)
        answer = question.state["answer"]
        assert grade(question, solution.answer.partition(" (")[0]).right, solution.answer
        last = solution.why.splitlines()[-1]
        if isinstance(answer, float):
            typed = re.findall(r"[0-9.]+(?:e-?[0-9]+)?", last.replace(" us", ""))[-1]
            assert grade(question, typed).right, last
        elif isinstance(answer, bool):
            assert last.endswith(": yes`" if answer else ": no`")
        elif not isinstance(answer, list):
            assert shows(last, answer), last
        assert solution.why.count("`") == 2 * len(solution.why.splitlines())
        assert solution.points[0].concepts == item.concepts


def test_there_are_enough_and_each_has_a_truth() -> None:
    assert len(ITEMS) >= 25
    assert {name(item) for item in ITEMS.values()} == set(TRUTH)
    assert len({item.title for item in ITEMS.values()}) == len(ITEMS)
    assert {item.level for item in ITEMS.values()} == {1, 2, 3}


def test_links_resolve() -> None:
    known, ledger = concepts(), claims()
    for item in ITEMS.values():
        assert item.steps, item.id
        assert item.concepts, item.id
        assert [one for one in item.concepts if one not in known] == []
        assert [one for one in item.claims if one not in ledger] == []
        for wanted in item.steps:
            assert step.get(wanted).id == wanted


def test_the_bank_reaches_them() -> None:
    question = bank.ask(ITEMS["compute/blocks"], 3)
    assert bank.grade(question, str(question.state["answer"])).right
    assert bank.solve(question).answer.endswith("blocks")


def test_the_text_says_how_to_answer() -> None:
    for item in ITEMS.values():
        question = ask(item, 1)
        how = question.text.rsplit("\n\n", 1)[1]
        answer, tolerance = question.state["answer"], question.state["tolerance"]
        if isinstance(answer, float):
            assert isinstance(tolerance, float)
            assert f"Within {tolerance * 100:g} %" in how
        elif isinstance(answer, bool):
            assert how == "*Yes or no.*"
        elif isinstance(answer, int):
            assert tolerance == 0
            assert how.startswith("*Exactly")


@pytest.mark.source
def test_no_upstream_text(vllm_024: SourceTree) -> None:
    """No line of thirty characters or more of the files that the drills speak of, however it is spaced."""
    said = "".join("".join(path.read_text().split()) for path in Path(compute.__file__).parent.glob("*.py"))
    files = [path for path in vllm_024.paths() if path.endswith((".cuh", ".cu")) or "attn" in path]
    texts = [vllm_024.read(path).decode("utf-8") for path in files]
    rows = {row for text in texts for row in text.split("\n") if not row.startswith(("import ", "from "))}
    long = {line for line in ("".join(row.split()) for row in rows) if len(line) >= 30}
    assert len(long) > 1000
    assert sorted(line for line in long if line in said) == []


# -- judging


def made(answer: Any, slips: list[Any], unit: str = "", tolerance: float = 0.0) -> Question:
    state: dict[str, object] = {"answer": answer, "slips": slips, "tolerance": tolerance, "why": "", "given": {}}
    return Question(ITEMS["compute/blocks"], 0, "?", "number", unit, state)


def test_a_rounded_size_is_right_to_the_digits_that_were_given() -> None:
    question = made(1_610_612_736, [[1_500_000_000, "used GB for GiB"]], "bytes")
    for typed in ("1.5 GiB", "1.50 GiB", "1.61 GB", "1.6106 GB", "1611 MB", "1,610,612,736"):
        assert grade(question, typed).right, typed
    assert "to the digits that you gave" in grade(question, "1.61 GB").said
    for typed in ("1.6 GB", "2 GB", "1.62 GB", "1.6107 GB", "1610612735", "1.61e9", "1610"):
        assert grade(question, typed).right is False, typed
    assert grade(question, "1.5 GB").mistake == "used GB for GiB"
    assert grade(question, "1.50 GB").mistake == "used GB for GiB"


def test_rounding_that_hides_a_mistake_is_not_judged() -> None:
    question = made(1_610_612_736, [[1_610_000_000, "cut it off"]], "bytes")
    with pytest.raises(DrillError, match="rounded too far"):
        grade(question, "1.61 GB")
    assert grade(question, "1.610613 GB").right
    assert grade(question, "1610000000").mistake == "cut it off"


def test_a_rounded_typical_value_is_named() -> None:
    question = made(9, [[8.666666666666666, "forgot to round up"], [8, "rounded down"]], "blocks")
    assert grade(question, "8.67").mistake == "forgot to round up"
    assert grade(question, "8.7").mistake == "forgot to round up"
    assert grade(question, "8").mistake == "rounded down"
    assert grade(question, "8.5").mistake == ""
    size = made(4096, [[3 * 2**20, "took three"]], "bytes")
    assert grade(size, "3.146 MB").mistake == "took three"


def test_a_tolerance_is_relative() -> None:
    question = made(50.0, [[25.0, "halved it"], [24.7, "halved a little more"]], "us", 0.01)
    assert grade(question, "50.5").right
    assert grade(question, "49.5 us").right
    assert grade(question, "0.0502 ms").right
    assert grade(question, "101/2").right
    assert grade(question, "50.51").right is False
    assert grade(question, "-50").right is False
    assert grade(question, "25.05").mistake == "halved it"
    assert grade(question, "24.71").mistake == "halved a little more"
    assert grade(question, "26").mistake == ""


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("4000", "No: that is exactly 4 times the right answer."),
        ("250", "No: that is exactly 4 times too small."),
        ("1001", "No: that is too large."),
        ("999", "No: that is too small."),
        ("0", "No: that is not it."),
        ("-1000", "No: that is not it."),
    ],
)
def test_an_unknown_wrong_number_is_compared(typed: str, said: str) -> None:
    assert grade(made(1000, []), typed).said == said


@pytest.mark.parametrize("right", [2.5, 1000])
def test_a_number_that_no_float_holds_is_compared(right: float) -> None:
    question = made(right, [], "", 0.01 if isinstance(right, float) else 0.0)
    for typed, said in (("999999^300", "too large"), ("1e300", "too large"), ("-1e300", "not it")):
        assert said in grade(question, typed).said
    assert "too large" in grade(made(2.5, [], "", 0.01), "1e300/1e-300").said
    assert "not it" in grade(made(2.5, [], "", 0.01), "-1e300/1e-300").said


def test_lists_mind_the_order_and_the_number() -> None:
    question = made([7, 2, 5], [[[0, 1, 2], "left the table out"]])
    assert grade(question, "7 2 5").right
    assert grade(question, "5, 2, 7").said == "No: these are the right numbers in another order."
    assert grade(question, "7, 2").said == "No: you name 2, and there are 3."
    assert grade(question, "0-2").mistake == "left the table out"
    assert grade(question, "7, 2, 6").said == "No: 7, 2, 6 is not it."


def test_zero_as_an_answer_is_judged() -> None:
    question = made(0, [[5, "counted the rest"]])
    assert grade(question, "0").right
    assert grade(question, "5").mistake == "counted the rest"
    assert grade(question, "3").right is False


# -- generators


def test_wrong_values_that_are_right_or_there_already_are_left_out() -> None:
    drawn = problem.Problem("?", 8, ((8, "right"), (4, "halved"), (4, "again"), (2.5, "not rounded")), "")
    assert problem.distinct(drawn) == ((4, "halved"), (2.5, "not rounded"))
    near = problem.Problem(
        "?", 100.0, ((102.0, "too near"), (110.0, "far"), (111.0, "near to far")), "", tolerance=0.01
    )
    assert problem.distinct(near) == ((110.0, "far"),)
    rows = problem.Problem("?", [1, 2], (([1, 2], "right"), ([2, 1], "swapped"), ([2, 1], "again")), "")
    assert problem.distinct(rows) == (([2, 1], "swapped"),)


def test_an_id_is_taken_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(problem, "GENERATORS", {})

    def draw(rng: random.Random) -> problem.Problem:
        return problem.Problem(str(rng.random()), 1, (), "")

    problem.generator("new", title="New", level=1)(draw)
    with pytest.raises(ValueError, match="compute/new is there twice"):
        problem.generator("new", title="Other", level=1)(draw)
    assert list(problem.GENERATORS) == ["compute/new"]
    assert problem.GENERATORS["compute/new"].problem(1) == problem.GENERATORS["compute/new"].problem(1)


def test_answers_are_shown_with_their_unit() -> None:
    assert quantities.shown(131072, "bytes") == "131,072 bytes (128 KiB)"
    assert quantities.shown(1_610_612_736, "bytes") == "1,610,612,736 bytes (1.5 GiB)"
    assert quantities.shown(1001, "bytes") == "1,001 bytes"
    assert quantities.shown(1, "blocks") == "1 block"
    assert quantities.shown(3.25, "us") == "3.25 us"
    assert quantities.shown(157286.4, "us") == "157,286 us"
    assert quantities.shown(7.21399e-7) == "7.214e-07"
    assert quantities.shown([]) == "none"
    assert quantities.shown([7, 2, 5]) == "7, 2, 5"
    assert quantities.shown(list(range(32, 40))) == "32-39"
    assert quantities.shown(True) == "yes"

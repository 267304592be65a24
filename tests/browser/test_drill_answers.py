"""The page's judge of answers against Python's: thousands of typed answers, the same verdicts, words and mistakes."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from annotate.spans import spans
from walkthroughs.drills import bank, compute, find, predict
from walkthroughs.drills.compute import quantities
from walkthroughs.drills.compute.quantities import BYTES, TIMES
from walkthroughs.drills.errors import DrillError
from walkthroughs.drills.item import Graded, Item, Question
from walkthroughs.site import drill_files

pytestmark = pytest.mark.browser
SCRIPTS = Path(__file__).resolve().parents[2] / "docs" / "assets" / "js"
PARTS = ("words", "exact", "quantities", "grade", "find")
NOISE = "0123456789..,_'+-−eExX^*/ %KMGibB~=≈`µs\t\xa0\ufeff[](){};:#L–١٣\ud800é\n\x1c\x85"
STRANGE = [
    "", " ", "none", "NONE", "nothing", "yes", "Yes!", "No.", "it doesn't", "true", "n", "inf", "-Infinity", "NaN",
    "+nan", "1_000", "1__0", "_1", "1_", "1e400", "-1e400", "1e-400", "1" * 350, "1" * 401, "9" * 5000,
    "1" + "0" * 399, "1e300/1e-300", "999999^300", "2^-300", "0^-1", "0^0", "3/8", "1/0", "1 / 2 / 3", "0x1F", "0x",
    "0x1F KiB", "1e3", "1e301", "1.e3", ".5", ".", "+", "-", "−5", "- 5", "+5", "1,5", "1,234", "1,234.5", "1,23",
    "12_345", "1'000 000", "1 000 000", "~ 3", "≈2", "about 7", "= 12", "12 Kb", "12 kB", "12 KB", "12 kib", "3 µs",
    "3 μs", "3 minutes", "12 %", "12 percent", "1.5 GB", "1.5 GiB", "1-3", "3-1", "1..4", "1 to 4", "1 – 4", "0-2000",
    "0-999", "0-1000", "1-1000",
    "1, 2 and 3", "1 und 2", "1 2 3", "[1, 2]", "(1;2)", "{}", "[]", "1,,2", "-1, -2", "0x10 3", "1.5, 2", "٣", "١٢",
    "1²", "𝟛", "5️", "lineſ 5", "lıne 5", "LİNES 5", "l5-l9", "line5", "a:5", "a#5-6", "a b:5", "a::5", ":5", "5 - 9",
    "5–9", "0", "0-3", "9-5", "1234567890", "123456789-1234567890", "'", '"', "'\"", "\\", "\u200b5",
]  # fmt: skip


# Answers every case, or says in which words it was refused.
ASK = """
text => JSON.stringify(JSON.parse(text).map(([part, name, ...given]) => {
  try {
    return { value: PagewalkDrill[part][name](...given) };
  } catch (error) {
    if (!(error instanceof PagewalkDrill.Refused)) throw error;
    return { said: error.said };
  }
}), (key, value) => (typeof value === "bigint" ? String(value) : value))
"""


def said(call: Callable[..., Any], *given: Any) -> dict[str, Any]:
    """What a call answers, or the words of its refusal; as JSON gives it back."""
    try:
        found = {"value": call(*given)}
    except DrillError as error:
        found = {"said": str(error)}
    answer: dict[str, Any] = json.loads(json.dumps(found))
    return answer


def judge(grade: Callable[[Question, str], Graded], question: Question, text: str) -> dict[str, Any]:
    return asdict(grade(question, text))


def listed(text: str) -> list[str]:
    return [str(one) for one in quantities.whole_numbers(text)]


# -- what a reader types


def noisy(rng: random.Random, text: str) -> str:
    """A text with a letter or two put in, left out or changed."""
    letters = list(text)
    for _ in range(rng.choice([1, 1, 2])):
        at = rng.randrange(len(letters) + 1)
        letters[at : at + rng.randrange(2)] = rng.choice(["", rng.choice(NOISE), rng.choice(NOISE)])
    return "".join(letters)


def whole(rng: random.Random, value: int) -> str:
    sign, digits = ("-" if value < 0 else rng.choice(["", "", "+"])), str(abs(value))
    kind = rng.randrange(6)
    if kind == 0:
        return sign + f"{abs(value):,}".replace(",", rng.choice(",_' "))
    if kind == 1 and value >= 0:
        return rng.choice(["0x", "0X"]) + f"{value:x}"
    if kind == 2:
        power = rng.randrange(1, 12)
        return (
            f"2^{power} {rng.choice('+-')} {abs(value) % 1000}"
            if rng.random() < 0.3
            else f"{abs(value) % 1000}**{power % 4}"
        )
    if kind == 3:
        return f"{sign}{digits}.{'0' * rng.randrange(3)}"
    return sign + digits


def real(rng: random.Random, value: float) -> str:
    if rng.random() < 0.2:
        over = Fraction(value).limit_denominator(rng.choice([7, 99, 10**6])) if abs(value) < 1e15 else Fraction(1, 3)
        return f"{over.numerator}{rng.choice(['/', ' / '])}{over.denominator}"
    return f"{value:.{rng.randrange(1, 9)}{rng.choice('gef')}}" if abs(value) < 1e30 else f"{value:g}"


def with_unit(rng: random.Random, value: Fraction, unit: str) -> str:
    """A value in another unit, rounded to some digits."""
    table = {"bytes": BYTES, "us": TIMES, "%": {"%": 1, "percent": 1}}.get(unit, {unit: 1, "": 1, unit[:-1]: 1})
    size = abs(value)
    close = [name for name, scale in table.items() if scale != 1 and 1 <= size / scale < 1000]
    name = rng.choice(close or list(table)) if rng.random() < 0.7 else rng.choice(list(table))
    shown = float(value / table[name])
    number = (
        f"{shown:.{rng.choice([1, 2, 3, 3, 4, 4, 5, 6])}{rng.choice('gf')}}"
        if rng.random() < 0.8
        else str(round(shown))
    )
    return number + rng.choice(["", " ", "  "]) + (name.upper() if rng.random() < 0.2 else name.replace("ib", "iB"))


def typed(rng: random.Random, value: object, unit: str = "") -> str:
    """A value as somebody types it, now and then slightly wrong."""
    if isinstance(value, bool):
        text = rng.choice(["yes", "Yes.", "y", "true", "it fits"] if value else ["no", "N", "false!", "it does not"])
    elif isinstance(value, list):
        shown = [*value]
        if rng.random() < 0.3:
            rng.shuffle(shown)
        shown = shown[: len(shown) - (rng.random() < 0.1)]
        text = rng.choice([", ", ",", " ", "; ", " and "]).join(map(str, shown)) or "none"
        text = f"[{text}]" if rng.random() < 0.2 else text
        if len(value) > 4 and rng.random() < 0.4:
            text = f"{value[0]}{rng.choice(['-', ' to ', '..', '–'])}{value[-1]}"
    elif isinstance(value, int | float) and unit and rng.random() < 0.5 and abs(value) < 1e30:
        text = with_unit(rng, Fraction(value), unit)
    elif isinstance(value, int):
        text = whole(rng, value)
    else:
        assert isinstance(value, float)
        text = real(rng, value)
    return noisy(rng, text) if rng.random() < 0.15 else text


def numbers(rng: random.Random) -> int:
    """A whole number of any size."""
    return rng.choice(
        [0, 1, rng.randrange(-50, 50), rng.randrange(10**6), 1 << rng.randrange(70), rng.randrange(1 << 80)]
    )


def reals(rng: random.Random) -> float:
    return rng.choice(
        [rng.random(), rng.uniform(-9, 9), rng.uniform(0, 1e6), 10.0 ** rng.randrange(-12, 20), 0.0, 1 / 3]
    )


def made_up(rng: random.Random, item: Item) -> Question:
    """A compute question with any answer and any slips."""
    draw: Callable[[], object] = rng.choice(
        [
            lambda: numbers(rng),
            lambda: numbers(rng),
            lambda: reals(rng),
            lambda: rng.random() < 0.5,
            lambda: [rng.randrange(-3, 40) for _ in range(rng.randrange(4))],
            lambda: list(range(start := rng.randrange(60), start + rng.randrange(9))),
        ]
    )
    answer = draw()
    slips: list[list[object]] = [[draw(), f"slipped {number}"] for number in range(rng.randrange(4))]
    if isinstance(answer, int) and not isinstance(answer, bool):
        factors = (2, 1024, Fraction(1, 2), Fraction(1, 3), Fraction(999, 1000), Fraction(9999, 10000))
        scaled = [Fraction(answer) * rng.choice(factors) for _ in range(3)]
        slips += [[int(v) if v.denominator == 1 else float(v), f"scaled {n}"] for n, v in enumerate(scaled)]
    if isinstance(answer, float):
        near = answer * rng.choice([2, 0.5, 1.004, 3.0000001])
        slips += [[near, "scaled"], [near, "made larger"]]
    tolerance = rng.choice([0.0, 0.005, 0.02]) if isinstance(answer, float) else 0.0
    unit = rng.choice(["", "bytes", "us", "%", "rows", "blocks"]) if not isinstance(answer, bool | list) else ""
    state = {"answer": answer, "tolerance": tolerance, "slips": slips, "why": "", "given": {}}
    return Question(item, 0, "", "number", unit, state)


def answers(rng: random.Random, question: Question, count: int) -> list[str]:
    """What is typed to a question: its answer, its slips, and things beside them."""
    state: dict[str, Any] = question.state
    slips = state["slips"] if "slips" in state else [[value, name] for name, value in state["wrong"].items()]
    values = [state["answer"]] * 3 + [value for value, _ in slips]
    found = []
    for _ in range(count):
        value = rng.choice(values)
        if isinstance(value, int | float) and not isinstance(value, bool) and rng.random() < 0.25:
            value = value * rng.choice([2, 3, 64, 1000]) if rng.random() < 0.5 else value / rng.choice([2, 3, 64, 7])
        found.append(rng.choice(STRANGE) if rng.random() < 0.12 else typed(rng, value, question.unit))
    return found


def predicted(rng: random.Random, item: Item) -> Question:
    """A prediction with any answer."""

    def draw() -> int | float:
        return rng.choice([numbers(rng), reals(rng), float("nan"), float("inf"), float("-inf"), 3.0, -0.0])

    wrong = {f"slipped {number}": draw() for number in range(rng.randrange(4))}
    return Question(item, 0, "", "number", state={"answer": draw(), "wrong": wrong})


def place(rng: random.Random, wanted: Sequence[Any]) -> str:
    """Lines as somebody names them: near a place, around it, anywhere; in this file or another."""
    span = rng.choice(wanted)
    first = max(0, span.first + rng.choice([0, 0, 0, 1, -1, -3, 5, 12, -40, rng.randrange(-300, 300)]))
    last = max(first, span.last + rng.choice([0, 0, 0, 1, -1, 4, 12, 60, rng.randrange(-300, 300)]))
    lines = f"{first}{rng.choice(['-', ' - ', '–', '-L'])}{last}" if rng.random() < 0.7 else f"{first}"
    name = span.path.rpartition("/")[2]
    path = rng.choice(
        ["", "", "", span.path, name, "./" + name, "/" + name, "other.cu", name[1:], "line ", "L", "lines "]
    )
    text = (
        f"{path}{rng.choice([':', '#', ' : ', ':L'])}{lines}"
        if path and not path.startswith(("l", "L"))
        else path + lines
    )
    return noisy(rng, text) if rng.random() < 0.1 else text


@pytest.fixture(scope="module")
def page(browser: Browser) -> Iterator[Page]:
    opened = browser.new_page()
    for name in PARTS:
        opened.add_script_tag(path=SCRIPTS / f"drill-{name}.js")
    yield opened
    opened.close()


def ask(page: Page, cases: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    """The page's answers to [part, function, arguments...], all in one call."""
    answered: list[dict[str, Any]] = json.loads(page.evaluate(ASK, json.dumps(cases)))
    return answered


def same(page: Page, cases: Sequence[Sequence[Any]], expected: Sequence[dict[str, Any]]) -> None:
    """Whether the page answers every case as Python did; tells the first that differs."""
    for case, found, wanted in zip(cases, ask(page, cases), expected, strict=True):
        assert found == wanted, case


def test_compute_questions_are_judged_the_same(page: Page) -> None:
    """Every generator, a few draws each, and what readers may type to them."""
    rng, cases, expected = random.Random(1), [], []
    met: Counter[str] = Counter()
    for item in compute.items():
        for seed in range(6):
            question = bank.ask(item, seed)
            draw = drill_files.judged(question)
            for text in answers(rng, question, 28):
                cases.append(["grade", "compute", draw, text])
                expected.append(said(judge, bank.grade, question, text))
                met.update(kinds_of(expected[-1]))
    same(page, cases, expected)
    assert len(cases) > 7000
    assert min(met[kind] for kind in ("right", "wrong", "mistake", "refused", "factor", "digits", "too far")) >= 10, met


def test_made_up_compute_questions_are_judged_the_same(page: Page) -> None:
    """Answers of any size and slips beside them: what no generator has yet."""
    rng, cases, expected = random.Random(2), [], []
    met: Counter[str] = Counter()
    for number in range(1500):
        question = made_up(rng, compute.items()[number % len(compute.items())])
        draw = drill_files.judged(question)
        for text in answers(rng, question, 4):
            cases.append(["grade", "compute", draw, text])
            expected.append(said(judge, compute.grade, question, text))
            met.update(kinds_of(expected[-1]))
    same(page, cases, expected)
    assert min(met[kind] for kind in ("right", "wrong", "mistake", "refused", "factor", "digits", "too far")) >= 3, met


def kinds_of(answer: dict[str, Any]) -> list[str]:
    """What became of an answer, for the count of what was met."""
    if "said" in answer:
        return ["refused", *(["too far"] if "too far" in answer["said"] else [])]
    found = ["right" if answer["value"]["right"] else "wrong"]
    found += ["mistake"] if answer["value"]["mistake"] else []
    found += ["factor"] if "exactly" in answer["value"]["said"] else []
    return found + (["digits"] if "digits that you gave" in answer["value"]["said"] else [])


def test_everything_that_can_be_typed_is_read_the_same(page: Page) -> None:
    """Numbers in every unit, lists, yes and no: the value itself, or the words of the refusal."""
    rng, cases, expected = random.Random(3), [], []

    def number(text: str, unit: str, real: bool) -> dict[str, Any]:
        read = quantities.number(text, unit, real=real)
        return {"value": exact(read.value), "half": exact(read.half), "digits": read.digits, "scaled": read.scaled}

    for _ in range(6000):
        unit, is_real = rng.choice(["", "bytes", "us", "%", "rows", "tokens"]), rng.random() < 0.5
        text = rng.choice(STRANGE) if rng.random() < 0.1 else typed(rng, rng.choice([numbers, reals])(rng), unit)
        cases.append(["quantities", "number", text, unit, is_real])
        expected.append(said(number, text, unit, is_real))
    for _ in range(1500):
        many = [rng.randrange(-5, 60) for _ in range(rng.randrange(5))]
        text = rng.choice(STRANGE) if rng.random() < 0.3 else typed(rng, many)
        cases.append(["quantities", "wholeNumbers", text])
        expected.append(said(listed, text))
        text = rng.choice(STRANGE) if rng.random() < 0.5 else typed(rng, rng.random() < 0.5)
        cases.append(["quantities", "yes", text])
        expected.append(said(quantities.yes, text))
    same(page, cases, expected)
    assert sum("said" in one for one in expected) > 500
    assert sum("value" in one for one in expected) > 4000


def exact(value: Fraction) -> dict[str, str]:
    return {"n": str(value.numerator), "d": str(value.denominator)}


def test_predictions_are_judged_the_same(page: Page) -> None:
    """Any answer, not-finite ones too; the films' own questions are among them where a film is quick to record."""
    rng, cases, expected = random.Random(4), [], []
    items = predict.items()
    asked = [predicted(rng, items[number % len(items)]) for number in range(1200)]
    quick = ("predict/slot", "predict/stored-element", "predict/merged-row")
    asked += [predict.ask(item, seed) for item in items if item.id in quick for seed in range(12)]
    met: Counter[str] = Counter()
    for question in asked:
        draw = drill_files.judged(question) if "film" in question.state else predicted_draw(question)
        for text in answers(rng, question, 5):
            cases.append(["grade", "predict", draw, text])
            expected.append(said(judge, predict.grade, question, text))
            met.update(kinds_of(expected[-1]))
    same(page, cases, expected)
    assert min(met[kind] for kind in ("right", "wrong", "mistake", "refused")) >= 100, met


def predicted_draw(question: Question) -> dict[str, Any]:
    state: dict[str, Any] = question.state
    slips = [[drill_files.value(wrong), name] for name, wrong in state["wrong"].items()]
    return {"answer": drill_files.value(state["answer"]), "slips": slips}


def test_lines_are_judged_the_same(page: Page) -> None:
    """Every question of the table, with lines that are right, near, too wide, in another file, or no lines at all."""
    rng, cases, expected = random.Random(5), [], []
    met: Counter[str] = Counter()
    for item in find.items():
        entry, question = find.entries()[item.id], find.ask(item, 0)
        wanted = spans(entry.source)[entry.concept]
        content = json.loads(json.dumps(drill_files.find_content(item)))
        for _ in range(90):
            text = rng.choice(STRANGE) if rng.random() < 0.1 else place(rng, wanted)
            cases.append(["grade", "find", content, text])
            expected.append(said(judge, find.grade, question, text))
            value = expected[-1].get("value", {})
            met["refused" if "said" in expected[-1] else value["mistake"] or str(value["right"])] += 1
            met["around"] += "in the lines of" in value.get("said", "")
    same(page, cases, expected)
    assert (
        min(met[kind] for kind in ("True", "False", "close", "around", "too wide", "another file", "refused")) >= 40
    ), met


def test_lines_are_judged_the_same_where_several_places_are_right(page: Page) -> None:
    """Places of several concepts at once, in one file or more: the nearest one counts, and what holds it."""
    rng, cases, expected = random.Random(7), [], []
    met: Counter[str] = Counter()
    every = [span for found in spans("vllm@0.24.0").values() for span in found]
    for _ in range(1500):
        path = rng.choice(every).path
        wanted = rng.choices([span for span in every if span.path == path], k=rng.randrange(1, 4)) + rng.choices(every)
        content = drill_files.places_of("vllm@0.24.0", wanted)
        text = place(rng, wanted)
        cases.append(["grade", "find", content, text])
        expected.append(said(judge_places, wanted, text))
        met["refused" if "said" in expected[-1] else expected[-1]["value"]["said"][:14]] += 1
    same(page, cases, expected)
    assert met["Close: you are"] > 30, met
    assert met["Right."] > 100, met


def judge_places(wanted: Sequence[Any], text: str) -> dict[str, Any]:
    return asdict(find.judge(find.read_place(text), list(wanted), "vllm@0.24.0"))


def test_clicked_lines_are_judged_as_typed_ones(page: Page) -> None:
    item = find.items()[0]
    content = json.loads(json.dumps(drill_files.find_content(item)))
    (span,) = content["places"]
    clicked = [{"path": span["path"], "first": span["first"] + by, "last": span["last"] + by} for by in (0, 3, -100)]
    texts = [f"{one['path']}:{one['first']}-{one['last']}" for one in clicked]
    by_click = ask(page, [["grade", "find", content, one] for one in clicked])
    assert by_click == ask(page, [["grade", "find", content, text] for text in texts])
    assert [one["value"]["right"] for one in by_click] == [True, False, False]


def test_doubles_are_rounded_once(page: Page) -> None:
    """A fraction's nearest double, at halves and beyond both ends of what a double holds."""
    rng = random.Random(6)
    asked = [
        Fraction(1, 3),
        Fraction(2**53 + 1),
        Fraction(2**54 + 2, 2),
        Fraction(10) ** 300,
        Fraction(1, 10**300),
        Fraction(0),
    ]
    asked += [Fraction(2**53 + 1, 2**k) for k in (1, 40, 200)] + [Fraction(-7, 11), Fraction(2**1024 - 2**971)]
    asked += [Fraction(2**1024 - 2**970 - 1)]
    asked += [Fraction(rng.randrange(2**200), rng.randrange(1, 2 ** rng.randrange(1, 200))) for _ in range(2000)]
    asked += [Fraction(2 * rng.randrange(2**53) + 1) * Fraction(2) ** rng.randrange(-300, 300) / 2 for _ in range(500)]
    script = """pairs => pairs.map(([n, d]) => String(PagewalkDrill.exact.toNumber({ n: BigInt(n), d: BigInt(d) })))"""
    found = page.evaluate(script, [[str(one.numerator), str(one.denominator)] for one in asked])
    assert [float(text) for text in found] == [float(one) for one in asked]
    ends = page.evaluate(script, [[str(10**400), "1"], [str(-(10**400)), "1"], ["1", str(10**400)]])
    assert ends == ["Infinity", "-Infinity", "0"]

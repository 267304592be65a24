"""The page's schedule, log and choice of questions against Python's, over thousands of histories and sessions."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from walkthroughs.drills import log
from walkthroughs.drills import session as sitting
from walkthroughs.drills.errors import DrillError
from walkthroughs.drills.item import Item
from walkthroughs.drills.log import NOTHING, Entry, Event
from walkthroughs.drills.schedule import NEW, Card, from_ms, label, labels, review, to_ms, tomorrow
from walkthroughs.drills.session import Session
from walkthroughs.drills.store import Store

pytestmark = pytest.mark.browser
SCRIPTS = Path(__file__).resolve().parents[2] / "docs" / "assets" / "js"
PARTS = ("words", "fsrs", "log", "choose")
DAY = 86_400_000
# Answers every case, or says in which words it was refused. An "import" is a text.
ASK = """
text => {
  const drill = window.PagewalkDrill;
  const acts = { import: (text) => drill.log.toJson(drill.log.fromJson(drill.words.parse(text))) };
  return JSON.stringify(JSON.parse(text).map(([part, name, ...given]) => {
    try {
      return { value: (part ? drill[part][name] : acts[name])(...given) };
    } catch (error) {
      if (!(error instanceof drill.Refused)) throw error;
      return { said: error.said };
    }
  }));
}
"""


def said(call: Callable[..., Any], *given: Any) -> dict[str, Any]:
    """What a call answers, or the words of its refusal; as JSON gives it back."""
    try:
        found = {"value": call(*given)}
    except DrillError as error:
        found = {"said": str(error)}
    answer: dict[str, Any] = json.loads(json.dumps(found))
    return answer


@pytest.fixture(scope="module")
def page(browser: Browser) -> Iterator[Page]:
    opened = browser.new_page()
    for name in PARTS:
        opened.add_script_tag(path=SCRIPTS / f"drill-{name}.js")
    yield opened
    opened.close()


def ask(page: Page, cases: Sequence[Sequence[Any]]) -> list[Any]:
    """The page's answers to [part, function, arguments...], all in one call."""
    answered: list[Any] = json.loads(page.evaluate(ASK, json.dumps(cases)))
    return answered


def same(page: Page, cases: Sequence[Sequence[Any]], expected: Sequence[Any]) -> None:
    """Whether the page answers every case as Python did; tells the first that differs."""
    for case, found, wanted in zip(cases, ask(page, cases), expected, strict=True):
        assert rounded(found) == rounded(json.loads(json.dumps(wanted))), case


def rounded(value: Any) -> Any:
    """A JSON value with its real numbers to ten digits: two libraries' powers differ in the last bit."""
    if isinstance(value, float):
        return float(f"{value:.10g}")
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return {name: rounded(one) for name, one in value.items()} if isinstance(value, dict) else value


# -- histories


def gap(rng: random.Random) -> int:
    """Milliseconds between two reviews; clocks go back, too."""
    day = 86_400_000
    some = [rng.randrange(day), rng.randrange(40 * day), rng.randrange(900 * day), -rng.randrange(2 * day)]
    return rng.choice([0, 1, 59_999, 60_000, 330_000, 600_000, day - 1, day, *some, 36500 * day])


def history(rng: random.Random, items: Sequence[str], count: int) -> list[Event]:
    """Events of some items: reviews most of all, ties in time, undone ones, and undoings of nothing."""
    now, found = 1_760_000_000_000 + rng.randrange(10**9), list[Event]()
    for number in range(count):
        what: Any = rng.choice(["review"] * 8 + ["suspend", "unsuspend", "bury", "reset", "undo", "undo"])
        item, extra = rng.choice(items), dict[str, Any]()
        now += max(0, gap(rng)) if rng.random() < 0.9 else 0
        if what == "review":
            extra = {"rating": rng.randrange(1, 5), "form": rng.choice(["", "number", "self"])}
            extra |= {"seed": rng.choice([None, rng.randrange(2**53)]), "took": rng.choice([None, 0, 5000])}
        elif what == "bury":
            extra = {"until": now + gap(rng) % 10**9}
        elif what == "undo":
            own = [event.id for event in found if event.item == item]
            extra = {"undoes": rng.choice([*own[-2:], "nobody"])}
        found.append(Event(f"{rng.choice('abcé𝟛ￗ')}{number:03}", what, item, now, **extra))
    return found


def as_card(card: Card) -> dict[str, Any]:
    """A card as the page has it."""
    moments = {name: to_ms(at) if (at := getattr(card, name)) else None for name in ("due", "last")}
    return asdict(card) | moments


def as_entry(entry: Entry) -> dict[str, Any]:
    return asdict(entry) | {"card": as_card(entry.card)}


# -- banks and sessions


def bank(rng: random.Random, count: int) -> dict[str, Item]:
    """A bank of chains."""
    found: dict[str, Item] = {}
    for number in range(count):
        kind = rng.choice(["recall", "compute", "find", "predict"])
        after = rng.choice(list(found)) if found and rng.random() < 0.5 else ""
        after = "recall/nobody" if rng.random() < 0.05 else after
        name = f"{kind}/{rng.choice('aZé𝟛ￗ')}{number}"
        found[name] = Item(name, "", rng.randrange(1, 4), after=after)
    return found


def standings(rng: random.Random, items: Sequence[str], now: datetime) -> dict[str, Entry]:
    """How some of the items stand: new, due, soon, asleep."""
    found = {}
    ms = to_ms(now)
    for name in items:
        if rng.random() < 0.5:
            continue
        due = ms + rng.choice([0, 1, -1, 60_000, 600_000, 20 * 60_000, 20 * 60_000 + 1, -(10**7), 10**9, 10**7])
        last = ms - rng.choice([0, 59_999, 60_000, 10**6, 10**8])
        state: Any = rng.choice(["learning", "relearning", "review"])
        card = Card(state, 0, 2.0, 5.0, from_ms(due), from_ms(last)) if rng.random() < 0.85 else NOTHING.card
        buried = rng.choice([0, 0, 0, 0, ms, ms + 1, ms - 1])
        found[name] = Entry(card, suspended=rng.random() < 0.08, buried=buried)
    return found


# -- the schedule


def test_thousands_of_histories_lead_to_the_same_cards(page: Page) -> None:
    """Every review of every history: due and last to the millisecond, stability and difficulty to ten digits."""
    rng, histories, expected = random.Random(11), [], []
    met: Counter[str] = Counter()
    for _ in range(2500):
        now, card, reviews, cards = 1_760_000_000_000 + rng.randrange(10**9), NEW, [], []
        for _ in range(rng.randrange(1, 12)):
            now += gap(rng)
            rating = rng.choice([1, 2, 3, 3, 3, 4])
            before, card = card.state, review(card, rating, from_ms(now))
            reviews.append([rating, now])
            cards.append(as_card(card))
            met[f"{before} {rating}"] += 1
        histories.append(reviews)
        expected.append(cards)
    script = """text => JSON.stringify(JSON.parse(text).map((reviews) => {
      const { fsrs } = window.PagewalkDrill, cards = [];
      reviews.reduce((card, [rating, now]) => (cards.push(fsrs.review(card, rating, now)), cards.at(-1)), fsrs.NEW);
      return cards;
    }))"""
    found = json.loads(page.evaluate(script, json.dumps(histories)))
    for reviews, got, wanted in zip(histories, found, expected, strict=True):
        for name in ("state", "step", "due", "last"):
            assert [card[name] for card in got] == [card[name] for card in wanted], (name, reviews)
        for name in ("stability", "difficulty"):
            assert [card[name] for card in got] == pytest.approx([card[name] for card in wanted], rel=1e-9), reviews
    states = ("new", "learning", "review", "relearning")
    assert min(met[f"{state} {rating}"] for state in states for rating in (1, 2, 3, 4)) >= 20, met


def test_intervals_are_told_in_the_same_words(page: Page) -> None:
    rng, cases, expected = random.Random(12), list[Any](), list[Any]()
    for _ in range(400):
        card, now = NEW, 1_760_000_000_000
        for _ in range(rng.randrange(5)):
            now += abs(gap(rng))
            card = review(card, rng.randrange(1, 5), from_ms(now))
        cases.append(["fsrs", "labels", as_card(card), now])
        expected.append({"value": labels(card, from_ms(now))})
    waits = [0, 1, 30_000, 90_000, 150_000, 59 * 60_000 + 30_000, 90 * 60_000, 150 * 60_000, DAY - 30_000, 3 * DAY // 2]
    waits += [5 * DAY // 2, 30 * DAY, 31 * DAY, 364 * DAY, 365 * DAY, 1461 * DAY, *(n * DAY // 2 for n in range(700))]
    waits += [rng.randrange(36500 * DAY) for _ in range(500)]
    cases += [["fsrs", "label", wait] for wait in waits]
    expected += [{"value": label(timedelta(milliseconds=wait))} for wait in waits]
    same(page, cases, expected)


def test_the_next_day_begins_at_four(browser: Browser) -> None:
    """In the reader's own time zone, also where a day has 23 or 25 hours."""
    from zoneinfo import ZoneInfo

    zone = ZoneInfo("Europe/Berlin")
    context = browser.new_context(timezone_id="Europe/Berlin")
    page = context.new_page()
    for name in PARTS:
        page.add_script_tag(path=SCRIPTS / f"drill-{name}.js")
    start = to_ms(datetime(2026, 3, 27, tzinfo=zone))
    moments = [start + hour * 3_600_000 + 1 for hour in range(24 * 5)] + [to_ms(datetime(2026, 10, 25, 4, tzinfo=zone))]
    moments += [to_ms(datetime(2026, 10, 24, tzinfo=zone)) + hour * 3_600_000 for hour in range(72)]
    found = ask(page, [["fsrs", "tomorrow", at] for at in moments])
    assert [one["value"] for one in found] == [to_ms(tomorrow(from_ms(at).astimezone(zone))) for at in moments]
    context.close()


# -- the log


def rows(events: Sequence[Event]) -> list[dict[str, Any]]:
    return [asdict(event) for event in events]


def test_random_logs_are_derived_and_written_the_same(page: Page) -> None:
    rng, cases, expected = random.Random(13), [], []
    for _ in range(500):
        items = [f"compute/{letter}" for letter in "abc"[: rng.randrange(1, 4)]]
        events = history(rng, items, rng.randrange(25))
        rng.shuffle(events)
        cases.append(["log", "toJson", rows(events)])
        expected.append({"value": log.to_json(events)})
        of_one = [event for event in events if event.item == items[0]]
        cases.append(["log", "derive", rows(of_one)])
        expected.append({"value": as_entry(log.derive(of_one))})
        cases.append(["log", "entries", rows(events)])
        touched = {event.item: [e for e in events if e.item == event.item] for event in events}
        expected.append({"value": {name: as_entry(log.derive(own)) for name, own in touched.items()}})
    same(page, cases, expected)


def damaged(rng: random.Random, data: Any) -> str:
    """An export's text with something put in, left out or changed; often it is still one."""
    values: list[Any] = ["", "x", "x" * 201, "😀" * 200, "é\n", "\ud800", "don't", "a\"b'", None, True, False]
    values += ["review", "undo", "bury", "reset"]
    values += [-1, 0, 1, 4, 5, 1.5, 1e16, 1e-7, 1e22, 2**53 - 1, 2**53, 10**14, 10**14 + 1]
    values += list[Any]([[], [3], {}, {"a": None}])
    rows = data["log"]
    row = rng.choice(rows) if rows else data
    kind = rng.randrange(8)
    if kind == 0:
        data[rng.choice(["schema", "kind", "log"])] = rng.choice(values)
    elif kind == 1:
        data.pop(rng.choice(list(data)))
    elif kind == 2 and rows:
        rows[rng.randrange(len(rows))] = rng.choice(values)
    elif kind == 3:
        row.pop(rng.choice(list(row)), None)
    elif kind < 7:
        row[rng.choice([*Event.__dataclass_fields__, "colour"])] = rng.choice(values)
    text = json.dumps(data, ensure_ascii=rng.random() < 0.5) if "\ud800" not in str(data) else json.dumps(data)
    if rng.random() < 0.2:
        # A number that JavaScript would take for a whole one.
        text = re.sub(
            r'"(when|rating|schema|seed)": (\d+)(?=[,}])',
            lambda m: f'"{m[1]}": {m[2]}{rng.choice([".0", "e0", ""])}',
            text,
        )
    return text


def test_imports_are_refused_in_the_same_words(page: Page) -> None:
    """Texts of exports, whole and damaged: the same events, or the same words about the first that is wrong."""
    rng, cases, expected = random.Random(14), [], []
    for _ in range(4000):
        data = json.loads(json.dumps(log.to_json(history(rng, ["compute/a", "find/b"], rng.randrange(4)))))
        text = damaged(rng, data)
        cases.append([None, "import", text])
        expected.append(said(lambda given: log.to_json(log.from_json(json.loads(given))), text))
    same(page, cases, expected)
    refusals = Counter(re.sub(r"\d+", "N", one["said"])[:22] for one in expected if "said" in one)
    assert sum("value" in one for one in expected) > 500
    assert len(refusals) > 8, refusals
    assert min(count for _, count in refusals.most_common(8)) > 20, refusals


def test_two_histories_are_merged_or_refused_the_same(page: Page, tmp_path: Path) -> None:
    rng, cases, expected = random.Random(15), [], []
    for number in range(40):
        events = history(rng, ["compute/a", "find/b"], rng.randrange(2, 14))
        mine, others = ([event for event in events if rng.random() < 0.6] for _ in range(2))
        if others and rng.random() < 0.4:
            at = rng.randrange(len(others))
            changes: list[dict[str, Any]] = [{"item": "don't"}, {"when": 5}, {"form": "text"}, {"seed": 7}]
            others[at] = replace(others[at], **rng.choice(changes))
        rng.shuffle(others)
        with Store(tmp_path / f"{number}.db") as store:
            store.merge(mine)
            expected.append(said(lambda s=store, o=others: (s.merge(o), rows(s.events()))[1]))
        cases.append(["log", "merge", rows(mine), rows(others)])
    same(page, cases, expected)
    assert sum("said" in one for one in expected) > 8
    assert sum("value" in one for one in expected) > 20


def test_a_store_and_a_page_that_do_the_same_have_the_same_log(page: Page, tmp_path: Path) -> None:
    """Events at one moment, and undoing: what the terminal's store does, event by event."""
    rng, steps = random.Random(16), []
    count = iter(range(10**6))
    with Store(tmp_path / "drills.db", new_id=lambda: f"{next(count):06}") as store:
        now = 1_760_000_000_000
        for _ in range(150):
            now += rng.choice([0, 0, 1, 60_000, DAY])
            item = rng.choice(["compute/a", "find/b"])
            if rng.random() < 0.3:
                since = now - rng.choice([0, 60_000, 10 * DAY])
                undone = store.undo(from_ms(now), since=from_ms(since))
                steps.append({"undo": since, "now": now, "undone": undone.id if undone else None})
            else:
                rating = rng.randrange(1, 5)
                store.review(item, rating, from_ms(now), form="number", seed=3, took=4)
                steps.append({"item": item, "rating": rating, "now": now})
        kept, entries = store.events(), {name: as_entry(entry) for name, entry in store.entries().items()}
    script = """steps => {
      const { log } = window.PagewalkDrill;
      let events = [], count = 0, undone = [];
      const id = () => String(count++).padStart(6, "0");
      for (const step of steps) {
        if (step.undo === undefined) {
          const { item, rating, now: when } = step;
          events = log.append(events, { what: "review", item, when, rating, form: "number", seed: 3, took: 4 }, id());
          continue;
        }
        const last = log.last(events, step.undo);
        undone.push(last ? last.id : null);
        if (last) events = log.append(events, { what: "undo", item: last.item, when: step.now, undoes: last.id }, id());
      }
      return { events: log.inOrder(events), undone, entries: log.entries(events) };
    }"""
    found = page.evaluate(script, steps)
    assert found["undone"] == [step["undone"] for step in steps if "undo" in step]
    assert len({*found["undone"]}) > 20
    assert found["events"] == rows(kept)
    assert rounded(found["entries"]) == rounded(entries)


# -- the choice


def as_item(item: Item) -> dict[str, Any]:
    return {"id": item.id, "kind": item.kind, "level": item.level, "after": item.after, "title": item.title}


def a_session(rng: random.Random, items: Sequence[str], now: datetime) -> Session:
    """A session at any point, with ids that nobody knows among its own."""
    known = [*items, "compute/gone"]

    def some(most: int) -> tuple[str, ...]:
        return tuple(rng.choice(known) for _ in range(rng.randrange(most)))

    limit = rng.randrange(6)
    return Session(
        rng.randrange(2**31),
        to_ms(now) - 5,
        limit,
        tuple(rng.sample(["recall", "compute", "find"], rng.choice([0, 0, 1, 2]))),
        rng.choice(["", *known]),
        rng.randrange(2**31),
        rng.randrange(40),
        rng.randrange(limit + 2),
        some(4),
        some(3),
        tuple(rng.randrange(3) for _ in range(4)),
    )


def test_random_sessions_go_on_the_same(page: Page) -> None:
    """Any bank, any standings, any session: what is asked, and what becomes of it."""
    rng, cases, expected = random.Random(17), list[Any](), list[Any]()
    now = from_ms(1_760_000_000_000)
    lengths: Counter[int] = Counter()
    for _ in range(1200):
        items = bank(rng, rng.randrange(1, 14))
        entries = standings(rng, list(items), now)
        session = a_session(rng, list(items), now)
        given = [sitting.to_json(session), [as_item(item) for item in items.values()]]
        held = {name: as_entry(entry) for name, entry in entries.items()}
        name = rng.choice(list(items))
        entry, rating = entries.get(name, NOTHING), rng.randrange(1, 5)
        waiting = sitting.queue(session, items, entries, now)
        lengths[len(waiting)] += 1
        cases.append(["choose", "queue", *given, held, to_ms(now)])
        expected.append({"value": waiting})
        cases.append(["choose", "advance", *given, held, to_ms(now)])
        expected.append({"value": sitting.to_json(sitting.advance(session, items, entries, now))})
        cases.append(["choose", "answered", *given, as_entry(entry), rating])
        expected.append({"value": sitting.to_json(sitting.answered(session, items, entry, rating))})
        undone = rng.choice([None, rating])
        cases.append(["choose", "reopened", *given, name, 7, undone, as_entry(entry)])
        expected.append({"value": sitting.to_json(sitting.reopened(session, items, name, 7, undone, entry))})
        cases.append(["choose", "skip", given[0]])
        expected.append({"value": sitting.to_json(sitting.skip(session))})
        cases.append(["choose", "seedOf", given[0], name])
        expected.append({"value": sitting.seed_of(session, name)})
        cases.append(["choose", "fromJson", given[0]])
        expected.append({"value": given[0]})
    same(page, cases, expected)
    assert len(lengths) > 6, lengths


def test_whole_sittings_are_the_same(page: Page) -> None:
    """A sitting from its beginning: each question that Python asks, and every state on the way."""
    rng, cases, expected = random.Random(18), [], []
    asked = 0
    for number in range(60):
        items, now = bank(rng, 12), 1_760_000_000_000
        session, events = Session(number, now, 6), list[Event]()
        listed = [as_item(item) for item in items.values()]
        for step in range(25):
            entries = {name: log.derive([e for e in events if e.item == name]) for name in {e.item for e in events}}
            cases.append(["choose", "advance", sitting.to_json(session), listed, *held_at(entries, now)])
            session = sitting.advance(session, items, entries, from_ms(now))
            expected.append({"value": sitting.to_json(session)})
            if not session.item:
                break
            asked += 1
            rating, before = rng.randrange(1, 5), entries.get(session.item, NOTHING)
            events.append(Event(f"{step:03}", "review", session.item, now, rating=rating))
            cases.append(["choose", "answered", sitting.to_json(session), listed, as_entry(before), rating])
            session = sitting.answered(session, items, before, rating)
            expected.append({"value": sitting.to_json(session)})
            now += rng.choice([10_000, 90_000, 400_000])
    same(page, cases, expected)
    assert asked > 400


def held_at(entries: dict[str, Entry], now: int) -> list[Any]:
    return [{name: as_entry(entry) for name, entry in entries.items()}, now]


def test_what_is_no_session_is_none(page: Page) -> None:
    good = json.loads(json.dumps(sitting.to_json(Session(1, 2))))
    bad = [
        None,
        3,
        [],
        {},
        good | {"ratings": [1, 2, 3]},
        good | {"item": 3},
        good | {"follows": "abc"},
        good | {"seed": "1"},
    ]
    found = ask(page, [["choose", "fromJson", one] for one in (good, *bad)])
    assert [one["value"] for one in found] == [good, *([None] * len(bad))]


def test_a_new_session_is_the_terminals(page: Page) -> None:
    found = ask(page, [["choose", "begin", 5, 7], ["choose", "begin", 5, 7, 3, ["find"]]])
    assert [one["value"] for one in found] == [
        json.loads(json.dumps(sitting.to_json(made))) for made in (Session(5, 7), Session(5, 7, 3, ("find",)))
    ]


def test_a_seed_finds_its_own_draw_again(page: Page) -> None:
    draws = [{"seed": 0}, {"seed": 3}, {"seed": 9}]
    found = ask(page, [["choose", "draw", draws, seed] for seed in (0, 3, 9, 7, 2**31 - 1)])
    assert [one["value"]["seed"] for one in found] == [0, 3, 9, 3, draws[(2**31 - 1) % 3]["seed"]]

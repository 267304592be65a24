"""The planner over random banks and random answers, and over the real bank: what may follow what, and that it ends."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotate.errors import UnknownName
from walkthroughs.drills import bank, recall
from walkthroughs.drills.interview import MINUTE, Interview, Turn, answered, opened, passes, skip
from walkthroughs.drills.interview_plan import (
    GOOD_SCORE,
    LEAST,
    LONGEST,
    PACE,
    WEAK_SCORE,
    Step,
    next_step,
    thread,
)
from walkthroughs.drills.interview_roles import ROLES
from walkthroughs.drills.item import Item

CONCEPTS = ["block-table-walk", "k-address", "online-softmax"]
KINDS = ["recall", "recall", "recall", "compute", "predict", "find", "fix"]


@st.composite
def banks(draw: st.DrawFn) -> dict[str, Item]:
    """Items of every kind over few concepts; recall questions may follow an earlier one up."""
    found: dict[str, Item] = {}
    for number in range(draw(st.integers(0, 24))):
        kind = draw(st.sampled_from(KINDS))
        parents = ["", *(name for name in found if name.startswith("recall/"))]
        after = draw(st.sampled_from(parents)) if kind == "recall" else ""
        concepts = draw(st.lists(st.sampled_from(CONCEPTS), max_size=2, unique=True).map(tuple))
        name = f"{kind}/{number}"
        found[name] = Item(name, name, draw(st.integers(1, 3)), concepts=concepts, after=after)
    return found


@dataclass(frozen=True)
class Answer:
    """How a made-up reader answers: the part of the points, how much of the pace it takes, or that it is skipped."""

    share: float
    pace: float
    skipped: bool = False


ANSWERS = st.lists(
    st.builds(
        Answer,
        st.sampled_from([0.0, 0.25, 0.5, 0.7, 1.0]),
        st.sampled_from([0.0, 0.1, 0.5, 1.0]),
        st.sampled_from([False] * 9 + [True]),
    ),
    min_size=1,
    max_size=12,
)
BEGUN = st.builds(
    Interview,
    seed=st.integers(0, 2**31 - 1),
    started=st.just(0),
    minutes=st.integers(1, 30),
    role=st.sampled_from(list(ROLES)),
)


@dataclass(frozen=True)
class Moment:
    """A step, the time left when it was opened, and the turns before it."""

    step: Step
    left: int
    before: tuple[Turn, ...]


def held(
    interview: Interview, items: dict[str, Item], answers: Iterable[Answer], asleep: frozenset[str] = frozenset()
) -> tuple[Interview, list[Moment]]:
    """A whole interview; the answers begin anew when they are used up."""
    moments: list[Moment] = []
    every = list(answers)
    for number in range(len(items) + 1):
        step = next_step(interview, items, asleep)
        if step is None:
            return interview, moments
        moments.append(Moment(step, interview.left, interview.turns))
        answer = every[number % len(every)]
        interview = opened(interview, step.item, step.move, step.parent)
        interview = passes(interview, round(answer.pace * PACE[step.item.kind]))
        of = 20 if step.item.kind == "recall" else 1
        had = tuple(range(1, round(answer.share * of) + 1))
        interview = skip(interview) if answer.skipped else answered(interview, "", had, of, 0)
    raise AssertionError("it does not end")


@given(BEGUN, banks(), ANSWERS, st.data())
def test_an_interview(interview: Interview, items: dict[str, Item], answers: list[Answer], data: st.DataObject) -> None:
    asleep = frozenset(data.draw(st.sets(st.sampled_from(sorted(items) or ["x"]), max_size=2)))
    after, moments = held(interview, items, answers, asleep)

    # Nothing twice, and nothing that may not be asked.
    names = [moment.step.item.id for moment in moments]
    assert len(set(names)) == len(names)
    assert not asleep & set(names)
    assert all(items[name].kind in PACE for name in names)
    assert [turn.item for turn in after.turns] == [name for name in names if name not in after.skipped]

    # It ends in time: no question is opened without time for at least half of it.
    assert all(moment.left >= PACE[moment.step.item.kind] / 2 >= LEAST for moment in moments)
    assert after.spent <= interview.minutes * MINUTE + max(PACE.values()) / 2  # nobody took longer than the pace
    rest = [item for item in items.values() if item.id not in {*names, *asleep} and item.kind in PACE]
    fitting = [item for item in rest if after.left >= PACE[item.kind] / 2 and not item.after]
    assert after.left < LEAST or not fitting

    # The same again is the same.
    assert held(interview, items, answers, asleep) == (after, moments)


@settings(max_examples=250)
@given(BEGUN, banks(), ANSWERS)
def test_what_follows_what(interview: Interview, items: dict[str, Item], answers: list[Answer]) -> None:
    after, moments = held(interview, items, answers)
    for moment in moments:
        item, parent = moment.step.item, moment.step.parent
        said = {turn.item: turn for turn in moment.before}
        if item.after:
            assert (moment.step.move, parent) == ("deeper", item.after)
        if moment.step.move == "opens":
            assert parent == ""
            continue
        assert said[parent].item in {turn.item for turn in thread(moment.before)}
        shared = set(item.concepts) & set(items[parent].concepts)
        last = moment.before[-1]
        match moment.step.move:
            case "deeper":
                assert said[parent].score >= GOOD_SCORE
                assert last.score >= GOOD_SCORE
                assert parent in (last.item, last.parent)
                assert item.after or (shared and item.kind != items[parent].kind and item.level >= items[parent].level)
            case "source":
                assert (item.kind, last.kind, parent) == ("find", "recall", last.item)
                assert shared
                assert last.score >= WEAK_SCORE
            case "smaller":
                assert parent == last.item
                assert shared
                assert last.score < WEAK_SCORE
                assert item.level <= items[parent].level
    assert all(len(part) <= LONGEST for part in threads(after.turns))
    # Nothing follows up a smaller question: it was to build up.
    for before, then in pairwise(after.turns):
        assert before.move != "smaller" or then.move in ("opens", "source")


def threads(turns: tuple[Turn, ...]) -> list[tuple[Turn, ...]]:
    """Every thread, cut where a topic opens, in another way than `thread` does."""
    found: list[list[Turn]] = []
    for turn in turns:
        if turn.move == "opens" or not found:
            found.append([])
        found[-1].append(turn)
    return [tuple(part) for part in found]


@given(BEGUN, banks(), ANSWERS)
def test_the_last_thread(interview: Interview, items: dict[str, Item], answers: list[Answer]) -> None:
    turns = held(interview, items, answers)[0].turns
    for count in range(1, len(turns) + 1):
        assert thread(turns[:count]) == threads(turns[:count])[-1]
    assert thread(()) == ()


def test_another_seed_is_another_interview() -> None:
    items = dict(bank.items())
    first = [moment.step for moment in held(Interview(1, 0), items, [Answer(1, 1)])[1]]
    assert [moment.step for moment in held(Interview(2, 0), items, [Answer(1, 1)])[1]] != first
    assert [moment.step for moment in held(Interview(1, 0, role="kernel"), items, [Answer(1, 1)])[1]] != first


def test_answers_decide_what_follows() -> None:
    def moves(share: float) -> Counter[str]:
        found: Counter[str] = Counter()
        for seed in range(12):
            found.update(
                turn.move for turn in held(Interview(seed, 0), dict(bank.items()), [Answer(share, 1)])[0].turns
            )
        return found

    good, weak = moves(1), moves(0)
    assert good["deeper"] > good["opens"] / 2
    assert good["source"] > 0
    assert good["smaller"] == 0
    assert weak["smaller"] > weak["opens"] / 4
    assert weak["deeper"] == weak["source"] == 0


def test_a_good_answer_goes_down_the_chain() -> None:
    """Over the real bank: whole chains of recall questions are asked, each question with its parent before it."""
    wanted = {tuple(item.id for item in chain) for chain in recall.chains() if len(chain) == 3}
    seen = set()
    for seed in range(60):
        turns = held(Interview(seed, 0, minutes=60), dict(bank.items()), [Answer(1, 1)])[0].turns
        for part in threads(turns):
            names = tuple(turn.item for turn in part if turn.kind == "recall")
            seen |= {chain for chain in wanted if names == chain}
    assert len(seen) >= 8


@pytest.mark.parametrize("name", ROLES)
@settings(max_examples=12)
@given(answers=ANSWERS.filter(lambda every: all(not a.skipped and a.pace > 0 for a in every)), seed=st.integers(0, 99))
def test_every_role_reaches_every_kind(name: str, answers: list[Answer], seed: int) -> None:
    """Over the real bank, in twenty minutes, however it is answered."""
    turns = held(Interview(seed, 0, role=name), dict(bank.items()), answers)[0].turns
    kinds = Counter(turn.kind for turn in turns)
    assert set(kinds) == set(PACE)
    assert turns[0].kind == "recall"
    # And none crowds the others out.
    assert max(kinds.values()) <= 0.7 * len(turns) + 1


@pytest.mark.parametrize("name", ROLES)
def test_long_threads_keep_no_kind_out(name: str) -> None:
    """Good answers lead on to recall questions above all; the other kinds have their turn all the same."""
    for seed in range(30):
        chance = random.Random(seed)
        answers = [Answer(chance.choice([0.5, 0.7, 1, 1]), chance.choice([0.6, 0.8, 1])) for _ in range(20)]
        turns = held(Interview(seed, 0, role=name), dict(bank.items()), answers)[0].turns
        assert {turn.kind for turn in turns} == set(PACE)


def test_roles_weight_topics_kinds_and_levels() -> None:
    from walkthroughs.drills.interview_roles import topic_of

    items = dict(bank.items())

    def share(name: str, wanted: Callable[[Item], bool]) -> float:
        asked = [
            items[turn.item]
            for seed in range(12)
            for turn in held(Interview(seed, 0, role=name), items, [Answer(0.5, 1)])[0].turns
        ]
        return sum(wanted(item) for item in asked) / len(asked)

    def about(*topics: str) -> Callable[[Item], bool]:
        return lambda item: topic_of(item) in topics

    assert share("kernel", about("layout", "classic")) > 1.5 * share("serving", about("layout", "classic"))
    assert share("serving", about("blocks", "table", "today")) > 1.5 * share(
        "kernel", about("blocks", "table", "today")
    )
    assert share("research", about("exact")) > share("serving", about("exact"))
    assert share("kernel", lambda item: item.level == 1) < share("serving", lambda item: item.level == 1)
    assert share("research", lambda item: item.kind == "find") > share("serving", lambda item: item.kind == "find")


def test_roles_weight_levels() -> None:
    """Over a bank that has as much of each level, and nothing else to tell the items apart, after the warm-up."""
    items = {f"compute/{n}": Item(f"compute/{n}", "", 1 + n % 3) for n in range(90)}

    def levels(name: str) -> Counter[int]:
        found: Counter[int] = Counter()
        for seed in range(20):
            turns = held(Interview(seed, 0, role=name), items, [Answer(1, 1)])[0].turns
            assert {items[turn.item].level for turn in turns} <= {1, 2, 3}
            found.update(items[turn.item].level for turn in turns[2:])
        return found

    kernel, serving = levels("kernel"), levels("serving")
    assert serving[1] > 1.3 * kernel[1]
    assert kernel[3] > 1.3 * serving[3]


def test_it_begins_with_what_is_easy() -> None:
    items = {f"recall/{n}": Item(f"recall/{n}", "", 1 + n % 3) for n in range(90)}
    begun = [held(Interview(seed, 0), items, [Answer(1, 1)])[0].turns for seed in range(40)]
    first = Counter(items[turn.item].level for turns in begun for turn in turns[:2])
    later = Counter(items[turn.item].level for turns in begun for turn in turns[2:])
    assert first[1] / first.total() > 1.5 * later[1] / later.total()


@pytest.mark.parametrize(
    ("common", "rare"),
    [
        (["k-address"], ["online-softmax"]),  # another topic
        (
            ["k-address"],
            ["thread-groups", "v-sizes", "x-view", "gqa-mapping", "x-packing", "k-store"],
        ),  # other concepts
    ],
)
def test_what_was_asked_of_makes_room_for_the_rest(common: list[str], rare: list[str]) -> None:
    """Nine in ten of a bank are of one topic, or of one concept; an interview asks clearly less of it."""
    wanted = [common[0]] * 9 + ["rare"]
    items = {}
    for n in range(120):
        name = wanted[n % 10]
        concept = rare[n // 10 % len(rare)] if name == "rare" else name
        items[f"compute/{n}"] = Item(f"compute/{n}", "", 2, concepts=(concept,))
    asked = [
        items[turn.item].concepts[0]
        for seed in range(30)
        for turn in held(Interview(seed, 0), items, [Answer(1, 1)])[0].turns
    ]
    assert asked.count(common[0]) < 0.8 * len(asked)


def test_a_role_that_is_none() -> None:
    with pytest.raises(UnknownName, match="kernel"):
        next_step(Interview(1, 0, role="kernl"), dict(bank.items()))


@pytest.mark.parametrize(
    ("left", "kinds"), [(29_999, set()), (37_499, set()), (37_500, {"find"}), (45_000, {"find", "predict"})]
)
def test_near_the_end_only_what_fits_is_asked(left: int, kinds: set[str]) -> None:
    items = dict(bank.items())
    found = set()
    for seed in range(30):
        step = next_step(passes(Interview(seed, 0, minutes=1), MINUTE - left), items)
        found |= {step.item.kind} if step else set()
    assert found == kinds


def test_an_empty_bank_asks_nothing() -> None:
    assert next_step(Interview(1, 0), {}) is None
    only_fix = {"fix/mask": Item("fix/mask", "", 1, concepts=("tail-guard",))}
    assert next_step(Interview(1, 0), only_fix) is None


@pytest.mark.parametrize(("had", "goes_back"), [((1,), False), ((1, 2), True)])
def test_after_the_source_the_talk_goes_back_to_a_good_answer_only(had: tuple[int, ...], goes_back: bool) -> None:
    items = {
        item.id: item
        for item in (
            Item("recall/a", "", 1, concepts=("tail-guard",)),
            Item("recall/b", "", 2, concepts=("tail-guard",), after="recall/a"),
            Item("find/a", "", 1, concepts=("tail-guard",)),
            Item("recall/c", "", 1),
        )
    }
    turns = (
        Turn("recall/a", 1, "opens", "", "", had, 2, 0),
        Turn("find/a", 1, "source", "recall/a", "", (1,), 1, 0),
    )
    steps = [next_step(Interview(seed, 0, turns=turns), items) for seed in range(20)]
    back = Step(items["recall/b"], "deeper", "recall/a")
    assert set(steps) == {back if goes_back else Step(items["recall/c"], "opens")}

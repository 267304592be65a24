"""The bounds of parameters: everything inside is read, everything outside is refused, whatever its type."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walkthroughs.server.offers import OFFERS, offer_of
from walkthroughs.server.parameters import Choice, Field, Lengths, Offer, Refused, Rule, Values, Whole

PORTS = sorted(OFFERS)
WHOLE = Whole("tokens", "Tokens", 1, 128, 9)
WORD = Choice("order", "Order", ("shuffled", "reversed"), "shuffled")
NUMBER = Choice("size", "Size", (1, 16), 16)
LENGTHS = Lengths("seq_lens", "Lengths", 3, 1, 64, (7, 9))
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)


def inside(field: Field) -> st.SearchStrategy[Any]:
    """Everything that a field must accept, as JSON brings it."""
    if isinstance(field, Choice):
        return st.sampled_from(field.options)
    numbers = st.integers(field.low, field.high)
    return st.lists(numbers, min_size=1, max_size=field.most) if isinstance(field, Lengths) else numbers


def of_offer(offer: Offer) -> st.SearchStrategy[Values]:
    return st.fixed_dictionaries({field.name: inside(field) for field in offer.fields})


def is_inside(field: Field, value: Any) -> bool:
    """The bounds once more, by another road than `read` takes."""
    if isinstance(field, Choice):
        return json.dumps(value) in [json.dumps(option) for option in field.options]
    if isinstance(field, Lengths):
        return (
            isinstance(value, list)
            and 0 < len(value) < field.most + 1
            and all(type(item) is int and item in range(field.low, field.high + 1) for item in value)
        )
    return type(value) is int and value in range(field.low, field.high + 1)


@pytest.mark.parametrize("field", [WHOLE, WORD, NUMBER, LENGTHS], ids=lambda field: field.name)
@given(data=st.data())
def test_everything_inside_is_read_as_it_is(field: Field, data: st.DataObject) -> None:
    value = data.draw(inside(field))
    assert field.read(value) == (tuple(value) if isinstance(field, Lengths) else value)


@pytest.mark.parametrize("field", [WHOLE, WORD, NUMBER, LENGTHS], ids=lambda field: field.name)
@given(value=ANYTHING)
def test_everything_else_is_refused(field: Field, value: Any) -> None:
    if is_inside(field, value):
        field.read(value)
        return
    with pytest.raises(Refused) as caught:
        field.read(value)
    assert caught.value.field == field.name
    assert "must be" in str(caught.value)


@pytest.mark.parametrize(
    "value", [True, False, 8.0, "8", None, [8], {"8": 8}, math.nan, math.inf, 1e400, b"8", 0, 129, -1]
)
def test_wrong_types_are_no_numbers(value: Any) -> None:
    with pytest.raises(Refused, match="whole number from 1 to 128"):
        WHOLE.read(value)


@pytest.mark.parametrize("value", [True, 1.0, "1", "16", 16.0, 2, None])
def test_a_choice_takes_no_look_alike(value: Any) -> None:
    with pytest.raises(Refused, match="one of 1, 16"):
        NUMBER.read(value)


@pytest.mark.parametrize("value", [[], [0], [65], [1, 2, 3, 4], [True], [1.0], ["1"], "7", 7, {"0": 7}, [[7]], None])
def test_lengths_are_a_short_list_of_numbers(value: Any) -> None:
    with pytest.raises(Refused, match="1 to 3 whole numbers from 1 to 64"):
        LENGTHS.read(value)


def test_a_refusal_shows_no_endless_value() -> None:
    with pytest.raises(Refused) as caught:
        WORD.read("x" * 10_000)
    assert len(str(caught.value)) < 160


@pytest.mark.parametrize("port", PORTS)
@given(data=st.data())
def test_an_offer_reads_what_is_inside_every_bound(port: str, data: st.DataObject) -> None:
    """Refused only where fields do not go together, or for the work; and then it is so."""
    offer = OFFERS[port]
    values = data.draw(of_offer(offer))
    broken = [rule for rule in offer.rules if not rule.holds(values)]
    too_much = offer.work(values) > offer.most_work
    if broken or too_much:
        with pytest.raises(Refused) as caught:
            offer.read(values)
        assert caught.value.field == (broken[0].field if broken else "")
        assert broken or f"{offer.most_work:,}" in str(caught.value)
        return
    assert offer.read(values) == {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}


@pytest.mark.parametrize("port", PORTS)
@given(data=st.data())
def test_one_field_outside_is_enough(port: str, data: st.DataObject) -> None:
    offer = OFFERS[port]
    field = data.draw(st.sampled_from(offer.fields))
    value = data.draw(ANYTHING.filter(lambda value: not is_inside(field, value)))
    with pytest.raises(Refused) as caught:
        offer.read({**offer.defaults(), field.name: value})
    assert caught.value.field == field.name


@pytest.mark.parametrize("port", PORTS)
def test_names_must_be_the_fields_own(port: str) -> None:
    offer = offer_of(port)
    assert offer is not None
    defaults = offer.defaults()
    assert set(offer.read(defaults)) == {field.name for field in offer.fields}
    with pytest.raises(Refused, match="no such parameter"):
        offer.read({**defaults, "__class__": 1})
    with pytest.raises(Refused, match="seed: is missing"):
        offer.read({name: value for name, value in defaults.items() if name != "seed"})
    for other in (None, [], "seed=1", 7, [["seed", 1]]):
        with pytest.raises(Refused, match="must be an object"):
            offer.read(other)


def test_the_bound_on_the_work_is_said() -> None:
    offer = OFFERS["kernels/vllm/classic_v1.py"]
    big = {**offer.defaults(), "seq_lens": [512] * 4, "heads": 8, "kv_heads": 8, "head_size": 256}
    with pytest.raises(Refused, match=r"tokens × query heads × head size = 4,194,304, must be at most 262,144"):
        offer.read(big)


def test_rules_name_the_field_and_the_other_value() -> None:
    offer = OFFERS["kernels/vllm/classic_v1.py"]
    with pytest.raises(Refused, match="heads = 2: must be a multiple of the 4 KV heads") as caught:
        offer.read({**offer.defaults(), "heads": 2, "kv_heads": 4})
    assert caught.value.field == "heads"
    with pytest.raises(Refused, match="padding = 10: must be at most the 9 tokens"):
        OFFERS["kernels/vllm/cache.py"].read({**OFFERS["kernels/vllm/cache.py"].defaults(), "padding": 10})


def test_a_page_can_draw_every_field() -> None:
    for offer in OFFERS.values():
        drawn = json.loads(json.dumps(offer.to_json()))
        assert offer.read({field["name"]: field["default"] for field in drawn["fields"]})
        assert drawn["limit"].endswith(f"at most {offer.most_work:,}")
        assert {field["kind"] for field in drawn["fields"]} <= {"whole", "choice", "lengths"}
        assert len({field["label"] for field in drawn["fields"]}) == len(drawn["fields"])


def test_a_rule_is_asked_only_with_checked_values() -> None:
    def holds(values: Values) -> bool:
        return bool(values["tokens"] % 2)

    offer = Offer("k", "r", (WHOLE,), (Rule("tokens", holds, "must be odd"),), lambda values: values["tokens"], 100)
    assert offer.read({"tokens": 7}) == {"tokens": 7}
    with pytest.raises(Refused, match="whole number"):
        offer.read({"tokens": "seven"})
    with pytest.raises(Refused, match="tokens = 8: must be odd"):
        offer.read({"tokens": 8})
    with pytest.raises(Refused, match="too much work"):
        offer.read({"tokens": 101})

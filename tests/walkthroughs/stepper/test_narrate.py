"""What happened, in a sentence."""

from __future__ import annotations

import math

import pytest

from kernels.simt.trace import Value
from walkthroughs.stepper.narrate import brief, entry, number, place, sentence
from walkthroughs.stepper.scenes import Scene
from walkthroughs.stepper.shots import Shot


def said(shot: Shot, word: str) -> list[str]:
    events = [shot.trace.events[n] for n in shot.history.numbers]
    return [text for e in events if word in (text := sentence(shot.trace, e, shot.film.scene))]


def test_a_lookup_says_what_it_means(classic: Shot) -> None:
    assert said(classic, "logical block")[0] == "reads 7 from block_tables[6]: logical block 0 lies in physical block 7"


def test_an_access_to_the_pool_says_where(classic: Shot) -> None:
    assert said(classic, "from k_cache")[0].endswith(" k_cache[3584]: block 7, head 0, group 0, token 0, element 0")


def test_shuffles_barriers_and_ends(classic: Shot) -> None:
    # A group of two threads adds its scores first; then the warp looks for its largest, by halves.
    sources = [text.rpartition(" ")[2] for text in said(classic, "shfl_xor_sync gives")]
    assert sources[:7] == ["1", "1", "16", "8", "4", "2", "2"]
    assert said(classic, "waits")[0] == "waits in syncthreads: barrier interval 0 ends here"
    assert said(classic, "is done") == ["is done"]
    assert said(classic, "enters qk_dot")[0].startswith("enters qk_dot with q_vecs = shared q_vecs[2, 8, 2]")
    assert said(classic, "leaves qk_dot with ")


def test_every_event_of_every_film_has_a_sentence(shots: dict[str, Shot], classic: Shot) -> None:
    for shot in [*shots.values(), classic]:
        for event in shot.trace.events:
            text = sentence(shot.trace, event, shot.film.scene)
            assert text.strip() == text != ""
            assert not text.endswith((".", ":"))
            assert "None" not in text


def test_before_the_first_event() -> None:
    assert sentence(None, None) == "The kernel has not begun"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (Value("int", 7), "7"),
        (Value("bool", True), "True"),
        (Value("float32", 0.1), "0.1"),
        (Value("float", 1 / 3), "0.333333"),
        (Value("float32", -math.inf), "-inf"),
        (Value("none", None), "None"),
    ],
)
def test_numbers(value: Value | None, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    "data", [-3.4028234663852886e38, 1 / 3, -1 / 3, 0.0, 123456789.0, -1.5e-30, math.nan, math.inf]
)
def test_brief_numbers_fit_and_are_near(data: float) -> None:
    text = brief(Value("float32", data))
    assert len(text) <= 8
    if math.isfinite(data):
        assert float(text) == pytest.approx(data, rel=0.05)


def test_brief_leaves_whole_numbers_whole() -> None:
    assert brief(Value("int", 123456789012)) == "123456789012"


@pytest.mark.parametrize(
    ("slot", "text"),
    [(-1, "token 2 is padding and has no slot"), (9, "token 2 goes to slot 9, which is block 2, place 1")],
)
def test_an_entry_of_a_slot_mapping(slot: int, text: str) -> None:
    assert entry(Scene("slot_mapping", "slots", (0, 6), 4), 2, Value("int64", slot)) == text


def test_a_run_of_elements() -> None:
    assert place({"block": 1, "token": 2, "x": 4}, 4) == "block 1, token 2, element 4 to 7"

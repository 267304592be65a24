"""One table of keys: every action is there, no key twice, and the foot fits."""

from __future__ import annotations

import pytest

from walkthroughs.stepper.app import Stepper
from walkthroughs.stepper.keys import HELP, KEYS, foot


def test_no_key_has_two_meanings() -> None:
    names = [key.keys for key in KEYS]
    assert len(set(names)) == len(names)


def test_every_action_exists() -> None:
    for key in KEYS:
        assert hasattr(Stepper, f"action_{key.action.partition('(')[0]}"), key


def test_learners_keys() -> None:
    """Those of other tools of this sort."""
    actions = {key.keys: key.action for key in KEYS}
    assert [actions[key] for key in "nphlq"] == ["step(1)", "step(-1)", "hint", "list", "quit"]
    assert actions["question_mark"] == "keys"


def test_the_list_names_every_key_that_is_shown() -> None:
    assert [shown for shown, _ in HELP] == [key.shown for key in KEYS if key.shown]
    assert all(text for _, text in HELP)


@pytest.mark.parametrize("width", [20, 40, 60, 78, 100, 138])
def test_the_foot_fits_and_tells_of_the_list(width: int) -> None:
    assert len(foot(width)) <= width
    assert "? keys" in foot(width)
    assert "q quit" in foot(width)


def test_at_eighty_columns_the_foot_has_the_learners_keys() -> None:
    for word in ("n p step", "l list", "h hint"):
        assert word in foot(78)

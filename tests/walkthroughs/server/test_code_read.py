"""What is made of a request with code, and what the server is told when it starts; nothing runs here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walkthroughs.server import code
from walkthroughs.server.code import Code, Forbidden, UnknownDrill
from walkthroughs.server.exchange import Malformed
from walkthroughs.server.parameters import Refused
from walkthroughs.server.process import _event

ROOT = Path(__file__).resolve().parents[3]
ALLOWED = Code(frozenset({"fix/one", "fix/two"}))
# Any text that JSON can hold: half a surrogate pair and NUL, too.
TEXTS = st.text(st.characters(codec=None, exclude_categories=()), max_size=60)


@given(text=TEXTS, times=st.integers(1, 3000))
def test_a_text_is_taken_as_it_is_or_not_at_all(text: str, times: int) -> None:
    whole = text * times
    if any(0xD800 <= ord(letter) < 0xE000 for letter in whole) or "\0" in whole:
        fine, refused = False, (Refused, Malformed)
    else:
        fine, refused = sum(len(letter.encode()) for letter in text) * times <= 65536, (Malformed,)
    body = {"drill": "fix/one", "text": whole}
    if fine:
        assert code.read(ALLOWED, body)["text"] == whole
    else:
        with pytest.raises(refused):
            code.read(ALLOWED, body)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@given(body=JSON | st.fixed_dictionaries({"drill": JSON, "text": JSON}))
def test_nothing_else_is_a_request(body: Any) -> None:
    with pytest.raises((Malformed, UnknownDrill)):
        code.read(ALLOWED, body)


@given(drill=st.text(max_size=12) | st.from_regex(r"(fix/)?(one|two|\.\.|/)+", fullmatch=True))
def test_only_an_id_of_the_bank_is_a_drill(drill: str) -> None:
    body = {"drill": drill, "text": "pass"}
    if drill in ("fix/one", "fix/two"):
        made = code.read(ALLOWED, body)
        assert set(made) == {"drill", "text", "seeds"}
        assert made["drill"] == drill
    else:
        with pytest.raises(UnknownDrill):
            code.read(ALLOWED, body)


def test_the_seeds_are_as_many_and_as_large_as_in_the_terminal() -> None:
    from walkthroughs.drills import fix_cases, fix_check

    assert (code.SEEDS, code.MOST_SEED) == (fix_check.SEEDS, fix_cases.MOST_SEED)
    drawn = [code.read(ALLOWED, {"drill": "fix/one", "text": ""})["seeds"] for _ in range(50)]
    assert {len(seeds) for seeds in drawn} == {code.SEEDS}
    assert all(0 <= seed < code.MOST_SEED for seeds in drawn for seed in seeds)
    assert len({tuple(seeds) for seeds in drawn}) == 50


# -- the key


def test_every_server_has_a_key_of_its_own_that_no_print_shows() -> None:
    keys = {Code(frozenset()).key for _ in range(50)}
    assert len(keys) == 50
    assert min(map(len, keys)) >= 40
    one = Code(frozenset())
    assert one.key not in repr(one)


@given(sent=st.lists(st.text(st.characters(max_codepoint=255), max_size=50), max_size=3))
def test_only_the_key_is_the_key(sent: list[str]) -> None:
    with pytest.raises(Forbidden):
        code.check(ALLOWED, sent)
    for tried in ([], [ALLOWED.key, *sent, ""], [ALLOWED.key[:-1]], [ALLOWED.key + "x"], [ALLOWED.key.lower() + " "]):
        with pytest.raises(Forbidden):
            code.check(ALLOWED, tried)
    assert code.check(ALLOWED, [ALLOWED.key]) is ALLOWED


@given(sent=st.lists(st.text(max_size=50), max_size=3))
def test_where_it_is_not_allowed_no_key_opens_it(sent: list[str]) -> None:
    with pytest.raises(Forbidden, match="--allow-code"):
        code.check(None, sent)


# -- what the child may tell


@given(event=JSON | st.dictionaries(st.just("event"), JSON, min_size=1))
def test_only_what_a_run_tells_is_an_event(event: Any) -> None:
    assert _event(json.dumps(event).encode()) is None
    assert _event(b"not json " + json.dumps(event).encode()) is None


def test_no_line_breaks_the_reader_of_lines() -> None:
    for line in (b"", b"\n", b"[" * 500_000, b'{"event":' * 100_000, b"9" * 10_000, b"\xff\xfe", b'"\\ud800"'):
        assert _event(line) is None


@pytest.mark.parametrize("kind", ["running", "launch", "check", "measured", "verdict"])
def test_what_a_run_tells_is_passed_on(kind: str) -> None:
    assert _event(json.dumps({"event": kind, "x": [1]}).encode() + b"\n") == {"event": kind, "x": [1]}
    assert _event(b'{"event": "%s", "x": Infinity}' % kind.encode()) is None


@pytest.mark.parametrize("kind", ["ended", "queued", "started", "Check", "check ", ""])
def test_what_the_server_tells_no_run_can(kind: str) -> None:
    assert _event(json.dumps({"event": kind}).encode()) is None


# -- the bank


def test_every_kernel_to_fix_is_a_drill_and_nothing_else() -> None:
    from walkthroughs.drills import fix, fix_run

    allowed = Code.of_bank()
    assert allowed.drills == set(fix.tasks())
    assert len(allowed.drills) >= 25
    assert allowed.command == fix_run.COMMAND == (sys.executable, "-m", "walkthroughs.drills.fix_run")


def test_every_file_to_fix_is_short_enough_and_leaves_room() -> None:
    from walkthroughs.drills import fix

    for name, task in fix.tasks().items():
        assert len(fix.unsolved(task).encode()) < code.MOST_TEXT // 2, name


def test_a_server_that_allows_no_code_does_not_know_the_drills() -> None:
    """The bank is read only where it is asked for."""
    program = "import sys, walkthroughs.server.app\nprint([name for name in sys.modules if '.drills' in name])"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

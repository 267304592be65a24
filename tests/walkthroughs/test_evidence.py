"""Records: the round trip through JSON, files that are none, whole writes or none, and going stale."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from walkthroughs import digest, evidence
from walkthroughs.evidence import (
    Check,
    Evidence,
    EvidenceError,
    Measurement,
    fresh,
    load_committed,
    pending,
    read,
    write,
    write_json,
)
from walkthroughs.step import get, registry

text = st.text(max_size=12)
errors = st.one_of(st.floats(0, 1e300), st.just(math.inf))
checks = st.builds(Check, text, st.booleans(), text, text, errors, st.floats(0, 1e9), text)
finite = st.none() | st.floats(allow_nan=False, allow_infinity=False)
measurements = st.builds(Measurement, text, finite, text, finite, finite, text)
records = st.builds(
    Evidence,
    step=text,
    status=st.sampled_from(["passed", "failed", "error"]),
    backend=st.sampled_from(["cuda", "sim"]),
    device=text,
    driver=text,
    versions=st.dictionaries(text, text, max_size=3),
    date=text,
    seed=st.integers(0, 2**63),
    digests=st.dictionaries(text, text, max_size=3),
    checks=st.lists(checks, max_size=3).map(tuple),
    seconds=st.floats(0, 1e6),
    message=text,
    measured=st.lists(measurements, max_size=2).map(tuple),
)
CHECK = Check("slots", True, "[1]", "[1]", 0.0, 0.0)
RECORD = Evidence(
    "paged-reference/slots", "passed", "cuda", "NVIDIA H200", "580", {"numpy": "2.4.6"}, "2026-01-02T03:04:05Z", 1,
    {"port": "a", "step": "b", "anchors": "c"}, (CHECK,), 0.5,
)  # fmt: skip


def strict(found: str) -> Any:
    """Parse as JSON proper is: Python's own NaN and Infinity are none of it."""

    def refuse(word: str) -> None:
        raise ValueError(word)

    return json.loads(found, parse_constant=refuse)


# -- JSON


@settings(max_examples=100)
@given(records)
def test_json_round_trip(record: Evidence) -> None:
    there = json.dumps(record.to_json(), allow_nan=False)
    assert Evidence.from_json(strict(there)) == record


@settings(max_examples=40)
@given(st.lists(records, max_size=3))
def test_file_round_trip(tmp_path_factory: pytest.TempPathFactory, found: list[Evidence]) -> None:
    path = tmp_path_factory.mktemp("records") / "a" / "b.json"
    write(path, found)
    assert read(path) == found
    assert strict(path.read_text("utf-8"))["schema"] == evidence.SCHEMA


def test_the_schema_stands_in_each_record() -> None:
    data = RECORD.to_json()
    assert data["schema"] == 1
    assert data["checks"][0] == {
        "name": "slots", "passed": True, "observed": "[1]", "expected": "[1]", "max_error": 0.0, "tolerance": 0.0,
        "note": "",
    }  # fmt: skip
    assert Evidence.from_json(data).checks == (CHECK,)


def test_max_error() -> None:
    small, large = replace(CHECK, max_error=0.5), replace(CHECK, max_error=2.0)
    assert replace(RECORD, checks=(small, large, CHECK)).max_error == 2.0
    assert replace(RECORD, checks=()).max_error == 0.0
    assert replace(CHECK, max_error=math.inf).to_json()["max_error"] is None


def without(key: str) -> dict[str, Any]:
    data = RECORD.to_json()
    del data[key]
    return data


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (RECORD.to_json() | {"schema": 2}, "schema = 2: must be 1; record it again"),
        (without("schema"), "schema = None: must be 1"),
        ({}, "schema = None"),
        (without("checks"), "not a record: 'checks'"),
        (without("seed"), "not a record: .*'seed'"),
        (RECORD.to_json() | {"colour": "red"}, "not a record: .*'colour'"),
        (RECORD.to_json() | {"checks": [{"name": "x"}]}, "not a record: .*missing"),
        (RECORD.to_json() | {"checks": 5}, "not a record"),
        (RECORD.to_json() | {"checks": [None]}, "not a record"),
        ([], r"not a record: \[\]"),
        (None, "not a record: None"),
        (5, "not a record: 5"),
        ("abc", "not a record: 'abc'"),
    ],
)
def test_what_is_no_record(data: Any, message: str) -> None:
    with pytest.raises(EvidenceError, match=message):
        Evidence.from_json(data)
    with pytest.raises(EvidenceError, match=message):
        Evidence.from_json(json.loads(json.dumps(data)))


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"\xff\xfe", b"[]", b"5", b"null", b"{}", b'{"records": null}', b'{"records": [[]]}',
        b'{"records": [{"schema": 2}]}', b'{"records": ["x"]}', json.dumps([RECORD.to_json()]).encode(),
    ],
)  # fmt: skip
def test_an_unreadable_file_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "vllm-classic.json"
    path.write_bytes(content)
    for call in (lambda: read(path), lambda: load_committed(tmp_path)):
        with pytest.raises(EvidenceError, match=r"^vllm-classic\.json: "):
            call()


# -- writing


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "w.json"
    write(path, [RECORD])
    before = path.read_bytes()
    for bad in (replace(RECORD, device=object()), replace(RECORD, seconds=math.nan)):  # type: ignore[arg-type]
        with pytest.raises((TypeError, ValueError)):
            write(path, [RECORD, bad])
        assert path.read_bytes() == before
        assert [found.name for found in tmp_path.iterdir()] == ["w.json"]


def test_a_rename_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "w.json"
    write_json(path, {"old": True})

    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        write_json(path, {"new": True})
    assert json.loads(path.read_text()) == {"old": True}
    assert [found.name for found in tmp_path.iterdir()] == ["w.json"]


def test_a_written_file_replaces_the_old_one_and_can_be_read_by_all(tmp_path: Path) -> None:
    path = tmp_path / "w.json"
    for number in range(2):
        write_json(path, {"n": number, "text": "…"})
    assert path.read_text("utf-8") == '{\n "n": 1,\n "text": "…"\n}\n'
    assert path.stat().st_mode & 0o777 == 0o644
    assert len(list(tmp_path.iterdir())) == 1


# -- what is committed, and whether it is still true


def test_committed_records_are_found_by_step(tmp_path: Path) -> None:
    assert load_committed(tmp_path) == {}
    other = replace(RECORD, step="paged-reference/tail")
    write(tmp_path / "paged-reference.json", [RECORD, other])
    write(tmp_path / "no-walkthrough.json", [replace(RECORD, step="no-walkthrough/x")])
    assert load_committed(tmp_path) == {RECORD.step: RECORD, other.step: other}


def test_pending(tmp_path: Path) -> None:
    assert pending(tmp_path) == {}
    (tmp_path / "pending.toml").write_text(
        '[pending."vllm-classic/slots"]\nreason = "no GPU was lent"\ndate = "2026-01-02"\n'
    )
    assert pending(tmp_path) == {"vllm-classic/slots": {"reason": "no GPU was lent", "date": "2026-01-02"}}
    (tmp_path / "pending.toml").write_text("")
    assert pending(tmp_path) == {}


@pytest.mark.parametrize("name", ["vllm-classic/qk-dot", "paged-reference/slots"])
def test_a_record_is_fresh_until_one_of_its_digests_changes(name: str) -> None:
    step = get(name)
    current = replace(RECORD, step=name, digests=digest.of_step(step))
    assert fresh(current, step)
    assert set(current.digests) == {"port", "step", "anchors"}
    for key in current.digests:
        assert not fresh(replace(current, digests=current.digests | {key: "0" * 16}), step)
        assert not fresh(replace(current, digests={k: v for k, v in current.digests.items() if k != key}), step)
    assert fresh(replace(current, device="another", date="later", seconds=9.0), step)


def test_steps_do_not_share_a_record() -> None:
    for walkthrough in registry().values():
        found = [tuple(digest.of_step(step).items()) for step in walkthrough.steps]
        assert len(set(found)) == len(found)

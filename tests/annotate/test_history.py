"""Verdicts, lanes and the committed files; the sources are needed for none of it."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotate.errors import AnnotateError
from annotate.history import (
    FOLDER,
    HOW,
    VERDICTS,
    Delta,
    Facts,
    State,
    committed,
    dumps,
    file_moves,
    lanes,
    loads,
    text_digest,
    verdict,
    write,
)
from annotate.releases import releases
from annotate.tracks import tracks, wording

A = State("a/k.cu", 10, 12, "f", "d1", "t1", "anchor", 1.0)


def other(**changes: object) -> State:
    return dataclasses.replace(A, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (A, A, "same"),
        (A, other(first=90, last=92), "same"),
        (A, other(path="b/k.cu"), "moved"),
        (A, other(symbol="g"), "moved"),
        (A, other(path="b/k.cu", text="t2"), "reformatted"),
        (A, other(path="b/k.cu", text="t2", digest="d2"), "changed"),
        (A, other(digest="d2"), "changed"),
        (A, other(how="followed", likeness=0.6), "same"),
        (A, None, "gone"),
        (None, A, "new"),
        (None, None, None),
        (A, other(how="unreadable", digest=""), None),
        (other(how="unreadable", digest=""), A, None),
    ],
)
def test_verdicts(before: State | None, after: State | None, said: str | None) -> None:
    assert verdict(before, after) == said


def facts(revision: str, deltas: dict[str, Delta] | None = None, **states: State | None) -> Facts:
    return Facts(f"vllm@{revision}", "sha256:00", states, "w", ("a/k.cu",), deltas or {})


def test_a_lane_tells_since_when() -> None:
    moved, gone = other(path="b/k.cu"), None
    changed = other(digest="d2", text="t2")
    found = lanes(
        [facts("1.10", x=moved), facts("1.2", x=A), facts("1.3", x=A), facts("1.11", x=changed), facts("1.12", x=gone)]
    )
    lane = found["x"]
    assert [cell.source for cell in lane.cells] == ["vllm@1.2", "vllm@1.3", "vllm@1.10", "vllm@1.11", "vllm@1.12"]
    assert [cell.verdict for cell in lane.cells] == [None, "same", "moved", "changed", "gone"]
    assert [cell.since for cell in lane.cells] == ["vllm@1.2"] * 3 + ["vllm@1.11", "vllm@1.12"]
    assert not lane.living
    assert lane.gone_at == "vllm@1.12"
    assert lane.at("vllm@1.3") == lane.cells[1]
    assert lane.at("vllm@9") is None


def test_a_piece_that_came_back_is_new_again_and_lives() -> None:
    lane = lanes([facts("1", x=None), facts("2", x=A), facts("3", x=None), facts("4", x=A)])["x"]
    assert [cell.verdict for cell in lane.cells] == [None, "new", "gone", "new"]
    assert lane.living
    assert lane.gone_at is None


def test_a_piece_that_never_was_has_not_left() -> None:
    lane = lanes([facts("1", x=None), facts("2", x=None)])["x"]
    assert not lane.living
    assert lane.gone_at is None


def test_as_written_compares_with_the_anchors_own_release() -> None:
    changed = other(digest="d2")
    lane = lanes([facts("1", x=changed), facts("2", x=A), facts("3", x=A), facts("4", x=None)], {"x": "vllm@2"})["x"]
    assert [cell.as_written for cell in lane.cells] == ["changed", "same", "same", "gone"]
    unread = lanes([facts("1", x=changed)], {"x": "vllm@2"})["x"]
    assert unread.cells[0].as_written is None


def test_a_delta_counts_only_beside_its_own_neighbour() -> None:
    delta = Delta("vllm@2", 3, 1, ("for(i)",), ())
    changed = other(digest="d2")
    three = [facts("1", x=A), facts("2", x=A), facts("3", {"x": delta}, x=changed)]
    assert lanes(three)["x"].cells[2].delta == delta
    assert lanes([three[0], three[2]])["x"].cells[1].delta is None
    assert str(delta) == "+3 -1 tokens +for(i)"


names = st.text("abc/._", min_size=1, max_size=6)
states = st.none() | st.builds(
    State,
    names,
    st.integers(1, 9),
    st.integers(9, 99),
    names,
    names,
    names,
    st.sampled_from(list(HOW)),
    st.sampled_from([0.25, 1.0]),
)
deltas = st.builds(Delta, names, st.integers(0, 9), st.integers(0, 9), st.just(("for(i)",)), st.tuples(names))


@given(st.dictionaries(names, states), st.dictionaries(names, deltas), st.tuples(names, names))
def test_facts_make_the_round_trip(
    found: dict[str, State | None], changed: dict[str, Delta], files: tuple[str, str]
) -> None:
    known = {track: delta for track, delta in changed.items() if track in found}
    entry = Facts("vllm@1.2", "sha256:00", found, "w", files, known)
    again = loads(dumps(entry))
    assert (again.source, again.pin, again.wording, again.files) == (entry.source, entry.pin, "w", files)
    assert dict(again.states) == found
    assert again.deltas == known
    assert list(again.states) == list(found)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"schema": 99}', '{"schema": 1, "names": [], "tracks": [{"id": "x", "path": 0}]}', "null"],
)
def test_damaged_facts_say_what_to_do(text: str) -> None:
    with pytest.raises(AnnotateError, match="make drift"):
        loads(text, "vllm@1.json")


def test_facts_are_written_to_a_folder_and_read_in_the_order_of_releases(tmp_path: Path) -> None:
    for revision in ("0.10.0", "0.9.0", "0.9.0.post1"):
        write(facts(revision, x=A), tmp_path)
    write(Facts("other@1", "sha256:00", {}), tmp_path)
    assert [entry.revision for entry in committed("vllm", tmp_path)] == ["0.9.0", "0.9.0.post1", "0.10.0"]


def test_where_files_moved() -> None:
    one = dataclasses.replace(facts("1"), files=("a/k.cu", "b/k.cu", "m.py"))
    two = dataclasses.replace(facts("2"), files=("b/k.cu", "m.py"))
    three = dataclasses.replace(facts("3"), files=("m.py",))
    assert file_moves([three, one, two]) == {
        "k.cu": [("vllm@1", ("a/k.cu", "b/k.cu")), ("vllm@2", ("b/k.cu",)), ("vllm@3", ())],
        "m.py": [("vllm@1", ("m.py",))],
    }


def test_text_digests_see_white_space_inside_lines_but_not_at_their_ends() -> None:
    assert text_digest([b"a  b", b"c"]) == text_digest([b"a  b \r", b"c\t"])
    assert text_digest([b"a  b", b"c"]) != text_digest([b"a b", b"c"])
    assert text_digest([b"a", b"b"]) != text_digest([b"ab"])


# -- what is committed ---------------------------------------------------


def test_every_pinned_release_has_facts_and_of_its_own_archive() -> None:
    assert [(entry.source, entry.pin) for entry in committed()] == [(pin.id, pin.digest) for pin in releases()]


def test_the_facts_belong_to_todays_anchors() -> None:
    said = wording(tracks().values())
    for entry in committed():
        assert entry.wording == said, f"{entry.source}: the anchors were reworded: make drift"
        assert [*entry.states] == [*tracks()]


def test_the_facts_hold_no_text() -> None:
    """Names, paths, numbers, digests: no line of anyone's code is long enough to stand in them."""
    for path in FOLDER.glob("*.json"):
        data = json.loads(path.read_text("utf-8"))
        for name in [*data["names"], *data["files"]]:
            # A document's headings are the longest names there are.
            assert len(name) < 90
            assert re.fullmatch(r"[\w ./:>-]+", name), name
        for row in data["tracks"]:
            assert row.keys() <= {"id", "path", "first", "last", "symbol", "digest", "text", "how", "likeness", "delta"}
            assert re.fullmatch(r"[0-9a-f]{32}", row.get("digest", "0" * 32))
            for named in (name for names in row.get("delta", [])[3:] for name in names):
                assert re.fullmatch(r"\d+ more|[a-z]+(\([\w.:/ *]*\))?", named), named


def test_every_verdict_is_a_known_one() -> None:
    seen = {cell.verdict for lane in lanes(committed()).values() for cell in lane.cells}
    assert seen == {None, *VERDICTS}

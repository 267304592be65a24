"""The file format: round trips, cuts by size, refusals of damaged files, and the page that describes it."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.simt import cuda, launch
from kernels.simt.record import Recorder
from kernels.simt.trace import ENDS, KINDS, Trace, TraceError, Truncated
from kernels.simt.trace_json import FIELDS, FORMAT, SPACES, VERSION, DamagedTrace, WrongVersion, dump, load

PAGE = Path(__file__).resolve().parents[3] / "docs" / "trace-format.md"


def helper(x):
    return x + np.float32(0.1)


def kernel(out, a, n):
    t = cuda.threadIdx.x
    s = cuda.shared.array(32, np.float32)
    tiny = cuda.local.array(2, np.float16)
    tiny[0] = 0.1
    odd = (-0.0, n == 1)
    for i in range(n):
        s[t] = helper(a[i])
        cuda.syncthreads_or(t == i)
    x = cuda.shfl_xor_sync(0xFFFFFFFF, s[t], 1)
    cuda.atomic.add(out, 1, x)
    out[0] = float("inf") if n else tiny[0]
    del odd


ARRAY = np.array([1.5, np.nan, -np.inf, 1e-45, 3.0000001], np.float32)


@cache
def recorded(limit=100_000):
    recorder = Recorder([0, 5], limit=limit)
    launch(kernel, 1, 32, (np.zeros(2), ARRAY, 5), tracer=recorder)
    return recorder.trace("a case")


@cache
def text():
    return recorded().to_json()


def test_a_round_trip_gives_an_equal_trace():
    assert Trace.from_json(text()) == recorded()
    assert Trace.from_json(text().encode()).to_json() == text()
    assert recorded().to_json() == text()


def test_every_kind_but_the_vector_load_is_in_it():
    kinds = {event.kind for event in recorded().events}
    assert kinds == set(KINDS.values()) - {"vector"}


def test_floats_come_back_to_the_last_bit():
    values = [v for e in load(text()).events for v in (e.value, e.result) if v is not None and "float" in v.type]
    assert {v.type for v in values} == {"float16", "float32", "float64"}
    for value in values:
        assert float(np.dtype(value.type).type(value.data)) == value.data or np.isnan(value.data)
    assert np.array_equal(np.array(load(text()).arrays[1].data, np.float32), ARRAY, equal_nan=True)


@given(st.floats(width=32))
def test_any_float32_comes_back(number):
    def one(a):
        x = a[0]  # noqa: F841

    recorder = Recorder([0])
    launch(one, 1, 1, (np.array([number], np.float32),), tracer=recorder)
    (back,) = [e.value for e in load(recorder.trace().to_json()).events if e.kind == "read"]
    assert back is not None
    assert np.float32(back.data).tobytes() == np.float32(number).tobytes() or number != number


def test_it_is_plain_json_with_no_source_text():
    head = json.loads(text(), parse_constant=lambda word: pytest.fail(word))
    assert head["format"] == FORMAT
    assert head["version"] == VERSION
    source = {line.strip() for line in Path(__file__).read_text("utf-8").splitlines()}
    words = {item for table in ("names", "values", "files", "functions") for item in map(str, head[table])}
    assert not words & (source - {""})


@cache
def least():
    """The fewest bytes that hold one event of this trace: those of a file with one event, and room for the notice."""
    trace = recorded()
    one = replace(trace, events=trace.events[:1])
    return next(n for n in range(len(dump(one)) + 600) if _fits(one, n))


def _fits(trace, limit):
    with suppress(TraceError):
        return bool(dump(trace, limit))
    return False


@given(st.integers(0, 12_000))
def test_a_cut_by_bytes_fits_keeps_the_first_events_and_says_so(limit):
    trace = recorded()
    if limit < least():
        with pytest.raises(TraceError, match="not even one event fits"):
            dump(trace, limit)
        return
    cut = dump(trace, limit)
    assert len(cut.encode()) <= limit
    back = load(cut)
    assert back.events == trace.events[: len(back)]
    if limit >= len(text()) + 256:
        assert back == trace
    if len(back) < len(trace):
        assert back.truncated == Truncated("bytes", limit, len(back), len(trace))
        back.state(len(back))
    else:
        assert back.truncated is None


def test_a_cut_of_a_cut_still_counts_all_events():
    once = recorded(limit=60)
    back = load(dump(once, len(once.to_json()) - 300))
    assert back.truncated is not None
    assert once.truncated is not None
    assert len(back) < 60
    assert (back.truncated.by, back.truncated.total) == ("bytes", once.truncated.total)
    assert load(once.to_json()).truncated == once.truncated


def test_a_vector_load_is_one_event():
    from kernels.simt.vector import vector_load

    load4 = vector_load(4)

    def one(a):
        x, y, z, w = load4(a, 4)
        a[0] = x + w + 0 * y + 0 * z

    recorder = Recorder([0])
    launch(one, 1, 1, (np.arange(8, dtype=np.float32),), tracer=recorder)
    trace = load(recorder.trace().to_json())
    assert trace == recorder.trace()
    (event,) = [e for e in trace.events if e.kind == "vector"]
    assert (event.index, [v.data for v in event.values]) == (4, [4.0, 5.0, 6.0, 7.0])
    assert [e.kind for e in trace.events].count("read") == 0
    cells = trace.state(len(trace)).cells(0)
    assert {n: v.data for n, v in cells.items()} == {0: 11.0, 4: 4.0, 5: 5.0, 6: 6.0, 7: 7.0}


# Refusals.


@pytest.mark.parametrize(
    "bad",
    ["[]", "3", "null", '{"format": "pagewalk-trace"}', '{"format": "other", "version": 1}', '{"version": 1}'],
)
def test_another_format_is_refused(bad):
    with pytest.raises(WrongVersion, match="record it again"):
        load(bad)


def test_another_version_is_refused():
    head = json.loads(text())
    for version in (0, 2, "1", None):
        with pytest.raises(WrongVersion) as caught:
            load(json.dumps({**head, "version": version}))
        assert caught.value.found == (FORMAT, version)


@pytest.mark.parametrize("bad", ["", "{", "not json", "\x00", '{"format":' * 3])
def test_what_is_not_json_is_refused(bad):
    with pytest.raises(DamagedTrace, match="the whole file"):
        load(bad)


@given(st.integers(0, len(text()) - 1))
def test_a_file_that_ends_too_early_is_refused(length):
    with pytest.raises(DamagedTrace):
        load(text()[:length])


def _where(head, path):
    for part in path[:-1]:
        head = head[part]
    return head, path[-1]


@pytest.mark.parametrize(
    ("path", "value", "where"),
    [
        (("kernel",), 3, "the head"),
        (("launch", "grid"), [1, 1], "the head"),
        (("launch",), None, "the head"),
        (("kinds",), {}, "kinds"),
        (("names", 0), 7, r"names\[0\]"),
        (("values", 0), ["int"], r"values\[0\]"),
        (("values", 0), ["array", [99, 0]], r"values\[0\]"),
        (("values", 0), ["int", "7"], r"values\[0\]"),
        (("values", 0), ["float32", "seven"], r"values\[0\]"),
        (("files", 0), {"path": 1, "sha256": None}, r"files\[0\]"),
        (("functions", 0), {"name": "k", "file": 9, "line": 1}, r"functions\[0\]"),
        (("threads", 0), {"block": [0, 0, 0]}, r"threads\[0\]"),
        (("arrays", 0, "space"), "texture", r"arrays\[0\]"),
        (("arrays",), {}, "arrays"),
        (("events", 0), ["Q", 0], r"events\[0\]"),
        (("events", 0), [], r"events\[0\]"),
        (("events", 0), ["L", 0, 1, []], r"events\[0\].*outside any function"),
        (("events", 1), ["L", 0, 1], r"events\[1\].*4 items"),
        (("events", 1), ["L", 2, 1, []], r"events\[1\]"),
        (("events", 1), ["L", 0, True, []], r"events\[1\]"),
        (("events", 1), ["L", 0, 1, [0]], r"events\[1\]"),
        (("events", 1), ["L", 0, 1, [0, 9999]], r"events\[1\]"),
        (("events", 1), ["R", 0, 99, 0, 0], r"events\[1\]"),
        (("events", 1), ["R", 0, 0, 0, -1], r"events\[1\].*has a value"),
        (("events", 1), ["Z", 0, 0, -1], r"events\[1\].*ends as one of"),
        (("truncated",), {"by": "events", "limit": 1, "kept": 1, "total": 2}, "truncated"),
        (("truncated",), {"by": "events"}, "the head"),
    ],
)
def test_a_damaged_file_is_refused_with_the_place(path, value, where):
    head = deepcopy(json.loads(text()))
    spot, last = _where(head, path)
    spot[last] = value
    with pytest.raises(DamagedTrace, match=where):
        load(json.dumps(head))


@given(st.data())
def test_whatever_is_put_in_one_place_is_refused_or_read_never_anything_else(data):
    head = deepcopy(json.loads(text()))
    table = data.draw(st.sampled_from(["events", "values", "arrays", "threads", "functions", "files", "names"]))
    rows = head[table]
    number = data.draw(st.integers(0, len(rows) - 1))
    junk = st.one_of(st.none(), st.booleans(), st.integers(-2, 9), st.floats(), st.text(max_size=3), st.just([]))
    value = data.draw(st.one_of(junk, st.lists(junk, max_size=6), st.dictionaries(st.text(max_size=3), junk)))
    if isinstance(rows[number], list) and rows[number] and data.draw(st.booleans()):
        rows[number][data.draw(st.integers(0, len(rows[number]) - 1))] = value
    else:
        rows[number] = value
    try:
        trace = load(json.dumps(head))
    except TraceError:
        return
    assert len(trace) == len(head["events"])


# The page.


def test_the_page_lists_every_kind_with_its_fields():
    rows = re.findall(r"^\| `([A-Z])` \| (\w+) \| (.*?) \|", PAGE.read_text("utf-8"), re.M)
    assert {letter: kind for letter, kind, _ in rows} == KINDS
    for _, kind, fields in rows:
        assert tuple(re.findall(r"`(\w+)`", fields)) == FIELDS[kind], kind


def test_the_page_names_every_part_of_the_head():
    page = PAGE.read_text("utf-8")
    head = json.loads(text())
    listed = re.findall(r"^\| `(\w+)` \| (?!call|line)", page, re.M)
    for key in head:
        assert key in listed, key
    for key in {*head["arrays"][0], *head["threads"][0], *head["functions"][0], *head["files"][0], *head["launch"]}:
        assert f"`{key}`" in page, key
    for word in (*ENDS, *SPACES):
        assert f"`{word}`" in page, word
    assert f"version {VERSION}" in page


def test_the_example_on_the_page_is_a_trace():
    (example,) = re.findall(r"```json\n(.*?)```", PAGE.read_text("utf-8"), re.S)
    trace = load(example)
    assert [e.kind for e in trace.events] == ["call", "line", "read", "line", "write", "return", "end"]
    assert trace.state(4).threads[0].variables["x"].data == 1.5

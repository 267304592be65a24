"""The trace format: a `Trace` as JSON and back, compact, limited in size, and checked when it is read.

`docs/trace-format.md` describes it; a test holds that page and this module to each other.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from kernels.simt.trace import (
    ENDS,
    KINDS,
    ArrayInfo,
    Change,
    Event,
    File,
    Function,
    Thread,
    Trace,
    TraceError,
    Truncated,
    Value,
)

FORMAT = "pagewalk-trace"
VERSION = 1
MAX_BYTES = 8 * 1024 * 1024
ROOM = 256  # for the notice of a cut
SPACES = ("global", "const", "shared", "local", "unknown")

FIELDS = {
    "call": ("function", "line", "changed"),
    "line": ("line", "changed"),
    "alloc": ("array",),
    "read": ("array", "index", "value"),
    "vector": ("array", "index", "values"),
    "write": ("array", "index", "value"),
    "atomic": ("what", "array", "index", "value", "result"),
    "warp": ("what", "source", "value", "result"),
    "barrier": ("what", "interval", "value"),
    "return": ("value", "changed"),
    "end": ("what", "value"),
}
"""What a row holds after its letter and its thread. Its function, depth and line follow from the rows before."""
LETTERS = {kind: letter for letter, kind in KINDS.items()}
_PLAIN: dict[str, tuple[type, ...]] = {"int": (int,), "bool": (bool,), "none": (type(None),), "text": (str,)}
_FLOATS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


class WrongVersion(TraceError):
    """A file of another version of the format, or of another format."""

    def __init__(self, found: object) -> None:
        self.found = found
        super().__init__(f"this is not a trace of version {VERSION} but {found!r}: record it again, pagewalk trace")


class DamagedTrace(TraceError):
    """A file that says it is a trace and is not whole: names the place."""

    def __init__(self, where: str, problem: str) -> None:
        self.where = where
        super().__init__(f"damaged trace, {where}: {problem}")


class _Table:
    """Things that are written once and then meant by their number."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self.bytes = 0
        self._known: dict[Any, int] = {}

    def number(self, key: Any, row: Any) -> int:
        """The number of a thing; -1 stands for none and is in no table."""
        if key not in self._known:
            self._known[key] = len(self.rows)
            self.rows.append(row)
            self.bytes += len(_text(row)) + 1
        return self._known[key]


class _Writer:
    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.names = _Table()
        self.values = _Table()

    def row(self, event: Event) -> list[Any]:
        """One event as its row."""
        fields = (self._field(event, name) for name in FIELDS[event.kind])
        return [LETTERS[event.kind], event.thread, *fields]

    def _field(self, event: Event, name: str) -> Any:
        item = getattr(event, name)
        if name == "changed":
            return [part for change in item for part in (self._name(change[0]), self._value(change[1]))]
        if name == "what":
            return self._name(item)
        if name == "values":
            return [self._value(value) for value in item]
        return self._value(item) if name in ("value", "result") else item

    def _name(self, name: str) -> int:
        return self.names.number(name, name)

    def _value(self, value: Value | None) -> int:
        if value is None:
            return -1
        # By its text too: -0.0 equals 0.0, True equals 1.
        return self.values.number((value.type, repr(value.data)), [value.type, _number(value.type, value.data)])


def dump(trace: Trace, max_bytes: int | None = None) -> str:
    """A trace as JSON text of at most `max_bytes` bytes (default 8 MiB): later events are left out, and `truncated`
    says so.

    Raises TraceError where not even the tables before the events fit.
    """
    limit = MAX_BYTES if max_bytes is None else max_bytes
    writer = _Writer(trace)
    head = _head(trace)
    used = len(_text(head).encode()) + ROOM
    rows: list[list[Any]] = []
    size = 0
    for event in trace.events:
        names, values = len(writer.names.rows), len(writer.values.rows)
        row = writer.row(event)
        size += len(_text(row)) + 1
        if used + size + writer.names.bytes + writer.values.bytes > limit:
            del writer.names.rows[names:], writer.values.rows[values:]
            break
        rows.append(row)
    if not rows and trace.events:
        raise TraceError(f"max_bytes = {limit}: not even one event fits behind {used} bytes of tables")
    cut = trace.truncated
    if len(rows) < len(trace.events):
        cut = Truncated("bytes", limit, len(rows), cut.total if cut else len(trace.events))
    head["truncated"] = None if cut is None else asdict(cut)
    return _text({**head, "names": writer.names.rows, "values": writer.values.rows, "events": rows})


def _head(trace: Trace) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": VERSION,
        "kernel": trace.kernel,
        "case": trace.case,
        "schedule": trace.schedule,
        "launch": {"grid": trace.grid, "block": trace.block, "shared_bytes": trace.shared_bytes},
        "launches": trace.launches,
        "truncated": None,
        "kinds": KINDS,
        "files": [{"path": file.path, "sha256": file.sha256} for file in trace.files],
        "functions": [{"name": f.name, "file": f.file, "line": f.line} for f in trace.functions],
        "threads": [{"block": t.block, "thread": t.thread, "number": t.number} for t in trace.threads],
        "arrays": [_array(array) for array in trace.arrays],
    }


def _array(array: ArrayInfo) -> dict[str, Any]:
    data = None if array.data is None else [_number(array.dtype, item) for item in array.data]
    row = {"name": array.name, "space": array.space, "dtype": array.dtype, "shape": array.shape}
    return {**row, "owner": array.owner, "data": data}


def _number(kind: str, data: Any) -> Any:
    """Floats as short as their type allows, and as text where JSON has no number for them."""
    if isinstance(data, float):
        if not math.isfinite(data):
            return "nan" if math.isnan(data) else "inf" if data > 0 else "-inf"
        return float(str(np.dtype(kind).type(data))) if kind in ("float32", "float16") else data
    return data


def _text(item: Any) -> str:
    return json.dumps(item, separators=(",", ":"), allow_nan=False)


class _Reader:
    """Rebuilds what the rows leave out, and checks every number on the way."""

    def __init__(self, head: dict[str, Any]) -> None:
        self.head = head
        self.names = self.table("names", lambda row: _is(row, str))
        self.files = self.table("files", lambda r: File(_is(r["path"], str), _is(r["sha256"], str, type(None))))
        self.functions = self.table("functions", self._function)
        self.threads = self.table("threads", _thread)
        self.arrays = self.table("arrays", _array_info)
        self.values = self.table("values", self._value)
        self.stacks: list[list[tuple[int, int]]] = [[] for _ in self.threads]

    def table(self, name: str, read: Callable[[Any], Any]) -> tuple[Any, ...]:
        """A table of the file, each row read; raises DamagedTrace with the row."""
        rows = self.head.get(name)
        if not isinstance(rows, list):
            raise DamagedTrace(name, "must be a list")
        found = []
        for number, row in enumerate(rows):
            try:
                found.append(read(row))
            except (KeyError, TypeError, ValueError, IndexError) as error:
                raise DamagedTrace(f"{name}[{number}]", f"{row!r} ({error})") from error
        return tuple(found)

    def _function(self, row: Any) -> Function:
        self.pick(self.files, row["file"])
        return Function(_is(row["name"], str), row["file"], _is(row["line"], int))

    def _value(self, row: Any) -> Value:
        kind, data = row
        if kind != "array":
            return Value(_is(kind, str), _data(kind, data))
        number, *rest = (_is(part, int) for part in _is(data, list))
        self.pick(self.arrays, number)
        return Value(kind, (number, *rest))

    def event(self, row: Any) -> Event:
        """One row as its event; raises ValueError for one that cannot be."""
        kind = KINDS[row[0]]
        fields = FIELDS[kind]
        if len(row) != 2 + len(fields):
            raise ValueError(f"a {kind} row has {2 + len(fields)} items")
        self.pick(self.threads, row[1])
        facts = {name: self._field(name, item) for name, item in zip(fields, row[2:], strict=True)}
        if kind == "end" and facts["what"] not in ENDS:
            raise ValueError(f"a thread ends as one of {', '.join(ENDS)}")
        if kind in ("read", "write", "atomic") and None in (facts["value"], facts.get("result", 0)):
            raise ValueError("an access has a value")
        stack = self.stacks[row[1]]
        if kind == "call":
            stack.append((facts["function"], facts["line"]))
        elif not stack and kind != "end":
            raise ValueError("it stands outside any function")
        elif kind == "line":
            stack[-1] = (stack[-1][0], facts["line"])
        function, line = stack[-1] if stack else (-1, 0)
        if kind == "alloc":
            facts["what"] = self.arrays[facts["array"]].space
        event = Event(kind, row[1], **{"function": function, "depth": len(stack) - 1, "line": line, **facts})
        if kind == "return":
            stack.pop()
        return event

    def _field(self, name: str, item: Any) -> Any:
        if name == "changed":
            pairs = zip(_is(item, list)[::2], item[1::2], strict=True)
            found: list[Change] = [(self.pick(self.names, key), self._optional(value)) for key, value in pairs]
            return tuple(found)
        if name == "what":
            return self.pick(self.names, item)
        if name == "values":
            return tuple(self.pick(self.values, number) for number in _is(item, list))
        if name in ("value", "result"):
            return self._optional(item)
        if name in ("array", "function"):
            self.pick(self.arrays if name == "array" else self.functions, item)
        return _is(item, int)

    def _optional(self, number: Any) -> Any:
        return None if number == -1 else self.pick(self.values, number)

    @staticmethod
    def pick(table: tuple[Any, ...], number: Any) -> Any:
        """An entry of a table; raises ValueError for a number that it has not."""
        if not 0 <= _is(number, int) < len(table):
            raise ValueError(f"{number} is not in its table of {len(table)}")
        return table[number]


def load(text: str | bytes) -> Trace:
    """A trace from JSON text; raises WrongVersion or DamagedTrace."""
    try:
        head = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DamagedTrace("the whole file", f"it is not JSON ({error})") from error
    if not isinstance(head, dict) or head.get("format") != FORMAT or head.get("version") != VERSION:
        found = (head.get("format"), head.get("version")) if isinstance(head, dict) else type(head).__name__
        raise WrongVersion(found)
    if head.get("kinds") != KINDS:
        raise DamagedTrace("kinds", "not those of this version")
    reader = _Reader(head)
    events = reader.table("events", reader.event)
    try:
        launch = head["launch"]
        trace = Trace(
            _is(head["kernel"], str),
            _is(head["schedule"], str),
            _triple(launch["grid"]),
            _triple(launch["block"]),
            _is(launch["shared_bytes"], int),
            reader.files,
            reader.functions,
            reader.threads,
            reader.arrays,
            events,
            case=_is(head["case"], str),
            launches=_is(head["launches"], int),
        )
        cut = head["truncated"]
        cut = None if cut is None else Truncated(cut["by"], cut["limit"], cut["kept"], cut["total"])
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedTrace("the head", f"{type(error).__name__}: {error}") from error
    if cut is not None and (cut.kept != len(events) or cut.by not in ("events", "bytes")):
        raise DamagedTrace("truncated", f"{cut.kept} events are said to be kept, {len(events)} are there")
    return replace(trace, truncated=cut)


def _is(item: Any, *types: type) -> Any:
    if not isinstance(item, types) or (isinstance(item, bool) and bool not in types):
        raise TypeError(f"{item!r} must be {' or '.join(kind.__name__ for kind in types)}")
    return item


def _triple(item: Any) -> tuple[int, int, int]:
    x, y, z = (_is(part, int) for part in item)
    return x, y, z


def _thread(row: Any) -> Thread:
    return Thread(_triple(row["block"]), _triple(row["thread"]), _is(row["number"], int))


def _array_info(row: Any) -> ArrayInfo:
    if row["space"] not in SPACES:
        raise ValueError(f"space must be one of {', '.join(SPACES)}")
    data = None if row["data"] is None else tuple(_data(row["dtype"], item) for item in _is(row["data"], list))
    shape = tuple(_is(size, int) for size in row["shape"])
    return ArrayInfo(_is(row["name"], str), row["space"], _is(row["dtype"], str), shape, _is(row["owner"], int), data)


def _data(kind: str, data: Any) -> Any:
    """A value's data as the trace holds it: floats exact in their type."""
    if kind in _PLAIN or kind.startswith(("int", "uint")):
        return _is(data, *_PLAIN.get(kind, (int,)))
    number = float(_FLOATS.get(_is(data, str, int, float), data))
    if kind in ("float32", "float16") and number == number:  # a NaN must stay math.nan, to equal itself
        with np.errstate(all="ignore"):
            return float(np.dtype(kind).type(number))
    return number

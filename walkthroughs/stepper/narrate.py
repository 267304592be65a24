"""What happened at a moment, in one sentence, for the screen, the printed walk and a screen reader alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernels.simt.trace import Event, Trace, Value
    from walkthroughs.stepper.scenes import Pool, Scene

DIGITS = 6
AXES = {"x": "element"}


def number(value: Value | None) -> str:
    """A value, short enough for a cell: floats with six digits."""
    if value is None:
        return "–"
    if isinstance(value.data, float):
        return f"{value.data:.{DIGITS}g}"
    return str(value.data)


def brief(value: Value | None, width: int = 8) -> str:
    """A value for a narrow cell: a float with as many digits as fit, at least one."""
    text = number(value)
    if value is not None and isinstance(value.data, float):
        for digits in range(DIGITS, 0, -1):
            text = f"{value.data:.{digits}g}"
            if len(text) <= width:
                break
    return text


def told(trace: Trace, value: Value | None) -> str:
    """A value in words: an array by its name, its place and its shape."""
    if value is None or not isinstance(value.data, tuple):
        return number(value)
    which, first, *shape = value.data
    array = trace.arrays[which]
    start = f" from element {first}" if first else ""
    return f"{array.space} {array.name}[{', '.join(map(str, shape))}]{start}"


def pool_of(trace: Trace, scene: Scene | None, event: Event) -> Pool | None:
    """The pool that an access goes to, or None."""
    if scene is None or event.array < 0 or trace.arrays[event.array].space != "global":
        return None
    return next((pool for pool in scene.pools if pool.array == trace.arrays[event.array].name), None)


def place(where: Mapping[str, int], count: int = 1) -> str:
    """An element's place in a pool in words; `count` elements, side by side on the narrowest axis."""
    parts = [f"{AXES.get(name, name)} {at}" for name, at in where.items()]
    if count > 1 and where:
        last = list(where.values())[-1]
        parts[-1] += f" to {last + count - 1}"
    return ", ".join(parts)


def sentence(trace: Trace, event: Event | None, scene: Scene | None = None) -> str:
    """What a thread did, as a sentence without a full stop."""
    if event is None:
        return "The kernel has not begun"
    changed = changes(trace, event)
    if event.kind == "call":
        return f"enters {trace.functions[event.function].name}{' with ' if changed else ''}{changed}"
    if event.kind == "line":
        return f"{changed}; next is line {event.line}" if changed else f"comes to line {event.line}"
    if event.kind == "return":
        what = f" with {told(trace, event.value)}" if event.value is not None and event.value.type != "none" else ""
        return f"leaves {trace.functions[event.function].name}{what}"
    if event.kind == "end":
        return {"returned": "is done", "stopped": "was stopped by another thread's error"}.get(
            event.what, f"fails: {event.value}"
        )
    if event.kind == "barrier":
        return f"waits in {event.what}: barrier interval {event.interval} ends here"
    if event.kind == "warp":
        return _warp(trace, event)
    return _access(trace, event, scene)


def changes(trace: Trace, event: Event) -> str:
    """What changed with an event: `a = 1, b = 2`, or the empty text."""
    return ", ".join(f"{name} = {told(trace, value)}" for name, value in event.changed if value is not None)


def _warp(trace: Trace, event: Event) -> str:
    given = "" if event.value is None else f" gives {told(trace, event.value)}"
    source = "" if event.source < 0 else f" from lane {event.source}"
    got = "" if event.result is None else f"{',' if given else ''} gets {told(trace, event.result)}{source}"
    return f"{event.what}{given}{got}"


def _access(trace: Trace, event: Event, scene: Scene | None) -> str:
    array = trace.arrays[event.array]
    if event.kind == "alloc":
        return f"has a {array.space} array {array.name}: {array.dtype}{list(array.shape)}"
    count = len(event.values) if event.kind == "vector" else 1
    index = f"{event.index}" if count == 1 else f"{event.index} to {event.index + count - 1}"
    spot = f"{array.name}[{index}]" if array.space == "global" else f"{array.space} {array.name}[{index}]"
    if event.kind == "atomic":
        did = f"atomic {event.what} on {spot}: {number(event.value)} becomes {number(event.result)}"
    elif event.kind == "write":
        did = f"writes {number(event.value)} to {spot}"
    else:
        values = event.values if event.kind == "vector" else (event.value,)
        did = f"reads {', '.join(map(number, values))} from {spot}"
    pool = pool_of(trace, scene, event)
    if pool is not None:
        return f"{did}: {place(pool.where(event.index), count)}"
    if scene is not None and array.name == scene.table and array.space == "global" and event.kind == "read":
        return f"{did}: {entry(scene, event.index, event.value)}"
    return did


def entry(scene: Scene, index: int, value: Value | None) -> str:
    """What an entry of the block table, or of the slot mapping, says."""
    at = index - scene.row[0] if scene.row[1] else index
    if scene.kind == "slots":
        slot = value.data if value is not None else None
        if not isinstance(slot, int) or isinstance(slot, bool) or not scene.block_size:
            return f"the slot of token {at}"
        if slot < 0:
            return f"token {at} is padding and has no slot"
        block, offset = divmod(slot, scene.block_size)
        return f"token {at} goes to slot {slot}, which is block {block}, place {offset}"
    return f"logical block {at} lies in physical block {number(value)}"

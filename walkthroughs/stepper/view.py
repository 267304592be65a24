"""Everything that the screen shows of one moment, as plain values: the same moment gives an equal view.

The values come from the threads' histories, so that a view can be made of any moment, in any order.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from walkthroughs.stepper.history import History, in_lockstep
from walkthroughs.stepper.narrate import brief, number, sentence
from walkthroughs.stepper.picture import ACCESSES, PoolPicture, Stage, Table
from walkthroughs.stepper.shots import place_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernels.simt.report import Triple
    from kernels.simt.trace import Event, Value
    from walkthroughs.stepper.join import Join
    from walkthroughs.stepper.player import Player

SHOWN = 16
_WATCH = re.compile(r"\s*([A-Za-z_]\w*)\s*(?:\[\s*(\d+(?:\s*,\s*\d+)*)\s*\])?\s*")
NOTHING = "–"


@dataclass(frozen=True)
class Variable:
    """A variable's name and value as text. `was`: its value before, where the last line changed it."""

    name: str
    text: str
    changed: bool = False
    was: str = ""


@dataclass(frozen=True)
class Call:
    """A function that runs, and the line it stands at."""

    function: str
    file: str
    line: int


@dataclass(frozen=True)
class Lane:
    """A lane of the warp in lockstep. `active`: it comes to this moment, too."""

    lane: int
    thread: int
    active: bool
    text: str


@dataclass(frozen=True)
class Lanes:
    """The focused thread's warp: what `title` names, lane by lane."""

    warp: int
    title: str
    cells: tuple[Lane, ...]

    @property
    def active(self) -> int:
        """How many lanes take part."""
        return sum(lane.active for lane in self.cells)


@dataclass(frozen=True)
class View:
    """One moment. `stack`: the innermost function first. `concepts`: of the line, the innermost first."""

    moment: int
    last: int
    kind: str
    sentence: str
    stack: tuple[Call, ...]
    concepts: tuple[str, ...]
    block: Triple
    thread: int
    interval: int
    waits: bool
    variables: tuple[Variable, ...]
    running: tuple[Variable, ...]
    watched: tuple[Variable, ...]
    lanes: Lanes
    table: Table | None
    pools: tuple[PoolPicture, ...]

    @property
    def file(self) -> str:
        """The port file of the line here, or the empty text before the kernel begins and after its end."""
        return self.stack[0].file if self.stack else ""

    @property
    def line(self) -> int:
        """The line here, or 0."""
        return self.stack[0].line if self.stack else 0


class Camera:
    """Makes views of one shot."""

    def __init__(self, player: Player, joined: Join, stage: Stage) -> None:
        self.player = player
        self.join = joined
        self.stage = stage

    def view(self, watches: Sequence[str] = (), subject: str = "") -> View:
        """The view of the player's moment. `subject`: what the lanes show; "" chooses by what happened."""
        shot, moment = self.player.shot, self.player.moment
        trace, history = shot.trace, shot.history
        event = history.event(moment)
        lanes = self._lanes(moment)
        stack = self._stack(moment)
        here = self.player.state.threads[shot.thread]
        return View(
            moment=moment,
            last=len(history),
            kind=event.kind if event is not None else "start",
            sentence=sentence(trace, event, shot.film.scene),
            stack=stack,
            concepts=self.join.concepts_at(stack[0].file, stack[0].line) if stack else (),
            block=place_of(shot.block, trace.grid),
            thread=shot.focus,
            interval=here.interval,
            waits=here.waits,
            variables=self._variables(moment, lanes),
            running=tuple(self._named(name, moment, lanes) for name in shot.film.scene.running),
            watched=tuple(self._named(name, moment, lanes) for name in watches),
            lanes=self._warp(moment, lanes, subject),
            table=self.stage.table(moment),
            pools=self.stage.pools(moment, lanes),
        )

    def _lanes(self, moment: int) -> list[tuple[History, int | None]]:
        shot = self.player.shot
        histories = [shot.histories[at] for at in shot.lanes]
        return [(other, in_lockstep(shot.history, moment, other)) for other in histories]

    def _stack(self, moment: int) -> tuple[Call, ...]:
        trace, history = self.player.shot.trace, self.player.shot.history
        calls = []
        for frame in history.stack(moment):
            function = trace.functions[history.function(frame)]
            calls.append(Call(function.name, trace.files[function.file].path, history.line_of(frame, moment)))
        return tuple(calls)

    def _variables(self, moment: int, lanes: Sequence[tuple[History, int | None]]) -> tuple[Variable, ...]:
        history = self.player.shot.history
        changed = history.changed(moment)
        before = history.variables(history.begun(moment) - 1, history.stack(moment)[0]) if changed else {}
        found = []
        for name, value in history.variables(moment).items():
            old = before.get(name) if name in changed else None
            was = number(old) if old is not None and not isinstance(old.data, tuple) else ""
            found.append(Variable(name, self.text(value, lanes), name in changed, was))
        return tuple(found)

    def _named(self, name: str, moment: int, lanes: Sequence[tuple[History, int | None]]) -> Variable:
        history = self.player.shot.history
        value = self.value(name, history, moment, lanes)
        own = name in history.changed(moment)
        return Variable(name, NOTHING if value is None else self.text(value, lanes), own)

    def value(
        self, name: str, history: History, moment: int, lanes: Sequence[tuple[History, int | None]]
    ) -> Value | None:
        """A variable of a thread, or an element of one (`accs[3]`, `q_vecs[0, 1, 2]`); None where there is none."""
        match = _WATCH.fullmatch(name)
        value = history.variable(moment, match[1]) if match else None
        if match is None or value is None or match[2] is None:
            return value
        index = flat_index(value, tuple(int(part) for part in match[2].split(",")))
        if index is None or not isinstance(value.data, tuple):
            return None
        return self._elements(value.data[0], [(history, moment), *lanes]).get(index)

    def _elements(self, array: int, lanes: Sequence[tuple[History, int | None]]) -> dict[int, Value]:
        """An array's elements as the warp last saw them; a local array's as its own thread did."""
        info = self.player.shot.trace.arrays[array]
        found: dict[int, tuple[int, Value]] = {}
        if info.data is not None:
            from kernels.simt.trace import Value

            found = {index: (-1, Value(info.dtype, item)) for index, item in enumerate(info.data)}
        for history, at in lanes:
            if at is None or (info.space == "local" and history.thread != info.owner):
                continue
            for index, seen in history.cells(at, array).items():
                if index not in found or seen[0] > found[index][0]:
                    found[index] = seen
        return {index: value for index, (_, value) in sorted(found.items())}

    def text(self, value: Value, lanes: Sequence[tuple[History, int | None]]) -> str:
        """A value as text; an array with its first elements."""
        if not isinstance(value.data, tuple):
            return number(value)
        array, first, *shape = value.data
        info = self.player.shot.trace.arrays[array]
        head = f"{info.space} {info.dtype}[{', '.join(map(str, shape))}]"
        if info.space == "global":
            return head
        elements = self._elements(array, lanes)
        count = prod(shape)
        if not any(first <= index < first + count for index in elements):
            return head
        cells = [number(elements.get(index)) for index in range(first, first + min(count, SHOWN))]
        return f"{head}  {' '.join(cells)}{' …' if count > SHOWN else ''}"

    def _warp(self, moment: int, lanes: Sequence[tuple[History, int | None]], subject: str) -> Lanes:
        shot = self.player.shot
        event = shot.history.event(moment)
        title, cell = self._subject(event, moment, subject)
        cells = []
        for history, at in lanes:
            thread = shot.trace.threads[history.thread].number
            text = NOTHING if at is None else cell(history, at)
            cells.append(Lane(thread % 32, thread, at is not None, text))
        return Lanes(shot.warp, title, tuple(cells))

    def _subject(self, event: Event | None, moment: int, subject: str) -> tuple[str, _Cell]:
        trace = self.player.shot.trace
        if subject:
            return subject, _Cell(self, name=subject)
        if event is not None and event.kind in ACCESSES:
            array = trace.arrays[event.array]
            if array.space != "local":
                return f"element of {array.name}", _Cell(self, like=event)
        if event is not None and event.kind == "warp" and event.result is not None:
            return f"what {event.what} gives", _Cell(self, like=event)
        name = self._latest(moment)
        return name or "thread", _Cell(self, name=name)

    def _latest(self, moment: int) -> str:
        """The plain variable that changed last in the innermost function, or the first that runs along."""
        history = self.player.shot.history
        frames = history.stack(moment)
        values = history.variables(moment)
        for name in reversed(history.told(frames[0], moment) if frames else []):
            if name in values and not isinstance(values[name].data, tuple):
                return name
        return ""


@dataclass(frozen=True)
class _Cell:
    """How one lane's cell is filled: with a variable, or with what its own event says."""

    camera: Camera
    name: str = ""
    like: Event | None = None

    def __call__(self, history: History, at: int) -> str:
        if self.like is not None:
            event = history.event(at)
            if (
                event is None
                or event.kind != self.like.kind
                or (event.array, event.what)
                != (
                    self.like.array,
                    self.like.what,
                )
            ):
                return NOTHING
            return brief(event.result) if event.kind == "warp" else str(event.index)
        if not self.name:
            return str(self.camera.player.shot.trace.threads[history.thread].number)
        value = self.camera.value(self.name, history, at, [(history, at)])
        if value is None:
            return NOTHING
        return self.camera.text(value, [(history, at)]) if isinstance(value.data, tuple) else brief(value)


def flat_index(value: Value, index: tuple[int, ...]) -> int | None:
    """Where an element of an array value lies from the array's start, or None outside it. A flat index works too."""
    if not isinstance(value.data, tuple):
        return None
    _, first, *shape = value.data
    if len(index) == 1 and index[0] < prod(shape):
        return first + index[0]
    if len(index) != len(shape) or any(part >= size for part, size in zip(index, shape, strict=True)):
        return None
    flat = 0
    for part, size in zip(index, shape, strict=True):
        flat = flat * size + part
    return first + flat


def is_watchable(name: str) -> bool:
    """Whether a text is a variable's name, or an element of one."""
    return _WATCH.fullmatch(name) is not None

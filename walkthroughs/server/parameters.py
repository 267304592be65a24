"""What a page may change about a run: typed fields, each with its bounds, and a bound on the work of all together.

Everything outside is refused with the field, its value and what it must be. Nothing here is ever code, a path or a name
that is looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Values = dict[str, Any]
"""The value of every field of an offer, by its name: int, str or a tuple of int."""


class Refused(ValueError):
    """A request that cannot be met: `field` is the parameter that is wrong, or empty."""

    def __init__(self, message: str, field: str = "") -> None:
        self.field = field
        super().__init__(message)


def refuse(field: str, value: object, must: str) -> Refused:
    """An error that names a field, shows its value (shortened) and says what it must be."""
    shown = repr(value)
    return Refused(f"{field} = {shown if len(shown) <= 60 else shown[:57] + '...'}: {must}", field)


def _whole(value: object) -> bool:
    # JSON's true is a Python int, and 8.0 is no count.
    return isinstance(value, int) and not isinstance(value, bool)


@dataclass(frozen=True)
class Whole:
    """A whole number from `low` to `high`, both included."""

    name: str
    label: str
    low: int
    high: int
    default: int

    def read(self, value: object) -> int:
        """The value, checked; raises Refused."""
        if not _whole(value) or not self.low <= value <= self.high:  # type: ignore[operator]
            raise refuse(self.name, value, f"must be a whole number from {self.low} to {self.high}")
        assert isinstance(value, int)
        return value

    def to_json(self) -> dict[str, Any]:
        """What a page needs to draw the field."""
        return {"kind": "whole", "name": self.name, "label": self.label, "low": self.low, "high": self.high,
                "default": self.default}  # fmt: skip


@dataclass(frozen=True)
class Choice:
    """One of a few numbers or words."""

    name: str
    label: str
    options: tuple[int | str, ...]
    default: int | str

    def read(self, value: object) -> int | str:
        """The value, checked; raises Refused. 16 is no "16", and true is no 1."""
        for option in self.options:
            if type(value) is type(option) and value == option:
                return option
        raise refuse(self.name, value, f"must be one of {', '.join(map(str, self.options))}")

    def to_json(self) -> dict[str, Any]:
        """What a page needs to draw the field."""
        return {"kind": "choice", "name": self.name, "label": self.label, "options": list(self.options),
                "default": self.default}  # fmt: skip


@dataclass(frozen=True)
class Lengths:
    """One to `most` whole numbers from `low` to `high`: the length of each sequence of a batch."""

    name: str
    label: str
    most: int
    low: int
    high: int
    default: tuple[int, ...]

    def read(self, value: object) -> tuple[int, ...]:
        """The numbers as a tuple, checked; raises Refused."""
        must = f"must be 1 to {self.most} whole numbers from {self.low} to {self.high}"
        if not isinstance(value, list | tuple) or not 1 <= len(value) <= self.most:
            raise refuse(self.name, value, must)
        if not all(_whole(item) and self.low <= item <= self.high for item in value):
            raise refuse(self.name, value, must)
        return tuple(value)

    def to_json(self) -> dict[str, Any]:
        """What a page needs to draw the field."""
        return {"kind": "lengths", "name": self.name, "label": self.label, "most": self.most, "low": self.low,
                "high": self.high, "default": list(self.default)}  # fmt: skip


Field = Whole | Choice | Lengths


@dataclass(frozen=True)
class Rule:
    """What must hold between fields: `holds(values)`, or the field is refused with `must`."""

    field: str
    holds: Callable[[Values], bool]
    must: str


@dataclass(frozen=True)
class Offer:
    """What can be changed about the kernel of one port, and how much work a run may be.

    `kernel`: its name, for the page; `run`: the name of the function in `cases` that builds the case and checks it;
    `work`: the estimate of a run's size, counted in `unit`.
    """

    kernel: str
    run: str
    fields: tuple[Field, ...]
    rules: tuple[Rule, ...]
    work: Callable[[Values], int]
    most_work: int
    unit: str = "tokens × query heads × head size"

    def read(self, given: object) -> Values:
        """Every field's value, checked one by one and together; raises Refused for anything else.

        `given` is what a page sent: an object with exactly the names of the fields.
        """
        if not isinstance(given, Mapping):
            raise Refused("parameters: must be an object, a value for each field")
        names = [field.name for field in self.fields]
        for name in given:
            if name not in names:
                raise Refused(f"{str(name)[:40]!r}: this kernel has no such parameter; it has {', '.join(names)}")
        for name in names:
            if name not in given:
                raise Refused(f"{name}: is missing", name)
        values = {field.name: field.read(given[field.name]) for field in self.fields}
        for rule in self.rules:
            if not rule.holds(values):
                raise refuse(rule.field, values[rule.field], rule.must.format(**values))
        work = self.work(values)
        if work > self.most_work:
            raise Refused(f"too much work: {self.unit} = {work:,}, must be at most {self.most_work:,}")
        return values

    def defaults(self) -> Values:
        """The values that the page starts with."""
        return {field.name: field.default for field in self.fields}

    def to_json(self) -> dict[str, Any]:
        """What a page needs to draw the form."""
        return {
            "kernel": self.kernel,
            "fields": [field.to_json() for field in self.fields],
            "limit": f"{self.unit} is at most {self.most_work:,}",
        }

"""A small table of cases in which every two values of any two axes meet: what a whole product would try, nearly.

Nine head sizes by seven pairs of heads by the other axes are tens of thousands of cases, and each is a kernel to
compile. A fault of one value, or of two together, shows in the covering table as well.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

Axes = Mapping[str, Sequence[Any]]
Row = dict[str, Any]
Pair = frozenset[tuple[str, Any]]


def everything(row: Row) -> bool:
    """Allows every row."""
    return True


def covering(axes: Axes, allowed: Callable[[Row], bool] = everything, apart: Iterable[Iterable[str]] = ()) -> list[Row]:
    """Rows with a value of each axis, so that every two allowed values of any two axes stand together in one.

    `allowed` is asked about whole rows and about rows that lack axes: what it refuses stays refused when axes are
    added. `apart`: pairs of axes whose values need not meet. The same rows each time.
    """
    left = pairs(axes, allowed, apart)
    rows: list[Row] = []
    while left:
        row = _row(axes, allowed, left, rows)
        met = met_by(row)
        if not left.keys() & met:
            raise ValueError(f"{row}: brings nothing new; is what is allowed decided by three axes together?")
        left = {pair: None for pair in left if pair not in met}
        rows.append(row)
    return rows


def pairs(
    axes: Axes, allowed: Callable[[Row], bool] = everything, apart: Iterable[Iterable[str]] = ()
) -> dict[Pair, None]:
    """Every two values that must meet, in order."""
    skipped = {frozenset(two) for two in apart}
    found: dict[Pair, None] = {}
    for first, second in itertools.combinations(axes, 2):
        if {first, second} not in skipped:
            for one, two in itertools.product(axes[first], axes[second]):
                if allowed({first: one, second: two}):
                    found[frozenset({(first, one), (second, two)})] = None
    # An axis whose pairs are all left out must still show each of its values.
    for name, values in axes.items():
        for value in values:
            if allowed({name: value}) and not any((name, value) in pair for pair in found):
                found[frozenset({(name, value)})] = None
    return found


def met_by(row: Row) -> set[Pair]:
    """The pairs of values that stand together in a row, and its values one by one."""
    items = list(row.items())
    return {frozenset(two) for two in itertools.combinations(items, 2)} | {frozenset({one}) for one in items}


def _row(axes: Axes, allowed: Callable[[Row], bool], left: Mapping[Pair, None], rows: Sequence[Row]) -> Row:
    """The first pair that is left, and for each other axis the value that meets most of what is left.

    Among equals it is the one that the fewest rows have, so that no value hides behind always the same others.
    """
    row: Row = dict(next(iter(left)))
    for name, values in axes.items():
        if name in row:
            continue
        fits = [value for value in values if allowed({**row, name: value})]
        if not fits:
            raise ValueError(f"{row}: no value of {name} is allowed beside these")
        row[name] = max(fits, key=lambda value: (_brings(row, name, value, left), -_count(rows, name, value)))
    return {name: row[name] for name in axes}


def _brings(row: Row, name: str, value: Any, left: Mapping[Pair, None]) -> int:
    new = (name, value)
    return (frozenset({new}) in left) + sum(frozenset({new, item}) in left for item in row.items())


def _count(rows: Sequence[Row], name: str, value: Any) -> int:
    return sum(row[name] == value for row in rows)

"""The releases of a followed source and their order. A version is compared number by number, as people read it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from annotate.errors import AnnotateError
from annotate.sourcetree import Pin, every_pin

_VERSION = re.compile(r"v?(?P<numbers>\d+(?:\.\d+)*)(?P<pre>(?:a|b|rc|\.dev)\d*)?(?:\.post(?P<post>\d+))?")


def order(version: str) -> tuple[tuple[int, ...], int, int]:
    """Return what to sort a version by: its numbers, whether it is final, its post number.

    Raises AnnotateError for what is no version of this form, such as `1.x`.
    """
    match = _VERSION.fullmatch(version)
    if match is None:
        raise AnnotateError(f"{version!r} is no release's number; one looks like 0.24.0 or 0.6.6.post1")
    numbers = [int(number) for number in match["numbers"].split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers), 0 if match["pre"] else 1, int(match["post"] or 0)


def is_final(version: str) -> bool:
    """Whether a version is a release that is no preview. False for what cannot be read."""
    match = _VERSION.fullmatch(version)
    return match is not None and match["pre"] is None


def newest(versions: Iterable[str]) -> str | None:
    """Return the newest of the final versions, or None if there is none."""
    return max((version for version in versions if is_final(version)), key=order, default=None)


def releases(name: str = "vllm") -> list[Pin]:
    """Return every pinned release of a source, the oldest first."""
    return sorted((pin for pin in every_pin().values() if pin.name == name), key=lambda pin: order(pin.revision))


def followed() -> list[str]:
    """Return the names of the sources whose releases are followed."""
    return sorted({pin.name for pin in every_pin().values() if pin.drift})

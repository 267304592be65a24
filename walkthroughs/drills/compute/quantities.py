"""Read what a reader types as an answer: numbers with or without a unit, yes or no, and lists of whole numbers.

Every number is kept as an exact fraction in the question's own unit, so that 1.5 GiB and 1610612736 are the same answer
and 1.5 GB is another one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from walkthroughs.drills.errors import DrillError

Answer = bool | int | float | list[int]
"""What a question asks for: yes or no, a whole number, a real number, or whole numbers in order."""

LONGEST = 400
"""Characters of an answer; nobody types more on purpose."""
MOST_EXPONENT = 300
_POWERS = "KMGTPE"
BYTES = {
    "b": 1,
    "byte": 1,
    "bytes": 1,
    **{f"{letter.lower()}ib": 1024**power for power, letter in enumerate(_POWERS, 1)},
    **{f"{letter.lower()}b": 1000**power for power, letter in enumerate(_POWERS, 1)},
}
TIMES = {
    **dict.fromkeys(("ns", "nanosecond", "nanoseconds"), Fraction(1, 1000)),
    **dict.fromkeys(("us", "µs", "μs", "microsecond", "microseconds"), Fraction(1)),
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), Fraction(1000)),
    **dict.fromkeys(("s", "sec", "second", "seconds"), Fraction(1000000)),
}
YES = ("yes", "y", "true", "it does", "it fits")
NO = ("no", "n", "false", "it does not", "it doesn't")

_GROUPED = r"[0-9]{1,3}(?:(?P<sep>[,_' ])[0-9]{3})(?:(?P=sep)[0-9]{3})*"
_NUMBER = re.compile(
    rf"(?P<sign>[+-]?)(?P<whole>{_GROUPED}|[0-9]*)(?P<point>\.(?P<decimals>[0-9]*))?(?:[eE](?P<exponent>[+-]?[0-9]{{1,3}}))?"
)
_HEX = re.compile(r"0[xX][0-9a-fA-F]{1,32}")
_POWER = re.compile(
    r"(?P<base>[0-9]{1,6}) ?(?:\^|\*\*) ?(?P<exponent>-?[0-9]{1,3})(?: ?(?P<sign>[+-]) ?(?P<more>[0-9]{1,9}))?"
)
_UNIT = re.compile(r"(?P<number>.*?)\s*(?P<unit>[a-zA-Zµμ%]*)", re.DOTALL)
_RANGE = re.compile(r"([0-9]{1,6})\s*(?:-|–|\.\.|to)\s*([0-9]{1,6})")


@dataclass(frozen=True)
class Quantity:
    """A number as it was typed: `value` in the question's unit; `half` of what its last digit counts, in that unit too.

    `digits`: how many significant digits were typed. `scaled`: a unit with a prefix was stated, such as KiB or ms.
    """

    value: Fraction
    half: Fraction
    digits: int
    scaled: bool

    def rounds_to(self, exact: Fraction) -> bool:
        """Whether `exact`, rounded to the digits that were typed, is this: with a scaled unit and 3 digits at least."""
        return self.scaled and self.digits >= 3 and abs(self.value - exact) <= self.half


def number(text: str, unit: str = "", *, real: bool = False) -> Quantity:
    """The number in `text`; a bare one counts `unit`. `real`: the answer is no whole number, so that 3/8 will do.

    Raises DrillError, with examples of what can be read.
    """
    words = _clean(text)
    scale, stated, plain = _split_unit(words, unit, real)
    top, slash, bottom = plain.partition("/")
    if slash:
        if not real:
            raise DrillError(f"{text!r} is a fraction; the answer is a whole number: {examples(unit, real)}.")
        over, under = (_plain(part.strip(), text, unit, real) for part in (top, bottom))
        if not under.value:
            raise DrillError(f"{text!r} divides by zero: {examples(unit, real)}.")
        return Quantity(over.value / under.value * scale, Fraction(0), 0, False)
    found = _plain(plain, text, unit, real)
    return Quantity(found.value * scale, found.half * scale, found.digits, stated and scale != 1)


def yes(text: str) -> bool:
    """Yes or no. Raises DrillError for anything else."""
    word = _clean(text).lower().rstrip(".!")
    if word in YES:
        return True
    if word in NO:
        return False
    raise DrillError(f"{text!r} cannot be read: write `yes` or `no`.")


def whole_numbers(text: str, most: int = 1000) -> list[int]:
    """A list such as `7, 2, 5`, `[7, 2, 5]`, `32-39` (with all between), or `none`. Raises DrillError."""
    words = _clean(text).strip("[](){} ")
    if words.lower() in ("none", "no", "empty", "nothing") or (not words and text.strip()):
        return []
    found: list[int] = []
    for part in re.split(r"\s*[,;]\s*", re.sub(r"\s+(?:and|und)\s+", ", ", words)):
        run = _RANGE.fullmatch(part)
        if run:
            first, last = int(run[1]), int(run[2])
            if not first <= last < first + most:
                raise DrillError(f"{part!r} is no range: write `7, 2, 5`, `32-39` or `none`.")
            found += range(first, last + 1)
            continue
        for word in part.split():
            if not (re.fullmatch(r"-?[0-9]{1,12}", word) or _HEX.fullmatch(word)):
                raise DrillError(f"{text!r} cannot be read at {word!r}: write `7, 2, 5`, `32-39` or `none`.")
            found.append(int(word, 0) if "x" in word.lower() else int(word))
    if not found or len(found) > most:
        raise DrillError(f"{text!r} cannot be read: write whole numbers such as `7, 2, 5`, or `none`.")
    return found


def examples(unit: str, real: bool = False) -> str:
    """What can be read as a number in this unit, as the end of a sentence."""
    if unit == "bytes":
        return "write for example `131072`, `131,072 bytes`, `128 KiB` or `1.5 GB`"
    if unit == "us":
        return "write for example `3.2`, `3.2 us` or `0.0032 ms`"
    if unit == "%":
        return "write for example `12.5`, `12.5 %` or `1/8` of a per cent"
    if real:
        return "write for example `0.375`, `3/8` or `3.75e-1`"
    return f"write for example `4096`, `4,096{' ' + unit if unit else ''}`, `2^12` or `0x1000`"


def shown(value: Answer, unit: str = "") -> str:
    """An answer as we write it, with its unit; bytes also with a binary prefix where three decimals say it exactly."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return _run(value) or ", ".join(map(str, value)) or "none"
    plain = f"{value:,}" if isinstance(value, int) else _real(value)
    if unit == "bytes" and isinstance(value, int):
        return f"{plain} bytes{_binary(value)}"
    counted = unit.removesuffix("s") if value == 1 and unit != "us" else unit
    return f"{plain} {counted}".rstrip()


def _real(value: float) -> str:
    """Five digits, without an exponent where the number is large."""
    return f"{value:,.0f}" if abs(value) >= 10000 else f"{value:.5g}"


def _run(values: Sequence[int]) -> str:
    """`32-39` for a long row of neighbours, or ""."""
    neighbours = len(values) > 4 and list(values) == list(range(values[0], values[0] + len(values)))
    return f"{values[0]}-{values[-1]}" if neighbours else ""


def _binary(value: int) -> str:
    for power in range(len(_POWERS), 0, -1):
        scaled = Fraction(value, 1024**power)
        if scaled >= 1 and (scaled * 1000).denominator == 1:
            return f" ({float(scaled):g} {_POWERS[power - 1]}iB)"
    return ""


def _clean(text: str) -> str:
    """One line, plain spaces, an ASCII minus, without a leading `=` or `about`. Raises DrillError for a long text."""
    if len(text) > LONGEST:
        raise DrillError(f"The answer has {len(text)} characters; at most {LONGEST} are read.")
    words = re.sub(r"\s+", " ", text.replace("−", "-").replace("`", " ")).strip()
    return re.sub(r"^(?:=|≈|~|about )\s*", "", words)


def _split_unit(words: str, unit: str, real: bool) -> tuple[Fraction, bool, str]:
    """(what one of the stated unit is in the question's, whether one was stated, the rest)."""
    if _HEX.fullmatch(words):
        # Its last letters are digits and no unit.
        return Fraction(1), False, words
    parted = _UNIT.fullmatch(words)
    assert parted is not None
    name, rest = parted["unit"], parted["number"]
    if not name:
        return Fraction(1), False, rest
    if unit == "bytes" and re.fullmatch("[KMGTPE]b", name):
        raise DrillError(
            f"{name} may mean bits: write {name[0]}B for powers of 1000 or {name[0]}iB for powers of 1024."
        )
    known = _units(unit)
    if name.lower() not in known:
        asked = f"is asked in {unit}" if unit else "asks for a plain number"
        raise DrillError(f"{words!r} has the unit {name!r}, and the question {asked}: {examples(unit, real)}.")
    return Fraction(known[name.lower()]), True, rest


def _units(unit: str) -> dict[str, Fraction] | dict[str, int]:
    if unit == "bytes":
        return BYTES
    if unit == "us":
        return TIMES
    if unit == "%":
        return {"%": 1, "percent": 1}
    return {unit: 1, unit.removesuffix("s"): 1} if unit else {}


def _plain(words: str, text: str, unit: str, real: bool) -> Quantity:
    """A number without its unit."""
    if _HEX.fullmatch(words):
        return Quantity(Fraction(int(words, 16)), Fraction(0), len(words), False)
    power = _POWER.fullmatch(words)
    if power:
        return Quantity(_power(power, text), Fraction(0), 0, False)
    match = _NUMBER.fullmatch(words)
    if not match or not (match["whole"] or match["decimals"]):
        if re.fullmatch(r"[+-]?[0-9]+,[0-9]+", words):
            raise DrillError(f"{text!r}: a comma parts thousands here; write {words.replace(',', '.')} for a decimal.")
        raise DrillError(f"{text!r} cannot be read: {examples(unit, real)}.")
    whole = re.sub(r"[,_' ]", "", match["whole"])
    decimals = match["decimals"] or ""
    exponent = int(match["exponent"] or 0)
    if abs(exponent) > MOST_EXPONENT:
        raise DrillError(f"{text!r}: the exponent must lie between -{MOST_EXPONENT} and {MOST_EXPONENT}.")
    last = Fraction(10) ** (exponent - len(decimals))
    value = int(whole + decimals or 0) * last
    digits = len((whole + decimals).lstrip("0"))
    return Quantity(-value if match["sign"] == "-" else value, last / 2, digits, False)


def _power(power: re.Match[str], text: str) -> Fraction:
    base, exponent = int(power["base"]), int(power["exponent"])
    if abs(exponent) > MOST_EXPONENT or (base == 0 and exponent < 0):
        raise DrillError(f"{text!r}: the exponent must lie between -{MOST_EXPONENT} and {MOST_EXPONENT}.")
    more = int(power["more"] or 0)
    return Fraction(base) ** exponent + (-more if power["sign"] == "-" else more)

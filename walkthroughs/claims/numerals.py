"""Numbers as prose writes them: digits, words from two to ninety-nine, percent, powers, KiB; and when two are the same.

A number in a sentence is held against a number that was checked. So `48 KiB` is 49,152, and never the 48 of 48 tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_UNITS = {"KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30}
_SMALL = [
    "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen", "fourteen",
    "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
]  # fmt: skip
_TIES = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_TENS = {word: 10 * n for n, word in enumerate(_TIES, 2)}
# "one" is left out: it is an article and a pronoun more often than a number.
WORDS = {word: n for n, word in enumerate(_SMALL, 2)} | _TENS
_SUPERSCRIPT = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
# Releases, versions of Python and CUDA, names of GPUs and models: names, not numbers.
_NAMES = re.compile(
    r"\b\d+\.\d+\.\d+(?:\.\w+)?\b|\b(?:Python|CUDA) \d+\.\d+\b|\bRTX \d+\b"
    r"|\b[A-Z][A-Za-z]+-?[\d.]+-\d+B\b|\b(?:L[12]|D|C)-\d\d\b"
)
_NUMBER = re.compile(
    r"(?<![\w.])(?<![A-Za-z]-)[-−]?(?P<digits>\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?)"
    r"(?P<power>\^[-−]?\d+|⁻?[⁰¹²³⁴⁵⁶⁷⁸⁹]+)?(?P<unit>\s?(?:KiB|MiB|GiB|%))?(?![\w.]*\w)"
)


@dataclass(frozen=True)
class Number:
    """A number as it is written, and its size without its sign. `digits`: how many significant ones, if it may be
    rounded; 0 where it is exact."""

    text: str
    value: float
    digits: int = 0

    def among(self, known: Iterable[float]) -> bool:
        """True if a known number has this size, or rounds to it where it is written with a decimal point.

        A percentage may also be known as a share.
        """
        wanted = {self.value, self.value / 100} if self.text.endswith("%") else {self.value}
        return any(abs(number) in wanted or self._rounds(abs(number)) for number in known)

    def _rounds(self, known: float) -> bool:
        # A single digit says too little: half of all small fractions would round to it.
        return self.digits > 1 and f"{known:.{self.digits - 1}e}" == f"{self.value:.{self.digits - 1}e}"


def numbers(text: str) -> list[Number]:
    """The numbers of a text: those in digits, then those in words. Names such as 0.24.0 or L1-18 do not count."""
    bare = _NAMES.sub(" ", text)
    return [_written(match) for match in _NUMBER.finditer(bare)] + list(_in_words(bare))


def _written(match: re.Match[str]) -> Number:
    digits, power, unit = match["digits"].replace(",", ""), match["power"] or "", (match["unit"] or "").strip()
    value = float(digits)
    if power:
        value **= int(power.translate(_SUPERSCRIPT).replace("−", "-").removeprefix("^"))
    rounded = "." in digits and not power and unit not in _UNITS
    mantissa = digits.partition("e")[0].replace(".", "").lstrip("0")
    return Number(" ".join(match.group().split()), value * _UNITS.get(unit, 1), len(mantissa) if rounded else 0)


def _in_words(text: str) -> Iterable[Number]:
    for word in re.findall(r"[a-z]+(?:-[a-z]+)*", text.lower()):
        parts = word.split("-")
        if len(parts) == 2 and parts[0] in _TENS and (parts[1] in _SMALL[:8] or parts[1] == "one"):
            yield Number(word, _TENS[parts[0]] + WORDS.get(parts[1], 1))
        else:
            yield from (Number(part, WORDS[part]) for part in parts if part in WORDS)

"""What a reader may type: numbers with and without units, lists, yes and no; and what is refused, with an example."""

from __future__ import annotations

import contextlib
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walkthroughs.drills.compute import quantities
from walkthroughs.drills.compute.quantities import number, whole_numbers, yes
from walkthroughs.drills.errors import DrillError

BINARY = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
DECIMAL = {"kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


@pytest.mark.parametrize(
    ("typed", "value"),
    [
        ("131072", 131072),
        ("131,072", 131072),
        ("131_072", 131072),
        ("131 072", 131072),
        ("131'072 bytes", 131072),
        ("131\u202f072", 131072),
        ("131072 bytes", 131072),
        ("1 byte", 1),
        ("131072B", 131072),
        ("128 KiB", 131072),
        ("128kib", 131072),
        ("0.125 MiB", 131072),
        (".125 MiB", 131072),
        ("1.5 GiB", 1610612736),
        ("1.5 GB", 1500000000),
        ("1.6 GB", 1600000000),
        ("2^20", 2**20),
        ("2**20 bytes", 2**20),
        ("2 ^ 31 - 1", 2**31 - 1),
        ("2^4 KiB", 2**14),
        ("0x40", 64),
        ("0xfF bytes", 255),
        ("0x1 KiB", 1024),
        ("1e3", 1000),
        ("1.5E3 bytes", 1500),
        ("≈ 12", 12),
        ("`12`", 12),
        ("= 12", 12),
        ("−12", -12),
        ("+12", 12),
        ("12.", 12),
        ("0", 0),
        ("000", 0),
    ],
)
def test_sizes(typed: str, value: int) -> None:
    assert number(typed, "bytes").value == value


@pytest.mark.parametrize(
    ("typed", "value"),
    [
        ("3.2", "3.2"),
        ("3.2 us", "3.2"),
        ("3.2µs", "3.2"),
        ("3.2 μs", "3.2"),
        ("3200 ns", "3.2"),
        ("0.0032 ms", "3.2"),
        ("3.2e-6 s", "3.2"),
        ("16/5", "3.2"),
        ("16 / 5 us", "3.2"),
        ("1.6/0.5", "3.2"),
    ],
)
def test_times(typed: str, value: str) -> None:
    assert number(typed, "us", real=True).value == Fraction(value)


@pytest.mark.parametrize(
    ("typed", "unit", "value"),
    [
        ("12.5 %", "%", "12.5"),
        ("12.5", "%", "12.5"),
        ("3/8", "", "0.375"),
        ("10^-6", "", "0.000001"),
        ("7.2e-7", "", "0.00000072"),
        ("-1/2", "", "-0.5"),
    ],
)
def test_real_numbers(typed: str, unit: str, value: str) -> None:
    assert number(typed, unit, real=True).value == Fraction(value)


def test_a_question_may_count_things() -> None:
    assert number("7 blocks", "blocks").value == 7
    assert number("1 block", "blocks").value == 1
    assert number("4096", "tokens").value == 4096


@pytest.mark.parametrize(
    ("typed", "unit", "match"),
    [
        ("", "bytes", "128 KiB"),
        ("   ", "", "4096"),
        ("many", "", "unit 'many', and the question asks for a plain number"),
        ("12 parsecs", "bytes", "is asked in bytes: write for example `131072`"),
        ("12 KiB", "us", "is asked in us"),
        ("12 us", "bytes", "is asked in bytes"),
        ("12 tokens", "blocks", "is asked in blocks"),
        ("12 K", "bytes", "is asked in bytes"),
        ("12 Gb", "bytes", "may mean bits: write GB for powers of 1000 or GiB"),
        ("1,5", "bytes", "write 1.5 for a decimal"),
        ("12,34", "", "write 12.34"),
        ("1,23,456", "", "cannot be read"),
        ("1,234 567", "", "cannot be read"),
        ("1.2.3", "", "cannot be read"),
        ("12 34", "", "cannot be read"),
        ("--3", "", "cannot be read"),
        (".", "", "cannot be read"),
        ("1e9999", "", "cannot be read"),
        ("1e301", "", "exponent must lie between"),
        ("2^999", "", "exponent must lie between"),
        ("0^-1", "", "exponent"),
        ("٣", "", "cannot be read"),
        ("10/2", "", "a fraction; the answer is a whole number"),
        ("0x", "", "unit 'x'"),
        ("1" * 401, "", "at most 400"),
    ],
)
def test_what_cannot_be_read_is_refused_with_an_example(typed: str, unit: str, match: str) -> None:
    with pytest.raises(DrillError, match=match):
        number(typed, unit)


@pytest.mark.parametrize("typed", ["1/0", "1/0.0", "1/2/3", "/2", "2/", "nan", "inf"])
def test_fractions_that_are_none(typed: str) -> None:
    with pytest.raises(DrillError):
        number(typed, "", real=True)


def test_examples_can_be_read() -> None:
    for unit, real in (("bytes", False), ("us", True), ("", True), ("", False), ("tokens", False)):
        shown = quantities.examples(unit, real).split("`")[1::2]
        assert len(shown) >= 3
        for typed in shown:
            number(typed, unit, real=real)


def exact(value: int, scale: int, places: int = 60) -> str:
    """value / scale in decimals, which must end."""
    whole, rest = divmod(value, scale)
    digits = ""
    while rest:
        digit, rest = divmod(rest * 10, scale)
        digits += str(digit)
        assert len(digits) < places
    return f"{whole}.{digits}" if digits else str(whole)


@given(st.integers(0, 2**63), st.sampled_from(sorted({**BINARY, **DECIMAL})), st.sampled_from(["", " ", "  "]))
def test_sizes_go_round(value: int, unit: str, gap: str) -> None:
    scale = {**BINARY, **DECIMAL}[unit]
    found = number(f"{exact(value, scale)}{gap}{unit}", "bytes")
    assert found.value == value
    assert found.scaled
    assert found.rounds_to(Fraction(value)) == (found.digits >= 3)


@given(st.integers(-(10**18), 10**18), st.sampled_from(",_' "))
def test_separators_go_round(value: int, mark: str) -> None:
    assert number(f"{value:,}".replace(",", mark)).value == value


@given(st.integers(0, 2**100), st.sampled_from(["", " bytes"]))
def test_hexadecimals_go_round(value: int, unit: str) -> None:
    assert number(hex(value) + unit, "bytes").value == value


@given(st.integers(1, 10**9), st.integers(1, 10**9))
def test_fractions_go_round(top: int, bottom: int) -> None:
    assert number(f"{top}/{bottom}", "us", real=True).value == Fraction(top, bottom)


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e250, max_value=1e250))
def test_floats_go_round(value: float) -> None:
    if value and abs(value) < 1e-250:
        return
    assert float(number(repr(value), real=True).value) == value


@given(st.integers(1000, 10**12), st.integers(0, 6), st.sampled_from(sorted(DECIMAL)))
def test_rounding_covers_half_of_the_last_digit(value: int, places: int, unit: str) -> None:
    scale = DECIMAL[unit]
    typed = f"{value / scale:.{places}f}"
    found = number(f"{typed} {unit}", "bytes")
    assert found.half == Fraction(scale, 2 * 10**places)
    if found.digits >= 3:
        # Printing rounds the quotient once more, by less than its last bit.
        slack = Fraction(value, 2**50)
        assert abs(found.value - value) <= found.half + slack
        assert found.rounds_to(found.value + found.half)
        assert not found.rounds_to(found.value + found.half + 1)


@given(st.text(max_size=30), st.sampled_from(["", "bytes", "us", "%", "tokens"]), st.booleans())
def test_any_text_is_read_or_refused(typed: str, unit: str, real: bool) -> None:
    with contextlib.suppress(DrillError):
        found = number(typed, unit, real=real)
        assert isinstance(found.value, Fraction)
        assert any(character in "0123456789" for character in typed)


@pytest.mark.parametrize("typed", ["yes", "Yes", "Y", "true", "YES!", "it fits", "yes."])
def test_yes(typed: str) -> None:
    assert yes(typed)


@pytest.mark.parametrize("typed", ["no", "No", "n", "false", "it does not"])
def test_no(typed: str) -> None:
    assert not yes(typed)


@pytest.mark.parametrize("typed", ["", "maybe", "1", "yes and no"])
def test_neither(typed: str) -> None:
    with pytest.raises(DrillError, match="`yes` or `no`"):
        yes(typed)


@pytest.mark.parametrize(
    ("typed", "values"),
    [
        ("7, 2, 5", [7, 2, 5]),
        ("7 2 5", [7, 2, 5]),
        ("[7, 2, 5]", [7, 2, 5]),
        ("7;2; 5", [7, 2, 5]),
        ("7, 2 and 5", [7, 2, 5]),
        ("(7)", [7]),
        ("32-35", [32, 33, 34, 35]),
        ("1, 4..6, 9", [1, 4, 5, 6, 9]),
        ("4 to 6", [4, 5, 6]),
        ("4–6", [4, 5, 6]),
        ("0x10, 3", [16, 3]),
        ("08, 9", [8, 9]),
        ("-1, 3", [-1, 3]),
        ("none", []),
        ("None", []),
        ("[]", []),
    ],
)
def test_lists(typed: str, values: list[int]) -> None:
    assert whole_numbers(typed) == values


@pytest.mark.parametrize("typed", ["", " ", "a, b", "7, two", "1.5, 2", "9-3", "0-5000", "1,,2,x", "1" * 401])
def test_lists_that_are_none(typed: str) -> None:
    with pytest.raises(DrillError):
        whole_numbers(typed)


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=20))
def test_lists_go_round(values: list[int]) -> None:
    assert whole_numbers(", ".join(map(str, values))) == values
    assert whole_numbers(str(values)) == values


@given(st.integers(0, 1000), st.integers(0, 200))
def test_ranges_go_round(first: int, more: int) -> None:
    assert whole_numbers(f"{first}-{first + more}") == list(range(first, first + more + 1))

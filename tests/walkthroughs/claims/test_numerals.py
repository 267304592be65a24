"""Numbers in prose: what counts as one, how large it is, and which known numbers it may stand for."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walkthroughs.claims.numerals import numbers


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("There are 16 of them, and 4,096 of those.", [16, 4096]),
        ("Since 0.24.0 there are 0.5 of 6.post1.", [0.5]),
        ("Two threads and twelve more.", [2, 12]),
        ("`x16` and v2 and K3, float16, H200, e4m3 and fp8_e5m2 are names.", []),
        ("Under Python 3.11 and CUDA 13.0, Llama-3.2-1B and Qwen2.5-7B on an RTX 4090.", []),
        ("It is -1 there, and −2 here.", [1, 2]),
        ("A 16-byte load for a two-warp sum.", [16, 2]),
        ("48 KiB, 4 MiB and 2 GiB.", [48 * 1024, 4 * 2**20, 2**31]),
        ("About 1e-6 or 5.55e-17.", [1e-6, 5.55e-17]),
        ("Up to 10^5, in steps of 2^-7 or 2⁻⁸; 2³¹ bytes.", [1e5, 2**-7, 2**-8, 2**31]),
        ("Heads 32 to 39; [3, 1]; 2 × 16 + 3 = 35.", [32, 39, 3, 1, 2, 16, 3, 35]),
        ("Thirty-five is two sixteens and three; sixty-one is not sixty.", [35, 2, 3, 61, 60]),
        ("One of them, a half, a fiftieth, the third.", []),
        ("Often, weight, tender, listen.", []),
        ("L1-37 and D-05 are claims.", []),
        ("None.", []),
    ],
)
def test_numbers_of_a_text(text: str, found: list[float]) -> None:
    assert [number.value for number in numbers(text)] == pytest.approx(found)


@pytest.mark.parametrize(
    ("text", "known", "same"),
    [
        ("70 tokens", [70.0], True),
        ("70 tokens", [-70.0], True),
        ("70 tokens", [7.0, 700.0, 70.5, 69.9999], False),
        ("48 KiB", [49152.0], True),
        ("48 KiB", [48.0], False),
        ("48 tokens", [49152.0], False),
        ("0.068", [0.0681027], True),
        ("0.068", [0.0689], False),
        ("29.19", [29.190917], True),
        ("1.11e-16", [1.11022e-16], True),
        ("1.11e-16", [1.11e-15, 1.0], False),
        ("0.3", [0.3], True),
        ("0.3", [0.31, 0.28], False),
        ("3", [3.2], False),
        ("1e-6", [1.0000001e-6], False),
        ("6.25 %", [0.0625], True),
        ("25%", [25.0], True),
        ("25 of them", [0.25], False),
        ("sixteen", [16.0], True),
    ],
)
def test_the_same_number_and_one_that_only_looks_alike(text: str, known: list[float], same: bool) -> None:
    (number,) = numbers(text)
    assert number.among(known) is same


@given(st.integers(0, 10**9))
def test_a_whole_number_is_read_with_and_without_commas(value: int) -> None:
    for text in (f"{value}", f"{value:,}"):
        (number,) = numbers(f"about {text} of them")
        assert (number.value, number.text) == (value, text)
        assert number.among([float(value)])
        assert not number.among([value + 1.0, value + 1e9])


@given(st.floats(1e-3, 1e6), st.integers(1, 4))
def test_a_rounded_number_stands_for_what_rounds_to_it(value: float, places: int) -> None:
    (number,) = numbers(f"{value:.{places}f}.")
    shown = float(f"{value:.{places}f}")
    if shown:
        digits = max(2, math.floor(math.log10(shown)) + 1 + places)
        # Off by a unit of its last place, it is another number.
        assert number.among([shown])
        assert not number.among([shown * (1 + 11 * 10.0**-digits)])

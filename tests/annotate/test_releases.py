"""Versions sort as people read them; packaging, which knows all of the rules, is the judge."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from annotate.errors import AnnotateError
from annotate.releases import followed, is_final, newest, order, releases

numbers = st.lists(st.integers(0, 40), min_size=1, max_size=4).map(lambda parts: ".".join(map(str, parts)))
versions = st.builds(
    lambda base, post: base + (f".post{post}" if post else ""), numbers, st.sampled_from([0, 0, 1, 2, 12])
)


@given(st.lists(versions, min_size=1, max_size=8))
def test_the_order_is_that_of_packaging(found: list[str]) -> None:
    assert [Version(v) for v in sorted(found, key=order)] == sorted(map(Version, found))


@given(st.lists(st.builds(str.__add__, versions, st.sampled_from(["", "", "rc1", "a2", ".dev3"])), max_size=8))
def test_the_newest_is_final(found: list[str]) -> None:
    legal = [v for v in found if not (".post" in v and v[-3:-1] in ("rc", "ta"))]
    final = [v for v in legal if is_final(v)]
    best = newest(legal)
    assert (best is None) == (not final)
    if best is not None:
        assert Version(best) == max(map(Version, final))


@pytest.mark.parametrize("version", ["", "x", "1.x", "0.24.0+cpu", "../0.24.0", "0.24.0\n", "v", "1..2"])
def test_what_is_no_version(version: str) -> None:
    with pytest.raises(AnnotateError, match=r"0\.24\.0"):
        order(version)
    assert not is_final(version)
    assert newest([version]) is None


def test_the_pinned_releases_from_the_oldest_on() -> None:
    found = [pin.revision for pin in releases()]
    assert found == sorted(found, key=Version)
    assert found == (
        [
            "0.6.6.post1",
            "0.9.2",
            "0.11.0",
            "0.11.2",
            "0.14.1",
            "0.20.2",
            "0.22.1",
            "0.23.0",
            "0.24.0",
            "0.25.0",
            "0.26.0",
            "0.31.0",
            "0.32.0",
            "0.33.0",
        ]
    )
    assert followed() == ["vllm"]

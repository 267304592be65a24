"""Each error names what it is about and says what to do."""

from pathlib import Path

import pytest

from annotate import errors
from annotate.errors import AnchorAmbiguous, AnchorNotFound, AnnotateError, Candidate, UnknownName, nearest


def test_every_error_has_the_one_base() -> None:
    classes = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)]
    assert len(classes) > 10
    assert all(issubclass(value, AnnotateError) for value in classes)


def test_candidates_are_listed_with_their_lines() -> None:
    found = [Candidate(f"for(i{n})", "a/b.cu", n, n + 1) for n in range(1, 15)]
    error = AnchorAmbiguous("vllm@1 x: f @ for(i)", "for(i)", found)
    assert error.candidates == tuple(found)
    assert "14 places" in str(error)
    assert "for(i1) at a/b.cu:1-2" in str(error)
    assert "and 2 more" in str(error)


def test_a_missing_anchor_without_anything_near_says_so() -> None:
    assert "Nothing like it" in str(AnchorNotFound("a", "symbol b", []))


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (errors.SourceUnavailable("vllm@1", "it was not fetched yet"), ["vllm@1", "pagewalk fetch vllm@1"]),
        (errors.DigestMismatch("vllm@1", "aa", "bb"), ["aa", "bb", "thrown away"]),
        (errors.DownloadFailed("vllm@1", "no route", kept=7), ["no route", "7 bytes"]),
        (errors.DownloadFailed("vllm@1", "no route"), ["Try again"]),
        (errors.UnsafeArchive("a.tar.gz", "../x", "it climbs"), ["a.tar.gz", "../x", "it climbs"]),
        (errors.DiskTrouble(Path("/c"), OSError(28, "No space left on device")), ["/c", "No space", "PAGEWALK_CACHE"]),
        (errors.UnreliableSpan("a", "p.cu", 3, 9, [(2, 4), (8, 8)]), ["p.cu:3-9", "2-4, 8-8"]),
        (errors.RangeOutside("p.cu", 8, 5, 12), ["8-5", "12 lines"]),
        (UnknownName("concept", "x-pakcing", ["x-packing"]), ["concept", "'x-pakcing'", "Did you mean x-packing?"]),
    ],
)
def test_messages_say_what_and_what_next(error: AnnotateError, words: list[str]) -> None:
    for word in words:
        assert word in str(error)


def test_nearest_names_put_the_likeliest_first() -> None:
    known = ["key-loop", "v-loop", "block-table-walk", "block-table-row"]
    assert nearest("key-lop", known)[0] == "key-loop"
    assert set(nearest("block-table", known)) == {
        "block-table-walk",
        "block-table-row",
    }
    assert nearest("zzzzzz", known) == ()
    assert nearest("", known) == ()

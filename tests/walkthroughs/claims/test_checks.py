"""The kinds of checks that read sources, on a small source of our own."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from annotate.errors import AnchorAmbiguous, AnchorNotFound, UnknownName
from walkthroughs.claims.checks import constant_value, occurrences
from walkthroughs.claims.context import Context
from walkthroughs.claims.dispatch import KINDS, carry_out
from walkthroughs.claims.model import CheckError, Finding

KERNEL = """\
// A toy of ours. It walks twice.
constexpr int WIDTH = 4;
constexpr int AREA = WIDTH * WIDTH * sizeof(half);
constexpr size_t ALL = 2ULL * AREA / WIDTH;
template <typename number_t, int STEP>
__global__ void toy(float* out, const int* table, int count) {
  for (int i = 0; i < count; ++i) {
    // looks the place up
    const int place = table[i];
    for (int j = 0; j < STEP; ++j) {
      out[place] += j;
    }
  }
  float total = fold(out);
  for (int k = 0; k < count; ++k) {
    out[k] /= total;
  }
}
__global__ void other(int* table) { table[0] = WIDTH; }
"""
CALLER = """\
import toys

LIMIT: int = 512
PAD = -1

def serve(out, table, *, scale=1.0):
    # table is only named here: toys.other
    toys.toy(out, table, steps=LIMIT)
"""
NOTES = "# Toys\n\nSome words.\n\n## Loops\n\nThe kernel walks the\ntable twice.\n"
SOURCE = "toy@1"


@pytest.fixture(scope="module")
def check(doctored: ModuleType) -> Callable[..., Finding]:
    files = {"src/toy.cu": KERNEL, "py/caller.py": CALLER, "docs/toys.md": NOTES}
    context = Context(doctored.opener({SOURCE: doctored.Files(files)}))

    def run(kind: str, /, **params: Any) -> Finding:
        return carry_out(context, SOURCE, kind, params)

    return run


FIRST, SECOND = "toy @ for(i)", "toy @ for(k)"


@pytest.mark.parametrize(
    ("kind", "params", "value"),
    [
        ("has", {"at": "toy", "tokens": "table [ i ]"}, True),
        ("has", {"at": "toy", "tokens": ["table [ i ]", "total"]}, True),
        ("has", {"at": "toy", "tokens": ["table [ i ]", "absent"]}, False),
        ("has", {"at": FIRST, "tokens": "total"}, False),
        ("has", {"at": [FIRST, SECOND], "tokens": ["place", "total"]}, True),
        ("has", {"at": "toy", "tokens": "looks"}, False),
        ("lacks", {"at": FIRST, "tokens": ["total", "fold"]}, True),
        ("lacks", {"at": FIRST, "tokens": ["total", "place"]}, False),
        ("lacks", {"at": "gone", "tokens": "total"}, False),
        ("count", {"at": "toy", "tokens": "count ; ++", "equals": 2}, True),
        ("count", {"at": "toy", "tokens": "count ; ++", "equals": 1}, False),
        ("order", {"at": [FIRST, "toy @ decl(total)", SECOND]}, True),
        ("order", {"at": [SECOND, FIRST]}, False),
        ("order", {"at": [FIRST, "toy @ for(j)"]}, False),
        ("order", {"at": [FIRST]}, False),
        ("inside", {"at": "toy @ for(j)", "outer": FIRST}, True),
        ("inside", {"at": ["toy @ for(j)", SECOND], "outer": FIRST}, False),
        ("found", {"at": "toy @ for(i)[for(j)]"}, True),
        ("found", {"at": "toy @ for(k)[for(j)]"}, False),
        ("absent", {"at": "toy @ for(k)[for(j)]"}, True),
        ("absent", {"at": ["toy @ for(k)[for(j)]", "toy @ for(j)"]}, False),
        ("absent", {"at": "toy @ for(j)"}, False),
        ("absent", {"at": "gone"}, True),
        ("absent", {"at": "gone @ for(j)"}, False),
        ("text", {"file": "docs/*.md", "has": "walks the table twice"}, True),
        ("text", {"file": "docs/*.md", "has": "WALKS THE TABLE"}, True),
        ("text", {"file": "docs/*.md", "lacks": ["thrice", "walks"]}, False),
        ("text", {"file": "docs/*.md", "lacks": "thrice"}, True),
        ("text", {"file": "no/*.md", "lacks": "thrice"}, False),
        ("text", {"at": "Toys > Loops", "has": "twice", "lacks": "some words"}, True),
        ("text", {"at": FIRST, "has": "looks the place up"}, True),
        ("file", {"file": "*toy.cu"}, True),
        ("file", {"file": "*toy.cu", "exists": False}, False),
        ("file", {"file": "*.cuh", "exists": False}, True),
        ("names", {"at": "toy @ signature", "equals": ["number_t", "STEP", "out", "table", "count"]}, True),
        ("names", {"at": "toy @ def > signature", "equals": ["out", "table", "count"]}, True),
        ("names", {"at": "toy @ signature", "equals": ["out"]}, False),
        ("names", {"at": "toy @ signature", "contains": ["table", "out"]}, True),
        ("names", {"at": "toy @ signature", "contains": ["tables"]}, False),
        ("names", {"at": "serve", "file": "caller.py", "kind": "arg", "equals": ["steps"]}, True),
        ("users", {"word": "toy", "equals": ["caller.py", "toy.cu"]}, True),
        ("users", {"word": "other", "equals": ["toy.cu"]}, True),
        ("users", {"word": "other", "file": "*.py", "equals": []}, True),
        ("users", {"word": "toy", "file": "*.py", "equals": []}, False),
        ("constant", {"at": "toy.cu", "name": "WIDTH", "equals": 4}, True),
        ("constant", {"at": "toy.cu", "name": "AREA", "equals": 32}, True),
        ("constant", {"at": "toy.cu", "name": "ALL", "equals": 16}, True),
        ("constant", {"at": "toy.cu", "name": "ALL", "equals": 17}, False),
        ("constant", {"at": "caller.py", "name": "LIMIT", "equals": 512}, True),
        ("constant", {"at": "toy.cu", "name": "NONE", "equals": 1}, False),
    ],
)
def test_a_kind_of_check(check: Callable[..., Finding], kind: str, params: dict[str, Any], value: bool) -> None:
    found = check(kind, **params)
    assert found.value is value
    assert found.seen


def test_every_kind_that_reads_sources_is_tested_here() -> None:
    from walkthroughs.claims.checks import SOURCE_KINDS

    marks = next(mark for mark in test_a_kind_of_check.pytestmark if mark.name == "parametrize")
    tried: dict[str, set[bool]] = {}
    for kind, _, value in marks.args[1]:
        tried.setdefault(kind, set()).add(value)
    assert tried == {kind: {True, False} for kind in SOURCE_KINDS}


def test_a_finding_names_its_lines(check: Callable[..., Finding]) -> None:
    found = check("has", at=FIRST, tokens="place")
    assert [(place.path, place.first, place.last) for place in found.places] == [("src/toy.cu", 7, 13)]
    assert found.seen == "'place' 2 times"
    assert str(found.places[0]) == "toy@1 src/toy.cu:7-13"


def test_what_is_ambiguous_is_no_answer(check: Callable[..., Finding]) -> None:
    with pytest.raises(AnchorAmbiguous):
        check("has", at="toy @ assign(out)", tokens="j")


@pytest.mark.parametrize(
    ("kind", "params", "said"),
    [
        ("hass", {}, "no kind of check"),
        ("has", {"at": "toy"}, "tokens"),
        ("has", {"at": "toy", "tokens": "x", "token": "y"}, "token"),
        ("has", {"at": "x-packing", "tokens": "x"}, "no anchor in toy@1"),
    ],
)
def test_a_check_that_is_written_wrongly(
    check: Callable[..., Finding], kind: str, params: dict[str, Any], said: str
) -> None:
    with pytest.raises(CheckError, match=said):
        check(kind, **params)


def test_a_source_that_is_not_here_is_unknown_and_says_how_to_get_it(doctored: ModuleType) -> None:
    context = Context(doctored.opener({}))
    found = carry_out(context, "vllm@0.24.0", "has", {"at": "normalise", "tokens": "1e-6f"})
    assert found.value is None
    assert "pagewalk fetch vllm@0.24.0" in found.seen
    # The committed spans know the lines all the same.
    assert [(place.first, place.last) for place in found.places] == [(333, 338)]
    assert found.places[0].url.endswith("#L333-L338")


def test_a_release_that_is_not_pinned_is_a_mistake() -> None:
    with pytest.raises(UnknownName, match="no source is called"):
        carry_out(Context(), "vllm@0.0.1", "file", {"file": "*"})


@pytest.mark.parametrize(("tokens", "wanted", "times"), [("a b a b a", "a b", 2), ("a a a", "a a", 2), ("a", "a b", 0)])
def test_occurrences_of_tokens(tokens: str, wanted: str, times: int) -> None:
    assert occurrences(tokens.split(), wanted) == times


def test_a_constant_that_is_computed_by_a_call_has_no_value(doctored: ModuleType) -> None:
    files = {"a.cu": "constexpr int A = f(1);\n"}
    context = Context(doctored.opener({SOURCE: doctored.Files(files)}))
    tree = context.tree(SOURCE, "a.cu")
    with pytest.raises(AnchorNotFound, match="constant f"):
        constant_value(tree, tree.symbols[0], "A")


@pytest.mark.parametrize(("name", "value"), [("A", 1), ("B", 6), ("C", 7), ("D", 1)])
def test_one_declaration_may_make_several_constants(doctored: ModuleType, name: str, value: int) -> None:
    files = {"a.cu": "constexpr int A = 1, B = 2 * 3, C = A + B;\nconstexpr int D = A;\n"}
    tree = Context(doctored.opener({SOURCE: doctored.Files(files)})).tree(SOURCE, "a.cu")
    assert constant_value(tree, tree.symbols[0], name)[0] == value


@pytest.mark.parametrize("text", ["constexpr int A = A + 1;\n", "constexpr int A = B, B = A;\n"])
def test_a_constant_that_hangs_on_itself_has_no_value(doctored: ModuleType, text: str) -> None:
    tree = Context(doctored.opener({SOURCE: doctored.Files({"a.cu": text})})).tree(SOURCE, "a.cu")
    with pytest.raises(AnchorNotFound, match="constant A"):
        constant_value(tree, tree.symbols[0], "A")


def test_the_table_of_kinds_is_consistent() -> None:
    for name, kind in KINDS.items():
        assert kind.needs <= kind.takes, name
        assert kind.run.__doc__

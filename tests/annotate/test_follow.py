"""Following one anchor into another release, on kernels of our own: by its words, by likeness, and not at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from annotate.anchors import Anchor, Library
from annotate.follow import Found, Release, follow, origin_of

KERNEL = """
namespace toy {
// Adds up a row, a thread at a time.
__global__ void row_total(float* totals, const float* table, int width) {
  const int row = blockIdx.x;
  float share = 0.f;
  for (int column = threadIdx.x; column < width; column += blockDim.x) {
    share += table[row * width + column];
  }
  __shared__ float shares[64];
  shares[threadIdx.x] = share;
  __syncthreads();
  for (int half = blockDim.x / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) shares[threadIdx.x] += shares[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) totals[row] = shares[0];
}

__global__ void scale_all(float* table, float factor, int count) {
  const int place = blockIdx.x * blockDim.x + threadIdx.x;
  if (place < count) table[place] *= factor;
}
}
"""
PYTHON = """
class Cache:
    def split(self, cache, heads):
        size = 16 // cache.element_size()
        keys = cache[0].view(-1, heads, size)
        values = cache[1].view(-1, heads, size)
        return keys, values
"""
Make = Callable[..., Any]


class Case:
    """An anchor in the old text, to be followed into new ones."""

    def __init__(self, make: Make, symbol: str, landmark: str | None, path: str, text: str) -> None:
        self.make = make
        library = Library(make({path: text}))
        self.origin = origin_of(Anchor("toy@1", symbol, landmark, "c"), library)
        self.known = frozenset(s.name for tree in library.trees() for s in tree.symbols)

    def into(self, texts: dict[str, str]) -> Found:
        return follow(self.origin, Release("toy@2", Library(self.make(texts))), self.known)


@pytest.fixture
def case(files: Make) -> Callable[..., Case]:
    def build(symbol: str, landmark: str | None = None, path: str = "k.cu", text: str = KERNEL) -> Case:
        return Case(files, symbol, landmark, path, text)

    return build


def how(found: Found) -> tuple[str, str, int, int, str] | None:
    state = found.state
    return (state.how, state.path, state.first, state.last, state.symbol) if state else None


def test_where_nothing_changed(case: Callable[..., Case]) -> None:
    loop = case("row_total", "for(column)")
    found = loop.into({"k.cu": KERNEL})
    assert how(found) == ("anchor", "k.cu", 7, 9, "toy::row_total")
    assert found.state is not None
    assert found.state.likeness == 1
    assert found.state.digest == loop.origin.span.digest
    assert found.tokens == loop.origin.tokens
    assert found.items == ("for(column by blockDim.x)", "assign(share)")


def test_the_symbol_in_another_file(case: Callable[..., Case]) -> None:
    found = case("row_total", "for(half)").into({"far/away.cuh": "#include <x>\n" + KERNEL, "k.cu": "int nothing;\n"})
    assert how(found) == ("anchor", "far/away.cuh", 14, 17, "toy::row_total")


def test_an_edited_part_keeps_its_words_and_says_how_like_it_is(case: Callable[..., Case]) -> None:
    edited = KERNEL.replace("share += table[row * width + column]", "share += weight * table[row * width + column]")
    found = case("row_total", "for(column)").into({"k.cu": edited})
    assert found.state is not None
    assert found.state.how == "anchor"
    assert 0.8 < found.state.likeness < 1


def test_a_renamed_function_is_followed_and_called_a_guess(case: Callable[..., Case]) -> None:
    renamed = KERNEL.replace("row_total", "sum_of_row")
    found = case("row_total", "for(half)").into({"k.cu": renamed})
    assert how(found) == ("followed", "k.cu", 13, 16, "toy::sum_of_row")
    assert found.state is not None
    assert found.state.guessed
    # All that differs is the function's name, which is not in the part.
    assert found.state.likeness == 1


def test_a_name_that_was_there_before_is_not_a_new_name(case: Callable[..., Case]) -> None:
    """`scale_all` was in the old release: it cannot be what `row_total` became, whatever its body is now."""
    start = KERNEL.index("__global__ void scale_all")
    impostor = KERNEL[:start].replace("row_total", "scale_all") + "}\n"
    assert case("row_total", "for(half)").into({"k.cu": impostor}).state is None


def test_a_function_that_is_gone_is_not_found_in_another_one(case: Callable[..., Case]) -> None:
    start = KERNEL.index("// Adds"), KERNEL.index("__global__ void scale_all")
    without = KERNEL[: start[0]] + KERNEL[start[1] :].replace("scale_all", "scale_each")
    assert case("row_total").into({"k.cu": without}).state is None
    assert case("row_total").into({}).state is None


def test_a_landmark_that_was_renamed_is_found_by_its_tokens(case: Callable[..., Case]) -> None:
    renamed = KERNEL.replace("int half =", "int step =").replace("half > 0; half /= 2", "step > 0; step /= 2")
    found = case("row_total", "for(half)").into({"k.cu": renamed})
    assert found.state is not None
    assert (found.state.how, found.state.symbol) == ("aligned", "toy::row_total")
    assert found.state.guessed
    assert 13 <= found.state.first <= found.state.last <= 16


def test_a_part_that_left_a_function_that_stayed_is_gone(case: Callable[..., Case]) -> None:
    start, end = KERNEL.index("  __shared__"), KERNEL.index("  if (threadIdx.x == 0) totals")
    without = KERNEL[:start] + KERNEL[end:].replace("shares[0]", "share")
    assert case("row_total", "for(half)").into({"k.cu": without}).state is None


def test_a_number_that_now_counts_another_place_is_overruled(case: Callable[..., Case]) -> None:
    """`#1` lands on a barrier that came in before; likeness sees that the old one is further down."""
    text = KERNEL.replace("  __syncthreads();\n  for", "  fence(shares, 4);\n  for")
    anchor = case("row_total", "call(fence)#1", text=text)
    earlier = text.replace("  float share", "  fence(table);\n  float share")
    found = anchor.into({"k.cu": earlier})
    assert found.state is not None
    assert (found.state.how, found.state.first) == ("aligned", 13)


def test_the_words_for_another_release_come_before_a_guess(files: Make) -> None:
    """The old wording names `half`, the newer one `step`: a third release that has `step` needs no likeness."""
    other = Anchor("toy@0", "row_total", "for(step)", "c")
    library = Library(files({"k.cu": KERNEL}))
    origin = origin_of(Anchor("toy@1", "row_total", "for(half)", "c"), library, [other])
    renamed = KERNEL.replace("int half =", "int step =").replace("half > 0; half /= 2", "step > 0; step /= 2")
    found = follow(origin, Release("toy@2", Library(files({"k.cu": renamed}))), frozenset())
    assert how(found) == ("anchor", "k.cu", 13, 16, "toy::row_total")
    neither = KERNEL.replace("half", "pace")
    lost = follow(origin, Release("toy@2", Library(files({"k.cu": neither}))), frozenset())
    assert lost.state is None or lost.state.how == "aligned"


def test_one_of_several_of_the_same_name(case: Callable[..., Case]) -> None:
    """The file it was in counts most, then the body."""
    stub = "namespace toy { __global__ void row_total(float* totals) { totals[0] = 0.f; } }\n"
    loop = case("row_total", "for(column)")
    assert how(loop.into({"a.cu": stub, "z.cu": KERNEL})) == ("chosen", "z.cu", 7, 9, "toy::row_total")
    at_home = loop.into({"a.cu": KERNEL, "k.cu": "\n" + KERNEL})
    assert how(at_home) == ("chosen", "k.cu", 8, 10, "toy::row_total")


def test_python_is_followed_too(case: Callable[..., Case]) -> None:
    split = case("Cache.split", "assign(size)", "cache.py", PYTHON)
    renamed = PYTHON.replace("class Cache", "class Paged").replace("def split", "def halves")
    found = split.into({"new/cache.py": renamed})
    assert how(found) == ("followed", "new/cache.py", 4, 4, "Paged.halves")


def test_a_language_is_not_followed_into_another(case: Callable[..., Case]) -> None:
    split = case("Cache.split", None, "cache.py", PYTHON)
    assert split.into({"cache.cu": PYTHON.replace("split", "halves")}).state is None


def test_a_section_is_found_in_a_document_that_lost_its_title(case: Callable[..., Case]) -> None:
    text = "# Reading Pages\n\nA page holds tokens, and a table says where it lies.\n\n## Rows\n\nA row is a head.\n"
    whole = case("Reading Pages", None, "guide.md", text)
    untitled = "---\ntitle: Reading\n---\n" + text.split("\n", 1)[1]
    found = whole.into({"docs/guide.md": untitled})
    assert found.state is not None
    assert (found.state.how, found.state.symbol) == ("followed", "guide.md")
    rows = case("Reading Pages > Rows", None, "guide.md", text).into({"docs/guide.md": untitled})
    assert how(rows) == ("followed", "docs/guide.md", 7, 9, "Rows")


LOOP = "  for (int column = threadIdx.x; column < width; column += blockDim.x) {\n"
SUM = "share += table[row * width + column];"
HEAD = "__global__ void row_total(float* totals, const float* table, int width) {"
TWO_LOOPS = f"#ifdef WIDE\n  for (int column = 0; column < width; ++column) {{\n#else\n{LOOP}#endif\n"
TWO_HEADS = f"#ifdef A\n__global__ void row_total(float* totals) {{\n#else\n{HEAD}\n#endif\n"


@pytest.mark.parametrize(
    ("landmark", "old", "new", "lines"),
    [
        # P1: an `#ifdef` that chooses between two heads of one function.
        (None, HEAD, TWO_HEADS, None),
        ("assign(share)", SUM, "share += table[row * ) width + ( column];", (8, 8)),
        # The statement is not even recognised: it may be in what could not be read, so it is not said to be gone.
        ("assign(share)", SUM, "share @@ += ;", (8, 8)),
    ],
)
def test_an_unreadable_place_has_lines_and_no_digest(
    case: Callable[..., Case], landmark: str | None, old: str, new: str, lines: tuple[int, int] | None
) -> None:
    found = case("row_total", landmark).into({"k.cu": KERNEL.replace(old, new)})
    assert found.state is not None
    assert (found.state.how, found.state.digest, found.tokens) == ("unreadable", "", ())
    assert lines in (None, (found.state.first, found.state.last))


def test_two_heads_of_one_loop_make_a_guess(case: Callable[..., Case]) -> None:
    """P1: the parser sees two loops and an open brace far below; which loop is meant rests on likeness."""
    found = case("row_total", "for(column)").into({"k.cu": KERNEL.replace(LOOP, TWO_LOOPS)})
    assert how(found) == ("aligned", "k.cu", 10, 13, "toy::row_total")


def test_trouble_elsewhere_in_a_function_does_no_harm(case: Callable[..., Case]) -> None:
    found = case("row_total", "for(half)").into({"k.cu": KERNEL.replace(LOOP, TWO_LOOPS)})
    assert how(found) == ("anchor", "k.cu", 17, 20, "toy::row_total")


def test_a_hostile_text_is_only_data(case: Callable[..., Case]) -> None:
    """Bytes that are no text, a name of markup, a file without an end: answered, not raised."""
    texts = {
        "k.cu": b"\xff\xfe\x00" + KERNEL.encode()[:200],
        "<script>alert(1)</script>.cu": KERNEL.replace("toy", "a"),
        "empty.py": "",
        "k.md": "# " + "x" * 10_000,
    }
    found = case("row_total", "for(column)").into(texts)  # type: ignore[arg-type]
    assert found.state is None or found.state.path in texts

"""Reported cases about tree-sitter on real kernels (group P): each whole, as it was reported, with the right answer.

`test_grammar.py` has their variants one by one; here stands what a reader of the report would try.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tree_sitter

from annotate import grammar
from annotate.anchors import Anchor, resolve
from annotate.errors import AnchorNotFound, AnnotateError, GrammarMismatch, UnreliableSpan
from annotate.grammar import Tree, language_of, parse
from annotate.outline import outline

Make = Callable[..., Any]


def cuda(text: str) -> Tree:
    return parse(text.encode(), "cuda", "k.cu")


def functions(tree: Tree) -> list[str]:
    return [symbol.name for symbol in tree.symbols if symbol.kind == "function"]


def lines(tree: Tree) -> set[int]:
    return {line for first, last in tree.unreliable for line in range(first, last + 1)}


CHOICES = {
    "two signatures with one body": (
        "#ifdef WIDE\n__global__ void pick(int a)\n#else\n__global__ void pick(int a, int b)\n#endif\n{\n  a = 1;\n}\n",
        "pick",
    ),
    "an else inside": ("void pick(int a) {\n#ifdef X\n  if (a) { a = 1; } else\n#endif\n  { a = 2; }\n}\n", "pick"),
    "a parameter inside": ("void pick(int a,\n#ifdef X\n  int b,\n#endif\n  int c) {\n  a = 1;\n}\n", "pick"),
    "an argument inside": ("void pick(int a) {\n  use(a,\n#ifdef X\n  1,\n#endif\n  2);\n}\n", "pick"),
}


@pytest.mark.parametrize("name", CHOICES)
def test_p1_no_anchor_rests_silently_on_a_split_construct(files: Make, name: str) -> None:
    text, symbol = CHOICES[name]
    tree = cuda(text)
    assert lines(tree), "the lines that the parser could not read are known"
    try:
        span = resolve(Anchor("toy@1", symbol), files({"k.cu": text}))
    except AnnotateError:
        return
    # The ends are sound, and what is not is said.
    assert span.unreliable
    assert {span.first, span.last}.isdisjoint(lines(tree))


def test_p1_an_anchor_on_the_split_itself_is_an_error(files: Make) -> None:
    text, symbol = CHOICES["an argument inside"]
    with pytest.raises((UnreliableSpan, AnchorNotFound), match=r"call\(use\)"):
        resolve(Anchor("toy@1", symbol, "call(use)"), files({"k.cu": text}))


def test_p1_dead_code_with_an_open_brace_leaves_both_functions() -> None:
    assert functions(cuda("void f() {\n#if 0\n  if (x) {\n#endif\n}\nvoid g() {}\n")) == ["f", "g"]


def test_p1_a_whole_statement_in_a_conditional_is_clean() -> None:
    tree = cuda("void f() {\n#ifdef DEBUG\n  show(1);\n#endif\n}\n")
    assert (functions(tree), tree.unreliable) == (["f"], [])


@pytest.mark.parametrize("before", ["", "  const int count = 1;\n"])
def test_p4_a_dispatch_without_semicolon_hides_no_function(before: str) -> None:
    tree = cuda(f"void f() {{\n{before}  DISPATCH(q.dtype(), kv, CALL)\n}}\nvoid g() {{}}\n")
    assert functions(tree) == ["f", "g"]


def test_p4_a_launch_inside_a_lambda_is_found() -> None:
    tree = cuda("void f() {\n  AT_DISPATCH(t, [&] {\n    fill<<<1, 32>>>(out);\n  });\n}\n")
    items = outline(tree, next(symbol for symbol in tree.symbols if symbol.name == "f"))
    assert [str(item) for item in items if item.kind == "launch"] == ["launch(fill)"]


@pytest.mark.parametrize(
    ("text", "spoilt"),
    [
        ("__global__ void __launch_bounds__(128, 2, 1)\nk(int a) {\n  a = 1;\n}\n", set()),
        ("__global__ void __cluster_dims__(2, 1, 1)\nk(int a) {\n  a = 1;\n}\n", set()),
        ("__global__ void __maxnreg__(64)\nk(int a) {\n  a = 1;\n}\n", set()),
        ("__global__ void\nk(int a) {\n  extern __shared__ __align__(16) char room[];\n}\n", set()),
        ("__global__ void\nk(int a) {\n  other<<<{32, 1, 1}, 32>>>(a);\n}\n", {3}),
        ("FOO_INLINE float\nk(int a) {\n  return a;\n}\n", set()),
        ("__global__ void\nk(int a) {\n  if (a)\n#pragma unroll\n    for (int i = 0; i < 4; ++i) a += i;\n}\n", set()),
        # Fine as they are.
        ("__global__ void\nk(int a) {\n  run<Wide<4>,\n      2>\n      <<<1, 2>>>(a);\n}\n", set()),
        ("__global__ void\nk(int a) {\n  run<A<B<int>>><<<a >> 1, 32 << 1>>>(a);\n}\n", set()),
        ('__global__ void\nk(int a) {\n  asm volatile("nop;" ::: "memory");\n}\n', set()),
        ("template <int N>\n__global__ void k() {\n  if constexpr (N > 1) { stop(); }\n}\n", set()),
        ('extern "C" __global__ void\nk(int a) {\n  a = 1;\n}\n', set()),
        ("__global__ void\nk(const __grid_constant__ int a) {\n  use(a);\n}\n", set()),
    ],
)
def test_p5_the_function_is_found_and_the_trouble_confined(text: str, spoilt: set[int]) -> None:
    tree = cuda(text)
    (kernel,) = [symbol for symbol in tree.symbols if symbol.name == "k"]
    assert (kernel.first, kernel.last) == (1, text.count("\n"))
    assert lines(tree) == spoilt


@pytest.mark.parametrize("path", ["k.cu", "k.cuh", "k.h", "k.hpp"])
def test_p6_device_code_gets_the_cuda_grammar_whatever_its_file_is_called(path: str) -> None:
    body = "  __shared__ float room[32];\n  return x / 2;\n"
    text = f"#pragma once\n__device__ __forceinline__ float half_of(float x) {{\n{body}}}\n"
    tree = parse(text.encode(), language_of(path) or "", path)
    assert (functions(tree), tree.unreliable) == (["half_of"], [])


WIDE = "int a = 1; /* 分页注意 */ int b = 2;"


def test_p7_columns_are_counted_in_characters() -> None:
    tree = cuda(WIDE + "\n")
    at = WIDE.encode().index(b"int b")
    assert (at, tree.column(1, at)) == (30, 22)


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_p7_marks_and_line_ends_move_no_line_and_leave_no_trace(mark: bytes, end: bytes) -> None:
    data = mark + end.join([b"// " + "分".encode(), b"void f() {", b"  int x = 1;  // one", b"}", b""])
    tree = parse(data, "cuda", "k.cu")
    (f,) = [symbol for symbol in tree.symbols if symbol.name == "f"]
    assert (f.first, f.last) == (1, 4)
    assert tree.tokens(2, 4) == ["void", "f", "(", ")", "{", "int", "x", "=", "1", ";", "}"]
    assert tree.lines[2] == b"  int x = 1;  // one"


def test_p8_a_grammar_of_another_binding_says_which_pair_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reports are of `Incompatible Language version 15. Must be between 13 and 14`, and of a vanished method."""

    class Odd:
        @staticmethod
        def language() -> object:
            raise ValueError("Incompatible Language version 15. Must be between 13 and 14")

    grammar._language.cache_clear()
    try:
        monkeypatch.setattr(grammar, "tree_sitter_cuda", Odd)
        with pytest.raises(GrammarMismatch, match=r"tree-sitter-cuda and tree-sitter do not fit .* make setup"):
            cuda("int a;")
    finally:
        grammar._language.cache_clear()
    assert not hasattr(tree_sitter.Query, "captures"), "the cursor has it now, and that is what we use"


KERNEL = """int before;

// What it is for.
// Grid: (heads, sequences).
template <typename T, int N>
__global__ void k(T* out) {
  out[0] = N;
}
"""
OLD_STYLE = """template <typename T>
__global__
void
k(
  T* out)
{
  out[0] = 1;
}
"""


@pytest.mark.parametrize(("text", "first", "last"), [(KERNEL, 3, 8), (OLD_STYLE, 1, 8)])
def test_p9_a_kernel_starts_at_its_comment_and_template(files: Make, text: str, first: int, last: int) -> None:
    span = resolve(Anchor("toy@1", "k", None, "c"), files({"a/k.cu": text}))
    assert (span.first, span.last) == (first, last)
    # Which version it is: the source, the file and a digest of what stands there.
    assert (span.source, span.path, len(span.digest)) == ("toy@1", "a/k.cu", 32)
    other = resolve(Anchor("toy@1", "k", None, "c"), files({"a/k.cu": text.replace("out[0]", "out[1]")}))
    assert other.digest != span.digest

"""Parsing real-world CUDA: constructs that trip the grammar, encodings, and where a kernel starts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotate import grammar
from annotate.errors import GrammarMismatch
from annotate.grammar import Tree, abi_versions, language_of, parse


def cuda(text: str | bytes) -> Tree:
    return parse(text if isinstance(text, bytes) else text.encode(), "cuda", "k.cu")


def named(tree: Tree) -> dict[str, tuple[int, int]]:
    return {symbol.name: (symbol.first, symbol.last) for symbol in tree.symbols if symbol.kind != "file"}


def covered(tree: Tree) -> set[int]:
    return {line for first, last in tree.unreliable for line in range(first, last + 1)}


@pytest.mark.parametrize("path", ["a.cu", "b/c.cuh", "d.h", "e.hpp", "F.CU", "main.cpp"])
def test_headers_and_kernels_use_the_cuda_grammar(path: str) -> None:
    assert language_of(path) == "cuda"


def test_other_languages_by_their_ending() -> None:
    assert [language_of(path) for path in ("a.py", "b.md", "c.txt", "LICENSE")] == ["python", "markdown", None, None]


def test_versions_fit_and_a_misfit_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(abi_versions()) == {"tree-sitter-cuda", "tree-sitter-python"}
    monkeypatch.setattr(grammar.tree_sitter, "LANGUAGE_VERSION", 14)
    with pytest.raises(GrammarMismatch, match="tree-sitter reads 13 to 14"):
        abi_versions()


# -- conditionals that split a construct ------------------------------------------------------------------------


def test_two_signatures_with_one_body_are_never_a_sound_symbol() -> None:
    heads = "#ifdef A\n__global__ void k(int a)\n#else\n__global__ void k(int a, int b)\n#endif\n"
    text = heads + "{\n  a = 1;\n}\nvoid g() {}\n"
    tree = cuda(text)
    assert {2, 4} <= covered(tree)
    assert "k" not in named(tree)
    assert named(tree)["g"] == (9, 9)


def test_an_else_inside_a_conditional_spoils_the_whole_conditional() -> None:
    tree = cuda(
        "void f(int a) {\n#ifdef A\n  if (a) {\n    a = 1;\n  }\n  else\n#endif\n  {\n    a = 2;\n  }\n}\nvoid g() {}\n"
    )
    assert covered(tree) == set(range(2, 8))
    assert named(tree) == {"f": (1, 11), "g": (12, 12)}


@pytest.mark.parametrize(
    "text",
    [
        "void f(int a,\n#ifdef A\n  int b,\n#endif\n  int c) {\n  a = 1;\n}\nvoid g() {}\n",
        "void f(int a) {\n  h(a,\n#ifdef A\n  1,\n#endif\n  2);\n}\nvoid g() {}\n",
    ],
)
def test_a_parameter_or_argument_inside_a_conditional_is_reported(text: str) -> None:
    tree = cuda(text)
    assert {2, 4} & covered(tree)
    assert covered(tree) <= set(range(2, 7))
    assert named(tree) == {"f": (1, 7), "g": (8, 8)}


def test_dead_code_with_an_open_brace_does_not_swallow_the_file() -> None:
    tree = cuda("void f() {\n  int a;\n#if 0\n  if (x) {\n#endif\n}\nvoid g() {}\n")
    assert named(tree) == {"f": (1, 6), "g": (7, 7)}
    assert tree.unreliable == []


def test_a_whole_statement_inside_a_conditional_is_sound() -> None:
    tree = cuda("void f() {\n#ifdef DEBUG\n  int a = 1;\n#endif\n}\nvoid g() {}\n")
    assert tree.unreliable == []
    assert len(named(tree)) == 2


# -- macros and spellings ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        "{ DISPATCH(q.dtype(), kv, CALL) }",
        "{\n  const int a = 1;\n  DISPATCH(q.dtype(), kv,\n           CALL)\n}",
        "{ AT_DISPATCH(t, [&] { k<<<1, 2>>>(3); }); }",
    ],
)
def test_a_dispatch_macro_does_not_hide_its_function(body: str) -> None:
    tree = cuda(f"void f() {body}\nvoid g() {{}}\n")
    assert list(named(tree)) == ["f", "g"]
    assert tree.unreliable == []


@pytest.mark.parametrize(
    "text",
    [
        "__global__ void __launch_bounds__(128, 2, 1) k(int a) {\n  a = 1;\n}\n",
        "__global__ void __cluster_dims__(2, 1, 1) k(int a) {\n  a = 1;\n}\n",
        "__global__ void __maxnreg__(64) k(int a) {\n  a = 1;\n}\n",
        "FOO_INLINE float k(int a) {\n  return a;\n}\n",
        "__global__ void k(int a) {\n  extern __shared__ __align__(16) char s[];\n}\n",
        "template <int N> __global__ void k() {\n  m<N, A<B<int>>><<<g, 32 >> 1, 0, s>>>(1);\n}\n",
    ],
)
def test_spellings_that_the_grammar_lacks_do_no_harm(text: str) -> None:
    tree = cuda(text)
    assert named(tree) == {"k": (1, 3)}
    assert tree.unreliable == []


def test_what_cannot_be_mended_stays_confined() -> None:
    tree = cuda("void k(int a) {\n  m<<<{32, 1, 1}, {1, 1, 1}>>>(a);\n  a = 1;\n}\n")
    assert named(tree) == {"k": (1, 4)}
    assert covered(tree) == {2}


def test_a_pragma_between_a_condition_and_its_loop() -> None:
    tree = cuda("void k(int a) {\n  if (a)\n#pragma unroll\n    for (int i = 0; i < 2; i++) a += i;\n}\n")
    assert tree.unreliable == []
    assert named(tree) == {"k": (1, 5)}


# -- where things start, and what they are called ------------------------------------------------------------------


def test_a_kernel_starts_at_its_comment_and_template_header() -> None:
    head = "int x;\n\n// Grid: (a, b).\n// more\ntemplate <\n    typename T>\n"
    text = head + "__global__\nvoid\nname(\n    int a) {\n}\n// tail\n"
    (symbol,) = [s for s in cuda(text).symbols if s.kind == "function"]
    assert (symbol.first, symbol.last) == (3, 11)


def test_a_blank_line_parts_a_comment_from_what_follows() -> None:
    assert named(cuda("// far\n\n// near\nvoid f() {}\n"))["f"] == (3, 4)


def test_qualified_names_in_cuda() -> None:
    text = (
        "namespace a { namespace b::c {\nstruct S {\n  void m() {}\n};\n} }\nvoid a::T::n() {}\n"
        "#define MAC(x) \\\n  x\ntemplate <> void spec<int>() {}\n"
    )
    assert set(named(cuda(text))) == {"a::b::c::S", "a::b::c::S::m", "a::T::n", "MAC", "spec"}


def test_qualified_names_and_decorators_in_python() -> None:
    text = b"class A:\n    # why\n    @staticmethod\n    def f(x):\n        def g():\n            pass\n"
    tree = parse(text, "python", "a.py")
    assert named(tree) == {"A": (1, 6), "A.f": (2, 6), "A.f.g": (5, 6)}


def test_the_file_itself_is_a_symbol() -> None:
    assert (cuda("int a;\nint b;\n").symbols[0].name, cuda("int a;\nint b;\n").symbols[0].last) == ("k.cu", 2)


# -- bytes, columns, line ends ------------------------------------------------------------------------------------


def test_columns_are_characters_not_bytes() -> None:
    tree = cuda("int a = 1; /* 四个汉字 */ int b = 2;\n")
    assert tree.root is not None
    second = tree.root.named_children[2]
    assert second.start_point.column == 30
    assert tree.column(1, 30) == 22
    assert tree.text(second) == "int b = 2;"


def test_a_byte_order_mark_and_carriage_returns_change_nothing() -> None:
    plain = '// é\nvoid f() {\n  a = "x"; // y\n}\n'
    windows = b"\xef\xbb\xbf" + plain.replace("\n", "\r\n").encode()
    assert named(cuda(windows)) == named(cuda(plain)) == {"f": (1, 4)}
    assert cuda(windows).digest(1, 4) == cuda(plain).digest(1, 4)
    assert cuda(windows).lines == cuda(plain).lines


# -- tokens and digests ---------------------------------------------------------------------------------------------


def test_comments_and_white_space_do_not_count() -> None:
    one = cuda("void f() {\n  int a = 1; // one\n#pragma unroll\n  for (;;) { g(a); }\n}\n")
    two = cuda("// x\nvoid f( ) { int a=1;\n#pragma   unroll\nfor(;;){g(a);} /* y */ }\n")
    assert one.tokens(1, 5) == two.tokens(1, 4)
    assert one.digest(1, 5) == two.digest(1, 4)


@pytest.mark.parametrize(
    "changed",
    [
        'void f() {\n  int a = 2;\n  g(a, "x y");\n}\n',
        'void f() {\n  int a = 1;\n  g(a, "x  y");\n}\n',
        'void __launch_bounds__(3) f() {\n  int a = 1;\n  g(a, "x y");\n}\n',
        'void f() {\n#pragma unroll\n  int a = 1;\n  g(a, "x y");\n}\n',
    ],
)
def test_what_matters_changes_the_digest(changed: str) -> None:
    plain = 'void f() {\n  int a = 1;\n  g(a, "x y");\n}\n'
    assert cuda(plain).digest(1, 9) != cuda(changed).digest(1, 9)


def test_an_added_semicolon_is_no_token() -> None:
    assert cuda("void f() { DISPATCH(a) }").tokens(1, 1)[-2:] == [")", "}"]


def test_macro_bodies_count_by_their_words() -> None:
    one, two = cuda("#define A(x) \\\n  f(x); // y\nint z;\n"), cuda("#define A(x) f(x);\nint z;\n")
    assert one.tokens(1, 3) == two.tokens(1, 2)


def test_python_nesting_counts_though_it_is_white_space() -> None:
    inside = parse(b"if a:\n    b()\n    c()\n", "python")
    outside = parse(b"if a:\n    b()\nc()\n", "python")
    assert inside.digest(1, 3) != outside.digest(1, 3)
    assert inside.digest(1, 3) == parse(b"if a:\n  b()\n  # x\n\n  c()\n", "python").digest(1, 5)


def test_text_inside_strings_counts_whole() -> None:
    assert parse(b'a = "x\\n y"\n', "python").tokens(1, 1) == ["a", "=", '"x\\n y"']
    assert parse(b'a = f"x{b} y"\n', "python").tokens(1, 1) == ["a", "=", 'f"x{b} y"']


# -- comment lines ------------------------------------------------------------------------------------------------


def test_comment_lines_above_and_trailing_comments_below() -> None:
    tree = cuda('int a; // one\n       // two\n  // three\n#pragma once\n/* four\n   five */\nchar* b = "// no";\n')
    assert [tree.is_comment(line) for line in range(9)] == [False, False, True, True, True, True, True, False, False]
    assert tree.with_comments(7) == 2
    assert tree.with_trailing_comment(1) == 2
    assert tree.with_trailing_comment(7) == 7
    assert tree.comment_start(7) is None


def test_python_comments_are_known_from_hash_signs_in_strings() -> None:
    tree = parse(b"a = '#'  # x\n         # y\n# z\nb = 1\n", "python")
    assert [tree.is_comment(line) for line in (1, 2, 3, 4)] == [False, True, True, False]
    assert tree.with_trailing_comment(1) == 2
    assert tree.with_comments(4) == 2


@given(st.binary(max_size=200))
def test_any_bytes_can_be_parsed(data: bytes) -> None:
    for language in ("cuda", "python", "markdown"):
        tree = parse(data, language, "x")
        count = len(tree.lines)
        assert count == data.removeprefix(b"\xef\xbb\xbf").count(b"\n") + 1
        assert all(1 <= s.first <= s.last <= count for s in tree.symbols)
        assert all(1 <= first <= last <= count for first, last in tree.unreliable)
        assert len(tree.digest(1, count)) == 32

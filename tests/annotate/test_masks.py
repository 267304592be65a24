"""What is blanked before parsing: lines and, but for added semicolons, columns stay where they are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotate.masks import blank, mask, skeleton


def test_blank_keeps_line_ends() -> None:
    assert blank(b"a b\r\nc\n") == b"   \r\n \n"


def test_skeleton_covers_comments_and_text_but_not_code() -> None:
    text = b'a = "// x"; // y\nb = \'"\'; /* z\n"*/ c = 1;\n'
    assert skeleton(text) == b"a =       ;     \nb =    ;     \n    c = 1;\n"
    assert skeleton(text, strings=False) == b'a = "// x";     \nb = \'"\';     \n    c = 1;\n'


def test_raw_strings_and_joined_comment_lines() -> None:
    assert skeleton(b'a = R"x(// ")x"; b;') == b"a =            ; b;"
    assert skeleton(b"// one \\\ntwo\nx") == blank(b"// one \\\ntwo") + b"\nx"


@pytest.mark.parametrize(
    ("text", "parsed", "removed"),
    [
        (b"#pragma unroll\nfor(;;);", b"              \nfor(;;);", [b"#pragma unroll"]),
        (b"__launch_bounds__(1, (2), 3) f", b"                             f", [b"__launch_bounds__(1, (2), 3)"]),
        (b"FOO_API float f(int a);", b"        float f(int a);", [b"FOO_API"]),
        (b"#if 0\n{ {\n#endif\nx;", b"#if 0\n   \n#endif\nx;", []),
        (b"#if 0\n{\n#else\ny;\n#endif", b"#if 0\n \n#else\ny;\n#endif", []),
        (b"#if 0\n#if A\n{\n#endif\n{\n#endif", b"#if 0\n     \n \n      \n \n#endif", []),
        (b"#if 1\n{\n#endif", b"#if 1\n{\n#endif", []),
    ],
)
def test_what_is_blanked(text: bytes, parsed: bytes, removed: list[bytes]) -> None:
    masked = mask(text)
    assert masked.text == parsed
    assert [piece for _, piece in masked.removed] == removed
    assert all(masked.text[at : at + len(piece)] == blank(piece) for at, piece in masked.removed)


@pytest.mark.parametrize(
    "text",
    [
        b"// #pragma unroll\nint a;",
        b'const char* s = "__maxnreg__(3)";',
        b"/* #if 0 */ { /* #endif */ }",
        b"CACHE_T* p = q;\nreturn FOO(p);",
        b"#define A(x) { CALL(x) }\nint b;",
        b"void f() { CALL(x); }",
        b"NS_BEGIN {\nint a;\n}",
    ],
)
def test_what_is_left_alone(text: bytes) -> None:
    masked = mask(text)
    assert masked.text == text
    assert not masked.added


def test_a_macro_call_that_ends_a_block_gets_its_semicolon() -> None:
    masked = mask(b"void f() {\n  int a;\n  DISPATCH(a, (b),\n           C) // why\n}\n")
    assert masked.text == b"void f() {\n  int a;\n  DISPATCH(a, (b),\n           C); // why\n}\n"
    assert [masked.text[at : at + 1] for at in masked.added] == [b";"]


def test_several_semicolons_shift_one_another_rightly() -> None:
    masked = mask(b"void f() { AAA(x) } void g() { BBB(y) }")
    assert masked.text == b"void f() { AAA(x); } void g() { BBB(y); }"
    assert [masked.text[at : at + 1] for at in masked.added] == [b";", b";"]


PIECES = ["x", " ", "\n", "\r\n", "{", "}", "(", ")", '"', "'", "//", "/*", "*/", "#if 0\n", "#else\n", "#endif\n"]
PIECES += ["#pragma unroll\n", "__launch_bounds__(1,2,3)", "DISPATCH(", "FOO_API int f(", ";", "\\", "é", "中"]


@given(st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
def test_any_text_keeps_its_lines(text: str) -> None:
    data = text.encode()
    masked = mask(data)
    assert masked.text.count(b"\n") == data.count(b"\n")
    assert len(masked.text) == len(data) + len(masked.added)
    assert len(masked.comments) == len(masked.text)
    for before, after in zip(data.split(b"\n"), masked.text.split(b"\n"), strict=True):
        assert after.replace(b" ", b"").replace(b";", b"") in (b"", before.replace(b" ", b"").replace(b";", b"")) or (
            len(after) >= len(before)
        )

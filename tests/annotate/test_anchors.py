"""Anchors: each kind of landmark in CUDA and Python, and every way for one to fail."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotate import anchors as module
from annotate.anchors import Anchor, Library, anchors_of, resolve, resolve_all
from annotate.concepts import Concept, Place
from annotate.errors import AnchorAmbiguous, AnchorNotFound, AnnotateError, LandmarkSyntax, UnreliableSpan
from annotate.spans import Span

KERNEL = """\
#include <x.h>
namespace ns {
// What it does.
template <typename T, int N = 4>
__global__ void kern(
    const T* in,  // [n]
    T* out, int n) {
  using V = Vec<T>;
  __shared__ float smem[2 * N];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  dim3 shape(n, 1);

  // Load.
#pragma unroll
  for (int i = lane; i < n; i += 32) {
    smem[i] = in[i];  // one
                      // and two
  }
  __syncthreads();
  float acc = 0.f;
  for (int i = 0; i < n; i++) {
    if constexpr (N > 2) {
      acc += ns::dot<T>(smem, i);
    } else {
      acc = fmaxf(acc,
                  smem[i]);
    }
  }
  if (lane == 0 && warp < 2) {
    *out = acc;
    out->x = acc;
  } else if (warp == 3)
    return;
  while (acc > limit) acc -= 1;
  switch (n) {
    default: break;
  }
  other<T><<<shape, 32>>>(out);
  return;
}
}  // namespace ns
void host() { ns::kern<int><<<1, 32>>>(0, 0, 0); }
"""

PYTHON = """\
class Impl:
    # A remark.
    @staticmethod
    def forward(q, *, k: int = 3, table=None):
        \"\"\"Doc.\"\"\"
        assert q is not None, (
            "table"
        )
        a, b = q.t(1, 2).split(k)
        out = tl.load(
            q + a,
            table=table,
        ).to(k)
        for j in range(k):
            acc += out[j]
            self.m.x = acc
        if a:
            pass
        elif b > k:
            return out
        else:
            other(table=b)
        return acc


def forward():
    pass
"""


@pytest.fixture
def library(files: Callable[..., object]) -> Library:
    return Library(files({"a/kern.cu": KERNEL, "b/impl.py": PYTHON}))  # type: ignore[arg-type]


def lines(library: Library, symbol: str, landmark: str | None) -> tuple[int, int]:
    span = resolve(Anchor("s@1", symbol, landmark), library)
    return span.first, span.last


@pytest.mark.parametrize(
    ("landmark", "expected"),
    [
        (None, (3, 40)),
        ("def", (5, 40)),
        ("signature", (3, 7)),
        ("def > signature", (5, 7)),
        ("body", (7, 40)),
        ("param(N)", (4, 4)),
        ("param(T)", (4, 4)),
        ("param(in)..param(n)", (6, 7)),
        ("decl(V)", (8, 8)),
        ("decl(smem)", (9, 9)),
        ("decl(warp)", (10, 10)),
        ("decl(shape)", (11, 11)),
        ("for(i)#1", (15, 18)),
        ("^for(i)#1", (13, 18)),
        ("for(i)#-1", (21, 28)),
        ("for(i)[assign(smem)]", (15, 18)),
        ("for(i)[if(N)[call(dot)]]", (21, 28)),
        ("for(i)#1 > assign(smem)", (16, 17)),
        ("for(i)#2 > assign(acc)#2", (25, 26)),
        ("call(__syncthreads)", (19, 19)),
        ("call(dot)", (23, 23)),
        ("call(ns::dot)", (23, 23)),
        ("call(fmaxf)", (25, 26)),
        ("if(N)", (22, 27)),
        ("else(N)", (24, 27)),
        ("if(lane)", (29, 33)),
        ("else(lane)", (32, 33)),
        ("if(warp)#2", (32, 33)),
        ("assign(out)", (30, 30)),
        ("assign(x)", (31, 31)),
        ("while(limit)", (34, 34)),
        ("switch(n)", (35, 37)),
        ("launch(other)", (38, 38)),
        ("return#-1", (39, 39)),
        ("^decl(acc)..if(lane)", (20, 33)),
        ("for(i)#1..call(dot)", (15, 23)),
        ("for(i)#2..assign(acc)#1", (21, 23)),
        ("(switch_statement) @here", (35, 37)),
        ("(for_statement) @here#2..(while_statement) @here", (21, 34)),
        ('((identifier) @here (#eq? @here "limit"))', (34, 34)),
    ],
)
def test_landmarks_in_cuda(library: Library, landmark: str | None, expected: tuple[int, int]) -> None:
    assert lines(library, "ns::kern", landmark) == expected


@pytest.mark.parametrize(
    ("landmark", "expected"),
    [
        (None, (2, 23)),
        ("def", (4, 23)),
        ("signature", (2, 4)),
        ("def > signature", (4, 4)),
        ("param(q)", (4, 4)),
        ("param(k)", (4, 4)),
        ("assert(q)", (6, 8)),
        ("assign(b)", (9, 9)),
        ("call(split)", (9, 9)),
        ("call(tl.load)", (10, 13)),
        ("call(load)", (10, 13)),
        ("call(tl.load) > arg(table)", (12, 12)),
        ("for(j)", (14, 16)),
        ("assign(acc)", (15, 15)),
        ("assign(x)", (16, 16)),
        ("if(a)", (17, 22)),
        ("if(b)", (19, 20)),
        ("else(a)", (21, 22)),
        ("arg(table)#2", (22, 22)),
        ("return#1", (20, 20)),
        ("for(j)..return#-1", (14, 23)),
    ],
)
def test_landmarks_in_python(library: Library, landmark: str | None, expected: tuple[int, int]) -> None:
    assert lines(library, "Impl.forward", landmark) == expected


def test_a_symbol_is_found_by_its_last_names_but_the_whole_name_wins(library: Library) -> None:
    assert lines(library, "kern", "decl(V)") == (8, 8)
    assert lines(library, "forward", None) == (26, 27)
    assert lines(library, "Impl", "signature") == (1, 1)
    assert lines(library, "kern.cu", "call(__syncthreads)") == (19, 19)
    assert lines(library, "impl.py", None) == (1, 27)


def test_a_missing_symbol_lists_what_is_like_it(library: Library) -> None:
    with pytest.raises(AnchorNotFound) as caught:
        resolve(Anchor("s@1", "ns::kernel", concept="key-loop"), library)
    assert caught.value.candidates[0].label == "function ns::kern"
    assert "a/kern.cu:3-40" in str(caught.value)
    with pytest.raises(AnchorNotFound) as caught:
        resolve(Anchor("s@1", "Other.forward"), library)
    assert {candidate.label for candidate in caught.value.candidates} >= {"function Impl.forward", "function forward"}


def test_an_ambiguous_symbol_lists_all_of_them(files: Callable[..., object]) -> None:
    tree = files({"a.cu": "void f() {}\n", "b/c.cu": "void f() {}\nvoid f(int) {}\n"})
    with pytest.raises(AnchorAmbiguous) as caught:
        resolve(Anchor("s@1", "f"), tree)  # type: ignore[arg-type]
    assert [(c.path, c.first) for c in caught.value.candidates] == [("a.cu", 1), ("b/c.cu", 1), ("b/c.cu", 2)]
    for symbol, file, expected in [
        ("f#2", "*", ("b/c.cu", 1)),
        ("f#-1", "*", ("b/c.cu", 2)),
        ("f", "a.cu", ("a.cu", 1)),
        ("f#2", "b/*", ("b/c.cu", 2)),
    ]:
        span = resolve(Anchor("s@1", symbol, file=file), tree)  # type: ignore[arg-type]
        assert (span.path, span.first) == expected
    with pytest.raises(AnchorNotFound, match="f#4"):
        resolve(Anchor("s@1", "f#4"), tree)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("landmark", "error", "labels"),
    [
        ("for(i)", AnchorAmbiguous, {"for(i)"}),
        ("for(k)", AnchorNotFound, {"for(i)"}),
        ("for(i)#3", AnchorNotFound, {"for(i)"}),
        ("decl(nope)", AnchorNotFound, {"decl(smem)", "decl(lane/warp)", "decl(acc)"}),
        ("if(nope)", AnchorNotFound, {"if(N > 2)", "if(lane == 0 && warp < 2)"}),
        ("while(limit)..for(i)#1", AnchorNotFound, set()),
        ("(goto_statement) @here", AnchorNotFound, set()),
        ("(identifier)", LandmarkSyntax, None),
        ("(nonsense) @here", LandmarkSyntax, None),
    ],
)
def test_a_landmark_that_fails_says_what_is_there(
    library: Library, landmark: str, error: type[AnnotateError], labels: set[str] | None
) -> None:
    with pytest.raises(error) as caught:
        resolve(Anchor("s@1", "ns::kern", landmark), library)
    if labels is not None:
        assert isinstance(caught.value, AnchorAmbiguous | AnchorNotFound)
        assert {candidate.label for candidate in caught.value.candidates} >= labels


# -- unreliable places ------------------------------------------------------------------------------------------------

BROKEN = """\
void f(int a) {
  int before = 1;
#ifdef A
  if (a) {
    int inside = 1;
  }
  else
#endif
  {
    a = 2;
  }
  int after = 1;
}
void g() {
  int fine = 1;
}
"""


@pytest.mark.parametrize("landmark", ["if(a)", "decl(inside)", "decl(before)..if(a)", "if(a)..decl(after)"])
def test_an_anchor_never_rests_on_unreadable_lines(files: Callable[..., object], landmark: str) -> None:
    with pytest.raises(UnreliableSpan) as caught:
        resolve(Anchor("s@1", "f", landmark), files({"x.cu": BROKEN}))  # type: ignore[arg-type]
    assert caught.value.ranges == ((3, 8),)
    assert "x.cu" in str(caught.value)


def test_unreadable_lines_strictly_inside_are_told(files: Callable[..., object]) -> None:
    tree = files({"x.cu": BROKEN})
    assert resolve(Anchor("s@1", "f", "decl(before)..decl(after)"), tree).unreliable == ((3, 8),)  # type: ignore[arg-type]
    assert resolve(Anchor("s@1", "f", "decl(after)"), tree).unreliable == ()  # type: ignore[arg-type]
    assert resolve(Anchor("s@1", "g", "decl(fine)"), tree).unreliable == ()  # type: ignore[arg-type]


def test_a_symbol_inside_an_error_is_refused(files: Callable[..., object]) -> None:
    tree = files({"x.cu": "class {{{\n\nvoid f() {\n  int z;\n}\n"})
    with pytest.raises(UnreliableSpan):
        resolve(Anchor("s@1", "f"), tree)  # type: ignore[arg-type]


# -- moving ------------------------------------------------------------------------------------------------------------


@given(st.integers(0, 5), st.integers(0, 3), st.sampled_from(["a.cu", "deep/er/b.cuh"]))
def test_an_anchor_survives_moves_and_new_comments(blank_lines: int, comments: int, path: str) -> None:
    class One:
        def __init__(self, path: str, text: str) -> None:
            self.path, self.text = path, text

        def paths(self) -> list[str]:
            return [self.path]

        def read(self, path: str) -> bytes:
            return self.text.encode()

    anchor = Anchor("s@1", "ns::kern", "for(i)#2 > assign(acc)#2")
    before = resolve(anchor, One("a/kern.cu", KERNEL))
    moved = "\n" * blank_lines + KERNEL.replace("  float acc", "  // new\n" * comments + "  float acc")
    after = resolve(anchor, One(path, moved))
    assert (after.first, after.last) == (before.first + blank_lines + comments, before.last + blank_lines + comments)
    assert (after.path, after.digest) == (path, before.digest)


# -- all of a source ---------------------------------------------------------------------------------------------------


def test_all_of_a_source_in_order_with_errors_in_place(
    files: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(name: str, *places: Place) -> Concept:
        return Concept(name, name, "S.", {"s@1": places} if places else {}, ())

    table = {
        "a": make("a", Place("ns::kern", "for(i)#2"), Place("host")),
        "b": make("b", Place("gone")),
        "c": make("c"),
        "d": make("d", Place("Impl.forward", "assign(b)")),
    }
    monkeypatch.setattr(module, "concepts", lambda: table)
    tree = files({"a/kern.cu": KERNEL, "b/impl.py": PYTHON, "LICENSE": "x"})
    found = resolve_all("s@1", tree)  # type: ignore[arg-type]
    assert [type(entry) for entry in found] == [Span, Span, AnchorNotFound, Span]
    assert [entry.concept for entry in found if isinstance(entry, Span)] == ["a", "a", "d"]
    assert sorted(tree.reads) == ["a/kern.cu", "b/impl.py"]  # type: ignore[attr-defined]
    assert [str(anchor) for anchor in anchors_of(table["a"], "s@1")] == ["s@1 a: ns::kern @ for(i)#2", "s@1 a: host"]
    assert resolve_all("other@1", tree) == []  # type: ignore[arg-type]

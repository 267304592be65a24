"""The history page and the banners: signs and words beside colours, and nothing from a release is ever markup."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import pytest
from bs4 import BeautifulSoup
from hypothesis import given
from hypothesis import strategies as st
from markdown import Markdown

import walkthroughs.site.history as module
from annotate.anchors import Library
from annotate.drift import Origins, lanes_of, read
from annotate.history import HOW, Cell, Delta, Facts, Lane, State, committed, lanes
from annotate.tracks import tracks
from walkthroughs.site import history, render
from walkthroughs.site.model import DriftNote, HistoryView, LaneView, Link, MoveView
from walkthroughs.step import Step, steps

A = State("a/k.cu", 3, 9, "f", "d1", "t1", "anchor", 1.0)
NASTY = '"><img src=x onerror=alert(1)>|`*_[x](javascript:alert(1))&amp;</span><script>alert(2)</script>\n\n# h'


def stash(html: str) -> str:
    return html


def page_of(lines: list[str]) -> BeautifulSoup:
    """The page as the site would make it: Markdown with tables and attribute lists, our HTML stashed."""
    md = Markdown(extensions=["tables", "attr_list", "md_in_html"])
    md.convert("")
    kept: list[str] = []

    def keep(html: str) -> str:
        kept.append(html)
        return f"STASH{len(kept) - 1}END"

    text = md.convert("\n".join(history_lines(lines, keep)))
    for number, html in enumerate(kept):
        text = text.replace(f"STASH{number}END", html)
    return BeautifulSoup(text, "html.parser")


def history_lines(lines: list[str] | HistoryView, keep: object) -> list[str]:
    return history.lines(lines, "..", keep) if isinstance(lines, HistoryView) else lines  # type: ignore[arg-type]


def facts(revision: str, **states: State | None) -> Facts:
    return Facts(f"vllm@{revision}", "sha256:00", states, "w", ("a/k.cu",))


def lane(*states: State | None) -> Lane:
    revisions = ("0.6.6.post1", "0.9.2", "0.11.0", "0.11.2", "0.14.1")
    return lanes(facts(revision, x=state) for revision, state in zip(revisions, states, strict=False))["x"]


EVERY = [A, A, dataclasses.replace(A, path="b/k.cu"), dataclasses.replace(A, path="b/k.cu", text="t2"), None]


def test_each_cell_has_a_sign_words_and_the_lines_at_its_release() -> None:
    found = BeautifulSoup(history.lane_html(lane(*EVERY).cells, "The f"), "html.parser")
    cells = found.select(".pw-cell")
    assert [cell.get_text()[0] for cell in cells] == ["•", "=", "→", "~", "✕"]
    assert [cell.name for cell in cells] == ["a", "a", "a", "a", "span"]
    assert cells[2]["href"].endswith("/blob/v0.11.0/b/k.cu#L3-L9")
    for cell in cells:
        spoken = cell.select_one(".pw-spoken")
        assert spoken is not None
        assert spoken.get_text().strip() == cell["title"]
    assert found.select_one(".pw-lane")["aria-label"] == "The f"  # type: ignore[index]


def test_signs_and_looks_are_all_different() -> None:
    assert len({sign for sign, _ in history.SIGNS.values()}) == len(history.SIGNS)
    css = (Path(module.__file__).parents[2] / "docs/assets/css/pagewalk.css").read_text("utf-8")
    for kind in ("moved", "reformatted", "changed", "gone", "new", "absent", "unread"):
        assert f".pw-v-{kind}" in css
    legend = BeautifulSoup(history.legend_html(), "html.parser")
    assert [dt.get_text() for dt in legend.select("dt")] == [*(sign for sign, _ in history.SIGNS.values()), "?"]


def test_a_guess_is_called_one() -> None:
    guess = dataclasses.replace(A, how="followed", likeness=0.62, symbol="g")
    (cell,) = BeautifulSoup(history.lane_html(lane(guess).cells, "t"), "html.parser").select(".pw-cell")
    assert cell.get_text().startswith("•?")
    assert "guess" in cell["title"]
    assert "62% alike" in cell["title"]


def test_what_could_not_be_read_is_no_verdict() -> None:
    bad = dataclasses.replace(A, how="unreadable", digest="", text="")
    cells = BeautifulSoup(history.lane_html(lane(A, bad, A).cells, "t"), "html.parser").select(".pw-cell")
    assert [cell.get_text()[0] for cell in cells] == ["•", "!", "!"]


def test_a_release_that_is_not_pinned_has_no_link() -> None:
    (cell,) = BeautifulSoup(
        history.lane_html((Cell("vllm@9.9.9", A, None, "vllm@9.9.9", None),), "t"), "html.parser"
    ).select(".pw-cell")
    assert cell.name == "span"


def test_what_came_and_went_is_in_the_words() -> None:
    cell = Cell(
        "vllm@0.9.2", A, "changed", "vllm@0.9.2", None, Delta("vllm@0.6.6.post1", 5, 2, ("for(i)",), ("call(f)",))
    )
    found = history.lane_html((lane(A).cells[0], cell), "t")
    assert "0.9.2: changed, +5 -2 tokens +for(i) -call(f)" in found


# -- nothing is markup ---------------------------------------------------


def harmless(soup: BeautifulSoup) -> None:
    """No element that we did not write, no handler, no address of another kind."""
    ours = {
        "a",
        "span",
        "dl",
        "div",
        "dt",
        "dd",
        "b",
        "h2",
        "code",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "p",
        "li",
        "ul",
        "section",
    }
    assert {node.name for node in soup.find_all()} <= ours
    for node in soup.find_all():
        assert not [name for name in node.attrs if name.startswith("on")]
        assert str(node.get("href", "https://")).startswith(("https://", "../"))


@given(st.text(max_size=60) | st.just(NASTY), st.text(max_size=40) | st.just(NASTY))
def test_no_path_and_no_symbol_is_ever_markup(path: str, symbol: str) -> None:
    path, symbol = path.replace("\x00", ""), symbol.replace("\x00", "")
    state = dataclasses.replace(A, path=path, symbol=symbol, how="aligned", likeness=0.5)
    soup = BeautifulSoup(history.lane_html(lane(state, A, state).cells, path), "html.parser")
    harmless(soup)
    assert len(soup.select(".pw-cell")) == 3
    assert len(soup.select(".pw-spoken")) == 3


def test_a_hostile_release_makes_a_page_of_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole tree with markup for names, through drift and onto the page."""
    nasty = NASTY.partition("\n")[0].replace("/", "∕")
    loop = "  for (int i = 0; i < count; ++i) rows[i] = rows[count - i];\n"
    text = f"__global__ void swap_rows(float* rows, int count) {{\n{loop}}}\n"

    class Tree(dict[str, bytes]):
        def paths(self) -> list[str]:
            return sorted(self)

        def read(self, name: str) -> bytes:
            return self[name]

    from annotate.concepts import Place
    from annotate.tracks import Track

    chosen = {"swap": Track("swap", "signature", {"vllm@0.6.6.post1": Place("swap_rows")})}
    old = Tree({"k.cu": text.encode()})
    new = Tree(
        {
            f"{nasty}.cu": b"// " + NASTY.encode() + b"\n" + text.replace("count - i", "count").encode(),
            f"{nasty}.md": b"# " + NASTY.encode(),
        }
    )
    origins = Origins(lambda source: old, chosen)
    found = [
        read(f"vllm@{number}", tree, "sha256:00", origins).facts
        for number, tree in (("0.6.6.post1", old), ("0.9.2", new))
    ]
    told = lanes(found)["swap"]
    assert [cell.verdict for cell in told.cells] == [None, "changed"]
    assert told.cells[1].state is not None
    assert told.cells[1].state.path == f"{nasty}.cu"
    moves = MoveView(nasty, (("vllm@0.6.6.post1", (f"{nasty}/k.cu",)), ("vllm@0.9.2", ())))
    shown = HistoryView(
        ("vllm@0.6.6.post1", f"vllm@{nasty}"), (LaneView("swap", "signature", nasty, "", "k.cu", told.cells),), (moves,)
    )
    soup = page_of(shown)  # type: ignore[arg-type]
    harmless(soup)
    link = soup.select_one("td a.pw-v-changed")
    assert link is not None
    assert "%22%3E%3Cimg" in link["href"]
    assert "<img src=x onerror=alert(1)>" in link["title"]
    banner = DriftNote("gone", "✕", nasty, (("signature", nasty, Link(nasty, "https://example.org/x")),), nasty)
    harmless(page_of(render.drift_lines(banner, "..")))
    assert Library(new).trees() != []


# -- the banner ----------------------------------------------------------


@pytest.fixture(scope="module")
def real() -> Mapping[str, Lane]:
    return lanes_of(committed())


def some_step(**changes: object) -> Step:
    first = next(step for step in steps().values() if step.source == "vllm@0.24.0")
    return dataclasses.replace(first, **changes)  # type: ignore[arg-type]


def test_code_that_left_says_when_and_what_does_its_work(real: Mapping[str, Lane]) -> None:
    found = history.note(some_step(reads=("qk-max",)), real)
    assert found is not None
    assert (found.kind, found.at) == ("gone", "0.33.0")
    assert found.text == "This code left vLLM by 0.25.0 (0.24.0 still had it)."
    ((concept, title, link),) = found.heirs
    assert (concept, title) == ("paged-2d-max", "The running maximum")
    assert link.label == "chunked_prefill_paged_decode.py:254-256"
    assert link.url.endswith("/v0.33.0/vllm/v1/attention/ops/chunked_prefill_paged_decode.py#L254-L256")


@pytest.mark.parametrize(
    ("reads", "kind", "said"),
    [
        (("qk-max", "slot-split"), "part", "1 of the 2 pieces"),
        (("x-view",), "same", "still has exactly this code"),
        (("slot-split",), "same", "in another place"),
        (("write-to-paged-cache",), "changed", "not word for word: 1 changed"),
        (("qk-max", "block-copy"), "gone", "by 0.25.0 (0.24.0 still had it) and by 0.31.0 (0.26.0 still had it)"),
    ],
)
def test_the_kinds_of_banner(real: Mapping[str, Lane], reads: tuple[str, ...], kind: str, said: str) -> None:
    found = history.note(some_step(reads=reads), real)
    assert found is not None
    assert found.kind == kind
    assert said in found.text
    text = "\n".join(render.drift_lines(found, ".."))
    assert f".pw-drift-{kind}" in text
    assert "[Its history](../history.md)" in text


def test_nothing_in_its_place_is_said_too(real: Mapping[str, Lane]) -> None:
    found = history.note(some_step(reads=("block-copy",)), real)
    assert found is not None
    assert found.heirs == ()
    assert "Nothing that we follow took its place" in "\n".join(render.drift_lines(found, ".."))


@pytest.mark.parametrize(
    "changes", [{"source": "kernels/reference.py"}, {"source": "vllm@9.9.9"}, {"reads": ("dense-attention",)}]
)
def test_code_that_is_not_followed_has_no_banner(real: Mapping[str, Lane], changes: dict[str, object]) -> None:
    assert history.note(some_step(**changes), real) is None
    assert history.note(some_step(**changes), {}) is None
    assert render.drift_lines(None, "..") == []


def test_the_view_has_everything_in_order() -> None:
    shown = history.view()
    assert [lane.track for lane in shown.lanes] == [*tracks()]
    assert len(shown.releases) == 14
    assert {move.name for move in shown.moves} >= {"attention_kernels.cuh", "cache_kernels.cu", "paged_attn.py"}
    assert all(len(move.places) > 1 for move in shown.moves)
    soup = page_of(shown)  # type: ignore[arg-type]
    harmless(soup)
    assert len(soup.select("td .pw-lane")) == len(tracks())
    assert set(HOW) >= {cell.state.how for lane in shown.lanes for cell in lane.cells if cell.state}


# -- lanes that can be linked to, and a page that can be found -----------------


def test_every_row_has_an_id_that_its_concept_page_links_to(real: Mapping[str, Lane]) -> None:
    shown = history.view()
    soup = page_of(shown)  # type: ignore[arg-type]
    ids = [str(node["id"]) for node in soup.select("td a[id^=lane-]")]
    assert set(ids) == {history.anchor(lane.track) for lane in shown.lanes}
    assert len(set(ids)) == len(ids)
    for concept in {track.concept for track in tracks().values() if track.id in real}:
        note = history.lane_note(concept, real)
        assert note is not None
        assert note.anchor in ids
    assert history.lane_note("scatter", real) is None, "our own code has no history upstream"


def test_the_note_of_a_concept_says_what_became_of_all_its_pieces(real: Mapping[str, Lane]) -> None:
    gone, living, part = (history.lane_note(name, real) for name in ("signature", "slot-formula", "block-table-walk"))
    assert gone is not None
    assert gone.text == "This code left vLLM by 0.25.0 (0.24.0 still had it)."
    assert living is not None
    assert living.text == "vLLM 0.33.0 has this code."
    assert part is not None
    assert part.text.startswith("1 of the 2 pieces of this code left vLLM by 0.25.0")
    assert len({gone.sign, living.sign, part.sign}) == 3


def test_the_cells_are_kept_from_the_search_and_a_sentence_is_not() -> None:
    soup = page_of(history.view())  # type: ignore[arg-type]
    for table in soup.select("table:has(.pw-lane)"):
        section = table.find_parent("section")
        assert section is not None
        assert section.has_attr("data-search-exclude")
    said = [str(p.get_text()) for p in soup.select("p") if "vLLM 0.33.0" in p.get_text()]
    assert len(said) == len(soup.select("h2")) - 1, "a sentence a file; where files moved has none"
    assert not [p for p in soup.select("section p") if "vLLM 0.33.0" in p.get_text()]


@pytest.mark.parametrize(
    ("states", "said"),
    [
        ((A, A), "2 pieces, still in vLLM 0.9.2."),
        ((A, None), "2 pieces, of which vLLM 0.9.2 still has 1."),
        ((None, None), "2 pieces, not in vLLM 0.9.2 any more."),
    ],
)
def test_a_file_is_told_in_a_sentence(states: tuple[State | None, ...], said: str) -> None:
    shown = [LaneView("x", "c", "t", "", "k.cu", lane(A, state).cells) for state in states]
    assert history._said(shown, ("vllm@0.6.6.post1", "vllm@0.9.2")) == said
    assert history._said(shown[:1], ("vllm@0.6.6.post1", "vllm@0.9.2")).startswith("1 piece,")

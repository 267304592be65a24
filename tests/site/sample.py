"""A small made-up site: two walkthroughs over a toy kernel of our own, with every kind of badge.

The browser tests and the page tests build it; the real site is built by `test_real_site.py`.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from annotate import render
from walkthroughs import step as catalog
from walkthroughs.drills import bank
from walkthroughs.site import code, drill_data, drill_files, pages, player
from walkthroughs.site.drill_view import DrillKind, DrillView
from walkthroughs.site.errors import UnknownPageItem
from walkthroughs.site.model import (
    Badge,
    ClaimView,
    CompareView,
    ConceptView,
    FactView,
    FilmView,
    HistoryView,
    KernelColumn,
    Link,
    Panes,
    Row,
    StepRef,
    StepView,
    Summary,
    WalkthroughView,
)
from walkthroughs.stepper import film_files, films

ROOT = Path(__file__).resolve().parents[2]
TITLES = {
    "toy-loop": "The loop over the `toy` pieces",
    "toy-lookup": "Looking a piece up",
    "toy-product": "The product of one piece",
    "toy-write": "Writing the result",
    "toy-left-only": "A line that only the left side has",
}

# Our own toy, long enough that a pane has to scroll and wide enough that a line has to.
LEFT = "\n".join(
    [
        "// A toy of our own, <not> anybody's kernel & long enough to scroll.",
        "__global__ void toy(float* out, const float* in, const int* table, int pieces) {",
        "  float total = 0.f;",
        "  for (int piece = 0; piece < pieces; ++piece) {",
        "    const int where = table[piece];  // " + "a comment that makes this line wider than any pane, " * 3,
        *[f"    const float part_{i} = in[where * 32 + {i}] * {i}.5f;" for i in range(28)],
        "    total += part_0;",
        "    assert(where >= 0);",
        "  }",
        "  out[blockIdx.x] = total;",
        "}",
    ]
)
LEFT_SPANS = {
    "toy-loop": [(4, 36)],
    "toy-lookup": [(5, 5)],
    "toy-product": [(6, 34)],
    "toy-left-only": [(35, 35)],
    "toy-write": [(37, 37)],
}
RIGHT = "\n".join(
    [
        "@kernel",
        "def toy(out, data, table, pieces):",
        '    """A toy."""',
        "    total = 0.0",
        "    for piece in range(pieces):",
        "        where = table[piece]",
        *[f"        part_{i} = data[where * 32 + {i}] * {i}.5" for i in range(28)],
        "        total += part_0",
        "    out[cuda.blockIdx.x] = total",
    ]
)
RIGHT_SPANS = {
    "toy-loop": [(5, 35)],
    "toy-lookup": [(6, 6)],
    "toy-product": [(7, 35)],
    "toy-write": [(36, 36)],
}
URL = "https://example.invalid/toy.cu#L4-L37"
ASKED = Link("Why cut the [cache]?", "drills/recall.md#recall/why-blocks")


def figures(scope: str, left: Mapping[str, Any] = LEFT_SPANS, right: Mapping[str, Any] = RIGHT_SPANS) -> Panes:
    upstream = render.excerpt(
        LEFT, left, side="upstream", source="toy@1", path="toy.cu", language="cuda", permalink=URL, licence="Apache-2.0"
    )
    port = render.excerpt(RIGHT, right, side="port", source="pagewalk", path="kernels/toy.py", language="python")
    return Panes(
        upstream=(render.to_html(upstream, scope=scope),),
        port=(render.to_html(port, scope=scope),),
        titles={name: title for name, title in TITLES.items() if name in left or name in right},
        permalinks=(Link("toy.cu, lines 4 to 37 (toy 1)", URL),),
        names=("piece", "part_7", "total"),
    )


def row(name: str = "sum of the first piece", **changes: Any) -> Row:
    values: dict[str, Any] = {
        "name": name,
        "observed": "[1, 2.5, 4]",
        "expected": "[1, 2.5, 4]",
        "error": "1.2e-07",
        "tolerance": "1e-06",
        "verdict": "passed",
        "note": "read in lane 0",
    }
    return Row(**{**values, **changes})


def claim(name: str, kind: Any, verdict: str, group: str, concepts: Sequence[str], condition: str = "") -> ClaimView:
    facts = (
        FactView("supports", "the `loop` is there", "true", "'for' once", (Link("toy.cu, line 4 (toy 1)", URL),)),
        FactView("limits", "a <run> saw [it]", "unknown", "not here", (), (Link("a run", "walkthroughs/alpha.md"),)),
    )
    says, truth = f"The `toy` of {name} is <fast> & [sound].", f"What {name} is in fact: zebrawood."
    titles = {name: TITLES[name] for name in concepts}
    return ClaimView(name, group, "lesson 1", says, kind, verdict, condition, truth, titles, facts)


CLAIMS = {
    "T-1": claim("T-1", "holds", "holds", "lesson 1", ["toy-loop", "toy-lookup"]),
    "T-2": claim("T-2", "wrong", "wrong", "lesson 1", ["toy-loop"]),
    "T-3": claim("T-3", "holds-if", "holds if", "lesson 2", ["toy-write"], "there is one piece"),
    "T-4": claim("T-4", "open", "not decidable here", "lesson 2", ["toy-write"], "a run would decide it"),
    "T-5": claim("T-5", "unavailable", "not checked on this machine", "lesson 2", ["toy-loop"]),
}


# Ideas with a compare page, and how many kernels each has there.
COMPARED = {"toy-lookup": 2, "toy-product": 3, "toy-loop": 4, "toy-write": 6}


def kernel_column(number: int) -> KernelColumn:
    """The toy once more, as kernel `number`: the second has no port, the third nothing upstream."""
    panes = figures(f"k{number}")
    return KernelColumn(
        f"k{number}",
        f"Kernel_{number} of <many>",
        "our own" if number == 3 else f"toy {number}",
        {"toy-loop": TITLES["toy-loop"]},
        () if number == 3 else panes.upstream,
        () if number == 2 else panes.port,
        "There is nothing upstream." if number == 3 else "",
        "No file of ours ports this." if number == 2 else "",
        ("`kernels/other_toy.py`, line 3",) if number == 1 else (),
    )


def compare_view(name: str, count: int) -> CompareView:
    known = SampleData().concepts()
    return CompareView(
        id=name,
        title=f"Ideas of {name}",
        says="Every kernel does <it>.",
        differs="They differ in the `loop`.",
        columns=tuple(kernel_column(number) for number in range(1, count + 1)),
        titles=TITLES,
        pages={link: f"compare/{link}.md" if link in COMPARED else f"concepts/{link}.md" for link in TITLES},
        concepts=(known["toy-loop"], known["toy-write"]),
        steps={"Alpha & the `toy`": (StepRef("alpha", "loop", "Walk the pieces"),)},
        names=("piece", "part_7"),
        after=Summary("toy-loop", "Ideas of toy-loop", "") if name != "toy-loop" else None,
    )


def step(walkthrough: str, slug: str, title: str, badges: Sequence[Badge], reads: tuple[str, ...]) -> StepView:
    return StepView(
        id=f"{walkthrough}/{slug}",
        slug=slug,
        title=title,
        prose="The loop asks the table first.\n\n```python\nwhere = table[piece]\n```\n\nThen it reads.",
        reads=reads,
        panes=figures(slug),
        badges=tuple(badges),
        rows=(row(), row("a value with <angle> & sign", observed="<nan>", note="")),
        rows_from="Observed on SIMT machine, 2026-11-30",
        record=(("Device", "SIMT machine"), ("Seed", "7")),
        claims=(CLAIMS["T-2"], CLAIMS["T-1"]) if slug == "loop" else (),
        drills=(ASKED,) if slug == "loop" else (),
    )


GPU = Badge("gpu", "NVIDIA H200, 2026-11-30, max error 1.2e-07")
SIM = Badge("sim", "SIMT machine, 2026-11-30, max error 1.2e-07")
STALE = Badge("stale", "stale: the code has changed since the run on NVIDIA H200, 2026-11-30")
PENDING = Badge("pending", "not yet validated on a GPU: no [machine] was free")

WALKTHROUGHS = {
    "alpha": WalkthroughView(
        "alpha",
        "Alpha & the `toy`",
        "The first one.",
        (
            step("alpha", "loop", "Walk the pieces", [GPU], ("toy-loop", "toy-lookup")),
            step("alpha", "write", "Write `out`", [STALE, SIM], ("toy-write",)),
        ),
    ),
    "beta": WalkthroughView(
        "beta",
        "Beta",
        "The second one.",
        (step("beta", "again", "The same again", [PENDING, SIM], ("toy-loop", "toy-write")),),
    ),
}

# Of the real project, to be stepped through: two steps of one film, and one of another.
PLAYED = ("vllm-classic/block-table", "vllm-classic/qk-max", "vllm-classic/write-keys")
FILMS = ("classic-v1", "classic-v2-reduce", "reshape-and-cache", "copy-blocks")


@cache
def played() -> WalkthroughView:
    """Real steps with their panes and players; the records are made up."""
    steps = [_played(catalog.get(name)) for name in PLAYED]
    return WalkthroughView("gamma", "Gamma", "Real steps.", tuple(steps))


def _played(real: Any) -> StepView:
    clip = films.clip_of(real)
    assert clip is not None
    left = code.source_figures(real.source, real.reads, real.slug)
    panes = code.panes([left], code.own_figures(code.files_of_port(real.port), real.reads, real.slug))
    view = step("gamma", real.slug, real.title, [SIM], real.reads)
    # No chips: their concepts have no pages here.
    return replace(view, reads=(), panes=panes, player=player.step_view(clip, real.slug))


# Real drills, whose links lead to pages that the sample has.
DRILLS = {
    "recall": ("recall/why-blocks", "recall/kinds-of-waste", "recall/default-block-size"),
    "compute": ("compute/slot", "compute/kv-per-token"),
    "predict": ("predict/physical-block",),
    "find": ("find/tail-of-v", "find/x-in-python", "find/tiny-constants"),
}
DRAWS = 3
DRILL_LINKS = (
    Link("Walk the pieces", "walkthroughs/alpha.md#step-loop"),
    Link("Looking a `piece` up", "concepts/toy-lookup.md"),
    Link("Claim T-2", "claims.md#T-2"),
)


@cache
def drill_kind(kind: str) -> DrillKind:
    """A kind's page with a few of its questions."""
    real = drill_data.kind_view(kind)
    chosen = [one for one in real.questions if one.id in DRILLS[kind]]
    return replace(real, questions=tuple(map(_relinked, chosen)))


def _relinked(one: DrillView) -> DrillView:
    points = tuple(replace(point, links=DRILL_LINKS) for point in one.points)
    return replace(one, points=points, links=DRILL_LINKS if one.links else ())


class SampleData:
    """The made-up site's content."""

    def walkthroughs(self) -> dict[str, Summary]:
        shown = [*WALKTHROUGHS.values(), played()]
        return {w.id: Summary(w.id, w.title, w.intro, len(w.steps)) for w in shown}

    def walkthrough(self, name: str) -> WalkthroughView:
        if name == "gamma":
            return played()
        if name not in WALKTHROUGHS:
            raise UnknownPageItem("walkthrough", name, WALKTHROUGHS)
        return WALKTHROUGHS[name]

    def concepts(self) -> dict[str, Summary]:
        return {name: Summary(name, title, f"What {name} means.") for name, title in TITLES.items()}

    def concept(self, name: str) -> ConceptView:
        if name not in TITLES:
            raise UnknownPageItem("concept", name, TITLES)
        return ConceptView(
            name,
            TITLES[name],
            f"What {name} means. It has a zebrafinch in it.",
            figures(name),
            (StepRef("alpha", "loop", "Walk the pieces"),),
            (self.concepts()["toy-write"],),
            claims=tuple(claim for claim in CLAIMS.values() if name in claim.concepts),
            drills=(ASKED, ASKED) if name == "toy-loop" else (),
        )

    def compares(self) -> dict[str, Summary]:
        return {name: Summary(name, f"Ideas of {name}", "They differ.", n, "A part") for name, n in COMPARED.items()}

    def compare(self, name: str) -> CompareView:
        if name not in COMPARED:
            raise UnknownPageItem("idea to compare", name, COMPARED)
        return compare_view(name, COMPARED[name])

    def history(self) -> HistoryView:
        return HistoryView((), ())

    def claims(self) -> dict[str, ClaimView]:
        return CLAIMS

    def films(self) -> dict[str, Summary]:
        return {name: entry for name, entry in player.film_summaries().items() if name in FILMS}

    def film(self, name: str) -> FilmView:
        if name not in FILMS:
            raise UnknownPageItem("film", name, FILMS)
        return player.film_view(name, [StepRef("gamma", s.slug, s.title) for s in played().steps])

    def drills(self) -> dict[str, Summary]:
        real = drill_data.summaries()
        return {kind: replace(real[kind], count=len(items)) for kind, items in DRILLS.items()}

    def drill(self, kind: str) -> DrillKind:
        if kind not in DRILLS:
            raise UnknownPageItem("kind of drill", kind, DRILLS)
        return drill_kind(kind)

    def pair(self, concept: str, source: str) -> Panes:
        left, right = {concept: LEFT_SPANS[concept]}, {concept: RIGHT_SPANS[concept]}
        return figures(concept, left, right)


INDEX = """\
# A toy site

[Start](walkthroughs/alpha.md){ .md-button .pw-start }

::: pair toy-lookup toy@1
"""


def write_docs(docs: Path) -> None:
    """Fill a docs folder with the sample's pages and the real assets."""
    shutil.copytree(ROOT / "docs" / "assets", docs / "assets", ignore=shutil.ignore_patterns("films", "drills"))
    film_files.write_all(docs / "assets" / "films", {name: films.film(name) for name in FILMS})
    drill_files.write_all(
        docs / "assets" / "drills", [bank.item(name) for kind in DRILLS.values() for name in kind], DRAWS
    )
    for name in ("mental-model.md", "how-we-know.md"):
        shutil.copy(ROOT / "docs" / name, docs / name)
    (docs / "index.md").write_text(INDEX, "utf-8")
    # Up to the part that links to the real site's concepts.
    layout = (ROOT / "docs" / "layout.md").read_text("utf-8").split("## What is proven")[0]
    (docs / "layout.md").write_text(layout, "utf-8")
    (docs / "history.md").write_text("# History\n\n::: history root=.\n", "utf-8")
    (docs / "claims.md").write_text("# Claims\n\n::: claims root=.\n", "utf-8")
    pages.write_all(docs, SampleData())


def config(docs: Path, site: Path, *, base: Path = ROOT / "mkdocs.yml", **changes: Any) -> Any:
    """The project's own mkdocs configuration, or one that is laid over it (`base`), over the sample's pages."""
    from mkdocs.config import load_config

    settings = load_config(str(base), docs_dir=str(docs), site_dir=str(site), strict=True, **changes)
    settings.nav = [
        "index.md",
        "mental-model.md",
        {
            "Walkthroughs": [
                "walkthroughs/index.md",
                "walkthroughs/alpha.md",
                "walkthroughs/beta.md",
                "walkthroughs/gamma.md",
            ]
        },
        "play/index.md",
        {"Drills": ["drills/index.md", *(f"drills/{kind}.md" for kind in DRILLS)]},
        "concepts/index.md",
        "compare/index.md",
        "layout.md",
        "history.md",
        "claims.md",
        "how-we-know.md",
    ]
    settings.mdx_configs["walkthroughs.site.extension"] = {"data": SampleData()}
    return settings


def build(docs: Path, site: Path, **changes: Any) -> None:
    """Build the sample site; strict, so a broken link raises."""
    from mkdocs.commands.build import build as build_site

    write_docs(docs)
    build_site(config(docs, site, **changes))

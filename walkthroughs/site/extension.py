"""The Python-Markdown extension `walkthroughs.site.extension`: replaces `:::` directive lines by what they name.

It runs before fences, headings and raw HTML are looked for, so that what it puts in is treated like any other Markdown.
"""

from collections.abc import Callable, Mapping
from typing import Any, cast

from markdown import Markdown
from markdown.extensions import Extension
from markdown.preprocessors import Preprocessor

from . import (
    architecture,
    bench_page,
    claims,
    compare,
    drawings,
    drill_pages,
    fix_pages,
    glossary,
    grid_page,
    history,
    lab_about,
    lab_page,
    lab_server,
    ladder_page,
    layout_page,
    machine_page,
    player,
    render,
    tuned_grid_page,
    unrolled_page,
)
from .directives import Directive, expand
from .errors import BadDirective
from .model import SiteData

Handler = Callable[[Directive, SiteData, render.Stash], list[str]]

# After white space is normalised (30), before fenced code (25) and raw HTML (20).
_PRIORITY = 28


def _walkthrough(at: Directive, data: SiteData, stash: render.Stash) -> list[str]:
    lines = render.walkthrough_lines(data.walkthrough(at.argument()), at.root, stash)
    return list(expand(lines, lambda inner: _in_prose(inner, data, stash)))


def _in_prose(at: Directive, data: SiteData, stash: render.Stash) -> list[str]:
    """What the prose of a walkthrough may show: a drawing, the ladder's rungs, and what a live engine did."""
    if at.name not in IN_PROSE:
        raise BadDirective(at.line, f"only {' and '.join(IN_PROSE)} may stand in a walkthrough's prose")
    return IN_PROSE[at.name](at, data, stash)


def _rung(at: Directive, data: SiteData, stash: render.Stash) -> list[str]:
    return ladder_page.project_rung(at.argument())


def _lab(at: Directive, data: SiteData, stash: render.Stash) -> list[str]:
    return lab_page.project_lab(at.argument(), stash)


def _lab_server(at: Directive, data: SiteData, stash: render.Stash) -> list[str]:
    return lab_server.project_phase(at.argument(), stash)


def _live_lab(at: Directive, data: SiteData, stash: render.Stash) -> list[str]:
    return lab_about.project_lines(at.argument())


def _rungs(at: Directive, data: SiteData, stash: render.Stash) -> list[str]:
    return ladder_page.project_rungs()


def _written(at: Directive, data: SiteData, stash: render.Stash) -> list[str]:
    return unrolled_page.project_lines(at.argument())


def _concept(at: Directive, data: SiteData, stash: render.Stash) -> list[str]:
    return render.concept_lines(data.concept(at.argument()), at.root, stash)


def _walkthroughs(at: Directive, data: SiteData, stash: render.Stash) -> list[str]:
    folder = at.options.get("folder", "walkthroughs")
    return render.list_lines(data.walkthroughs().values(), folder, "steps")


def _concepts(at: Directive, data: SiteData, stash: render.Stash) -> list[str]:
    return render.list_lines(data.concepts().values(), at.options.get("folder", "concepts"))


def _compares(at: Directive, data: SiteData, stash: render.Stash) -> list[str]:
    return render.list_lines(data.compares().values(), at.options.get("folder", "compare"), "kernels")


def _compare(at: Directive, data: SiteData, stash: render.Stash) -> list[str]:
    return compare.lines(data.compare(at.argument()), at.root, stash)


def _pair(at: Directive, data: SiteData, stash: render.Stash) -> list[str]:
    words = at.text.split()
    if len(words) != 2:
        raise BadDirective(at.line, "pair takes a concept and a source")
    panes = data.pair(words[0], words[1])
    return render.pair_lines(panes, words[0], at.root, stash, panes.titles)


def _film(at: Directive, data: SiteData, stash: render.Stash) -> list[str]:
    return player.film_lines(data.film(at.argument()), at.root, stash)


def _films(at: Directive, data: SiteData, stash: render.Stash) -> list[str]:
    return render.list_lines(data.films().values(), at.options.get("folder", "play"))


def _drills(at: Directive, data: SiteData, stash: render.Stash) -> list[str]:
    return drill_pages.index_lines(data.drills(), at.options.get("folder", "drills"), stash)


def _drill(at: Directive, data: SiteData, stash: render.Stash) -> list[str]:
    return drill_pages.kind_lines(data.drill(at.argument()), at.root, stash)


def _fix(at: Directive, data: SiteData, stash: render.Stash) -> list[str]:
    return fix_pages.page_lines(at.argument(), at.root, stash)


def _fixes(at: Directive, data: SiteData, stash: render.Stash) -> list[str]:
    return fix_pages.index_lines()


def _svg(at: Directive, data: SiteData, stash: render.Stash) -> list[str]:
    name, _, caption = at.text.partition(" ")
    return ["", stash(drawings.drawing_html(name, caption)), ""]


def _glossary(at: Directive, data: SiteData, stash: render.Stash) -> list[str]:
    return glossary.lines(at.root, {entry.id: entry.title for entry in data.concepts().values()})


def _history(at: Directive, data: SiteData, stash: render.Stash) -> list[str]:
    return history.lines(data.history(), at.root, stash)


def _architecture(at: Directive, data: SiteData, stash: render.Stash) -> list[str]:
    return architecture.lines()


def _ops_grid(at: Directive, data: SiteData, stash: render.Stash) -> list[str]:
    return grid_page.project_lines()


def _ladder_takes(at: Directive, data: SiteData, stash: render.Stash) -> list[str]:
    return tuned_grid_page.takes_lines()


def _ladder_grid(at: Directive, data: SiteData, stash: render.Stash) -> list[str]:
    return tuned_grid_page.project_grid()


def _ladder_sanitizers(at: Directive, data: SiteData, stash: render.Stash) -> list[str]:
    return tuned_grid_page.project_sanitizers()


def _machine(at: Directive, data: SiteData, stash: render.Stash) -> list[str]:
    return machine_page.page_lines(at.argument(), at.root, stash)


def _machines(at: Directive, data: SiteData, stash: render.Stash) -> list[str]:
    return machine_page.index_lines()


def _claims(at: Directive, data: SiteData, stash: render.Stash) -> list[str]:
    return claims.page_lines(data.claims().values(), at.root, stash)


def _bench(at: Directive, data: SiteData, stash: render.Stash) -> list[str]:
    return bench_page.project_lines(at.argument(), stash)


def _layout(at: Directive, data: SiteData, stash: render.Stash) -> list[str]:
    return layout_page.lines(stash)


IN_PROSE: Mapping[str, Handler] = {"svg": _svg, "rung": _rung, "rungs": _rungs, "written": _written, "lab": _lab}
HANDLERS: Mapping[str, Handler] = {
    "walkthrough": _walkthrough,
    "walkthroughs": _walkthroughs,
    "concept": _concept,
    "concepts": _concepts,
    "compare": _compare,
    "compares": _compares,
    "pair": _pair,
    "player": _film,
    "films": _films,
    "drills": _drills,
    "drill": _drill,
    "fix": _fix,
    "fixes": _fixes,
    "svg": _svg,
    "glossary": _glossary,
    "history": _history,
    "architecture": _architecture,
    "ops-grid": _ops_grid,
    "ladder-takes": _ladder_takes,
    "ladder-grid": _ladder_grid,
    "ladder-sanitizers": _ladder_sanitizers,
    "claims": _claims,
    "layout": _layout,
    "machine": _machine,
    "machines": _machines,
    "rung": _rung,
    "rungs": _rungs,
    "written": _written,
    "bench": _bench,
    "lab": _lab,
    "lab-server": _lab_server,
    "live-lab": _live_lab,
}


class _Expander(Preprocessor):
    def __init__(self, md: Markdown, extension: "PagewalkExtension") -> None:
        super().__init__(md)
        self.extension = extension

    def run(self, lines: list[str]) -> list[str]:
        """The page's lines with every directive replaced."""
        return list(expand(lines, self._replace))

    def _replace(self, directive: Directive) -> list[str]:
        handler = HANDLERS.get(directive.name)
        if handler is None:
            raise BadDirective(directive.line, f"known directives are {', '.join(HANDLERS)}")
        return handler(directive, self.extension.data(), self._stash)

    def _stash(self, html: str) -> str:
        return cast(str, self.md.htmlStash.store(html))


class PagewalkExtension(Extension):
    """Takes one option, `data`: where the content comes from; empty means the project's own."""

    def __init__(self, **kwargs: Any) -> None:
        self.config = {"data": ["", "a SiteData to show instead of the project's own"]}
        super().__init__(**kwargs)

    def data(self) -> SiteData:
        """The content, loaded at the first directive of the build."""
        given = self.getConfig("data")
        if given:
            return cast(SiteData, given)
        from .loader import project_data

        return project_data()

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802  (Python-Markdown's name)
        """Registers the expander."""
        md.preprocessors.register(_Expander(md, self), "pagewalk", _PRIORITY)


def makeExtension(**kwargs: Any) -> PagewalkExtension:  # noqa: N802  (Python-Markdown's name)
    """Python-Markdown's way in."""
    return PagewalkExtension(**kwargs)

"""The claims on pages: the page of all of them, with filters, and the notes where their concepts are explained.

The list is complete without JavaScript; the script only hides what a filter leaves out.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape

from .inline import label, plain
from .model import ClaimView, FactView, Link

Stash = Callable[[str], str]

ICONS: Mapping[str, str] = {
    "holds": "✔", "holds-if": "◐", "wrong": "✘", "open": "?", "unavailable": "○", "failed": "⚠",
}  # fmt: skip
WORDS: Mapping[str, str] = {
    "holds": "holds", "holds-if": "holds if", "wrong": "wrong", "open": "not decidable here",
    "unavailable": "not checked on this machine", "failed": "check failed",
}  # fmt: skip
_TRUTH: Mapping[str, str] = {"true": "✔ true", "false": "✘ not true", "unknown": "○ not looked at here"}
_ROLES: Mapping[str, str] = {
    "supports": "For it", "limits": "Its limit", "refutes": "Against it", "missing": "What would decide it",
    "also": "Beside it",
}  # fmt: skip


def page_lines(views: Iterable[ClaimView], root: str, stash: Stash) -> list[str]:
    """The page's Markdown: how many of each verdict, the filters, and every claim under the heading of its group."""
    claims = list(views)
    groups = list(dict.fromkeys(claim.group for claim in claims))
    lines = [_counts(claims), "{ .pw-claim-counts }", "", stash(_filters(claims, groups)), ""]
    for group in groups:
        lines += [f"## {label(_capital(group))} {{#{group.replace(' ', '-')}}}", ""]
        for claim in claims:
            if claim.group == group:
                lines += claim_lines(claim, root)
    return lines


def _counts(claims: Sequence[ClaimView]) -> str:
    counts = {kind: sum(claim.kind == kind for claim in claims) for kind in WORDS}
    shown = ", ".join(f"{ICONS[kind]} {count} {WORDS[kind]}" for kind, count in counts.items() if count)
    return f"{len(claims)} claims: {shown}."


def _filters(claims: Sequence[ClaimView], groups: Sequence[str]) -> str:
    titles = {name: title for claim in claims for name, title in claim.concepts.items()}
    kinds = {kind: WORDS[kind] for kind in WORDS if any(claim.kind == kind for claim in claims)}
    choices = (
        ("group", "Said by", "all", {group: group for group in groups}),
        ("verdict", "Verdict", "any", kinds),
        ("concept", "Concept", "any", dict(sorted(titles.items(), key=lambda item: item[1].replace("`", "").lower()))),
    )
    fields = "".join(_select(*choice) for choice in choices)
    # Shown by the script, since it does nothing without it.
    return (
        f'<form class="pw-filters" hidden data-search-exclude aria-label="Filter the claims">{fields}'
        '<button type="reset" class="pw-filter-reset">Show all</button>'
        '<output class="pw-filter-count" aria-live="polite"></output></form>'
    )


def _select(name: str, title: str, everything: str, options: Mapping[str, str]) -> str:
    entries = "".join(
        f'<option value="{escape(value)}">{escape(text.replace("`", ""))}</option>' for value, text in options.items()
    )
    return f'<label>{title} <select name="{name}"><option value="">{everything}</option>{entries}</select></label>'


def claim_lines(claim: ClaimView, root: str) -> list[str]:
    """One claim in full, as a block of HTML with Markdown inside, so that its links are checked."""
    concepts = escape(" ".join(claim.concepts))
    facts = [line for fact in claim.facts for line in _fact_lines(fact, root)]
    condition = f" {label(claim.condition)}" if claim.kind in ("holds-if", "open") else ""
    chips = " ".join(
        f"[{label(title)}]({root}/concepts/{name}.md){{ .pw-chip }}" for name, title in claim.concepts.items()
    )
    return [
        f'<article class="pw-claim pw-claim-{claim.kind}" id="{claim.id}" data-group="{escape(claim.group)}"'
        f' data-verdict="{claim.kind}" data-concepts="{concepts}" markdown="1">',
        "",
        f"[{claim.id}](#{claim.id}){{ .pw-claim-id }} {plain(_capital(claim.who))} says: **{label(claim.says)}**",
        "{ .pw-claim-says }",
        "",
        f"{verdict_word(claim)}{condition}",
        "{ .pw-claim-line }",
        "",
        label(claim.truth),
        "",
        *([label(claim.message), "{ .pw-claim-message }", ""] if claim.message else []),
        f'<details class="pw-fold pw-claim-facts" markdown="1"><summary>{_summary(claim)}</summary>',
        "",
        *facts,
        "</details>",
        "",
        f"Concepts: {chips}",
        "{ .pw-chips }",
        "",
        "</article>",
        "",
    ]


def verdict_word(claim: ClaimView) -> str:
    """The verdict as an icon and words, for a look that does not hang on colour."""
    return f'<span class="pw-claim-verdict">{ICONS[claim.kind]} {escape(claim.verdict)}</span>'


def _summary(claim: ClaimView) -> str:
    lines = sum(len(fact.links) for fact in claim.facts)
    runs = sum(len(fact.runs) for fact in claim.facts)
    parts = [_plural(len(claim.facts), "fact")]
    parts += [_plural(lines, "place in the source", "places in the source")] if lines else []
    parts += [_plural(runs, "run")] if runs else []
    return f"What decides it: {', '.join(parts)}"


def _plural(count: int, one: str, many: str = "") -> str:
    return f"{count} {one if count == 1 else many or one + 's'}"


def _fact_lines(fact: FactView, root: str) -> list[str]:
    seen = f" Seen: {plain(fact.seen)}." if fact.seen else ""
    where = "; ".join(_link(link, root) for link in (*fact.links, *fact.runs))
    text = f"* {_ROLES[fact.role]}: {label(fact.says)}. {_TRUTH[fact.truth]}.{seen}"
    return [text + (f" {where}" if where else ""), ""]


def _link(link: Link, root: str) -> str:
    url = link.url if link.url.startswith("https://") else f"{root}/{link.url}"
    return f"[{plain(link.label)}]({url})" if link.url else plain(link.label)


def with_margin(prose: Sequence[str], notes: Sequence[str]) -> list[str]:
    """Prose with notes in the margin, or under it where a page has no margin; prose alone if there are no notes."""
    if not notes:
        return [*prose]
    return [
        '<div class="pw-beside" markdown="1"><div class="pw-columns" markdown="1">',
        '<div class="pw-prose" markdown="1">',
        "",
        *prose,
        "",
        "</div>",
        '<aside class="pw-margin" markdown="1">',
        "",
        *notes,
        "</aside>",
        "</div></div>",
        "",
    ]


def note_lines(claims: Sequence[ClaimView], root: str) -> list[str]:
    """What is said of a concept, in short: first what is wrong or holds only if, then the rest by number."""
    lines: list[str] = []
    for claim in _pointed(claims):
        lines += [
            f"{_lead(claim)} {label(claim.says)} *In fact:* {label(claim.truth)} "
            f"({plain(claim.who)}, [{claim.id}]({root}/claims.md#{claim.id}))",
            f"{{ .pw-claim-note .pw-claim-{claim.kind} }}",
            "",
        ]
    for kind, lead in (
        ("holds", "Said, and it holds"),
        ("open", "Not decidable here"),
        ("unavailable", "Not checked here"),
    ):
        ids = [f'[{c.id}]({root}/claims.md#{c.id} "{_title(c.says)}")' for c in claims if c.kind == kind]
        if ids:
            lines += [f"{ICONS[kind]} {lead}: {', '.join(ids)}", f"{{ .pw-claim-note .pw-claim-{kind} }}", ""]
    return lines


def warning_lines(claims: Sequence[ClaimView], root: str) -> list[str]:
    """Only what is wrong or holds only if, each in one sentence: for the top of a page that says the rest below."""
    lines: list[str] = []
    for claim in _pointed(claims):
        link = f"([{claim.id}]({root}/claims.md#{claim.id}))"
        lines += [f"{_lead(claim)} {label(claim.says)} {link}", f"{{ .pw-claim-note .pw-claim-{claim.kind} }}", ""]
    return lines


def _pointed(claims: Sequence[ClaimView]) -> list[ClaimView]:
    """The claims that a reader has to be warned of, the worst first."""
    return [claim for kind in ("wrong", "holds-if", "failed") for claim in claims if claim.kind == kind]


def _lead(claim: ClaimView) -> str:
    # A lesson is read by many; a comment stands in one place.
    said = "Often said" if claim.group.startswith("lesson") else "Said"
    of, there = (f" of {plain(claim.of)}", " there") if claim.of else ("", "")
    words = {
        "wrong": f"{said}{of}, and wrong{there}",
        "holds-if": f"Holds only if {label(claim.condition)}",
        "failed": "Check failed",
    }[claim.kind]
    return f"{ICONS[claim.kind]} **{words}:**"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _title(text: str) -> str:
    return escape(text.replace("`", "").replace('"', "'"), quote=True)

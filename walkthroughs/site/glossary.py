"""The glossary page, from `glossary.toml`: groups of terms, each term a heading so that search finds it.

A term may name the concepts where the code shows it.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .errors import UnknownPageItem
from .inline import label

PATH = Path(__file__).with_name("glossary.toml")


@dataclass(frozen=True, slots=True)
class Term:
    """A word, what we mean by it, and the concepts that show it."""

    name: str
    text: str
    concepts: tuple[str, ...] = ()

    @property
    def anchor(self) -> str:
        """The id of its heading."""
        return "term-" + re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")


def groups(path: Path = PATH) -> dict[str, list[Term]]:
    """The terms by group, in file order."""
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    return {
        group["title"]: [
            Term(term["name"], " ".join(term["text"].split()), tuple(term.get("concepts", ())))
            for term in group["terms"]
        ]
        for group in table["groups"]
    }


def lines(root: str, titles: Mapping[str, str], path: Path = PATH) -> list[str]:
    """The page's Markdown; `titles` are the concepts that a term may name, by id. Raises `UnknownPageItem`."""
    out: list[str] = []
    for title, terms in groups(path).items():
        out += [f"## {label(title)}", ""]
        for term in terms:
            out += [f"### {label(term.name)} {{#{term.anchor}}}", "", term.text, ""]
            if term.concepts:
                for name in term.concepts:
                    if name not in titles:
                        raise UnknownPageItem(f"concept (for the term {term.name})", name, titles)
                links = "; ".join(f"[{label(titles[name])}]({root}/concepts/{name}.md)" for name in term.concepts)
                out += [f"In the code: {links}", ""]
    return out

"""A source with words replaced in it, in memory: what a verdict must notice. Nothing of it is written anywhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from annotate.errors import SourceUnavailable


class Tree(Protocol):
    def paths(self) -> Sequence[str]: ...

    def read(self, path: str) -> bytes: ...


@dataclass
class Doctored:
    """A tree whose files come out changed; `hits` counts the replacements, since one that finds nothing proves nothing.

    A change is (end of the path, old, new); every occurrence in the file is replaced. `gone` are ends of paths that are
    left out, `added` are files that are put in.
    """

    tree: Tree
    changes: Sequence[tuple[str, str, str]] = ()
    gone: Sequence[str] = ()
    added: Mapping[str, str] = field(default_factory=dict)
    hits: int = 0

    def paths(self) -> tuple[str, ...]:
        kept = [path for path in self.tree.paths() if not path.endswith(tuple(self.gone))] if self.gone else None
        return (*(self.tree.paths() if kept is None else kept), *self.added)

    def read(self, path: str) -> bytes:
        if path in self.added:
            return self.added[path].encode()
        data = self.tree.read(path)
        for end, old, new in self.changes:
            if path.endswith(end):
                self.hits += data.count(old.encode())
                data = data.replace(old.encode(), new.encode())
        return data


@dataclass(frozen=True)
class Files:
    """A source of our own, from a dictionary."""

    texts: Mapping[str, str]

    def paths(self) -> tuple[str, ...]:
        return tuple(self.texts)

    def read(self, path: str) -> bytes:
        return self.texts[path].encode()


def opener(trees: Mapping[str, Tree]) -> Callable[[str], Tree]:
    """Open these sources, and no others."""

    def open_source(name: str) -> Tree:
        if name not in trees:
            raise SourceUnavailable(name, "the test has not got it")
        return trees[name]

    return open_source

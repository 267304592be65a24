"""The one module that knows tree-sitter: bytes of a source file become a `Tree` of symbols and tokens.

It also says which lines the parser could not read, because no anchor may rest on those. Lines are 1-based and
counted by line feeds alone, as every editor and permanent link does.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property

import tree_sitter
import tree_sitter_cuda
import tree_sitter_python
from tree_sitter import Language, Node, Parser, Query, QueryCursor

from annotate.errors import GrammarMismatch, LandmarkSyntax
from annotate.headings import sections
from annotate.masks import mask

__all__ = ["Node", "Symbol", "Tree", "abi_versions", "language_of", "parse"]

# Headers hold device code too, and the plain C++ grammar is worse on all of these.
_LANGUAGES = {
    "cuda": (".cu", ".cuh", ".h", ".hpp", ".hip", ".cpp", ".cc", ".c"),
    "python": (".py", ".pyi"),
    "markdown": (".md",),
}
_BOM = b"\xef\xbb\xbf"
# Taken whole: their inner nodes leave out part of the text.
_ATOMS = frozenset({"string", "string_literal", "char_literal", "raw_string_literal", "system_lib_string"})
_EXTRAS = frozenset({"comment", "line_continuation"})
_DEFINITIONS = {
    "cuda": """[(function_definition) (class_specifier body: (_)) (struct_specifier body: (_))
                (union_specifier body: (_)) (preproc_function_def) (preproc_def)] @definition""",
    "python": "[(function_definition) (class_definition)] @definition",
}


def language_of(path: str) -> str | None:
    """Return the language of a path by its ending: cuda, python, markdown, or None."""
    return next((name for name, ends in _LANGUAGES.items() if path.lower().endswith(ends)), None)


@cache
def _language(name: str) -> Language:
    package = {"cuda": tree_sitter_cuda, "python": tree_sitter_python}[name]
    try:
        return Language(package.language())
    except (ValueError, TypeError) as error:
        raise GrammarMismatch(f"tree-sitter-{name}", str(error)) from error


@cache
def _query(language: str, source: str) -> Query:
    return Query(_language(language), source)


def abi_versions() -> dict[str, int]:
    """Return each grammar's ABI version. Raises GrammarMismatch for one that tree-sitter cannot load."""
    low, high = tree_sitter.MIN_COMPATIBLE_LANGUAGE_VERSION, tree_sitter.LANGUAGE_VERSION
    found = {f"tree-sitter-{name}": _language(name).abi_version for name in ("cuda", "python")}
    for package, version in found.items():
        if not low <= version <= high:
            raise GrammarMismatch(package, f"its ABI is {version}, tree-sitter reads {low} to {high}")
    return found


@dataclass(frozen=True)
class Symbol:
    """Something with a name: a function, a class, a macro, a section, or the `file` itself.

    `first`-`last` take in the template header, the decorators and the comment lines directly above. `outer`
    is the node with template header or decorators, `inner` the bare definition; both are None for a Markdown
    section.
    """

    name: str
    kind: str
    first: int
    last: int
    outer: Node | None
    inner: Node | None


class Tree:
    """A parsed file. `lines` are its lines as bytes, without byte order mark and carriage returns."""

    def __init__(self, path: str, language: str, data: bytes) -> None:
        self.path = path
        self.language = language
        data = data.removeprefix(_BOM)
        self.lines = [line.rstrip(b"\r") for line in data.split(b"\n")]
        self._removed: list[tuple[int, bytes]] = []
        self._added: frozenset[int] = frozenset()
        self._comments = data
        self._held: dict[tuple[int, int], list[tuple[int, str]]] = {}
        self._text = data
        self.root: Node | None = None
        if language == "markdown":
            return
        if language == "cuda":
            masked = mask(data)
            self._text, self._removed, self._added = masked.text, masked.removed, masked.added
            self._comments = masked.comments
        self.root = Parser(_language(language)).parse(self._text).root_node

    def text(self, node: Node) -> str:
        """Return a node's text."""
        return self._text[node.start_byte : node.end_byte].decode("utf-8", "replace")

    def column(self, line: int, byte: int) -> int:
        """Return the 0-based character column of a byte column: CJK comments make the two differ."""
        return len(self.lines[line - 1][:byte].decode("utf-8", "replace"))

    @cached_property
    def unreliable(self) -> list[tuple[int, int]]:
        """Line ranges that the parser could not read, merged, in order. None is no proof of a right tree."""
        ranges: list[tuple[int, int]] = []
        for first, last in sorted(span(_spoilt(node)) for node in _errors(self.root)):
            if ranges and first <= ranges[-1][1]:
                ranges[-1] = ranges[-1][0], max(last, ranges[-1][1])
            else:
                ranges.append((first, last))
        return ranges

    @cached_property
    def symbols(self) -> list[Symbol]:
        """Every symbol of the file in the order of its lines, the file itself first."""
        count = len(self.lines) - (len(self.lines) > 1 and not self.lines[-1])
        whole = Symbol(self.path.rpartition("/")[2], "file", 1, count, self.root, self.root)
        if self.root is None:
            text = b"\n".join(self.lines).decode("utf-8", "replace")
            return [whole, *(Symbol(s.name, "section", s.first, s.last, None, None) for s in sections(text))]
        query = _query(self.language, _DEFINITIONS[self.language])
        nodes = QueryCursor(query).captures(self.root).get("definition", [])
        found = [self._symbol(node) for node in sorted(nodes, key=lambda node: (node.start_byte, -node.end_byte))]
        return [whole, *(symbol for symbol in found if symbol is not None)]

    def _symbol(self, node: Node) -> Symbol | None:
        own = self._own_name(node)
        if own is None:
            return None
        outer = node
        while outer.parent is not None and outer.parent.type in (
            "template_declaration",
            "decorated_definition",
        ):
            outer = outer.parent
        name = own if node.type.startswith("preproc") else self._qualified(node, own)
        first, last = span(outer)
        return Symbol(name, _KINDS.get(node.type, "class"), self.with_comments(first), last, outer, node)

    def _own_name(self, node: Node) -> str | None:
        if (name := node.child_by_field_name("name")) is not None:
            return self.text(name)
        declarator = node.child_by_field_name("declarator")
        while declarator is not None and declarator.type not in _NAMES:
            inner = declarator.child_by_field_name("declarator")
            declarator = inner or next((c for c in declarator.named_children if c.type in _NAMES), None)
        return None if declarator is None else re.sub(r"\s+", "", self.text(declarator))

    def _qualified(self, node: Node, own: str) -> str:
        parts = [own]
        parent = node.parent
        while parent is not None:
            if parent.type in _SCOPES and (name := self._own_name(parent)):
                parts.append(name)
            parent = parent.parent
        return ("." if self.language == "python" else "::").join(reversed(parts))

    def comment_start(self, line: int) -> int | None:
        """Return the 0-based byte column where the comment on a line starts, or None if there is none."""
        code = self._code(line)
        raw = self.lines[line - 1].rstrip()
        if len(code) >= len(raw):
            return None
        start = len(code)
        return start + len(raw[start:]) - len(raw[start:].lstrip())

    def _code(self, line: int) -> bytes:
        """Return what of a line is code, without white space at its end."""
        if self.language == "python":
            raw = self.lines[line - 1]
            row = self._python_comments.get(line)
            return raw[:row].rstrip() if row is not None else raw.rstrip()
        return self._comment_free[line - 1].rstrip()

    @cached_property
    def _comment_free(self) -> list[bytes]:
        return self._comments.split(b"\n")

    @cached_property
    def _python_comments(self) -> dict[int, int]:
        assert self.root is not None
        nodes = QueryCursor(_query("python", "(comment) @c")).captures(self.root).get("c", [])
        return {node.start_point.row + 1: node.start_point.column for node in nodes}

    def is_comment(self, line: int) -> bool:
        """Whether a line holds a comment or a `#pragma` and nothing else."""
        if not 1 <= line <= len(self.lines) or not self.lines[line - 1].strip():
            return False
        code = self._code(line).strip()
        return not code or (self.language == "cuda" and re.match(rb"#\s*pragma\b", code) is not None)

    def with_comments(self, line: int) -> int:
        """Return the first of the comment and pragma lines directly above `line`, or `line` itself."""
        while self.is_comment(line - 1):
            line -= 1
        return line

    def with_trailing_comment(self, line: int) -> int:
        """Return the last line of the comment that begins after the code of `line` and goes on below it."""
        column = self.comment_start(line)
        if column is None or self.is_comment(line):
            return line
        while line < len(self.lines) and self.is_comment(line + 1) and self.comment_start(line + 1) == column:
            line += 1
        return line

    def tokens(self, first: int, last: int) -> list[str]:
        """Return the tokens of a line range: no comments, no white space; Python's blocks as { and }."""
        return [text for _, text in self.located(first, last)]

    def located(self, first: int, last: int) -> list[tuple[int, str]]:
        """Return the tokens of a line range as `tokens` does, each with the line that it lies on."""
        for (low, high), held in self._held.items():
            if low <= first and last <= high:
                start = bisect_left(held, first, key=_line)
                return held[start : bisect_right(held, last, lo=start, key=_line)]
        return self._located(first, last)

    def hold(self, first: int, last: int) -> list[tuple[int, str]]:
        """Return the tokens of a line range, and keep them: parts of the range are then cut out of these."""
        self._held[first, last] = self.located(first, last)
        return self._held[first, last]

    def _located(self, first: int, last: int) -> list[tuple[int, str]]:
        if self.root is None:
            split = [(line, self.lines[line - 1].split()) for line in range(first, last + 1)]
            return [(line, word.decode("utf-8", "replace")) for line, words in split for word in words]
        found: list[tuple[int, int, bytes]] = []
        self._collect(self.root, first - 1, last - 1, found)
        low, high = self._offset(first), self._offset(last + 1)
        offsets = self._line_offsets
        for at, text in self._removed:
            if low <= at < high:
                found.append((at, bisect_right(offsets, at) - 1, b" ".join(text.split())))
        found.sort(key=lambda item: item[0])
        return [(row + 1, text.decode("utf-8", "replace")) for _, row, text in found]

    def digest(self, first: int, last: int) -> str:
        """Return the digest of a line range's tokens: 32 hexadecimal digits of SHA-256."""
        return hashlib.sha256("\x1f".join(self.tokens(first, last)).encode()).hexdigest()[:32]

    @cached_property
    def _line_offsets(self) -> list[int]:
        return [0, *(match.end() for match in re.finditer(rb"\n", self._text))]

    def _offset(self, line: int) -> int:
        return self._line_offsets[line - 1] if line <= len(self._line_offsets) else len(self._text) + 1

    def _collect(self, node: Node, top: int, bottom: int, found: list[tuple[int, int, bytes]]) -> None:
        if node.type in _EXTRAS:
            return
        children = node.children
        if (top <= node.start_point.row and node.end_point.row <= bottom) or not children or node.type in _ATOMS:
            if top <= node.start_point.row <= bottom:
                self._collect_all(node, found)
            return
        block = node.type == "block"
        if block and top <= node.start_point.row:
            found.append((node.start_byte, node.start_point.row, b"{"))
        for child in children:
            if child.end_point.row >= top:
                if child.start_point.row > bottom:
                    break
                self._collect(child, top, bottom, found)
        if block and node.end_point.row <= bottom:
            found.append((node.end_byte, node.end_point.row, b"}"))

    def _collect_all(self, node: Node, found: list[tuple[int, int, bytes]]) -> None:
        """Collect what lies in a node that is wanted whole: most of the work, so without looking at lines."""
        offsets = self._line_offsets
        left: list[Node | tuple[int, int, bytes]] = [node]
        while left:
            item = left.pop()
            if isinstance(item, tuple):
                found.append(item)
                continue
            kind = item.type
            if kind in _EXTRAS:
                continue
            start, end = item.start_byte, item.end_byte
            children = item.children
            if not children or kind in _ATOMS:
                if start not in self._added and end > start:
                    text = self._text[start:end]
                    text = _plain(text) if kind == "preproc_arg" else text.replace(b"\r", b"")
                    found.append((start, bisect_right(offsets, start) - 1, text))
                continue
            if kind == "block":
                found.append((start, bisect_right(offsets, start) - 1, b"{"))
                left.append((end, bisect_right(offsets, end) - 1, b"}"))
            left.extend(reversed(children))


def _line(token: tuple[int, str]) -> int:
    return token[0]


_NAMES = frozenset({"identifier", "field_identifier", "qualified_identifier", "operator_name", "destructor_name"})
_SCOPES = frozenset(
    {"namespace_definition", "class_specifier", "struct_specifier", "class_definition", "function_definition"}
)
_KINDS = {"function_definition": "function", "preproc_function_def": "macro", "preproc_def": "macro"}


def parse(data: bytes, language: str, path: str = "") -> Tree:
    """Parse a file's bytes. `language` is cuda, python or markdown; `path` is kept for messages and links."""
    return Tree(path, language, data)


def span(node: Node) -> tuple[int, int]:
    """Return a node's 1-based lines; one that ends at a line's very start does not reach into that line."""
    first, last = node.start_point.row + 1, node.end_point.row + 1
    if node.end_point.column == 0 and last > first:
        last -= 1
    return first, last


def run_query(tree: Tree, scope: Node, source: str) -> list[Node]:
    """Return the nodes that a raw query captures as `@here`. Raises LandmarkSyntax for a bad query."""
    try:
        query = _query(tree.language, source)
    except tree_sitter.QueryError as error:
        raise LandmarkSyntax(source, f"tree-sitter cannot read this query: {error}") from error
    if "here" not in [query.capture_name(index) for index in range(query.capture_count)]:
        raise LandmarkSyntax(source, "a raw query marks what it looks for with @here")
    return sorted(QueryCursor(query).captures(scope).get("here", []), key=lambda node: node.start_byte)


def _errors(node: Node | None) -> Iterator[Node]:
    if node is None or not node.has_error:
        return
    if node.is_error or node.is_missing:
        yield node
        return
    for child in node.children:
        yield from _errors(child)


def _spoilt(error: Node) -> Node:
    """Return what an error makes unreliable: all of an `#if` that cuts a construct in two, else only itself."""
    parent = error.parent
    if parent is None or not parent.type.startswith("preproc_"):
        return error
    return error if any(child.type in _WHOLE for child in parent.named_children) else parent


_WHOLE = frozenset({"function_definition", "template_declaration", "namespace_definition", "class_specifier"})


def in_error(node: Node) -> bool:
    """Whether a node lies in a part that the parser could not read."""
    parent: Node | None = node
    while parent is not None:
        if parent.is_error:
            return True
        parent = parent.parent
    return False


def _plain(macro: bytes) -> bytes:
    """Return a macro's body without comments, joined lines and runs of white space."""
    return b" ".join(re.sub(rb"//[^\n]*|/\*.*?\*/|\\\r?\n", b" ", macro, flags=re.DOTALL).split())

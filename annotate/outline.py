"""What there is to land on inside a symbol: loops, conditions, declarations, assignments, calls, parameters.

One walk over the syntax tree lists them as `Item`s. `landmarks.py` says how they are named, and
`anchors.py` picks one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from annotate.grammar import Node, Symbol, Tree, span


@dataclass(frozen=True)
class Item:
    """One landing place: its `kind`, the `names` it answers to, its 1-based lines and its byte range.

    `condition` is the text of a condition, its white space made single: any name in it counts.
    """

    kind: str
    names: tuple[str, ...]
    first: int
    last: int
    start: int
    end: int
    node: Node | None
    condition: str | None = None

    def answers(self, name: str | None) -> bool:
        """Whether the item is called `name`, or has it in its condition."""
        if name is None or name in self.names:
            return True
        if self.condition is None:
            # `tl.load` and `load` both name a call of `tl.load`.
            return any(own.endswith((f".{name}", f"::{name}")) for own in self.names)
        return re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", self.condition) is not None

    def __str__(self) -> str:
        name = self.condition if self.condition is not None else "/".join(self.names)
        return f"{self.kind}({name})" if name else self.kind


_CONDITIONS = {
    "if_statement": "if",
    "elif_clause": "if",
    "while_statement": "while",
    "do_statement": "while",
    "switch_statement": "switch",
    "assert_statement": "assert",
}
_PARAMETERS = frozenset(
    {"parameter_declaration", "optional_parameter_declaration", "type_parameter_declaration"}
    | {
        "optional_type_parameter_declaration",
        "typed_parameter",
        "default_parameter",
        "typed_default_parameter",
    }
)
_NAMES = frozenset({"identifier", "field_identifier", "type_identifier", "namespace_identifier"})
_STATEMENTS = frozenset({"expression_statement", "declaration", "return_statement", "alias_declaration"})
# A call inside one of these is not the whole statement.
_COMPOUND = frozenset(
    {"compound_statement", "block", "if_statement", "elif_clause", "for_statement", "for_range_loop"}
    | {"while_statement", "do_statement", "switch_statement", "function_definition", "with_statement"}
    | {"assert_statement", "condition_clause"}
)


# What tells two versions of a piece apart at a glance, by name alone.
LABELLED = frozenset({"for", "while", "if", "switch", "decl", "assign", "call", "launch", "param", "arg", "return"})


def label(tree: Tree, item: Item) -> str:
    """Return what an item is in a word or two: its kind and names, a loop's stride, never a condition's text."""
    names = "/".join(item.names)
    update = item.node.child_by_field_name("update") if item.kind == "for" and item.node is not None else None
    if update is not None and update.type == "assignment_expression":
        names += f" by {_squeezed(tree, update.child_by_field_name('right'))}"
    return f"{item.kind}({names})" if names else item.kind


@lru_cache(maxsize=512)
def outline(tree: Tree, symbol: Symbol) -> list[Item]:
    """Return what there is to land on in a symbol, in source order. A Markdown section has nothing."""
    if symbol.outer is None or symbol.inner is None:
        return []
    items = list(_heads(tree, symbol))
    _walk(tree, symbol.outer, items)
    return sorted(items, key=lambda item: (item.start, -item.end))


def _item(kind: str, names: tuple[str, ...], node: Node, condition: str | None = None) -> Item:
    first, last = span(node)
    return Item(kind, names, first, last, node.start_byte, node.end_byte, node, condition)


def _heads(tree: Tree, symbol: Symbol) -> Iterator[Item]:
    """Yield the parts that every function has: `def`, `signature` (with and without its header), `body`."""
    outer, inner = symbol.outer, symbol.inner
    assert outer is not None
    assert inner is not None
    yield _item("def", (), inner)
    body = inner.child_by_field_name("body")
    if body is None:
        return
    yield _item("body", (), body)
    colon = body.prev_sibling
    while colon is not None and colon.type == "comment":
        colon = colon.prev_sibling
    last = body.start_point.row + 1
    if tree.language == "python" and colon is not None:
        last = colon.end_point.row + 1
    first = span(outer)[0] if symbol.kind == "file" else symbol.first
    # With comment lines above it, it begins before the node: it is not inside `def`.
    start = outer.start_byte - (first < span(outer)[0])
    yield Item("signature", (), first, last, start, body.start_byte, outer)
    if outer != inner or first != span(inner)[0]:
        yield Item("signature", (), span(inner)[0], last, inner.start_byte, body.start_byte, inner)


def _walk(tree: Tree, node: Node, items: list[Item]) -> None:
    for child in node.named_children:
        items.extend(_classify(tree, child, node))
        _walk(tree, child, items)


def _classify(tree: Tree, node: Node, parent: Node) -> Iterator[Item]:
    kind = node.type
    if kind in _CONDITIONS:
        yield from _conditional(tree, node)
    elif kind in ("for_statement", "for_range_loop"):
        yield _item("for", tuple(_loop_names(tree, node)), node)
    elif kind == "expression_statement":
        yield from _assignments(tree, node)
    elif kind in ("declaration", "field_declaration", "alias_declaration", "type_definition"):
        if parent.type not in ("for_statement", "for_range_loop"):
            yield _item("decl", tuple(_declared(tree, node)), node)
    elif kind in ("call_expression", "call"):
        yield from _call(tree, node)
    elif kind == "keyword_argument":
        name = node.child_by_field_name("name")
        yield _item("arg", (tree.text(name),) if name else (), node)
    elif kind in _PARAMETERS:
        yield _item("param", tuple(_declared(tree, node)), node)
    elif kind == "identifier" and parent.type == "parameters":
        yield _item("param", (tree.text(node),), node)
    elif kind == "return_statement":
        yield _item("return", (), node)


def _squeezed(tree: Tree, node: Node | None) -> str:
    return "" if node is None else re.sub(r"\s+", " ", tree.text(node)).strip()


def _conditional(tree: Tree, node: Node) -> Iterator[Item]:
    condition = node.child_by_field_name("condition") or (node.named_children[0] if node.named_children else None)
    text = _squeezed(tree, condition)
    if text.startswith("(") and text.endswith(")"):
        text = text[1:-1]
    yield _item(_CONDITIONS[node.type], (), node, text)
    alternatives = node.children_by_field_name("alternative")
    if alternatives and alternatives[-1].type == "else_clause":
        yield _item("else", (), alternatives[-1], text)


def _loop_names(tree: Tree, node: Node) -> Iterator[str]:
    start = node.child_by_field_name("initializer") or node.child_by_field_name("left")
    start = start or node.child_by_field_name("declarator")
    if start is None:
        return
    if start.type == "declaration":
        yield from _declared(tree, start)
    elif start.type == "assignment_expression":
        yield from _targets(tree, start.child_by_field_name("left"))
    else:
        yield from _targets(tree, start)


def _declared(tree: Tree, node: Node) -> Iterator[str]:
    """Yield the names that a declaration or a parameter introduces."""
    if (name := node.child_by_field_name("name")) is not None:
        yield tree.text(name)
        return
    declarators = node.children_by_field_name("declarator")
    if not declarators:
        names = [child for child in node.named_children if child.type in ("identifier", "type_identifier")]
        yield from (tree.text(child) for child in names[-1:] if node.type != "declaration")
    for declarator in declarators:
        current: Node | None = declarator
        while current is not None and current.type not in _NAMES:
            inner = current.child_by_field_name("declarator")
            current = inner or next(
                (c for c in current.named_children if c.type.endswith("declarator") or c.type in _NAMES), None
            )
        if current is not None:
            yield tree.text(current)


def _assignments(tree: Tree, node: Node) -> Iterator[Item]:
    for child in node.named_children:
        if child.type in ("assignment_expression", "assignment", "augmented_assignment"):
            yield _item("assign", tuple(_targets(tree, child.child_by_field_name("left"))), node)


def _targets(tree: Tree, node: Node | None) -> Iterator[str]:
    """Yield what an assignment writes to: `x` for x, x[i] and *x; `f` for a.f and a->f; each of a tuple."""
    while node is not None:
        if node.type in _NAMES:
            yield tree.text(node)
            return
        if node.type in ("pattern_list", "tuple_pattern", "list_pattern"):
            for child in node.named_children:
                yield from _targets(tree, child)
            return
        inner = None
        for field in ("argument", "value", "field", "attribute"):
            # A member's own name is the one it is known by; anything else is known by what it reaches into.
            if node.type in ("field_expression", "attribute") and field in ("argument", "value"):
                continue
            inner = inner or node.child_by_field_name(field)
        node = inner or (node.named_children[0] if node.named_children else None)


def _call(tree: Tree, node: Node) -> Iterator[Item]:
    function = node.child_by_field_name("function")
    if function is None:
        return
    name = _callee(tree, function)
    launched = any(child.type == "kernel_call_syntax" for child in node.named_children)
    yield _item("launch" if launched else "call", (name,), _statement(node))


def _callee(tree: Tree, node: Node) -> str:
    """Return a callee's dotted name without template arguments; of an expression's method, the method's."""
    if node.type == "template_function":
        name = node.child_by_field_name("name")
        return tree.text(name) if name else ""
    if node.type == "qualified_identifier":
        parts = [_callee(tree, c) for c in node.named_children if c.type != "template_argument_list"]
        return "::".join(part for part in parts if part)
    if node.type == "template_type":
        name = node.child_by_field_name("name")
        return tree.text(name) if name else ""
    if node.type in ("attribute", "field_expression"):
        owner = node.child_by_field_name("object") or node.child_by_field_name("argument")
        member = node.child_by_field_name("attribute") or node.child_by_field_name("field")
        own = "" if member is None else _callee(tree, member)
        plain = owner is not None and owner.type in ("identifier", "attribute", "field_expression")
        return f"{_callee(tree, owner)}.{own}" if plain and owner is not None else own
    return tree.text(node) if node.type in _NAMES else ""


def _statement(call: Node) -> Node:
    """Return the statement that a call makes up or feeds; in a condition or a loop head, the call itself."""
    node = call
    while node.parent is not None and node.parent.type not in _COMPOUND:
        node = node.parent
        if node.type in _STATEMENTS:
            return node if node.parent is None or node.parent.type != "for_statement" else call
    return call

"""Plain text as Markdown that shows exactly these characters: what every renderer of pages shares."""

import re

_SPECIAL = re.compile(r"([\\`*_{}\[\]#])")
_ENTITIES = str.maketrans({char: f"&#{ord(char)};" for char in "&<>|~^"})


def plain(text: str) -> str:
    """`text` as Markdown that shows exactly these characters, on one line."""
    return _escaped(" ".join(text.split()))


def _escaped(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text).translate(_ENTITIES)


def label(text: str) -> str:
    """`text` for a link label or a heading: backquoted code stays code, the rest is plain."""
    parts = " ".join(text.split()).split("`")
    if len(parts) % 2 == 0:
        return plain(text)
    return "".join(f"`{part}`" if i % 2 else _escaped(part) for i, part in enumerate(parts))

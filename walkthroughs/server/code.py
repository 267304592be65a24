"""Code that a reader typed into a page: who may send it, and what of it is accepted.

Off unless the reader asked for it when the server started, for it is the one thing here that could do harm: the code
runs as the reader. Being one of our pages is not enough. Anybody with an account on this machine can open them, and
finds the page's token there. So a key is asked for as well, which only the reader's terminal was told.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from walkthroughs.server.exchange import Malformed
from walkthroughs.server.parameters import Refused

COMMAND = (sys.executable, "-m", "walkthroughs.drills.fix_run")
KEY_HEADER = "X-Pagewalk-Key"
MOST_TEXT = 64 << 10
# JSON may spell each byte of a text with six characters.
MOST_BODY = 6 * MOST_TEXT + 4096
SEEDS = 3
MOST_SEED = 2**31 - 1
NOT_ALLOWED = (
    "This server runs no code that is typed into a page. Stop it and start it again with: "
    "pagewalk site serve --allow-code"
)
NO_KEY = (
    "This server runs code only for the one who started it. Open the address that the terminal shows, "
    "with the key at its end"
)


class Forbidden(PermissionError):
    """Code is not allowed here, or not for this reader."""


class UnknownDrill(LookupError):
    """There is no drill of that id."""

    def __init__(self, given: object) -> None:
        super().__init__(f"{str(given)[:60]!r}: there is no such drill")


@dataclass(frozen=True)
class Code:
    """That code is allowed: for which drills, with which key, and the program that runs it, fixed at the start."""

    drills: frozenset[str]
    command: tuple[str, ...] = COMMAND
    key: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)

    @staticmethod
    def of_bank() -> Code:
        """Every drill whose kernel is to be mended."""
        from walkthroughs.drills.fix import tasks

        return Code(frozenset(tasks()))


def has_key(allowed: Code, sent: Iterable[str]) -> bool:
    """Whether the key was sent, and once."""
    keys = list(sent)
    return len(keys) == 1 and secrets.compare_digest(keys[0].encode("latin-1"), allowed.key.encode("latin-1"))


def check(allowed: Code | None, sent: Iterable[str]) -> Code:
    """Answer what is allowed; raises Forbidden where code is not, or where the key is missing or wrong."""
    if allowed is None:
        raise Forbidden(NOT_ALLOWED)
    if not has_key(allowed, sent):
        raise Forbidden(NO_KEY)
    return allowed


def read(allowed: Code, body: object) -> dict[str, Any]:
    """The request for the child, out of what was sent; raises Malformed, UnknownDrill or Refused.

    A drill's id decides which file the text stands for. Nothing in a request is a path.
    """
    if not isinstance(body, dict) or set(body) != {"drill", "text"}:
        raise Malformed("the body must be an object with drill and text, and nothing else")
    drill, text = body["drill"], body["text"]
    if not isinstance(drill, str) or drill not in allowed.drills:
        raise UnknownDrill(drill)
    return {"drill": drill, "text": _text(text), "seeds": [secrets.randbelow(MOST_SEED) for _ in range(SEEDS)]}


def _text(text: object) -> str:
    if not isinstance(text, str):
        raise Refused("must be text", "text")
    try:
        size = len(text.encode("utf-8"))
    except UnicodeEncodeError as error:
        raise Refused(f"character {error.start + 1} is none that UTF-8 can write", "text") from error
    if size > MOST_TEXT:
        raise Malformed(f"the text has {size:,} bytes, and at most {MOST_TEXT:,} are taken", 413)
    if "\0" in text:
        raise Refused(f"character {text.index(chr(0)) + 1} is NUL, which no Python file may hold", "text")
    return text

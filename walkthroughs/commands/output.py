"""What every command prints by: the JSON envelope, notices, tables, and errors with their exit code.

stdout carries the answer and nothing else; notices go to stderr. Exit 0 fine, 1 a check failed, 2 wrong use.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec

import click

if TYPE_CHECKING:
    from rich.console import Console

P = ParamSpec("P")

SCHEMA = 1
PIPE_WIDTH = 200
LEAST_WIDTH = 16
STATUSES = ("passed", "failed", "error", "stale", "unavailable")

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")


def emit_json(plural: str, items: Sequence[Mapping[str, Any]]) -> None:
    """Print `{"schema": 1, PLURAL: [...]}`; each item must have an id and a known status (ValueError)."""
    for item in items:
        if "id" not in item or item.get("status") not in STATUSES:
            raise ValueError(f"{plural}: {item!r} needs an id and one of {', '.join(STATUSES)}")
    envelope = {"schema": SCHEMA, plural: list(items)}
    click.echo(json.dumps(envelope, ensure_ascii=False))


def notice(message: str) -> None:
    """Print one line on stderr."""
    click.echo(message, err=True)


def console(*, stderr: bool = False) -> Console:
    """Return a rich console: colour on a terminal only, none under NO_COLOR.

    As wide as COLUMNS says, else as the terminal. A file or a pipe gets wide lines, easier to search.
    """
    from rich.console import Console

    screen = Console(stderr=stderr, highlight=False)
    if not screen.is_terminal and "COLUMNS" not in os.environ:
        screen.width = PIPE_WIDTH
    return screen


def print_rows(rows: Sequence[tuple[str, ...]], styles: Sequence[str], *, indent: int = 0) -> None:
    """Print rows as columns, the last one folding; `styles` has the style of each row's last cell.

    Where the columns before the last leave it hardly any width, a row's cells stand below each other instead:
    an id stays in one piece.
    """
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    screen = console()
    before_last = sum(max(map(len, column)) + 2 for column in list(zip(*rows, strict=True))[:-1])
    if indent + before_last + LEAST_WIDTH <= screen.width:
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
        for _ in rows[0] if rows else ():
            table.add_column(overflow="fold")
        for row, style in zip(rows, styles, strict=True):
            table.add_row(*(Text(cell) for cell in row[:-1]), Text(row[-1], style=style))
        screen.print(Padding(table, (0, 0, 0, indent), expand=False))
        return
    for row, style in zip(rows, styles, strict=True):
        screen.print(Padding(Text(row[0], overflow="fold"), (0, 0, 0, indent), expand=False))
        for cell in row[1:]:
            text = Text(cell, style=style if cell is row[-1] else "", overflow="fold")
            screen.print(Padding(text, (0, 0, 0, indent + 2), expand=False))


def did_you_mean(word: str, known: Mapping[str, Any]) -> str:
    """Return ` Did you mean a or b?`, or the empty string when nothing is near.

    `known` is keyed by the names. Those near `word` as they stand go first; failing that, those whose part
    after the slash is near, which is what readers type alone.
    """
    from annotate.errors import nearest

    by_tail = {name.rsplit("/", 1)[-1]: name for name in known}
    near = nearest(word, known) or [by_tail[tail] for tail in nearest(word, by_tail)]
    return f" Did you mean {' or '.join(near)}?" if near else ""


def require_known(kind: str, word: str, known: Mapping[str, Any], where: str) -> None:
    """Raise a usage error (exit 2) with the nearest names unless `word` is known; `where` lists them all."""
    if word not in known:
        hint = did_you_mean(word, known)
        raise click.UsageError(f"no {kind} is called {word!r}.{hint} `{where}` lists them.")


def reports_errors(command: Callable[P, None]) -> Callable[P, None]:
    """Turn the packages' own errors into one line on stderr: wrong use exits 2, everything else exits 1."""

    @functools.wraps(command)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> None:
        from annotate.errors import AnnotateError, UnknownName
        from kernels.errors import BackendUnavailable, KernelError

        try:
            command(*args, **kwargs)
        except (UnknownName, BackendUnavailable) as error:
            raise click.UsageError(str(error)) from error
        except (AnnotateError, KernelError, OSError) as error:
            raise click.ClickException(str(error)) from error

    return wrapper

"""What a kind of check is: the function that carries it out, and the parameters that the ledger may give it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from walkthroughs.claims.context import Context
from walkthroughs.claims.model import Finding

Params = Mapping[str, Any]


@dataclass(frozen=True)
class Kind:
    """A kind of check: what carries it out, and the parameters that it takes and needs."""

    run: Callable[[Context, str, Params], Finding]
    takes: frozenset[str]
    needs: frozenset[str] = frozenset()


def words(value: Any) -> list[str]:
    """A parameter that is one string or a list of them, as a list."""
    return [value] if isinstance(value, str) else list(value)

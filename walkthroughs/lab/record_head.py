"""What the lab's two records have in common: which machine saw it, with what and when, and how a file is read."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SCHEMA = 1


@dataclass(frozen=True)
class Head:
    """What ran, when, over which state of the code (`digest`), and for how many `seconds`."""

    device: str
    versions: dict[str, str]
    date: str
    digest: str
    seconds: float

    @property
    def badge(self) -> str:
        """What a reader is told first: where this was seen."""
        return f"{self.device}, vLLM {self.versions.get('vllm', '?')}, torch {self.versions.get('torch', '?')}"


def fields_of(path: Path, command: str) -> dict[str, Any] | None:
    """A record's fields, or None where there is no file; raises ValueError for another schema.

    `command` makes a new one.
    """
    if not path.exists():
        return None
    fields: dict[str, Any] = json.loads(path.read_text("utf-8"))
    if fields.pop("schema", None) != SCHEMA:
        raise ValueError(f"{path.name}: not a record of schema {SCHEMA}; run `{command}`")
    return fields

"""What can go wrong in a drill, in words for the one who answers."""

from __future__ import annotations


class DrillError(ValueError):
    """An answer or an argument that cannot be read; the message says what would be."""


class StoreError(DrillError):
    """The file that keeps the answers, or one to import, cannot be used; nothing of it was changed."""

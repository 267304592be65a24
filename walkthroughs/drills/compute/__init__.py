"""Compute drills: fresh numbers at each review, the answer worked out by `kernels`, typical mistakes named.

One module a theme; each generator enters itself. What the bank calls is re-exported from `grading`.
"""

from walkthroughs.drills.compute import addresses, lengths, memory, shared, softmax, threads, tiny, values, writers
from walkthroughs.drills.compute.grading import ask, grade, items, solve

__all__ = [
    "addresses",
    "ask",
    "grade",
    "items",
    "lengths",
    "memory",
    "shared",
    "softmax",
    "solve",
    "threads",
    "tiny",
    "values",
    "writers",
]

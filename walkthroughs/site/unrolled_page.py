"""What the unrolled loops of a rung come to: the text that is compiled, folded under its step.

A tile is long at the sizes that are measured, so the page shows the smallest: the loops are the same, but shorter.
"""

from __future__ import annotations

from .errors import UnknownPageItem

SMALL = {
    "HEAD_SIZE": 32, "BLOCK_SIZE": 16, "GROUP": 4, "QUERY_LEN": 1, "WARPS": 4, "DEPTH": 3, "SCALAR": "bfloat16",
    "CACHE": "auto", "ALIBI": False, "LISTED": False,
}  # fmt: skip
"""Template parameters of the ring, at the smallest head size that vLLM has."""
NAMES = ("ring",)


def written(name: str) -> str:
    """The kernel of that rung as `unroll` writes it out for `SMALL`; raises UnknownPageItem."""
    from kernels import unroll
    from kernels.tuned import ring

    if name not in NAMES:
        raise UnknownPageItem("written", name, list(NAMES))
    return unroll.source(ring.paged_decode_ring, **SMALL)


def project_lines(name: str) -> list[str]:
    """The folded text as Markdown; raises UnknownPageItem."""
    text = written(name)
    count = len(text.splitlines())
    return [
        "",
        '<details class="pw-fold" markdown="1" data-search-exclude>'
        f"<summary>What is compiled: the same kernel with its loops written out, {count} lines for heads of "
        f"{SMALL['HEAD_SIZE']}</summary>",
        "",
        "An array that is indexed in a loop lies in memory. So `unrolled` loops are written out before Numba sees the "
        "kernel, each element of `registers` becomes a variable, and sizes become numbers. Nothing else changes.",
        "",
        "```python",
        *text.splitlines(),
        "```",
        "",
        "</details>",
        "",
    ]

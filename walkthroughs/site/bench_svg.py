"""The pieces of the benchmark's charts: a drawing in two widths, text and lines, and the bars of one shape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from html import escape

from kernels.tuned.bench_record import MEASURED, PEER, Cell

NARROW, WIDE = 360, 880
OURS, RIVAL = "ring", "flashinfer-tc"
# Of a peer: in words, and where there is little room.
PEERS = {
    RIVAL: ("FlashInfer, tensor cores", "FlashInfer, TC"),
    "flashinfer": ("FlashInfer", "FlashInfer"),
    "vllm-v1": ("vLLM's v1, compiled", "vLLM v1"),
    "vllm-v2": ("vLLM's v2, compiled", "vLLM v2"),
    "cudnn": ("cuDNN", "cuDNN"),
    "flash-attn": ("FlashAttention", "FlashAttention"),
    "torch-sdpa": ("torch, gather and SDPA", "torch SDPA"),
    "torch-flex": ("torch, flex_attention", "torch flex"),
}
Draw = Callable[[int], str]


@dataclass(frozen=True)
class Bar:
    """One kernel on a shape. `sign`: a rung's number, or empty; `short`: the title where there is little room."""

    who: str
    sign: str
    title: str
    short: str
    us: float

    @property
    def tone(self) -> str:
        """The class of what is said of it: the last rung and the peer that it is held against stand out."""
        return " best" if self.who == OURS else " rival" if self.who == RIVAL else ""


def bars(cell: Cell, numbers: Mapping[str, int]) -> tuple[list[Bar], list[Bar]]:
    """The measured rungs in their order (`numbers`: by id), and the measured peers from the slowest to the fastest."""
    rungs, peers = [], []
    for row in cell.rows:
        if row.state != MEASURED or row.us is None:
            continue
        if row.who in numbers:
            rungs.append(Bar(row.who, str(numbers[row.who]), row.title, row.who, row.us))
        elif row.kind == PEER:
            peers.append(Bar(row.who, "", *PEERS.get(row.who, (row.title, row.who)), row.us))
    return sorted(rungs, key=lambda bar: int(bar.sign)), sorted(peers, key=lambda bar: -bar.us)


def figure(name: str, draw: Draw, caption: str) -> str:
    """A chart in both widths, with a caption."""
    sizes = (("narrow", NARROW), ("wide", WIDE))
    both = "".join(f'<div class="pw-chart-{size}">{draw(width)}</div>' for size, width in sizes)
    said = f"<figcaption>{escape(caption)}</figcaption>"
    return f'<figure class="pw-drawing pw-chart" id="chart-{name}">{both}{said}</figure>'


def svg(name: str, width: int, height: float, title: str, said: str, body: Iterable[str]) -> str:
    """A drawing with its title and its words; `url(#NAME-WIDTH-hatch)` fills what no kernel can reach."""
    ids = f"{name}-{width}"
    return "\n".join(
        [
            f'<svg class="pw-svg" data-search-exclude xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} '
            f'{height:.0f}" role="img" aria-labelledby="{ids}-title {ids}-desc">',
            f'<title id="{ids}-title">{escape(title)}</title><desc id="{ids}-desc">{escape(said)}</desc>',
            f'<defs><pattern id="{ids}-hatch" width="6" height="6" patternUnits="userSpaceOnUse" '
            'patternTransform="rotate(45)"><line class="hatch" x1="0" y1="0" x2="0" y2="6"/></pattern></defs>',
            *body,
            "</svg>",
        ]
    )


def text(x: float, y: float, words: str, kind: str = "", more: str = "") -> str:
    """Words at a place; `kind`: classes."""
    shown = f' class="{" ".join(kind.split())}"' if kind else ""
    return f'<text{shown} x="{x:.1f}" y="{y:.1f}"{more}>{escape(words)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    """A line."""
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def rect(x: float, y: float, width: float, height: float, kind: str = "", fill: str = "") -> str:
    """A rectangle of a class, or with a fill of its own."""
    how = f'class="{kind}"' if kind else f'fill="{fill}"'
    return f'<rect {how} x="{x:.1f}" y="{y:.1f}" width="{max(0.0, width):.1f}" height="{max(0.0, height):.1f}"/>'


def dot(x: float, y: float, radius: float = 4.5) -> str:
    """The last rung's mark."""
    return f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="{radius}"/>'


def square(x: float, y: float, half: float = 4.0, kind: str = "") -> str:
    """A peer's mark."""
    return rect(x - half, y - half, 2 * half, 2 * half, f"square{kind}")


def triangle(x: float, y: float, title: str = "") -> str:
    """The mark of a peer among others; `title`: shown where a pointer rests."""
    inside = f"><title>{escape(title)}</title></path>" if title else "/>"
    return f'<path class="other" d="M{x - 4.5:.1f} {y + 4:.1f}l4.5-8 4.5 8z"{inside}'

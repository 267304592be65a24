"""Drift on vLLM itself: the committed facts are what the sources say, and they say what was read by hand.

Six releases are read again (`make test` fetches them). What lies between them is checked on the committed facts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from annotate.anchors import Anchor, Library, called
from annotate.drift import Reading, delta, diff, lanes_of, survey, with_deltas
from annotate.history import Lane, committed, file_moves
from annotate.sourcetree import every_pin, pin_of, pins
from annotate.spans import spans
from annotate.tracks import tracks

if TYPE_CHECKING:
    from annotate.sources import SourceTree

Release = Callable[[str], "SourceTree"]
AGAIN = ("0.6.6.post1", "0.22.1", "0.24.0", "0.25.0", "0.26.0", "0.33.0")
CLASSIC = ("vllm::paged_attention", "vllm::block_sum", "paged_attention_v", "CALL_V1")


@pytest.fixture(scope="session")
def again(vllm_release: Release) -> dict[str, Reading]:
    """Six releases, read now."""
    trees = {f"vllm@{revision}": vllm_release(revision) for revision in AGAIN}
    found = survey([pin_of(name) for name in trees], lambda pin: trees[pin.id])
    assert all(isinstance(entry, Reading) for entry in found.values()), found
    return {name: entry for name, entry in found.items() if isinstance(entry, Reading)}


@pytest.fixture(scope="session")
def history() -> Mapping[str, Lane]:
    """The committed lanes."""
    return lanes_of(committed())


def test_make_test_fetches_what_is_read_again() -> None:
    text = (Path(__file__).resolve().parents[2] / "Makefile").read_text("utf-8")
    (line,) = re.findall(r"^DRIFT_TESTED := (.*)$", text, re.MULTILINE)
    assert {*line.split(), *pins()} >= {f"vllm@{revision}" for revision in AGAIN}
    assert line.split() == [name for name in line.split() if every_pin()[name].drift]


# -- the sources again ---------------------------------------------------


@pytest.mark.source
@pytest.mark.parametrize("revision", AGAIN)
def test_the_committed_facts_are_what_the_sources_say(again: dict[str, Reading], revision: str) -> None:
    source = f"vllm@{revision}"
    recorded = next(entry for entry in committed() if entry.source == source)
    read = again[source].facts
    assert {t: s for t, s in read.states.items() if recorded.states[t] != s} == {}
    assert (read.files, read.pin, read.wording) == (recorded.files, recorded.pin, recorded.wording)


@pytest.mark.source
def test_what_came_and_went_is_counted_again(again: dict[str, Reading]) -> None:
    """0.24.0 to 0.26.0 are three neighbours, all of them read."""
    recorded = {entry.source: entry for entry in committed()}
    three = with_deltas(again[f"vllm@{revision}"] for revision in ("0.24.0", "0.25.0", "0.26.0"))
    for entry in three[1:]:
        assert entry.deltas == recorded[entry.source].deltas
    assert sum(len(entry.deltas) for entry in three) >= 5


@pytest.mark.source
def test_each_track_starts_from_the_committed_spans(again: dict[str, Reading]) -> None:
    for source in ("vllm@0.24.0", "vllm@0.26.0"):
        listed = {(s.path, s.first, s.last, s.digest) for found in spans(source).values() for s in found}
        states = [again[source].facts.states[t.id] for t in tracks().values() if source in t.places]
        assert all(state is not None and state.how == "anchor" for state in states)
        assert {(s.path, s.first, s.last, s.digest) for s in states if s} == listed


@pytest.mark.source
def test_the_classic_kernel_is_gone_at_0_25_0(again: dict[str, Reading]) -> None:
    classic = [t.id for t in tracks().values() if t.symbol.startswith(CLASSIC)]
    assert len(classic) >= 40
    for name in classic:
        assert again["vllm@0.24.0"].facts.states[name] is not None
        assert again["vllm@0.25.0"].facts.states[name] is None, name
        assert again["vllm@0.33.0"].facts.states[name] is None, name


@pytest.mark.source
def test_the_writer_gained_an_argument_at_0_33_0(again: dict[str, Reading]) -> None:
    hunks = diff(again["vllm@0.26.0"], again["vllm@0.33.0"], "write-to-paged-cache")
    assert [hunk.old for hunk in hunks] == [(), ()]
    assert all("interleaved_v" in hunk.new for hunk in hunks)
    change = delta(again["vllm@0.26.0"], again["vllm@0.33.0"], "write-to-paged-cache")
    assert change.new == ("param(interleaved_v)",)
    recorded = lanes_of(committed())["write-to-paged-cache"].at("vllm@0.33.0")
    assert recorded is not None
    assert recorded.delta is not None
    assert (recorded.delta.since, recorded.delta.new) == ("vllm@0.32.0", ("param(interleaved_v)",))


@pytest.mark.source
def test_a_decode_of_the_old_class_left_before_0_22_1(vllm_release: Release) -> None:
    """`forward_decode`: no anchor of ours, but the facts have its leaving."""
    holds = {
        revision: bool(called(Anchor("vllm", "PagedAttention.forward_decode"), Library(vllm_release(revision))))
        for revision in ("0.6.6.post1", "0.22.1", "0.24.0")
    }
    assert holds == {"0.6.6.post1": True, "0.22.1": False, "0.24.0": False}


# -- what was read by hand, from the facts alone -------------------------


def paths(history: Mapping[str, Lane], track: str) -> dict[str, str | None]:
    """The path of a track from each release with another one on."""
    found: dict[str, str | None] = {}
    for cell in history[track].cells:
        path = cell.state.path if cell.state else None
        if not found or path != [*found.values()][-1]:
            found[cell.source.partition("@")[2]] = path
    return found


OLD, STABLE = "csrc/attention", "csrc/libtorch_stable/attention"


@pytest.mark.parametrize(
    ("track", "moves"),
    [
        (
            "signature",
            {
                "0.6.6.post1": f"{OLD}/attention_kernels.cuh",
                "0.23.0": f"{STABLE}/attention_kernels.cuh",
                "0.25.0": None,
            },
        ),
        (
            "v1-launcher",
            {
                "0.6.6.post1": f"{OLD}/paged_attention_v1.cu",
                "0.23.0": f"{STABLE}/paged_attention_v1.cu",
                "0.25.0": None,
            },
        ),
        (
            "v2-launcher",
            {
                "0.6.6.post1": f"{OLD}/paged_attention_v2.cu",
                "0.23.0": f"{STABLE}/paged_attention_v2.cu",
                "0.25.0": None,
            },
        ),
        (
            "reshape-and-cache",
            {
                "0.6.6.post1": "csrc/cache_kernels.cu",
                "0.23.0": "csrc/libtorch_stable/cache_kernels.cu",
                "0.32.0": "csrc/cache_kernels.cu",
            },
        ),
        ("rocm-reduce", {"0.6.6.post1": "csrc/rocm/attention.cu", "0.33.0": "csrc/rocm/attention_kernels.cuh"}),
        (
            "split-kv-cache",
            {"0.6.6.post1": "vllm/attention/ops/paged_attn.py", "0.14.1": "vllm/v1/attention/ops/paged_attn.py"},
        ),
        (
            "doc-paged-attention",
            {
                "0.6.6.post1": "docs/source/design/kernel/paged_attention.md",
                "0.9.2": "docs/design/kernel/paged_attention.md",
                "0.11.0": "docs/design/paged_attention.md",
            },
        ),
        ("flash-forward", {"0.6.6.post1": "vllm/v1/attention/backends/flash_attn.py"}),
    ],
)
def test_where_the_anchored_files_moved(history: Mapping[str, Lane], track: str, moves: dict[str, str | None]) -> None:
    assert paths(history, track) == moves


def test_l4_where_the_kernel_went_and_that_each_link_says_which_release(history: Mapping[str, Lane]) -> None:
    """People ask where it is and whether it is used: every link is pinned, and the facts say that it is gone."""
    assert [*paths(history, "key-loop").values()] == [
        f"{OLD}/attention_kernels.cuh",
        f"{STABLE}/attention_kernels.cuh",
        None,
    ]
    for cell in history["key-loop"].cells:
        if cell.state is not None:
            link = every_pin()[cell.source].link(cell.state.path, cell.state.first, cell.state.last)
            assert f"/blob/v{cell.source.partition('@')[2]}/" in link
    assert history["key-loop"].gone_at == "vllm@0.25.0"


@pytest.mark.source
@pytest.mark.parametrize("revision", ["0.24.0", "0.26.0", "0.33.0"])
def test_l4_the_document_still_names_a_file_that_is_not_there(vllm_release: Release, revision: str) -> None:
    tree = vllm_release(revision)
    assert b"csrc/attention/attention_kernels.cu" in tree.read("docs/design/paged_attention.md")
    assert "csrc/attention/attention_kernels.cu" not in tree.paths()


def test_the_old_backend_left_at_0_11_0() -> None:
    assert file_moves(committed())["flash_attn.py"] == [
        ("vllm@0.6.6.post1", ("vllm/attention/backends/flash_attn.py", "vllm/v1/attention/backends/flash_attn.py")),
        ("vllm@0.11.0", ("vllm/v1/attention/backends/flash_attn.py",)),
    ]


def test_the_rocm_kernel_was_split_at_0_33_0() -> None:
    moved = file_moves(committed())
    assert moved["attention.cu"][-1] == ("vllm@0.33.0", ())
    assert moved["attention_dispatch.cu"] == [("vllm@0.33.0", ("csrc/rocm/attention_dispatch.cu",))]
    assert len([name for name in moved if name.startswith("attention_paged_attn_")]) >= 4


def test_the_kernel_is_identical_at_0_23_0_and_0_24_0(history: Mapping[str, Lane]) -> None:
    kernel = [t.id for t in tracks().values() if t.symbol.startswith(("vllm::paged_attention", "vllm::block_sum"))]
    assert len(kernel) >= 30
    for name in kernel:
        cell = history[name].at("vllm@0.24.0")
        assert cell is not None
        assert cell.verdict == "same", name


@pytest.mark.parametrize(
    ("track", "first", "last"),
    [
        ("split-kv-cache", 16, 29),
        ("write-to-paged-cache", 31, 53),
        ("rocm-decode-call", 444, 468),
        ("rocm-kv-cache-update", 472, 526),
        ("paged-2d", 45, 294),
        ("paged-2d-table", 159, 163),
        ("paged-2d-k", 165, 172),
        ("paged-2d-qk", 242, 244),
        ("paged-2d-max", 254, 256),
        ("paged-2d-sum", 258, 263),
        ("paged-2d-rescale", 265, 274),
        ("paged-2d-normalise", 280, 280),
        ("rocm-cross-warp", 779, 805),
        ("reshape-and-cache", 265, 333),
        ("reshape-and-cache-host", 794, 824),
        ("reshape-and-cache-flash", 335, 421),
        ("reshape-and-cache-flash-host", 842, 912),
        ("flash-forward", 1182, 1430),
        ("flash-split", 1256, 1257),
        ("flash-call", 1404, 1429),
        ("flash-block-table", 1417, 1417),
        ("kv-cache-update", 1432, 1466),
        ("slot-formula", 374, 374),
    ],
)
def test_the_lines_at_0_33_0_are_those_read_by_hand(
    history: Mapping[str, Lane], track: str, first: int, last: int
) -> None:
    """No anchor is written for that release: all of these were found by following."""
    cell = history[track].at("vllm@0.33.0")
    assert cell is not None
    assert cell.state is not None
    assert (cell.state.first, cell.state.last) == (first, last)


def test_the_kernel_began_at_line_84_before_it_moved(history: Mapping[str, Lane]) -> None:
    cell = history["signature"].at("vllm@0.22.1")
    assert cell is not None
    assert cell.state is not None
    # The template's header is the line before the function.
    assert cell.state.first <= 85 <= cell.state.last


def test_the_stride_loop_left_the_writer_between_0_11_0_and_0_11_2(history: Mapping[str, Lane]) -> None:
    cell = history["reshape-and-cache"].at("vllm@0.11.2")
    assert cell is not None
    assert cell.delta is not None
    assert (cell.verdict, cell.delta.since) == ("changed", "vllm@0.11.0")
    assert "for(i by blockDim.x)" in cell.delta.old
    assert not any("by" in name for name in cell.delta.new)
    # It did not come back.
    later = [
        other.delta for other in history["reshape-and-cache"].cells if other.source > "vllm@0.11.2" and other.delta
    ]
    assert not any("for(i by" in name for delta in later for name in delta.new)


def test_when_the_flash_cache_shape_changed(history: Mapping[str, Lane]) -> None:
    told = {cell.source.partition("@")[2]: cell.verdict for cell in history["flash-cache-shape"].cells}
    changed = [revision for revision, verdict in told.items() if verdict == "changed"]
    assert [revision for revision in changed if revision not in ("0.9.2", "0.11.0")] == ["0.23.0", "0.26.0"]
    assert told["0.25.0"] == "same"
    assert told["0.31.0"] == "gone"


def test_guesses_are_few_and_none_is_about_the_classic_kernel(history: Mapping[str, Lane]) -> None:
    cells = [(lane.track, cell.state) for lane in history.values() for cell in lane.cells if cell.state]
    guessed = [(track, state) for track, state in cells if state.guessed]
    assert 0 < len(guessed) < len(cells) / 20
    # A part of a symbol that was followed is found by its own words: it may have changed more than the whole.
    assert all(state.likeness >= 0.45 for _, state in guessed if state.how == "aligned")
    assert not any(tracks()[track].symbol.startswith(CLASSIC) for track, _ in guessed)
    assert not any(state.how == "unreadable" for _, state in cells)

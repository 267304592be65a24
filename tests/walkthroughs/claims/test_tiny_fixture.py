"""What rests on tiny-vllm, over a stand-in of our own: CI has no way to fetch it, and its checks must run all the same.

The stand-in (`tests/fixtures/tiny_vllm`) has the structure that anchors and claims look at, and no line of upstream.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from annotate import sources
from annotate.anchors import resolve_all
from annotate.errors import AnnotateError, SourceUnavailable
from annotate.sourcetree import SourceTree
from annotate.spans import Span, spans
from walkthroughs.claims.checks import SOURCE_KINDS
from walkthroughs.claims.compute import compute
from walkthroughs.claims.context import Context
from walkthroughs.claims.ledger import claim_of, claims
from walkthroughs.claims.model import Result, Role, Verdict
from walkthroughs.site import code

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "tests/fixtures/tiny_vllm"
TINY, CLASSIC = "tiny-vllm@e25bf19", "vllm@0.24.0"
NAMES = [name for name in claims() if name.startswith("L2-") or name == "C-08"]
# One of its facts looks at vLLM and decides.
WITH_VLLM = {"L2-13"}
HOLDS, HOLDS_IF, WRONG, OPEN = Verdict
MAIN, KERNELS, HEADER = "main.cpp", "kernels.cu", "cuda_to_hip.h"
INDEX = "slot * N_LAYERS * MAX_BLOCKS_PER_SEQ + layer * MAX_BLOCKS_PER_SEQ"
SWAPPED = "layer * MAX_SEQUENCES * MAX_BLOCKS_PER_SEQ + slot * MAX_BLOCKS_PER_SEQ"


@pytest.fixture(scope="module")
def results(stand_in: SourceTree, doctored: ModuleType) -> dict[str, Result]:
    context = Context(doctored.opener({TINY: stand_in}))
    return {name: compute(claim_of(name), context) for name in NAMES if name not in WITH_VLLM}


def test_there_are_the_claims_of_lesson_2_and_one_on_its_code() -> None:
    assert len(NAMES) == 56
    assert {claim_of(name).source for name in NAMES} == {TINY}


@pytest.mark.parametrize("name", [name for name in NAMES if name not in WITH_VLLM])
def test_over_the_stand_in_the_verdict_is_the_one_typed_in_by_hand(
    results: dict[str, Result], by_hand: dict[str, Verdict], name: str
) -> None:
    assert (results[name].status, results[name].verdict, results[name].message) == ("passed", by_hand[name], "")


def test_over_the_stand_in_every_fact_about_tiny_vllm_is_looked_at_and_true(results: dict[str, Result]) -> None:
    seen: Counter[str] = Counter()
    for name, result in results.items():
        for fact, found in zip(result.claim.facts, result.findings, strict=True):
            if fact.params.get("source", TINY) == TINY:
                assert found.value is True, (name, fact.says, found.seen)
                seen[fact.check] += fact.check in SOURCE_KINDS
    assert seen.total() > 100
    assert set(seen) >= {"has", "lacks", "count", "order", "inside", "found", "absent", "text", "names", "constant"}


@pytest.mark.source
@pytest.mark.parametrize("name", ["L2-13", "L2-29"])
def test_what_also_looks_at_vllm(
    stand_in: SourceTree, vllm_024: SourceTree, doctored: ModuleType, by_hand: dict[str, Verdict], name: str
) -> None:
    result = compute(claim_of(name), Context(doctored.opener({TINY: stand_in, CLASSIC: vllm_024})))
    assert (result.status, result.verdict) == ("passed", by_hand[name])
    assert all(found.value is True for found in result.findings)


# claim, what is replaced in the stand-in (every place of it), and the verdict then. Where it stays the claim's own, one
# of its facts is no longer true, and its status says so.
FLIPS: dict[str, tuple[str, Verdict, str, str, str]] = {
    "blocks of 32": ("L2-01", WRONG, MAIN, "int BLOCK_SIZE = 16;", "int BLOCK_SIZE = 32;"),
    "a cache of 1 GiB": ("L2-02", WRONG, MAIN, "1ull << 31", "1ull << 30"),
    "16 key heads": ("L2-03", WRONG, MAIN, "NUM_K_HEADS = 8", "NUM_K_HEADS = 16"),
    "V_OFFSET of one token": ("L2-04", WRONG, KERNELS, "V_OFFSET = KV_DIM * BLOCK_SIZE", "V_OFFSET = KV_DIM"),
    "blocks with a header": ("L2-05", HOLDS, MAIN, "V_OFFSET + V_OFFSET", "V_OFFSET + V_OFFSET + 64"),
    "sequences half as long": ("L2-06", WRONG, KERNELS, "2048 / BLOCK_SIZE", "1024 / BLOCK_SIZE"),
    "constants compared": ("L2-06", HOLDS, MAIN, "int MAX_SEQUENCES", "int n = 0; static_assert(true); int m"),
    "remark gone": ("L2-07", WRONG, KERNELS, "share these", "keep these"),
    "remark as it was quoted": ("L2-07", HOLDS, KERNELS, "or compare them", "and why not share"),
    "decode's values over its keys": ("L2-08", WRONG, MAIN, "+ V_OFFSET + in_block", "+ in_block"),
    "kernel's keys behind": ("L2-08", WRONG, KERNELS, "physical_block * BLOCK_BYTES\n", "V_OFFSET\n"),
    "half for bfloat16 in main": ("L2-09", WRONG, MAIN, "__nv_bfloat16", "__half"),
    "a table without the -1": ("L2-11", WRONG, MAIN, "MAX_BLOCKS_PER_SEQ, -1", "MAX_BLOCKS_PER_SEQ, 0"),
    "first free block first": ("L2-11", HOLDS, MAIN, "free_blocks.back()", "free_blocks.front()"),
    "four sequences": ("L2-12", WRONG, MAIN, "BATCH_SIZE = 2", "BATCH_SIZE = 4"),
    "no block is taken off": ("L2-14", WRONG, MAIN, "free_blocks.pop_back();", ""),
    "the kernel's index reordered": ("L2-15", WRONG, KERNELS, INDEX, SWAPPED),
    "decode's index without layer": ("L2-15", WRONG, MAIN, "+ layer * MAX_BLOCKS_PER_SEQ + logical", "+ logical"),
    "no lengths": ("L2-16", WRONG, KERNELS, "int *gpu_seq_lens,", ""),
    "x and y swapped": ("L2-17", WRONG, KERNELS, "active_slot = blockIdx.x", "active_slot = blockIdx.y"),
    "32 threads": ("L2-17", WRONG, KERNELS, "NUM_Q_HEADS), HEAD_DIM>>>", "NUM_Q_HEADS), 32>>>"),
    "the number of slots is used": ("L2-19", WRONG, KERNELS, "= blockIdx.x; //", "= blockIdx.x % num_active_slots; //"),
    "eight queries a key": ("L2-20", WRONG, KERNELS, "GQA_Q_TO_K_RATIO = 4", "GQA_Q_TO_K_RATIO = 8"),
    "no number of tokens": ("L2-21", OPEN, KERNELS, ", int num_tokens)", ")"),
    "RoPE without dimension": ("L2-22", WRONG, KERNELS, "position_in_sequence,\n", "position_in_sequence, int n,\n"),
    "softmax called": ("L2-22", HOLDS, MAIN, "break;", "softmaxDecode(hidden, 1);"),
    "the table by compact index": ("L2-23", WRONG, KERNELS, "block_table_gpu[slot", "block_table_gpu[active_slot"),
    "blocks rounded down": ("L2-24", WRONG, KERNELS, "(seq_len + BLOCK_SIZE - 1)", "seq_len"),
    "length before the new token": ("L2-25", WRONG, MAIN, "[active_slot] + 1", "[active_slot]"),
    "whole blocks read": ("L2-26", WRONG, KERNELS, "min(seq_len - logical_block_idx * BLOCK_SIZE, ", "max(16, "),
    "a causal mask": ("L2-27", WRONG, KERNELS, "qk = k * q;", "qk = causal ? k * q : 0.0f;"),
    "half for bfloat16 in the kernel": ("L2-28", WRONG, KERNELS, "__nv_bfloat16", "__half"),
    "values where keys are": ("L2-28", WRONG, KERNELS, "BLOCK_BYTES + V_OFFSET\n", "BLOCK_BYTES\n"),
    "a wide product": ("L2-29", HOLDS_IF, KERNELS, "+ physical_block *", "+ (size_t)physical_block *"),
    "a wide product, cast": ("L2-29", HOLDS_IF, KERNELS, "+ physical_block", "+ static_cast<int64_t>(physical_block)"),
    "one shuffle dropped": ("L2-31", WRONG, KERNELS, "qk = qk + __shfl_down_sync(WARP_FULL_MASK, qk, 4);", ""),
    "one shuffle twice": ("L2-31", WRONG, KERNELS, "qk, 2)", "qk, 4)"),
    "a narrow mask on HIP": ("L2-32", WRONG, HEADER, "0xffffffffffffffffull", "0xffffffffu"),
    "no barriers": ("L2-34", HOLDS, KERNELS, "__syncthreads();", ""),
    "not divided": ("L2-35", WRONG, KERNELS, "dot_products[1]) / SQRT_HEAD_DIM", "dot_products[1])"),
    "every thread adds": ("L2-35", WRONG, KERNELS, "if (thread_id == 0)", "if (thread_id < 32)"),
    "the barrier added": ("L2-37", WRONG, KERNELS, "= dot_products[0];", "= dot_products[0]; __syncthreads();"),
    "the sum not rescaled": ("L2-38", WRONG, KERNELS, "d = d * correction_factor", "d = d"),
    "no loop over blocks": ("L2-39", WRONG, KERNELS, "for (int logical_block_idx = 0; ", "for (int other = 0; "),
    "update at every block": ("L2-39", HOLDS_IF, KERNELS, "here; token++) {", "here; token++) {}\n{"),
    "new minus old": ("L2-40", WRONG, KERNELS, "expf(current_max - new_max)", "expf(new_max - current_max)"),
    "something added to the sum": ("L2-41", WRONG, KERNELS, "acc / d;", "acc / (d + 1e-6f);"),
    "written by the real slot": ("L2-42", WRONG, KERNELS, "output[active_slot *", "output[slot *"),
    "no aliases": ("L2-42", WRONG, KERNELS, "*q_proj, char", "*__restrict__ q_proj, char"),
    "entries not cleared": ("L2-43", WRONG, MAIN, "-1; // free again", "-2;"),
    "prefill looks for 0": ("L2-44", WRONG, MAIN, "if (block == -1)", "if (block == 0)"),
    "prefill asserts nothing": ("L2-44", HOLDS, MAIN, "assert(false", "return; (void)(false"),
    "decode looks at the entry": ("L2-45", WRONG, MAIN, "if (token_in_block_idx == 0)", "if (block == -1)"),
    "table copied twice": ("L2-47", WRONG, MAIN, "changed.\n    cudaMemcpy(block", "changed.\n    copy(block"),
    "remark on the copy gone": ("L2-48", WRONG, MAIN, "not copy full table", "leave out"),
    "remark in main too": ("L2-48", HOLDS, MAIN, "// the newest", "// not copy full table, the newest"),
    "an empty list is looked for": ("L2-49", HOLDS_IF, MAIN, "(token_in_block_idx == 0)", "(!free_blocks.empty())"),
    "entries kept": ("L2-50", WRONG, MAIN, "-1; // free again", "0;"),
    "entry looked at": ("L2-50", HOLDS_IF, KERNELS, "\n        for (", "if (physical_block < 0) continue;\nfor ("),
    "no end": ("L2-51", WRONG, MAIN, "== MAX_SEQ_LEN - 1", "== MAX_SEQ_LEN"),
    "long prompts stopped": ("L2-51", HOLDS, MAIN, "rope(k_proj, prompt_len)", "assert(prompt_len <= MAX_PROMPT_LEN)"),
    "the limit is used": ("L2-52", OPEN, MAIN, "if (!over)", "if (!over && MAX_NEW_TOKENS_GENERATED > 0)"),
    "no link": ("L2-53", WRONG, KERNELS, "flashattn.pdf", "notes.pdf"),
    "other names": ("L2-55", WRONG, KERNELS, "char *kv_cache", "char *cache"),
    "prefill turns neighbours": ("C-08", WRONG, KERNELS, "blockIdx.y * HEAD_DIM + threadIdx.x", "2 * threadIdx.x + 1"),
    "decode turns halves": ("C-08", WRONG, KERNELS, "odd = 2 * threadIdx.x + 1;", "odd = even + HEAD_DIM / 2;"),
}  # fmt: skip


@pytest.mark.parametrize("what", FLIPS)
def test_a_doctored_stand_in_changes_the_verdict(
    stand_in: SourceTree, doctored: ModuleType, by_hand: dict[str, Verdict], what: str
) -> None:
    name, verdict, *change = FLIPS[what]
    changed = doctored.Doctored(stand_in, [change])
    found = compute(claim_of(name), Context(doctored.opener({TINY: changed})))
    assert changed.hits > 0
    assert (found.status, found.verdict) == ("failed", verdict)
    if verdict is by_hand[name]:
        assert found.message.startswith("no longer true")


def test_attention_before_the_write_is_noticed(stand_in: SourceTree, doctored: ModuleType) -> None:
    changes = [
        (MAIN, " pagedAttention(layer,", " laterOn(layer,"),
        (MAIN, "ropeDecode(k_proj,", "pagedAttention(layer,"),
    ]
    changed = doctored.Doctored(stand_in, changes)
    context = Context(doctored.opener({TINY: changed}))
    written, copied = (compute(claim_of(name), context) for name in ("L2-25", "L2-47"))
    assert changed.hits == len(changes)
    assert (written.status, written.verdict) == ("failed", WRONG)
    assert (copied.status, copied.verdict) == ("failed", HOLDS_IF)
    assert "between the write and the attention" in copied.message


def test_many_verdicts_can_come_out_otherwise(by_hand: dict[str, Verdict]) -> None:
    turned = {name for name, verdict, *_ in FLIPS.values() if verdict is not by_hand[name]}
    noticed = {name for name, *_ in FLIPS.values()}
    assert len(turned) > 35
    # These rest on arithmetic and on runs of our ports, or (L2-13) on vLLM too.
    assert set(NAMES) - noticed == {"L2-10", "L2-13", "L2-18", "L2-30", "L2-33", "L2-36", "L2-46", "L2-54"}


def test_nothing_that_reads_tiny_vllm_passes_over_empty_files(stand_in: SourceTree, doctored: ModuleType) -> None:
    context = Context(doctored.opener({TINY: doctored.Files(dict.fromkeys(stand_in.paths(), ""))}))
    seen = 0
    for name in NAMES:
        facts = [fact for fact in claim_of(name).facts if fact.params.get("source", TINY) == TINY]
        if any(fact.check in SOURCE_KINDS and fact.role is not Role.ALSO for fact in facts):
            assert compute(claim_of(name), context).status != "passed", name
            seen += 1
    assert seen > 40


def relation(a: Span, b: Span) -> str:
    """How the lines of one span lie to those of another."""
    if (a.first, a.last) == (b.first, b.last):
        return "equal"
    if a.last < b.first or b.last < a.first:
        return "before" if a.last < b.first else "after"
    return "around" if a.first <= b.first and b.last <= a.last else "in" if b.first <= a.first else "across"


def test_every_anchor_resolves_and_lies_to_the_others_as_in_tiny_vllm(stand_in: SourceTree) -> None:
    found = resolve_all(TINY, stand_in)
    assert [str(entry) for entry in found if isinstance(entry, AnnotateError)] == []
    here = [entry for entry in found if isinstance(entry, Span)]
    there = [span for entries in spans(TINY).values() for span in entries]
    key: Callable[[Any], Any] = lambda span: (span.concept, span.path, span.symbol)  # noqa: E731
    assert sorted(map(key, here)) == sorted(map(key, there))
    here.sort(key=lambda span: (span.concept, span.path, span.first))
    there.sort(key=lambda span: (span.concept, span.path, span.first))
    pairs = list(zip(here, there, strict=True))
    compared = 0
    for (a, was_a), (b, was_b) in combinations(pairs, 2):
        if a.path == b.path:
            assert relation(a, b) == relation(was_a, was_b), (a, b)
            compared += 1
    assert compared > 200


# --- The stand-in is never taken for the source -----------------------------------------------------------------------


def test_the_stand_in_says_what_it_is_and_is_opened_as_a_copy_that_was_not_checked(stand_in: SourceTree) -> None:
    assert stand_in.marked_copy
    for path in stand_in.paths():
        first = stand_in.read(path).decode().splitlines()[0]
        assert "stand-in" in first
        assert "for tests only" in first


def test_only_tests_know_of_the_stand_in() -> None:
    kinds = {".py", ".toml", ".json", ".md", ".yml", ".css", ".js", ".svg", ".sh", ""}
    places = [ROOT / "annotate", ROOT / "kernels", ROOT / "walkthroughs", ROOT / "docs", ROOT / ".ci"]
    files = [path for place in places for path in place.rglob("*") if path.is_file() and path.suffix in kinds]
    files += [ROOT / name for name in ("Makefile", "mkdocs.yml", "pyproject.toml")]
    assert len(files) > 200
    told = ("fixtures/tiny_vllm", "tests/fixtures", "Pagewalk's stand-in")
    knowing = [path for path in files if any(word in path.read_text("utf-8") for word in told)]
    assert knowing == []


def test_pages_and_claims_open_what_is_in_the_cache_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAGEWALK_CACHE", str(tmp_path))
    monkeypatch.chdir(FOLDER)
    with pytest.raises(SourceUnavailable):
        sources.open_tree(TINY)
    code.tree_of.cache_clear()
    try:
        assert code.tree_of(TINY) is None
        figures = code.source_figures(TINY, ["k-address", "tiny-pool"], "here")
    finally:
        code.tree_of.cache_clear()
    shown = "".join(figures.html)
    assert "pw-line" not in shown
    assert "pagewalk fetch" in shown
    found = compute(claim_of("L2-24"), Context(run=False))
    assert (found.status, found.verdict) == ("unavailable", None)


def test_a_page_over_the_stand_in_would_say_that_it_was_not_checked(
    stand_in: SourceTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code, "tree_of", lambda source: stand_in)
    # The committed lines are those of the pin: of the stand-in they would be others.
    monkeypatch.setattr(code, "source_ranges", lambda source: {"src/kernels.cu": {"k-address": [(3, 4)]}})
    assert code.source_figures(TINY, ["k-address"], "here").note == code.OWN_COPY

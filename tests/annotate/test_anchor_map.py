"""Every anchor against the real sources: the line ranges below were read off the files by hand, before any anchor.

They are facts about vLLM 0.24.0 and 0.26.0, and about tiny-vllm where it is at hand.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from annotate.anchors import Anchor, Library, anchors_of, resolve, resolve_all
from annotate.concepts import concepts
from annotate.errors import AnnotateError, SourceUnavailable
from annotate.sourcetree import open_tree
from annotate.spans import Span, spans

if TYPE_CHECKING:
    from annotate.sources import SourceTree

pytestmark = pytest.mark.source

AK = "csrc/libtorch_stable/attention/attention_kernels.cuh"
AU = "csrc/libtorch_stable/attention/attention_utils.cuh"
V1 = "csrc/libtorch_stable/attention/paged_attention_v1.cu"
V2 = "csrc/libtorch_stable/attention/paged_attention_v2.cu"
CK = "csrc/libtorch_stable/cache_kernels.cu"
RC = "csrc/rocm/attention.cu"
PA = "vllm/v1/attention/ops/paged_attn.py"
CP = "vllm/v1/attention/ops/chunked_prefill_paged_decode.py"
TU = "vllm/v1/attention/ops/triton_unified_attention.py"
TH = "vllm/v1/attention/ops/triton_attention_helpers.py"
RA = "vllm/v1/attention/backends/rocm_attn.py"
FA = "vllm/v1/attention/backends/flash_attn.py"
FI = "vllm/vllm_flash_attn/flash_attn_interface.py"
BT = "vllm/v1/worker/block_table.py"
GR = "vllm/v1/worker/gpu_model_runner.py"
DOC = "docs/design/paged_attention.md"

# concept: (file, "first-last" of each of its anchors)
MAP_024 = {
    "signature": (AK, "76-102"),
    "v1-entry": (AK, "490-519"),
    "v2-entry": (AK, "521-554"),
    "partition-exit": (AK, "104-111"),
    "block-ranges": (AK, "113-128"),
    "thread-groups": (AK, "130-160"),
    "gqa-mapping": (AK, "142-147"),
    "q-load": (AK, "165-181"),
    "shared-logits": (AK, "183-188"),
    "x-packing": (AK, "190-192"),
    "block-table-row": (AK, "199-199"),
    "key-loop": (AK, "219-300"),
    "block-table-walk": (AK, "219-250"),
    "k-address": (AK, "263-282"),
    "qk-dot": (AK, "284-289"),
    "qk-dot-helper": (AU, "31-47 49-55"),
    "alibi": (AK, "288-289"),
    "mask-and-store": (AK, "291-298"),
    "qk-max": (AK, "302-322"),
    "exp-sum": (AK, "324-331"),
    "block-sum": (AK, "40-74"),
    "normalise": (AK, "333-338"),
    "partition-stats": (AK, "340-349"),
    "v-sizes": (AK, "351-368"),
    "v-loop": (AK, "372-426"),
    "block-table-lookup": (AK, "249-250"),
    "v-table": (AK, "386-387"),
    "logits-vec": (AK, "388-392"),
    "v-address": (AK, "394-404"),
    "tail-zeroing": (AK, "412-422"),
    "accumulate": (AK, "423-423"),
    "warp-reduce": (AK, "428-437"),
    "cross-warp-reduce": (AK, "439-473"),
    "output-write": (AK, "475-487"),
    "v2-reduce": (AK, "556-661"),
    "v2-single-partition": (AK, "574-586"),
    "v2-max": (AK, "597-627"),
    "v2-rescale": (AK, "629-644"),
    "v2-merge": (AK, "646-660"),
    # The map has 44 and no end; a symbol takes in the comment above it, on line 43.
    "v1-launcher": (V1, "43-129"),
    "shared-size": (V1, "80-87"),
    "grid": (V1, "89-89"),
    "block-sizes": (V1, "146-162"),
    "v1-op": (V1, "164-186"),
    "v2-launcher": (V2, "44-135"),
    "partition-size": (V2, "46-46"),
    "v2-grid": (V2, "90-94"),
    "v2-op": (V2, "171-198"),
    "reshape-and-cache": (CK, "249-307"),
    "reshape-and-cache-host": (CK, "695-723"),
    "reshape-and-cache-flash": (CK, "309-395"),
    "reshape-and-cache-flash-host": (CK, "741-810"),
    "split-kv-cache": (PA, "16-29"),
    "write-to-paged-cache": (PA, "31-51"),
    "rocm-split": (RA, "417-419 479-481"),
    "rocm-native-write": (RA, "489-500"),
    "flash-cache-shape": (FA, "139-149"),
    "flash-forward": (FA, "701-925"),
    "flash-unbind": (FA, "768-768"),
    "flash-call": (FA, "870-895"),
    "flash-block-table": (FA, "883-883"),
    "kv-cache-update": (FA, "927-960"),
    "paged-2d": (CP, "45-263"),
    "paged-2d-table": (CP, "158-162"),
    "paged-2d-k": (CP, "164-171"),
    "paged-2d-v": (CP, "173-179"),
    "paged-2d-qk": (CP, "212-213"),
    "paged-2d-max": (CP, "225-225"),
    "paged-2d-sum": (CP, "232-232"),
    "paged-2d-rescale": (CP, "235-243"),
    "paged-2d-v-add": (CP, "246-246"),
    "paged-2d-normalise": (CP, "249-249"),
    "paged-2d-store": (CP, "254-263"),
    "slot-kernel": (BT, "326-380"),
    "slot-formula": (BT, "378-378"),
    "doc-qk": (DOC, "222-257"),
    "doc-qk-max": (DOC, "275-318"),
    "block-copy": (CK, "184-211"),
    "flash-slot": (CK, "321-328"),
    "flash-source": (CK, "332-333"),
    "flash-target": (CK, "336-339"),
    "flash-one-run": (CK, "341-342"),
    "flash-whole-row": (CK, "347-358"),
    "flash-head-by-head": (CK, "363-393"),
    "flash-scales": (CK, "235-247"),
    "aligned-copy": (CK, "355-358 388-392"),
}

MAP_026 = {
    "block-ranges": (CP, "147-147"),
    "q-load": (CP, "116-121"),
    "block-table-walk": (CP, "152-167"),
    "block-table-lookup": (CP, "165-166"),
    "online-softmax": (CP, "228-251"),
    "paged-2d-program": (CP, "90-91"),
    "paged-2d-filter": (CP, "93-100"),
    "paged-2d-group": (CP, "102-121"),
    "paged-2d-state": (CP, "125-136"),
    "paged-2d-loop": (CP, "147-153"),
    "paged-2d-window": (CP, "222-223"),
    "paged-2d-launch": (CP, "447-493"),
    "paged-2d-tile": (CP, "430-431"),
    "unified-bounds": (TH, "202-229"),
    "runner-table": (GR, "2412-2412"),
    "flash-metadata-build": (FA, "463-463 667-667"),
    "flash-take-table": (FA, "903-907"),
    "flash-write-apart": (FA, "83-83"),
    "slot-rank": (BT, "388-395"),
    "block-copy": (CK, "189-216"),
    "flash-slot": (CK, "326-333"),
    "flash-source": (CK, "337-338"),
    "flash-target": (CK, "341-344"),
    "flash-one-run": (CK, "346-347"),
    "flash-whole-row": (CK, "352-363"),
    "flash-head-by-head": (CK, "368-398"),
    "flash-scales": (CK, "240-252"),
    "aligned-copy": (CK, "360-363 393-397"),
    "split-kv-cache": (PA, "16-29"),
    "x-view": (PA, "22-22"),
    "split-num-blocks": (PA, "23-23"),
    "key-cache-view": (PA, "26-26"),
    "write-to-paged-cache": (PA, "31-51"),
    "rocm-cache-shape": (RA, "246-256"),
    "rocm-split": (RA, "424-426 481-483"),
    "rocm-decode-call": (RA, "446-467"),
    "rocm-kv-cache-update": (RA, "471-517"),
    "paged-2d": (CP, "45-268"),
    "paged-2d-signature": (CP, "46-89"),
    "paged-2d-layouts": (CP, "49-50"),
    "paged-2d-table": (CP, "158-167"),
    "paged-2d-k": (CP, "169-176"),
    "paged-2d-v": (CP, "178-184"),
    "paged-2d-tail-mask": (CP, "159-163"),
    "paged-2d-loads": (CP, "186-205"),
    "paged-2d-qk": (CP, "216-218"),
    "paged-2d-max": (CP, "228-230"),
    "paged-2d-sum": (CP, "232-237"),
    "paged-2d-rescale": (CP, "239-248"),
    "paged-2d-v-add": (CP, "250-251"),
    "paged-2d-normalise": (CP, "254-254"),
    "paged-2d-store": (CP, "259-268"),
    "paged-2d-host": (CP, "271-493"),
    "paged-2d-dispatch": (CP, "378-417"),
    "rocm-partition-size": (CP, "379-379"),
    # The map ends one line later, at a formatter's remark inside the body.
    "rocm-signature": (RC, "314-339"),
    "rocm-partition-exit": (RC, "358-369"),
    "rocm-table": (RC, "422-439 534-553"),
    "rocm-k-address": (RC, "493-515"),
    "rocm-qk": (RC, "596-653"),
    "rocm-max": (RC, "669-684"),
    "rocm-exp-sum": (RC, "686-699"),
    "rocm-cross-warp": (RC, "701-727"),
    "rocm-normalise": (RC, "729-732 742-768"),
    "rocm-stats": (RC, "770-782"),
    "rocm-v-loop": (RC, "790-865"),
    "rocm-output": (RC, "896-906"),
    "rocm-reduce": (RC, "1416-1621"),
    "rocm-reduce-max": (RC, "1471-1480"),
    "rocm-reduce-rescale": (RC, "1486-1512"),
    "rocm-reduce-merge": (RC, "1565-1602"),
    "rocm-reduce-divide": (RC, "1604-1608"),
    "unified-kernel": (TU, "179-681"),
    "unified-table": (TU, "419-426"),
    "unified-softmax": (TU, "561-562"),
    "unified-v-add": (TU, "579-584"),
    "unified-segment-store": (TU, "586-642"),
    "unified-normalise": (TU, "643-681"),
    "unified-reduce": (TU, "684-771"),
    "softmax-step": (TH, "418-440"),
    "reshape-and-cache": (CK, "254-312"),
    "reshape-and-cache-host": (CK, "700-728"),
    "reshape-and-cache-flash": (CK, "314-400"),
    "reshape-and-cache-flash-host": (CK, "746-815"),
    "flash-cache-shape": (FA, "130-141"),
    "flash-stride-order": (FA, "143-165"),
    "flash-metadata": (FA, "246-246"),
    "flash-forward": (FA, "811-1069"),
    "flash-split": (FA, "877-878"),
    "flash-call": (FA, "1014-1039"),
    "flash-block-table": (FA, "1027-1027"),
    "flash-cascade": (FA, "1042-1068"),
    "kv-cache-update": (FA, "1071-1105"),
    "fa-interface": (FI, "176-417"),
    "fa-block-table": (FI, "194-194 274-276"),
    "fa2-call": (FI, "315-340"),
    "fa3-call": (FI, "347-385"),
    "fa4-call": (FI, "391-414"),
    "slot-mapping-call": (BT, "153-182"),
    "slot-kernel": (BT, "346-409"),
    "slot-pad": (BT, "366-375"),
    "slot-formula": (BT, "406-409"),
    "runner-pad": (GR, "4073-4075"),
}

# tiny-vllm comes from a git server and is optional: a reader may be without it.
KS, MC = "src/kernels.cu", "src/main.cpp"
MAP_TINY = {
    "signature": (KS, "461-462"),
    "tiny-active-slot": (KS, "464-465"),
    "gqa-mapping": (KS, "468-468"),
    "q-load": (KS, "469-469"),
    "block-ranges": (KS, "470-471"),
    "block-table-walk": (KS, "478-480"),
    "block-table-lookup": (KS, "480-480"),
    "tail-guard": (KS, "481-481"),
    "k-address": (KS, "484-484"),
    "v-address": (KS, "485-485"),
    "qk-dot": (KS, "486-486"),
    "warp-reduce": (KS, "489-493"),
    "cross-warp-reduce": (KS, "494-508"),
    "online-softmax": (KS, "510-519"),
    "running-max": (KS, "510-516"),
    "running-sum": (KS, "515-518"),
    "running-rescale": (KS, "515-519"),
    "accumulate": (KS, "519-519"),
    "final-divide": (KS, "522-522"),
    "output-write": (KS, "522-522"),
    "tiny-pool": (MC, "575-581"),
    "tiny-write-prefill": (MC, "251-288"),
    "tiny-write-decode": (MC, "851-873"),
    "tiny-table-sync": (MC, "552-552 876-876 1030-1030"),
    "tiny-release": (MC, "1018-1029"),
}

MAPS = {"vllm@0.24.0": MAP_024, "vllm@0.26.0": MAP_026}


@pytest.fixture(scope="session")
def trees(vllm_024: SourceTree, vllm_026: SourceTree) -> dict[str, SourceTree]:
    return {"vllm@0.24.0": vllm_024, "vllm@0.26.0": vllm_026}


@pytest.fixture(scope="session")
def libraries(trees: dict[str, SourceTree]) -> dict[str, Library]:
    return {source: Library(tree) for source, tree in trees.items()}


@pytest.mark.parametrize(("source", "concept"), [(s, c) for s, table in MAPS.items() for c in table])
def test_an_anchor_resolves_to_the_lines_of_the_map(libraries: dict[str, Library], source: str, concept: str) -> None:
    path, ranges = MAPS[source][concept]
    found = [resolve(anchor, libraries[source]) for anchor in anchors_of(concepts()[concept], source)]
    assert " ".join(f"{span.first}-{span.last}" for span in found) == ranges
    assert {span.path for span in found} == {path}


def test_the_anchors_resolve_in_tiny_vllm_if_it_is_here() -> None:
    source = "tiny-vllm@e25bf19"
    try:
        library = Library(open_tree(source))
    except SourceUnavailable as error:
        pytest.skip(str(error))
    found = {}
    for concept in MAP_TINY:
        entries = [resolve(anchor, library) for anchor in anchors_of(concepts()[concept], source)]
        found[concept] = (entries[0].path, " ".join(f"{span.first}-{span.last}" for span in entries))
    assert found == MAP_TINY


@pytest.mark.parametrize("source", MAPS)
def test_every_anchor_resolves_and_equals_the_committed_span(trees: dict[str, SourceTree], source: str) -> None:
    found = resolve_all(source, trees[source])
    assert [str(entry) for entry in found if isinstance(entry, AnnotateError)] == []
    committed = [span for entries in spans(source).values() for span in entries]
    key = str
    assert sorted(map(key, found)) == sorted(map(key, committed))


def test_resolving_parses_each_file_once(trees: dict[str, SourceTree], monkeypatch: pytest.MonkeyPatch) -> None:
    from annotate import anchors

    parsed: list[str] = []
    real = anchors.parse
    monkeypatch.setattr(anchors, "parse", lambda data, lang, path: parsed.append(path) or real(data, lang, path))
    began = time.perf_counter()
    resolve_all("vllm@0.24.0", trees["vllm@0.24.0"])
    print(f"vllm@0.24.0 resolved in {time.perf_counter() - began:.2f} s")
    assert len(parsed) == len(set(parsed))
    assert GR not in parsed, "the largest file holds no anchor of this release and need not be parsed"


@pytest.mark.parametrize(("path", "errors"), [(AK, 0), (AU, 0), (V1, 0), (V2, 0), (PA, 0), (CP, 0), (FA, 0), (BT, 0)])
def test_the_anchored_files_parse_without_errors(trees: dict[str, SourceTree], path: str, errors: int) -> None:
    from annotate.grammar import language_of, parse

    language = language_of(path)
    assert language is not None
    assert len(parse(trees["vllm@0.24.0"].read(path), language, path).unreliable) == errors


def test_the_writers_are_sound_though_their_file_is_not(libraries: dict[str, Library]) -> None:
    (tree,) = libraries["vllm@0.24.0"].trees("reshape_and_cache_kernel", "*/cache_kernels.cu")
    assert tree.unreliable
    for concept in ("reshape-and-cache", "reshape-and-cache-flash", "reshape-and-cache-host"):
        for anchor in anchors_of(concepts()[concept], "vllm@0.24.0"):
            assert resolve(anchor, libraries["vllm@0.24.0"]).unreliable == ()


def test_unreadable_lines_inside_the_amd_kernel_are_told(libraries: dict[str, Library]) -> None:
    (anchor,) = anchors_of(concepts()["rocm-qk"], "vllm@0.26.0")
    span = resolve(anchor, libraries["vllm@0.26.0"])
    assert span.unreliable
    assert all(span.first < first <= last < span.last for first, last in span.unreliable)


def test_the_writer_is_the_same_code_in_both_releases(libraries: dict[str, Library]) -> None:
    digests = {
        source: resolve(Anchor(source, "vllm::reshape_and_cache_kernel"), library).digest
        for source, library in libraries.items()
    }
    assert len(set(digests.values())) == 1


def test_the_classic_kernel_is_gone_from_the_later_release(libraries: dict[str, Library]) -> None:
    with pytest.raises(AnnotateError, match="no symbol"):
        resolve(Anchor("vllm@0.26.0", "vllm::paged_attention_kernel"), libraries["vllm@0.26.0"])


def test_no_committed_span_is_more_than_a_file_long(trees: dict[str, SourceTree]) -> None:
    for source, tree in trees.items():
        for entries in spans(source).values():
            for span in entries:
                assert isinstance(span, Span)
                assert tree.permalink(span.path, span.first, span.last).endswith(
                    f"#L{span.first}" + (f"-L{span.last}" if span.last > span.first else "")
                )

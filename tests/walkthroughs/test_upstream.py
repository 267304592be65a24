"""From a port's line to the upstream lines: by region and concept, never by guess."""

from __future__ import annotations

from pathlib import Path

import pytest

from annotate.concepts import concepts
from annotate.regions import regions
from annotate.spans import sources, spans
from walkthroughs import upstream
from walkthroughs.upstream import BY_HAND, ROOT, SOURCES, upstream_of

BODY = "kernels/vllm/attention_kernels.py"
TINY = "kernels/tiny_vllm/attention.py"


def line_of(file: str, text: str) -> int:
    return next(n for n, line in enumerate((ROOT / file).read_text("utf-8").splitlines(), 1) if text in line)


def test_a_line_stands_for_its_innermost_region():
    found = upstream_of(str(ROOT / BODY), line_of(BODY, "k_vecs[j, e] = k_cache[k_offset + e]"))
    assert found is not None
    span = spans("vllm@0.24.0")["k-address"][0]
    assert (found.source, found.concept) == ("vllm@0.24.0", "k-address")
    assert (found.path, found.first, found.last) == (span.path, span.first, span.last)
    assert found.permalink.endswith(f"{span.path}#L{span.first}-L{span.last}")
    assert str(found) == f"vllm@0.24.0 {span.path}:{span.first}-{span.last} (k-address)"


def test_both_sides_of_tiny_vllms_race_lead_to_its_cross_warp_sum():
    for text in ("            dot_product = dot_products[0]", "dot_products[0] = qk"):
        found = upstream_of(TINY, line_of(TINY, text))
        assert found is not None
        assert (found.source, found.concept) == ("tiny-vllm@e25bf19", "cross-warp-reduce")
        assert (found.path, found.first, found.last) == ("src/kernels.cu", 494, 508)
        assert found.permalink.startswith("https://github.com/jmaczan/tiny-vllm/blob/e25bf19")


def test_a_changed_copy_of_a_port_is_still_that_port():
    line = line_of(BODY, "logits[i] = val")
    assert upstream_of(f"{ROOT / BODY}#some-fault", line) == upstream_of(str(ROOT / BODY), line) is not None


@pytest.mark.parametrize("file", ["kernels/gather.py", "kernels/variants.py", "kernels/bench.py", "/tmp/other.py"])
def test_what_is_no_port_stands_for_nothing(file: str):
    assert upstream_of(file, 60) is None


def test_a_line_outside_every_region_stands_for_nothing():
    assert upstream_of(BODY, 1) is None
    assert upstream_of("kernels/vllm/gone.py", 5) is None


def test_a_single_line_is_shown_as_one_number():
    found = upstream_of(TINY, line_of(TINY, "k = kv_cache[element]"))
    assert str(found) == "tiny-vllm@e25bf19 src/kernels.cu:484 (k-address)"


def test_the_lines_read_by_hand_are_those_of_concepts_that_tiny_vllm_has():
    table = concepts()
    source = SOURCES["kernels/tiny_vllm/"]
    assert all(source in table[concept].anchors for concept in BY_HAND)
    assert set(regions(ROOT / TINY)) <= set(BY_HAND)
    assert all(1 <= first <= last for first, last in BY_HAND.values())
    if source in sources():  # once they are recorded, the two must say the same
        recorded = {name: (found[0].first, found[0].last) for name, found in spans(source).items()}
        assert {name: recorded[name] for name in BY_HAND} == BY_HAND


def test_every_folder_of_ports_has_its_source():
    assert all((ROOT / folder).is_dir() for folder in SOURCES)
    assert Path(upstream.__file__).parent.parent == ROOT

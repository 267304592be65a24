"""The join table: complete, well written, and errors for a malformed one."""

import re

import pytest

from annotate.concepts import concept, concepts, read_table
from annotate.errors import AnnotateError, UnknownName
from annotate.landmarks import read_landmark
from annotate.sourcetree import pins

# The ids that ports, steps and pages are written against.
PROMISED = set(
    """
    signature v1-entry v2-entry partition-exit block-ranges thread-groups gqa-mapping q-load
    shared-logits x-packing block-table-row key-loop block-table-walk k-address qk-dot qk-dot-helper
    alibi mask-and-store qk-max exp-sum block-sum normalise partition-stats v-sizes v-loop v-table
    logits-vec v-address tail-zeroing accumulate warp-reduce cross-warp-reduce output-write v2-reduce
    v2-single-partition v2-max v2-rescale v2-merge v1-launcher shared-size grid block-sizes v1-op
    v2-launcher v2-op partition-size v2-grid reshape-and-cache slot-guard slot-split head-of-thread
    k-source k-store v-store reshape-and-cache-host reshape-and-cache-flash reshape-and-cache-flash-host
    split-kv-cache x-view write-to-paged-cache flash-forward flash-cache-shape flash-unbind flash-split
    flash-call flash-block-table kv-cache-update slot-kernel slot-formula paged-2d paged-2d-table
    paged-2d-k paged-2d-v paged-2d-qk paged-2d-max paged-2d-sum paged-2d-rescale paged-2d-v-add
    paged-2d-normalise paged-2d-store dense-attention slot-of-token scatter gather-loop gather-lookup
    tail-guard online-softmax final-divide
    """.split()  # noqa: SIM905 - a list of this length reads better so
)


def test_every_promised_concept_is_there() -> None:
    assert set(concepts()) >= PROMISED


def test_ids_titles_and_summaries_are_fit_to_be_read() -> None:
    titles = [entry.title for entry in concepts().values()]
    assert len(set(titles)) == len(titles)
    for name, entry in concepts().items():
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name)
        assert entry.id == name
        assert 3 <= len(entry.title) <= 60, entry.title
        assert not entry.title.endswith(".")
        sentences = re.findall(r"[.!?](?:\s|$)", entry.summary)
        assert entry.summary.endswith("."), name
        assert 1 <= len(sentences) <= 5, (name, entry.summary)
        assert name not in entry.see_also
        assert len(set(entry.see_also)) == len(entry.see_also)


def test_every_anchor_names_a_pinned_source_and_reads() -> None:
    for entry in concepts().values():
        for source, places in entry.anchors.items():
            assert source in pins()
            assert places
            for place in places:
                if place.landmark is not None:
                    assert read_landmark(place.landmark)


def test_no_anchor_counts_lines() -> None:
    for entry in concepts().values():
        for places in entry.anchors.values():
            for place in places:
                assert not re.search(r"#-?\d{2,}", place.landmark or ""), place


def test_an_unknown_concept_gets_the_nearest_names() -> None:
    with pytest.raises(UnknownName, match="block-table-walk") as caught:
        concept("block-table-wlak")
    assert caught.value.nearest[0] == "block-table-walk"
    assert concept("q-load").id == "q-load"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[a]\ntitle = "A"\n', "title and a summary"),
        ('[a]\ntitle = "A"\nsummary = "B."\ncolour = "red"\n', "no such key colour"),
        ('[a]\ntitle = "A"\nsummary = "B."\nsee_also = ["b"]\n', "'b', which is no concept"),
        ('[a]\ntitle = "A"\nsummary = "B."\n[a.anchors]\ns = [{ landmark = "def" }]\n', "an anchor is"),
        ('[a]\ntitle = "A"\nsummary = "B."\n[a.anchors]\ns = [{ symbol = "f", line = 3 }]\n', "an anchor is"),
    ],
)
def test_a_malformed_table_names_the_concept(text: str, words: str) -> None:
    with pytest.raises(AnnotateError, match=words):
        read_table(text)


def test_what_does_the_work_now_is_a_concept_too() -> None:
    from annotate.errors import AnnotateError

    text = '[a]\ntitle = "A"\nsummary = "a"\nnow = ["b"]\n'
    with pytest.raises(AnnotateError, match="now names 'b'"):
        read_table(text)
    assert read_table(text + '[b]\ntitle = "B"\nsummary = "b"\n')["a"].now == ("b",)
    assert concepts()["qk-max"].now == ("paged-2d-max",)

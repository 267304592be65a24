"""The committed spans: round trip, digests, and no text in them."""

import json
from pathlib import Path

import pytest

from annotate import spans as module
from annotate.concepts import concepts
from annotate.errors import UnknownName
from annotate.spans import Span, combined, digest_of, sources, spans, write


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(module, "FOLDER", tmp_path)
    return tmp_path


def test_what_is_written_is_read_back(folder: Path) -> None:
    found = [
        Span("s@1", "a.cu", 3, 9, "d1", "key-loop", "ns::f"),
        Span("s@1", "a.cu", 4, 4, "d2", "q-load", "ns::f", ((5, 6),)),
        Span("s@1", "b.py", 1, 2, "d3", "key-loop", "g"),
    ]
    path = write("s@1", found)
    assert path == folder / "s@1.json"
    assert spans("s@1") == {"key-loop": [found[0], found[2]], "q-load": [found[1]]}
    assert sources() == ["s@1"]
    assert [entry.name for entry in folder.iterdir()] == ["s@1.json"]


def test_writing_again_is_seen_at_once(folder: Path) -> None:
    write("s@1", [Span("s@1", "a.cu", 3, 9, "old", "key-loop", "f")])
    assert digest_of("s@1", "key-loop") == "old"
    write("s@1", [Span("s@1", "a.cu", 3, 9, "new", "key-loop", "f")])
    assert digest_of("s@1", "key-loop") == "new"


def test_a_failed_write_leaves_the_old_file(folder: Path) -> None:
    write("s@1", [Span("s@1", "a.cu", 3, 9, "old", "key-loop", "f")])

    def broken() -> object:
        yield Span("s@1", "a.cu", 3, 9, "new", "key-loop", "f")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write("s@1", broken())  # type: ignore[arg-type]
    assert digest_of("s@1", "key-loop") == "old"
    assert [entry.name for entry in folder.iterdir()] == ["s@1.json"]


def test_several_spans_make_one_digest_that_knows_their_order() -> None:
    assert combined(["a"]) == "a"
    assert combined(["a", "b"]) != combined(["b", "a"])
    assert len(combined(["a", "b"])) == 32


def test_unknown_names_get_the_nearest() -> None:
    with pytest.raises(UnknownName, match=r"vllm@0\.24\.0"):
        spans("vllm@0.24")
    with pytest.raises(UnknownName, match="key-loop"):
        digest_of("vllm@0.24.0", "key-lop")


@pytest.mark.parametrize("source", ["vllm@0.24.0", "vllm@0.26.0"])
def test_committed_spans_cover_every_anchor_and_hold_no_text(source: str) -> None:
    table = spans(source)
    expected = {name: len(entry.anchors[source]) for name, entry in concepts().items() if source in entry.anchors}
    assert {name: len(found) for name, found in table.items()} == expected
    data = json.loads((module.FOLDER / f"{source}.json").read_text())
    assert data["schema"] == 1
    for entry in data["spans"]:
        assert entry.keys() - {"unreliable"} == {"path", "first", "last", "digest", "concept", "symbol"}
        assert 1 <= entry["first"] <= entry["last"]
        assert len(entry["digest"]) == 32

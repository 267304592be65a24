"""Data as scripts: what is unpacked is what was packed, the same text each time, written only where it changed."""

from __future__ import annotations

import base64
import gzip
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walkthroughs import packing

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda held: st.lists(held, max_size=3) | st.dictionaries(st.text(), held, max_size=3),
    max_leaves=8,
)


@given(VALUES)
def test_there_and_back(content: object) -> None:
    text = packing.script("pagewalkToys", "a-toy.cu", content)
    found = re.fullmatch(
        r'\(window\.pagewalkToys=window\.pagewalkToys\|\|\{\}\)\["a-toy\.cu"\]="([A-Za-z0-9+/=]*)";\n', text
    )
    assert found is not None
    assert json.loads(gzip.decompress(base64.b64decode(found[1], validate=True))) == content
    assert packing.script("pagewalkToys", "a-toy.cu", content) == text


def test_what_no_page_can_read_is_not_packed() -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        packing.script("pagewalkToys", "a", float("nan"))


def test_only_what_changed_is_written_and_what_nobody_wants_goes(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    assert packing.write_all(folder, {"a": "1\n", "b": "2\n"}) == [folder / "a.js", folder / "b.js"]
    (folder / "note.txt").write_text("stays", "utf-8")
    assert packing.write_all(folder, {"a": "1\n", "b": "2\n"}) == []
    assert packing.write_all(folder, {"b": "3\n", "c.d": "4\n"}) == [
        folder / "a.js",
        folder / "b.js",
        folder / "c.d.js",
    ]
    assert {path.name: path.read_text("utf-8") for path in folder.iterdir()} == {
        "b.js": "3\n",
        "c.d.js": "4\n",
        "note.txt": "stays",
    }

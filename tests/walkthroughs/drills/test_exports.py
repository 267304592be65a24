"""The bank on paper: CSV and Markdown read back, and the Anki package opened by Anki's own library, twice."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from walkthroughs.drills import bank
from walkthroughs.drills.asking import fixed_seed
from walkthroughs.drills.exports import ANKI_KINDS, CSV_FIELDS, guid, leaves, to_csv, to_markdown, write_anki
from walkthroughs.drills.item import Item
from walkthroughs.drills.store import Store

if TYPE_CHECKING:
    from anki.collection import Collection

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def test_leaves_have_an_items_own_seed_and_leave_out_what_is_not_here(sample: ModuleType) -> None:
    found, absent = leaves(sample.Sample())
    assert [leaf.item.id for leaf in found] == [item.id for item in sample.ITEMS if item.id != "find/absent"]
    assert absent == {"find/absent": "vllm@0.0 is not available: it was never there. Fetch it: pagewalk fetch vllm@0.0"}
    assert all(leaf.question.seed == fixed_seed(leaf.item) for leaf in found)
    assert found == leaves(sample.Sample())[0]
    assert {leaf.item.kind for leaf in leaves(sample.Sample(), ("compute",))[0]} == {"compute"}


def test_csv(sample: ModuleType, store: Store) -> None:
    store.review("compute/slot", 4, NOW)
    store.suspend("find/walk", NOW)
    found, _ = leaves(sample.Sample())
    rows = list(csv.DictReader(io.StringIO(to_csv(found, store.entries()))))
    assert tuple(rows[0]) == CSV_FIELDS
    by_id = {row["id"]: row for row in rows}
    assert list(by_id) == [leaf.item.id for leaf in found]
    slot = by_id["compute/slot"]
    assert (slot["state"], slot["reviews"], slot["due"]) == ("review", "1", "2026-03-09T00:00:00+00:00")
    assert slot["answer"].endswith(" bytes")
    assert (by_id["find/walk"]["suspended"], by_id["find/walk"]["due"]) == ("1", "")
    assert "- logical to physical\n- one row a sequence" in by_id["recall/table"]["answer"]
    assert by_id["recall/deeper"]["after"] == "recall/table"


def test_markdown(sample: ModuleType) -> None:
    text = to_markdown(leaves(sample.Sample())[0])
    assert text.startswith(
        "# Pagewalk: drills\n\n## Recall\n\n### What is a block table?\n\n`recall/table`, level 1\n\n"
    )
    assert [line for line in text.splitlines() if line.startswith("## ")] == ["## Recall", "## Compute", "## Find"]
    assert text.count("<details>") == text.count("</details>") == 7
    assert "- `pagewalk read block-table-walk`\n- `pagewalk walk paged-reference/lookup`" in text


@pytest.fixture
def collection(tmp_path: Path) -> Iterator[Collection]:
    """An empty collection of Anki's."""
    from anki.collection import Collection

    made = Collection(str(tmp_path / "collection.anki2"))
    yield made
    made.close()


def take_in(collection: Collection, path: Path) -> None:
    from anki.import_export_pb2 import ImportAnkiPackageOptions, ImportAnkiPackageRequest

    collection.import_anki_package(ImportAnkiPackageRequest(package_path=str(path), options=ImportAnkiPackageOptions()))


def test_anki_takes_it_twice_and_updates(sample: ModuleType, collection: Collection, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "drills.apkg"
    found, _ = leaves(sample.Sample(), ANKI_KINDS)
    write_anki(path, found, NOW)
    assert [file.name for file in path.parent.iterdir()] == ["drills.apkg"]
    take_in(collection, path)
    assert (collection.note_count(), collection.card_count()) == (7, 7)
    deck = collection.decks.by_name("Pagewalk")
    assert deck is not None
    assert len(collection.find_cards("deck:Pagewalk")) == 7
    assert len(collection.find_notes("tag:pagewalk::recall")) == 4
    (walk,) = collection.find_notes('"Title:Find the walk"')
    note = collection.get_note(walk)
    assert note["Question"] == "<p>Which line? x &lt; y &amp; z</p>\n"
    assert "<code>a {{b}} c</code>" in note["Answer"]
    assert "pagewalk read block-table-walk" in note["Where"]
    front = note.cards()[0].question()
    assert "<h3>Find the walk</h3>" in front

    write_anki(path, found, NOW + timedelta(hours=1))
    take_in(collection, path)
    assert (collection.note_count(), collection.card_count()) == (7, 7)

    # A text that changed under the same id is updated in its place.
    changed = [replace(leaf, item=replace(leaf.item, title=f"New: {leaf.item.title}")) for leaf in found]
    write_anki(path, changed, NOW + timedelta(hours=2))
    take_in(collection, path)
    assert (collection.note_count(), collection.card_count()) == (7, 7)
    assert len(collection.find_notes('"Title:New: *"')) == 7
    assert collection.get_note(walk)["Title"] == "New: Find the walk"
    assert len(collection.models.all_names_and_ids()) == len({m.name for m in collection.models.all_names_and_ids()})


def test_anki_takes_the_bank_itself_twice(collection: Collection, tmp_path: Path) -> None:
    path = tmp_path / "drills.apkg"
    found, absent = leaves(bank, ANKI_KINDS)
    assert not absent
    assert len({guid(leaf.item) for leaf in found}) == len(found) > 200
    for hours in range(2):
        write_anki(path, leaves(bank, ANKI_KINDS)[0], NOW + timedelta(hours=hours))
        take_in(collection, path)
        assert (collection.note_count(), collection.card_count()) == (len(found), len(found))
    deck = collection.decks.by_name("Pagewalk")
    assert deck is not None
    assert len(collection.find_cards("deck:Pagewalk")) == len(found)
    for kind in ANKI_KINDS:
        assert len(collection.find_notes(f"tag:pagewalk::{kind}")) == sum(leaf.item.kind == kind for leaf in found)
    # No note is empty, and none lost its text on the way: every field of one is as it was written.
    titles = {leaf.item.title for leaf in found}
    for number in collection.find_notes("deck:Pagewalk"):
        note = collection.get_note(number)
        assert note["Title"] in titles
        assert all(note[name].strip() for name in ("Question", "Answer", "Where"))
    assert len([m for m in collection.models.all_names_and_ids() if m.name.startswith("Pagewalk drill")]) == 1


def test_a_package_that_cannot_be_written_leaves_nothing(sample: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        write_anki(tmp_path / "folder", leaves(sample.Sample((Item("recall/a", "A", 1),)))[0], NOW)
    assert [file.name for file in tmp_path.iterdir()] == ["folder"]

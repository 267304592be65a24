"""Files are written whole or not at all."""

from pathlib import Path

import pytest

from annotate.files import write_text


def test_a_new_file_in_a_new_folder(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b.txt"
    write_text(path, "häuser\n")
    assert path.read_bytes() == "häuser\n".encode()
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_failed_rename_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "b.txt"
    write_text(path, "old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space"):
        write_text(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]

"""Hostile, damaged and ordinary archives."""

from __future__ import annotations

import gzip
import tarfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotate.archive import Limits, extract, inner_path
from annotate.errors import DamagedArchive, UnsafeArchive

Pack = Callable[..., bytes]


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", size: int = 0) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, size
    return info


def run(tmp_path: Path, data: bytes, limits: Limits | None = None) -> list[str]:
    archive, target = tmp_path / "a.tar.gz", tmp_path / "out"
    archive.write_bytes(data)
    target.mkdir(exist_ok=True)
    return extract(archive, target, lambda path: path.endswith(".py"), limits=limits)


def written(tmp_path: Path) -> dict[str, bytes]:
    return {str(p.relative_to(tmp_path)): p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}


def test_only_the_wanted_files_come_out(tmp_path: Path, pack: Pack) -> None:
    data = pack(("top/a.py", b"one"), ("top/x/b.py", b"two"), ("top/c.txt", b"no"), member("top/d.py", tarfile.DIRTYPE))
    assert run(tmp_path, data) == ["a.py", "x/b.py"]
    (tmp_path / "a.tar.gz").unlink()
    assert written(tmp_path) == {"out/a.py": b"one", "out/x/b.py": b"two"}
    assert (tmp_path / "out/a.py").stat().st_mode & 0o111 == 0


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("../a.py", "climbs out"),
        ("top/../../a.py", "climbs out"),
        ("top/x/../../../a.txt", "climbs out"),
        ("/top/a.py", "absolute"),
        ("top\\..\\a.py", "not a plain"),
        ("C:/top/a.py", "not a plain"),
    ],
)
def test_a_name_that_leaves_the_archive_stops_everything(tmp_path: Path, pack: Pack, name: str, words: str) -> None:
    with pytest.raises(UnsafeArchive, match=words) as caught:
        run(tmp_path, pack(("top/ok.txt", b"x"), (name, b"evil")))
    assert caught.value.member == name
    assert set(written(tmp_path)) == {"a.tar.gz"}


@pytest.mark.parametrize(
    "entry",
    [
        member("top/a.py", tarfile.SYMTYPE, "/etc/passwd"),
        member("top/a.py", tarfile.SYMTYPE, "b.py"),
        member("top/a.py", tarfile.LNKTYPE, "top/b.py"),
        member("top/a.py", tarfile.FIFOTYPE),
        member("top/a.py", tarfile.CHRTYPE),
    ],
)
def test_a_link_or_device_in_the_place_of_a_file_is_refused(tmp_path: Path, pack: Pack, entry: tarfile.TarInfo) -> None:
    with pytest.raises(UnsafeArchive, match="link or a device"):
        run(tmp_path, pack(entry, ("top/b.py", b"x")))
    assert set(written(tmp_path)) == {"a.tar.gz"}


def test_a_linked_folder_cannot_carry_a_file_out(tmp_path: Path, pack: Pack) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    data = pack(member("top/x", tarfile.SYMTYPE, str(outside)), ("top/x/a.py", b"in"))
    assert run(tmp_path, data) == ["x/a.py"]
    assert list(outside.iterdir()) == []
    assert (tmp_path / "out/x/a.py").read_bytes() == b"in"


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (Limits(members=1), "far more"),
        (Limits(unpacked=5), "far more"),
        (Limits(file=2), "3 bytes are more"),
        (Limits(kept=5), "3 bytes are more"),
    ],
)
def test_limits_hold(tmp_path: Path, pack: Pack, limits: Limits, words: str) -> None:
    with pytest.raises(UnsafeArchive, match=words):
        run(tmp_path, pack(("top/a.py", b"one"), ("top/b.py", b"two")), limits)


def test_a_name_that_comes_twice_is_refused(tmp_path: Path, pack: Pack) -> None:
    with pytest.raises(UnsafeArchive, match="twice"):
        run(tmp_path, pack(("top/a.py", b"one"), ("top/./a.py", b"two")))


def test_an_archive_without_what_we_want_is_refused(tmp_path: Path, pack: Pack) -> None:
    with pytest.raises(DamagedArchive, match="none of the files"):
        run(tmp_path, pack(("top/a.txt", b"one")))


@pytest.mark.parametrize("data", [b"", b"not an archive", b"\x1f\x8b\x08\x00", b"PK\x03\x04rest"])
def test_what_is_no_archive_is_refused(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(DamagedArchive):
        run(tmp_path, data)


def test_every_truncation_is_noticed(tmp_path: Path, pack: Pack) -> None:
    whole = pack(("top/a.py", bytes(range(256)) * 40), ("top/b.py", b"x" * 3000))
    for cut in range(0, len(whole) - 30, 37):
        folder = tmp_path / str(cut)
        folder.mkdir()
        with pytest.raises(DamagedArchive):
            run(folder, whole[:cut])


def test_a_failing_disk_is_not_taken_for_a_bad_archive(
    tmp_path: Path, pack: Pack, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Path, *args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device", str(self))

    data = pack(("top/a.py", b"one"))
    (tmp_path / "a.tar.gz").write_bytes(data)
    (tmp_path / "out").mkdir()
    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(OSError, match="No space"):
        extract(tmp_path / "a.tar.gz", tmp_path / "out", lambda path: True)


@given(st.text(alphabet="ab./\\:\0C", max_size=12))
def test_an_inner_path_never_climbs(name: str) -> None:
    try:
        path = inner_path("x", name)
    except UnsafeArchive:
        return
    assert not path.startswith("/")
    assert ".." not in path.split("/")
    resolved = (Path("/base") / path).resolve()
    assert resolved.is_relative_to("/base")


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK])
def test_a_header_that_claims_a_gigabyte_is_not_read_into_memory(tmp_path: Path, kind: bytes) -> None:
    """Zeros compress a thousandfold: a small download would fill the memory before any member is seen."""
    header = member("toy-1/" + "x" * 20, kind, size=1 << 30).tobuf(tarfile.USTAR_FORMAT)
    archive = tmp_path / "toy.tar.gz"
    with gzip.open(archive, "wb", compresslevel=1) as out:
        out.write(header)
        out.write(bytes(1 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(UnsafeArchive, match="no honest header"):
            extract(archive, tmp_path / "out", lambda path: True)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
    assert not (tmp_path / "out").exists()


def test_an_honest_long_name_is_read(tmp_path: Path, pack: Pack) -> None:
    name = "toy-1/" + "/".join(["folder" * 5] * 8) + "/m.py"
    (tmp_path / "toy.tar.gz").write_bytes(pack((name, b"x = 1\n")))
    (found,) = extract(tmp_path / "toy.tar.gz", tmp_path / "out", lambda path: path.endswith(".py"))
    assert (tmp_path / "out" / found).read_bytes() == b"x = 1\n"

"""Downloads that break, resume, lie or fill the disk, against a server on this machine."""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import requests

from annotate import download as module
from annotate.download import download, reason_of
from annotate.errors import DigestMismatch, DiskTrouble, DownloadFailed

if TYPE_CHECKING:
    from tests.annotate.conftest import Server

DATA = bytes(range(256)) * 8192  # 2 MiB: several chunks
SHA = hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def session() -> Iterator[requests.Session]:
    with requests.Session() as opened:
        yield opened


def get(server: Server, session: requests.Session, folder: Path, **options: Any) -> Path:
    server.files.setdefault("/f", DATA)
    options = {"source": "s@1", "sha256": SHA, "size": len(DATA), **options}
    return download(session, f"{server.url}/f", folder / "a.tar.gz", **options)


def test_a_plain_download(server: Server, session: requests.Session, tmp_path: Path) -> None:
    told: list[tuple[str, int, int | None]] = []
    path = get(server, session, tmp_path, progress=lambda *args: told.append(args))
    assert path.read_bytes() == DATA
    assert [p.name for p in tmp_path.iterdir()] == ["a.tar.gz"]
    stages = [stage for stage, _, _ in told]
    assert stages[-1] == "verify"
    assert set(stages[:-1]) == {"download"}
    done = [count for stage, count, _ in told if stage == "download"]
    assert done == sorted(done)
    assert (done[-1], told[0][2]) == (len(DATA), len(DATA))


@pytest.mark.parametrize("size", [len(DATA), None])
def test_a_broken_download_goes_on_where_it_stopped(
    server: Server, session: requests.Session, tmp_path: Path, size: int | None
) -> None:
    server.cut_after = [700_000]
    with pytest.raises(DownloadFailed) as caught:
        get(server, session, tmp_path, size=size)
    kept = (tmp_path / "a.tar.gz.part").stat().st_size
    assert 0 < kept <= 700_000
    assert caught.value.kept == kept
    assert get(server, session, tmp_path, size=size).read_bytes() == DATA
    assert server.requests[-1] == ("/f", f"bytes={kept}-")
    assert [p.name for p in tmp_path.iterdir()] == ["a.tar.gz"]


def test_a_server_that_cannot_resume_sends_all_of_it(server: Server, session: requests.Session, tmp_path: Path) -> None:
    (tmp_path / "a.tar.gz.part").write_bytes(DATA[:1000])
    server.ignore_range = True
    assert get(server, session, tmp_path).read_bytes() == DATA


def test_a_part_of_another_file_is_dropped_and_fetched_anew(
    server: Server, session: requests.Session, tmp_path: Path
) -> None:
    (tmp_path / "a.tar.gz.part").write_bytes(b"other" * 100)
    assert get(server, session, tmp_path).read_bytes() == DATA
    assert [asked for _, asked in server.requests] == ["bytes=500-", None]


@pytest.mark.parametrize("left", [DATA, DATA + b"more", b"x" * len(DATA)])
def test_a_part_that_is_whole_too_long_or_wrong(
    server: Server, session: requests.Session, tmp_path: Path, left: bytes
) -> None:
    (tmp_path / "a.tar.gz.part").write_bytes(left)
    assert get(server, session, tmp_path).read_bytes() == DATA
    assert len(server.requests) == (0 if left == DATA else 1)


def test_wrong_bytes_are_refused_and_removed(server: Server, session: requests.Session, tmp_path: Path) -> None:
    server.files["/f"] = b"y" * len(DATA)
    with pytest.raises(DigestMismatch, match=SHA):
        get(server, session, tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert len(server.requests) == 1


def test_more_bytes_than_pinned_are_not_taken(server: Server, session: requests.Session, tmp_path: Path) -> None:
    server.files["/f"] = DATA + b"and more"
    with pytest.raises(DigestMismatch, match="more bytes"):
        get(server, session, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_fewer_bytes_than_pinned_are_kept_for_later(server: Server, session: requests.Session, tmp_path: Path) -> None:
    server.files["/f"] = DATA[:5000]
    with pytest.raises(DownloadFailed, match=f"ended after 5000 of {len(DATA)}"):
        get(server, session, tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["a.tar.gz.part"]


@pytest.mark.parametrize("status", [403, 404, 500, 503])
def test_a_refusing_server_is_named(server: Server, session: requests.Session, tmp_path: Path, status: int) -> None:
    server.status = status
    with pytest.raises(DownloadFailed, match=f"answered {status}"):
        get(server, session, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_another_range_than_asked_for_is_refused(server: Server, session: requests.Session, tmp_path: Path) -> None:
    (tmp_path / "a.tar.gz.part").write_bytes(DATA[:1000])
    server.wrong_range = True
    with pytest.raises(DownloadFailed, match="another range"):
        get(server, session, tmp_path)


def test_no_network_is_said_in_one_line(session: requests.Session, tmp_path: Path) -> None:
    with pytest.raises(DownloadFailed) as caught:
        download(session, "http://127.0.0.1:9/f", tmp_path / "a", source="s@1", sha256=SHA)
    assert "\n" not in str(caught.value)
    assert "refused" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_nothing(
    server: Server, session: requests.Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path.open

    class Full:
        closed = False

        def __init__(self, stream: Any) -> None:
            self.raw = stream

        def write(self, chunk: bytes) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        def close(self) -> None:
            self.closed = True
            self.raw.close()

    def opening(self: Path, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        stream = real(self, mode, *args, **kwargs)
        return Full(stream) if self.name.endswith(".part") and mode == "wb" else stream

    monkeypatch.setattr(Path, "open", opening)
    with pytest.raises(DiskTrouble, match="No space left"):
        get(server, session, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_disk_trouble(
    server: Server, session: requests.Session, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DiskTrouble):
        get(server, session, tmp_path / "file")


def test_an_unpinned_size_has_a_ceiling(
    server: Server, session: requests.Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LARGEST", 1_000_000)
    with pytest.raises(DigestMismatch, match="more bytes"):
        get(server, session, tmp_path, size=None)


def test_the_innermost_reason_is_the_one_told() -> None:
    outer = ValueError("long " * 100)
    outer.__cause__ = ConnectionRefusedError(111, "Connection refused")
    assert reason_of(outer) == "[Errno 111] Connection refused"
    assert reason_of(ValueError()) == "ValueError"
    assert len(reason_of(ValueError("x" * 500))) == 160

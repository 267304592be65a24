"""Fetching end to end, from a package index on this machine: all of it or nothing, and never two at once."""

from __future__ import annotations

import dataclasses
import hashlib
import multiprocessing
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from annotate import sources as module
from annotate.errors import (
    AnnotateError,
    DamagedArchive,
    DigestMismatch,
    DiskTrouble,
    DownloadFailed,
    SourceUnavailable,
    UnknownName,
    UnsafeArchive,
)
from annotate.sources import fetch, fetch_all, find_release, locate
from annotate.sourcetree import Pin, every_pin, opened, pins

if TYPE_CHECKING:
    from tests.annotate.conftest import Server

Snapshot = Callable[[], dict[str, bytes]]
NAME = "toy-1.tar.gz"


def pin_for(data: bytes, **changes: object) -> Pin:
    pin = Pin(
        id="toy@1",
        name="toy",
        revision="1",
        kind="sdist",
        origin="a test",
        digest=f"sha256:{hashlib.sha256(data).hexdigest()}",
        licence="Apache-2.0",
        files=("*.py", "src/**/*.cu"),
        permalink="https://example.org/{path}",
        size=len(data),
    )
    return dataclasses.replace(pin, **changes)  # type: ignore[arg-type]


@pytest.fixture
def archive(pack: Callable[..., bytes]) -> bytes:
    return pack(("toy-1/m.py", b"x = 1\n"), ("toy-1/src/a/k.cu", os.urandom(600_000)), ("toy-1/no.txt", b"no"))


@pytest.fixture
def index(server: Server, archive: bytes, monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.setenv("PAGEWALK_INDEX", server.index_of("toy", NAME, archive))
    return server


def test_a_source_comes_from_the_index_and_is_then_there(index: Server, archive: bytes, tmp_path: Path) -> None:
    told: list[str] = []
    tree = fetch(pin_for(archive), cache=tmp_path, progress=lambda stage, done, total: told.append(stage))
    assert tree.paths() == ("m.py", "src/a/k.cu")
    assert tree.read("m.py") == b"x = 1\n"
    assert not tree.marked_copy
    assert list(dict.fromkeys(told)) == ["find", "download", "verify", "unpack"]
    assert list((tmp_path / "downloads").iterdir()) == []
    assert list((tmp_path / "staging").iterdir()) == []
    asked = len(index.requests)
    assert fetch(pin_for(archive), cache=tmp_path).paths() == tree.paths()
    assert len(index.requests) == asked
    fetch(pin_for(archive), cache=tmp_path, refresh=True)
    assert len(index.requests) > asked


def test_a_broken_fetch_resumes(index: Server, archive: bytes, tmp_path: Path) -> None:
    index.cut_after = [300_000]
    with pytest.raises(DownloadFailed, match="bytes are kept"):
        fetch(pin_for(archive), cache=tmp_path)
    with pytest.raises(SourceUnavailable):
        opened(pin_for(archive), tmp_path)
    assert fetch(pin_for(archive), cache=tmp_path).read("m.py") == b"x = 1\n"
    assert index.requests[-1][1] is not None
    assert list((tmp_path / "downloads").iterdir()) == []


def test_the_index_may_not_list_another_digest(
    server: Server, archive: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAGEWALK_INDEX", server.index_of("toy", NAME, archive, sha256="ab" * 32))
    with pytest.raises(DigestMismatch, match="as the package index lists it"):
        fetch(pin_for(archive), cache=tmp_path)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"revision": "2"}, "no source distribution of toy 2"), ({"name": "toys"}, "cannot be asked")],
)
def test_a_release_or_project_that_is_not_there(
    index: Server, archive: bytes, tmp_path: Path, changes: dict[str, object], words: str
) -> None:
    with pytest.raises(DownloadFailed, match=words):
        fetch(pin_for(archive, **changes), cache=tmp_path)


def test_no_network(archive: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PAGEWALK_INDEX", raising=False)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple/")
    with pytest.raises(DownloadFailed, match="refused"):
        locate(pin_for(archive))


# -- what goes wrong changes nothing ------------------------------------------------------------


@pytest.fixture
def before(index: Server, archive: bytes, tmp_path: Path, tree_of: Snapshot) -> dict[str, bytes]:
    """A cache that holds the source already."""
    fetch(pin_for(archive), cache=tmp_path)
    return tree_of()


def serve(server: Server, data: bytes) -> None:
    server.index_of("toy", NAME, data)


def test_wrong_bytes(index: Server, archive: bytes, tmp_path: Path, before: object, tree_of: Snapshot) -> None:
    index.files[f"/files/{NAME}"] = bytes(len(archive))
    with pytest.raises(DigestMismatch):
        fetch(pin_for(archive), cache=tmp_path, refresh=True)
    assert tree_of() == before


def test_a_hostile_archive_with_the_right_digest(
    index: Server, archive: bytes, pack: Callable[..., bytes], tmp_path: Path, before: object, tree_of: Snapshot
) -> None:
    evil = pack(("toy-1/m.py", b"x = 2\n"), ("toy-1/../../evil.py", b"boo"))
    serve(index, evil)
    with pytest.raises(UnsafeArchive):
        fetch(pin_for(evil), cache=tmp_path, refresh=True)
    assert tree_of() == before


def test_a_truncated_archive_with_the_right_digest(
    index: Server, archive: bytes, tmp_path: Path, before: object, tree_of: Snapshot
) -> None:
    short = archive[: len(archive) // 2]
    serve(index, short)
    with pytest.raises(DamagedArchive):
        fetch(pin_for(short), cache=tmp_path, refresh=True)
    assert tree_of() == before


@pytest.mark.parametrize("where", ["extract", "install"])
def test_a_full_disk(
    index: Server,
    archive: bytes,
    tmp_path: Path,
    before: object,
    tree_of: Snapshot,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
) -> None:
    def full(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device", str(tmp_path / "x"))

    monkeypatch.setattr(module, where, full)
    with pytest.raises(DiskTrouble, match="No space left"):
        fetch(pin_for(archive), cache=tmp_path, refresh=True)
    assert tree_of() == before


def test_what_a_killed_fetch_left_is_cleared_away(index: Server, archive: bytes, tmp_path: Path) -> None:
    left = tmp_path / "staging" / "toy@1.dead"
    (left / "tree").mkdir(parents=True)
    (left / "tree/m.py").write_text("half")
    fetch(pin_for(archive), cache=tmp_path)
    assert not left.exists()


# -- two at once ------------------------------------------------------------


def _fetch_apart(pin: Pin, cache: str, endpoint: str, answers: multiprocessing.Queue[str]) -> None:
    os.environ["PAGEWALK_INDEX"] = endpoint
    try:
        answers.put(" ".join(fetch(pin, cache=Path(cache)).paths()))
    except BaseException as error:
        answers.put(repr(error))


def test_two_processes_at_once_download_once(index: Server, archive: bytes, tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    answers: multiprocessing.Queue[str] = context.Queue()
    arguments = (pin_for(archive), str(tmp_path), os.environ["PAGEWALK_INDEX"], answers)
    both = [context.Process(target=_fetch_apart, args=arguments) for _ in range(2)]
    for process in both:
        process.start()
    found = [answers.get(timeout=60) for _ in both]
    for process in both:
        process.join(timeout=60)
    assert found == ["m.py src/a/k.cu"] * 2
    assert [path for path, _ in index.requests].count(f"/files/{NAME}") == 1
    assert list((tmp_path / "staging").iterdir()) == []


# -- the reader's own copy ------------------------------------------------------------


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout"
    (folder / "src/a").mkdir(parents=True)
    (folder / "m.py").write_text("x = 9\n")
    (folder / "src/a/k.cu").write_text("int a;\n")
    (folder / "no.txt").write_text("no")
    return folder


def test_an_own_copy_is_taken_and_marked(archive: bytes, tmp_path: Path, checkout: Path) -> None:
    cache = tmp_path / "cache"
    tree = fetch(pin_for(archive), cache=cache, from_dir=checkout)
    assert (tree.marked_copy, tree.paths(), tree.read("m.py")) == (True, ("m.py", "src/a/k.cu"), b"x = 9\n")
    (checkout / "m.py").write_text("x = 10\n")
    assert fetch(pin_for(archive), cache=cache, from_dir=checkout).read("m.py") == b"x = 10\n"
    assert fetch(pin_for(archive), cache=cache).marked_copy, "an own copy is not fetched over unasked"


def test_a_real_fetch_replaces_an_own_copy_when_asked(
    index: Server, archive: bytes, tmp_path: Path, checkout: Path
) -> None:
    cache = tmp_path / "cache"
    fetch(pin_for(archive), cache=cache, from_dir=checkout)
    assert not fetch(pin_for(archive), cache=cache, refresh=True).marked_copy


def test_copies_that_cannot_be_used(archive: bytes, tmp_path: Path, checkout: Path) -> None:
    cache, pin = tmp_path / "cache", pin_for(archive)
    with pytest.raises(SourceUnavailable, match="is not a folder"):
        fetch(pin, cache=cache, from_dir=tmp_path / "nowhere")
    with pytest.raises(SourceUnavailable, match="has none of its files"):
        fetch(pin, cache=cache, from_dir=checkout / "src")
    (checkout / "evil.py").symlink_to("/etc/hostname")
    with pytest.raises(UnsafeArchive, match="link"):
        fetch(pin, cache=cache, from_dir=checkout)
    assert not (cache / "sources").exists()


# -- git ------------------------------------------------------------


@pytest.fixture
def repository(tmp_path: Path) -> tuple[Path, str]:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    folder = tmp_path / "repo"
    folder.mkdir()
    (folder / "m.py").write_text("x = 1\n")
    (folder / "no.txt").write_text("no")

    def git(*args: str) -> str:
        who = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
        return subprocess.run(["git", "-C", folder, *who, *args], check=True, capture_output=True, text=True).stdout

    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "-m", "one")
    # A server may refuse to give out a commit by its name; this one, like the real one, does not.
    git("config", "uploadpack.allowAnySHA1InWant", "true")
    return folder, git("rev-parse", "HEAD").strip()


def test_a_commit_is_fetched_without_a_work_tree(repository: tuple[Path, str], tmp_path: Path) -> None:
    folder, commit = repository
    pin = pin_for(b"", kind="git", origin=folder.as_uri(), digest=f"git:{commit}", size=None)
    tree = fetch(pin, cache=tmp_path / "cache")
    assert (tree.paths(), tree.read("m.py")) == (("m.py",), b"x = 1\n")
    assert {path.name for path in (tmp_path / "cache/sources/toy@1").iterdir()} == {"tree", "manifest.json"}


@pytest.mark.parametrize(
    ("origin", "digest"), [("file:///nowhere/at/all", None), (None, "git:" + "ab" * 20)], ids=["origin", "commit"]
)
def test_git_trouble_is_a_failed_download(
    repository: tuple[Path, str], tmp_path: Path, origin: str | None, digest: str | None
) -> None:
    folder, commit = repository
    pin = pin_for(b"", kind="git", origin=origin or folder.as_uri(), digest=digest or f"git:{commit}", size=None)
    with pytest.raises(DownloadFailed, match="git said"):
        fetch(pin, cache=tmp_path / "cache")
    assert not (tmp_path / "cache/sources").exists()


def test_a_link_in_a_commit_is_refused(repository: tuple[Path, str], tmp_path: Path) -> None:
    folder, _ = repository
    (folder / "evil.py").symlink_to("/etc/hostname")
    run = ["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run([*run, "add", "."], check=True)
    subprocess.run([*run, "-c", "commit.gpgsign=false", "commit", "--quiet", "-m", "two"], check=True)
    head = subprocess.run([*run, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    pin = pin_for(b"", kind="git", origin=folder.as_uri(), digest=f"git:{head}", size=None)
    with pytest.raises(UnsafeArchive, match=r"evil\.py"):
        fetch(pin, cache=tmp_path / "cache")


def test_no_git_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    pin = pin_for(b"", kind="git", digest="git:" + "ab" * 20, size=None)
    with pytest.raises(DownloadFailed, match="git is not installed"):
        fetch(pin, cache=tmp_path / "cache")


# -- all pins ------------------------------------------------------------


def test_one_failure_does_not_stop_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def failing(pin: Pin, **options: object) -> None:
        asked.append(pin.id)
        raise DownloadFailed(pin.id, "no network")

    monkeypatch.setattr(module, "fetch", failing)
    found = fetch_all(cache=tmp_path)
    assert asked == list(pins()) == list(found)
    assert all(isinstance(entry, AnnotateError) for entry in found.values())


def test_an_unknown_id(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match=r"vllm@0\.24\.0"):
        fetch("vllm@0.24", cache=tmp_path)
    assert list(tmp_path.iterdir()) == []


# -- releases that are not pinned ---------------------------------------


def offer(server: Server, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], yanked: Sequence[str] = ()) -> None:
    """Serve an index of vLLM with these files and digests (an empty one: none is named)."""
    links = [
        f'<a href="/files/{name}{f"#sha256={digest}" if digest else ""}"'
        f"{' data-yanked=bad' if name in yanked else ''}>{name}</a>"
        for name, digest in files.items()
    ]
    server.files["/simple/vllm/"] = f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>".encode()
    monkeypatch.setenv("PAGEWALK_INDEX", f"{server.url}/simple/")


def test_the_newest_release_is_found_by_number_not_by_letters(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("0.9.9", "0.100.0", "0.101.0rc1", "0.102.0.dev3", "0.99.0.post2")
    wheel = {"vllm-0.103.0-py3-none-any.whl": "aa" * 32}
    offered = {f"vllm-{name}.tar.gz": f"{index:02x}" * 32 for index, name in enumerate(names)}
    offer(server, monkeypatch, {**wheel, **offered, "vllm-0.104.0.tar.gz": "ee" * 32}, ["vllm-0.104.0.tar.gz"])
    pin = find_release("vllm")
    assert (pin.id, pin.digest, pin.pinned, pin.drift) == ("vllm@0.100.0", "sha256:" + "01" * 32, False, True)
    assert pin.link("a.py", 1) == "https://github.com/vllm-project/vllm/blob/v0.100.0/a.py#L1"
    assert pin.id not in every_pin()


def test_a_pinned_release_needs_no_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGEWALK_INDEX", "http://127.0.0.1:9/simple")
    assert find_release("vllm", "0.25.0") is every_pin()["vllm@0.25.0"]
    with pytest.raises(DownloadFailed, match="cannot be asked"):
        find_release("vllm", "0.25.7")
    with pytest.raises(DownloadFailed, match=r"vllm@latest.*cannot be asked"):
        find_release("vllm")


def test_the_newest_is_pinned_already(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index has no say about a pinned digest."""
    offer(server, monkeypatch, {"vllm-0.33.0.tar.gz": "ab" * 32})
    assert find_release("vllm") is every_pin()["vllm@0.33.0"]


def test_a_release_that_is_not_there_gets_the_nearest(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(server, monkeypatch, {"vllm-0.50.1.tar.gz": "ab" * 32})
    with pytest.raises(UnknownName, match=r"0\.50\.1"):
        find_release("vllm", "0.50.0")


def test_a_release_without_a_digest_is_not_taken(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(server, monkeypatch, {"vllm-0.50.1.tar.gz": ""})
    with pytest.raises(DownloadFailed, match="names no digest"):
        find_release("vllm", "0.50.1")


def test_an_index_without_any_release(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(server, monkeypatch, {})
    with pytest.raises(DownloadFailed, match="no source distribution"):
        find_release("vllm")

"""The only module that goes to the network: it fetches the pinned sources into the cache, and opens them
there.

A fetch happens in full or not at all: download, digest, unpacking to a folder aside, rename. Two processes at
once wait for each other. Nothing that arrives is ever run.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from annotate.archive import Limits, extract
from annotate.download import Session, download, reason_of
from annotate.errors import (
    AnnotateError,
    DigestMismatch,
    DiskTrouble,
    DownloadFailed,
    SourceUnavailable,
    UnknownName,
    UnsafeArchive,
    nearest,
)
from annotate.releases import newest
from annotate.sourcetree import (
    Pin,
    SourceTree,
    cache_dir,
    every_pin,
    install,
    open_tree,
    opened,
    pin_of,
    pins,
    release_pin,
)

__all__ = ["Pin", "Progress", "SourceTree", "cache_dir", "every_pin", "fetch", "find_release", "open_tree", "pins"]

# Called with a stage (wait, find, download, verify, unpack, copy), how much is done, and of how much, if
# known.
Progress = Callable[[str, int, "int | None"], None]


@dataclass(frozen=True)
class Located:
    """Where an archive can be had: the session to ask, its address and file name."""

    session: Session
    url: str
    filename: str


def fetch(
    pin: Pin | str,
    *,
    cache: Path | None = None,
    from_dir: Path | None = None,
    progress: Progress | None = None,
    refresh: bool = False,
) -> SourceTree:
    """Bring a pinned source into the cache and open it; one that is there already is just opened.

    `from_dir` takes the files of interest from a copy that the reader has, and marks the result as that.
    `refresh` fetches again even if it is there. Raises UnknownName, DownloadFailed, DigestMismatch,
    UnsafeArchive, DamagedArchive, SourceUnavailable or DiskTrouble; then the cache is as it was before.
    """
    pin = pin_of(pin) if isinstance(pin, str) else pin
    folder = cache_dir(cache)
    told = progress or _silent
    try:
        with _locked(folder, pin, told), _staging(folder, pin) as staged:
            if from_dir is None and not refresh:
                try:
                    return opened(pin, folder)
                except SourceUnavailable:
                    pass
            if from_dir is not None:
                _copy(pin, from_dir, staged / "tree", told)
            elif pin.kind == "git":
                _clone(pin, staged, told)
            else:
                _unpack(pin, folder, staged, told)
            return install(pin, staged, folder, marked_copy=from_dir is not None)
    except OSError as error:
        raise DiskTrouble(Path(error.filename) if error.filename else folder, error) from error


def _silent(stage: str, done: int, total: int | None) -> None:
    """Tell nobody."""


@contextmanager
def _locked(folder: Path, pin: Pin, told: Progress) -> Iterator[None]:
    """Hold the pin's lock: a second process waits here, and then finds the source there."""
    import filelock

    (folder / "locks").mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(folder / "locks" / f"{pin.id}.lock")
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        told("wait", 0, None)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _staging(folder: Path, pin: Pin) -> Iterator[Path]:
    """Give a folder aside, on the cache's own file system; it is gone afterwards, whatever happens."""
    home = folder / "staging"
    home.mkdir(parents=True, exist_ok=True)
    # Whoever died while staging held this pin's lock, which is ours now.
    for left in home.glob(f"{pin.id}.*"):
        shutil.rmtree(left, ignore_errors=True)
    staged = Path(tempfile.mkdtemp(dir=home, prefix=f"{pin.id}."))
    try:
        (staged / "tree").mkdir()
        yield staged
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def locate(pin: Pin) -> Located:
    """Find a source distribution in the package index (or the mirror that pip is told to use).

    Raises DownloadFailed if the index cannot be asked or has none, DigestMismatch if it lists another digest.
    """
    session, packages = _ask(pin.name, pin.id)
    if pin.revision not in packages:
        raise DownloadFailed(pin.id, f"the package index has no source distribution of {pin.name} {pin.revision}")
    package = packages[pin.revision]
    listed = package.digests.get("sha256")
    wanted = pin.digest.removeprefix("sha256:")
    if listed is not None and listed != wanted:
        raise DigestMismatch(f"{pin.id}, as the package index lists it,", wanted, listed)
    return Located(session, package.url, package.filename)


def _ask(name: str, source: str) -> tuple[Session, dict[str, Any]]:
    """Return a session and the package index's source distributions of a project, by version."""
    import pypi_simple
    import requests

    endpoint = os.environ.get("PAGEWALK_INDEX") or os.environ.get("PIP_INDEX_URL") or pypi_simple.PYPI_SIMPLE_ENDPOINT
    session = requests.Session()
    client = pypi_simple.PyPISimple(endpoint=endpoint, session=session)
    try:
        page = client.get_project_page(name, timeout=30.0)
    except (
        OSError,
        ValueError,
        pypi_simple.NoSuchProjectError,
        pypi_simple.UnsupportedRepoVersionError,
    ) as error:
        raise DownloadFailed(source, f"the package index cannot be asked ({reason_of(error)})") from error
    found: dict[str, Any] = {}
    for package in page.packages:
        if package.package_type == "sdist" and package.version:
            found.setdefault(package.version, package)
    return session, found


def find_release(name: str, revision: str | None = None) -> Pin:
    """Return the pin of a release, `revision` None: the newest final one that the package index lists.

    One that is not pinned gets the digest that the index lists for it, and says so by `pinned`. Raises UnknownName
    with the nearest numbers, or DownloadFailed if the index cannot be asked or names no digest.
    """
    known = {pin.revision: pin for pin in every_pin().values() if pin.name == name}
    if revision in known:
        return known[revision]
    packages = _ask(name, f"{name}@{revision or 'latest'}")[1]
    offered = [version for version, package in packages.items() if not package.is_yanked]
    wanted = newest(offered) if revision is None else revision
    if wanted is None:
        raise DownloadFailed(f"{name}@latest", "the package index lists no source distribution")
    if wanted in known:
        return known[wanted]
    if wanted not in packages:
        raise UnknownName(f"release of {name} with a source distribution", wanted, nearest(wanted, packages))
    digest = packages[wanted].digests.get("sha256")
    if not re.fullmatch(r"[0-9a-f]{64}", digest or ""):
        raise DownloadFailed(f"{name}@{wanted}", "the package index names no digest for it, so it could not be checked")
    return release_pin(name, wanted, f"sha256:{digest}", packages[wanted].size, pinned=False)


def _unpack(pin: Pin, folder: Path, staged: Path, told: Progress) -> None:
    told("find", 0, None)
    found = locate(pin)
    # The name is ours, not the server's: it ends up as a path.
    target = folder / "downloads" / f"{pin.id}.tar.gz"
    sha256 = pin.digest.removeprefix("sha256:")
    download(found.session, found.url, target, source=pin.id, sha256=sha256, size=pin.size, progress=told)
    try:
        extract(target, staged / "tree", pin.wants, progress=told)
    finally:
        target.unlink(missing_ok=True)


def _copy(pin: Pin, origin: Path, target: Path, told: Progress) -> None:
    """Copy the files of interest from the reader's own copy."""
    if not origin.is_dir():
        raise SourceUnavailable(pin.id, f"{origin} is not a folder", hint="Name the top folder of a checkout")
    count = 0
    for path in sorted(origin.rglob("*")):
        inner = path.relative_to(origin).as_posix()
        if not pin.wants(inner) or path.is_dir():
            continue
        if path.is_symlink() or not path.is_file():
            raise UnsafeArchive(str(origin), inner, "a link or a device stands where a file should")
        if path.stat().st_size > Limits().file:
            raise UnsafeArchive(str(origin), inner, f"more than {Limits().file} bytes")
        (target / inner).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target / inner)
        count += 1
        told("copy", count, None)
    if not count:
        raise SourceUnavailable(pin.id, f"{origin} has none of its files", hint="Name the top folder of a checkout")


def _clone(pin: Pin, staged: Path, told: Progress) -> None:
    """Take the files of interest out of one commit; nothing in it is checked out or run."""
    commit = pin.digest.removeprefix("git:")
    store = staged / "git"
    told("download", 0, None)
    _git(pin, "init", "--quiet", "--bare", str(store))
    _git(pin, "fetch", "--quiet", "--depth=1", "--no-tags", pin.origin, commit, store=store)
    found = _git(pin, "rev-parse", "FETCH_HEAD^{commit}", store=store).decode().strip()
    if found != commit:
        raise DigestMismatch(pin.id, commit, found)
    count = 0
    for entry in _git(pin, "ls-tree", "-r", "-z", "-l", "--full-tree", commit, store=store).split(b"\0"):
        if not entry:
            continue
        facts, _, raw = entry.partition(b"\t")
        mode, _, blob, size = facts.decode().split()
        path = raw.decode("utf-8", "replace")
        if not pin.wants(path):
            continue
        if mode not in ("100644", "100755") or ".." in path.split("/"):
            raise UnsafeArchive(pin.id, path, "a link or a module stands where a file should")
        if int(size) > Limits().file:
            raise UnsafeArchive(pin.id, path, f"{size} bytes are more than it may have")
        (staged / "tree" / path).parent.mkdir(parents=True, exist_ok=True)
        (staged / "tree" / path).write_bytes(_git(pin, "cat-file", "blob", blob, store=store))
        count += 1
        told("unpack", count, None)
    if not count:
        raise SourceUnavailable(pin.id, "the commit has none of its files")
    shutil.rmtree(store)


def _git(pin: Pin, *args: str, store: Path | None = None) -> bytes:
    """Run git so that it neither asks questions nor reads the reader's settings."""
    where = [] if store is None else ["--git-dir", str(store)]
    quiet = {"GIT_TERMINAL_PROMPT": "0", "GIT_CONFIG_NOSYSTEM": "1", "GIT_ASKPASS": "true", "LC_ALL": "C"}
    command = ["git", *where, "-c", "core.hooksPath=/dev/null", *args]
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **quiet},
            capture_output=True,
            check=True,
            timeout=300,
            stdin=subprocess.DEVNULL,
        )
    except FileNotFoundError as error:
        raise DownloadFailed(pin.id, "git is not installed") from error
    except subprocess.TimeoutExpired as error:
        raise DownloadFailed(pin.id, "git did not finish within 300 seconds") from error
    except subprocess.CalledProcessError as error:
        last = error.stderr.decode("utf-8", "replace").strip().splitlines()
        raise DownloadFailed(pin.id, f"git said: {last[-1] if last else error.returncode}") from error
    return done.stdout


def fetch_all(
    *, cache: Path | None = None, progress: Callable[[Pin], Progress] | None = None
) -> dict[str, SourceTree | AnnotateError]:
    """Fetch every pin; an error stands in the place of a source that could not be had."""
    found: dict[str, SourceTree | AnnotateError] = {}
    for pin in pins().values():
        try:
            found[pin.id] = fetch(pin, cache=cache, progress=progress(pin) if progress else None)
        except AnnotateError as error:
            found[pin.id] = error
    return found

"""A pinned source as it lies in the cache: which files there are, their bytes, and where a reader finds them
online.

Each file's digest is kept beside it and checked when it is read, so that an edit in the cache cannot pass as
upstream.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from urllib.parse import quote

from annotate.errors import DigestMismatch, RangeOutside, SourceUnavailable, UnknownName, nearest

TABLE = Path(__file__).with_name("sources.toml")
SCHEMA = 1


@dataclass(frozen=True)
class Pin:
    """One pinned source. `digest` is `sha256:...` of the archive or `git:...` of the commit; `size` is in
    bytes.

    `files` are globs of what is kept, and so are those `beside` them, where drift looks for nothing. `permalink` is a
    template with `{path}`. An `optional` pin may be missing.
    `drift`: only drift looks into it, and the site does without. `pinned` is False for a release whose digest
    the package index named just now.
    """

    id: str
    name: str
    revision: str
    kind: str
    origin: str
    digest: str
    licence: str
    files: tuple[str, ...]
    permalink: str
    size: int | None = None
    optional: bool = False
    drift: bool = False
    pinned: bool = True
    beside: tuple[str, ...] = ()

    def wants(self, path: str) -> bool:
        """Whether a path (below the top folder, with forward slashes) is one of those kept."""
        return any(_pattern(glob).fullmatch(path) for glob in (*self.files, *self.beside))

    def follows(self, path: str) -> bool:
        """Whether drift looks into a path."""
        return any(_pattern(glob).fullmatch(path) for glob in self.files)

    def link(self, path: str, first: int | None = None, last: int | None = None) -> str:
        """Return the permanent link of a file, or of its lines `first` to `last`."""
        url = self.permalink.format(path=quote(path))
        if first is None:
            return url
        return f"{url}#L{first}" if last is None or last == first else f"{url}#L{first}-L{last}"


@cache
def _pattern(glob: str) -> re.Pattern[str]:
    """`*` stays within a folder, `**/` is any number of folders."""
    parts = re.split(r"(\*\*/|\*)", glob)
    return re.compile("".join({"**/": r"(?:[^/]+/)*", "*": r"[^/]*"}.get(part, re.escape(part)) for part in parts))


@cache
def every_pin() -> Mapping[str, Pin]:
    """Return every pinned source by id, those that only drift looks into last."""
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    found = {}
    for name, body in table.items():
        for entry in body["pin"]:
            found[entry["id"]] = Pin(
                name=name, files=tuple(body["files"]), beside=tuple(body.get("beside", ())), **entry
            )
    for name, body in table.items():
        for entry in body.get("drift", {}).get("releases", ()):
            pin = release_pin(name, **entry)
            found[pin.id] = pin
    return MappingProxyType(found)


@cache
def pins() -> Mapping[str, Pin]:
    """Return the pinned sources that the site needs by id, in the order of `sources.toml`."""
    return MappingProxyType({name: pin for name, pin in every_pin().items() if not pin.drift})


def release_pin(name: str, revision: str, digest: str, size: int | None = None, *, pinned: bool = True) -> Pin:
    """Make the pin of a release that only drift looks into, from its digest and what all of them share.

    Raises UnknownName for a source whose releases are not followed.
    """
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    followed = [other for other, body in table.items() if "drift" in body]
    if name not in followed:
        raise UnknownName("source with releases to follow", name, nearest(name, followed))
    shared = table[name]["drift"]
    return Pin(
        id=f"{name}@{revision}",
        name=name,
        revision=revision,
        kind=shared["kind"],
        origin=shared["origin"],
        digest=digest,
        licence=shared["licence"],
        files=(*table[name]["files"], *shared["files"]),
        permalink=shared["permalink"].replace("{revision}", quote(revision)),
        size=size,
        drift=True,
        pinned=pinned,
    )


def pin_of(pin_id: str) -> Pin:
    """Return one pin. Raises UnknownName with the nearest ids."""
    if pin_id not in every_pin():
        raise UnknownName("source", pin_id, nearest(pin_id, every_pin()))
    return every_pin()[pin_id]


def cache_dir(given: Path | None = None) -> Path:
    """Return the cache folder: the one given, else PAGEWALK_CACHE, else this system's place for caches."""
    if given is not None:
        return given
    if named := os.environ.get("PAGEWALK_CACHE"):
        return Path(named).expanduser()
    import platformdirs

    return Path(platformdirs.user_cache_dir("pagewalk", appauthor=False))


def home_of(pin: Pin, cache_folder: Path) -> Path:
    """Return the folder that holds a source in the cache."""
    return cache_folder / "sources" / pin.id


@dataclass(frozen=True)
class SourceTree:
    """The kept files of one source. `marked_copy`: they are the reader's own, not checked against the pin."""

    pin: Pin
    root: Path
    marked_copy: bool
    digests: Mapping[str, str]

    def paths(self) -> tuple[str, ...]:
        """Return the files' paths, relative, with forward slashes, sorted."""
        return tuple(self.digests)

    def read(self, path: str) -> bytes:
        """Return a file's bytes. Raises SourceUnavailable (not kept) or DigestMismatch (edited)."""
        if path not in self.digests:
            near = nearest(path, self.digests)
            hint = f"Near it: {', '.join(near)}" if near else "annotate/sources.toml says which files are kept"
            raise SourceUnavailable(self.pin.id, f"{path} is not among its files", hint=hint)
        try:
            data = (self.root / path).read_bytes()
        except OSError as error:
            raise SourceUnavailable(self.pin.id, f"{path} cannot be read ({error.strerror})") from error
        found = hashlib.sha256(data).hexdigest()
        if found != self.digests[path]:
            raise DigestMismatch(f"{self.pin.id} {path} in the cache", self.digests[path], found)
        return data

    def followed(self) -> SourceTree:
        """Return the part of it that drift looks into."""
        kept = {path: digest for path, digest in self.digests.items() if self.pin.follows(path)}
        return replace(self, digests=MappingProxyType(kept))

    def permalink(self, path: str, first: int | None = None, last: int | None = None) -> str:
        """Return the permanent link of a file or of its lines. Raises RangeOutside for lines it has not."""
        if first is not None and path in self.digests:
            data = self.read(path)
            count = data.count(b"\n") + (not data.endswith(b"\n"))
            if not 1 <= first <= (last or first) <= count:
                raise RangeOutside(path, first, last or first, count)
        return self.pin.link(path, first, last)


def open_tree(pin_id: str, cache: Path | None = None) -> SourceTree:
    """Open a source that was fetched before; no network.

    Raises UnknownName, or SourceUnavailable if it is not in the cache or was fetched for another pin.
    """
    pin = pin_of(pin_id)
    return opened(pin, cache_dir(cache))


def opened(pin: Pin, cache_folder: Path) -> SourceTree:
    """Open a pin's source in a cache folder. Raises SourceUnavailable."""
    home = home_of(pin, cache_folder)
    try:
        manifest = json.loads((home / "manifest.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SourceUnavailable(pin.id, "it was not fetched yet") from None
    except (OSError, ValueError) as error:
        raise SourceUnavailable(pin.id, f"its manifest cannot be read ({error})") from error
    if not isinstance(manifest, dict):
        raise SourceUnavailable(pin.id, "its manifest cannot be read")
    if (manifest.get("schema"), manifest.get("digest"), manifest.get("globs")) != (
        SCHEMA,
        pin.digest,
        [*pin.files, *pin.beside],
    ):
        raise SourceUnavailable(pin.id, "what was fetched belongs to another pin or another choice of files")
    files = manifest["files"]
    missing = [path for path in files if not (home / "tree" / path).is_file()]
    if missing:
        raise SourceUnavailable(pin.id, f"{missing[0]} is gone from the cache")
    return SourceTree(pin, home / "tree", bool(manifest["marked_copy"]), MappingProxyType(files))


def install(pin: Pin, staged: Path, cache_folder: Path, *, marked_copy: bool) -> SourceTree:
    """Put a staged folder (with its files under `tree/`) in the place of what was there, by rename."""
    root = staged / "tree"
    files = {
        path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in root.rglob("*")
        if path.is_file()
    }
    manifest = {
        "schema": SCHEMA,
        "pin": pin.id,
        "digest": pin.digest,
        "globs": [*pin.files, *pin.beside],
        "marked_copy": marked_copy,
        "files": dict(sorted(files.items())),
    }
    (staged / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    home = home_of(pin, cache_folder)
    home.parent.mkdir(parents=True, exist_ok=True)
    old = staged.with_name(f"{staged.name}.old")
    if home.exists():
        home.replace(old)
    try:
        staged.replace(home)
    except OSError:
        if old.exists():
            old.replace(home)
        raise
    shutil.rmtree(old, ignore_errors=True)
    return opened(pin, cache_folder)

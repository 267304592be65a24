"""Unpack the files of interest from a source archive that is not trusted.

Only plain files that are asked for are written, under names that we build ourselves. A name that climbs out,
a link in the place of a wanted file, a name that comes twice or a bomb stops everything.
"""

from __future__ import annotations

import re
import tarfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from annotate.errors import DamagedArchive, UnsafeArchive

Progress = Callable[[str, int, "int | None"], None]


@dataclass(frozen=True)
class Limits:
    """What an archive may hold, in members and bytes: `file` limits one wanted file, `kept` all of them.

    `header` limits the headers that only say something about the next member: these are read into memory at once.
    """

    members: int = 200_000
    file: int = 8 << 20
    kept: int = 64 << 20
    unpacked: int = 4 << 30
    header: int = 1 << 20


def inner_path(archive: str, name: str) -> str:
    """Return a member's path below the archive's top folder (empty for that folder). Raises UnsafeArchive."""
    if "\\" in name or "\0" in name or re.match(r"[A-Za-z]:", name):
        raise UnsafeArchive(archive, name, "its name is not a plain relative path")
    if name.startswith("/"):
        raise UnsafeArchive(archive, name, "its name is absolute")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise UnsafeArchive(archive, name, "its name climbs out of the archive")
    return "/".join(parts[1:])


def extract(
    archive: Path,
    target: Path,
    wanted: Callable[[str], bool],
    *,
    limits: Limits | None = None,
    progress: Progress | None = None,
) -> list[str]:
    """Write the wanted files of a gzipped tar below `target`, without its top folder; return their paths.

    Raises UnsafeArchive or DamagedArchive, and OSError from writing; what was written until then is the
    caller's to remove.
    """
    limits = limits or Limits()
    written: dict[str, None] = {}
    kept = seen = unpacked = 0
    try:
        with tarfile.open(archive, mode="r|gz", tarinfo=_guarded(archive.name, limits.header)) as tar:
            for member in tar:
                seen += 1
                unpacked += max(member.size, 0)
                if seen > limits.members or unpacked > limits.unpacked:
                    raise UnsafeArchive(archive.name, member.name, "the archive unpacks to far more than it should")
                path = inner_path(archive.name, member.name)
                if not path or member.isdir() or not wanted(path):
                    continue
                if not member.isfile():
                    raise UnsafeArchive(archive.name, member.name, "a link or a device stands where a file should")
                if path in written:
                    raise UnsafeArchive(archive.name, member.name, "it is there twice")
                kept += member.size
                if member.size > limits.file or kept > limits.kept:
                    raise UnsafeArchive(archive.name, member.name, f"{member.size} bytes are more than it may have")
                stream = tar.extractfile(member)
                assert stream is not None
                _write(archive, stream, target / path, member.size)
                written[path] = None
                if progress is not None:
                    progress("unpack", len(written), None)
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise DamagedArchive(archive.name, str(error) or type(error).__name__) from error
    except OSError as error:
        if type(error).__name__ == "BadGzipFile":
            raise DamagedArchive(archive.name, str(error)) from error
        raise
    if not written:
        raise DamagedArchive(archive.name, "none of the files of interest is in it")
    return list(written)


_TALKERS = frozenset(
    {tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE}
)


def _guarded(archive: str, most: int) -> type[tarfile.TarInfo]:
    """Return a kind of header that refuses to be long: tarfile itself reads whatever size one claims to have."""

    class Guarded(tarfile.TarInfo):
        def _proc_member(self, tar: tarfile.TarFile) -> Any:
            if self.type in _TALKERS and self.size > most:
                raise UnsafeArchive(archive, self.name[:80], f"a header of {self.size} bytes is no honest header")
            return super()._proc_member(tar)  # type: ignore[misc]

    return Guarded


def _write(archive: Path, stream: IO[bytes], path: Path, size: int) -> None:
    data = stream.read(size)
    if len(data) != size:
        raise DamagedArchive(archive.name, f"{path.name} ends after {len(data)} of {size} bytes")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as out:
        out.write(data)

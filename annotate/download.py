"""Download one file whose digest is known, and go on where a broken download stopped.

The bytes go to a `.part` file beside the target, which gets its name only once its digest is right. The
session is handed in, so this module needs no network library.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from annotate.errors import DigestMismatch, DiskTrouble, DownloadFailed

Progress = Callable[[str, int, "int | None"], None]
CHUNK = 1 << 18
TIMEOUT = 60.0
# A server that sends more than this without a pinned size is not sending what we asked for.
LARGEST = 1 << 30


class Response(Protocol):
    """The part of an HTTP response that is used."""

    status_code: int

    @property
    def headers(self) -> Mapping[str, str]:
        """The header fields, whatever case they are asked for in."""
        ...

    def iter_content(self, chunk_size: int) -> Iterator[bytes]:
        """Yield the body's bytes."""
        ...

    def close(self) -> None:
        """Give the connection back."""
        ...


class Session(Protocol):
    """The part of an HTTP session that is used."""

    def get(self, url: str, *, headers: dict[str, str], stream: bool, timeout: float) -> Response:
        """Send a GET request."""
        ...


def download(
    session: Session,
    url: str,
    target: Path,
    *,
    source: str,
    sha256: str,
    size: int | None = None,
    progress: Progress | None = None,
) -> Path:
    """Fetch `url` into `target`, from where `target.part` ends; return the target.

    Raises DownloadFailed (the part is kept), DigestMismatch or DiskTrouble (it is removed).
    """
    part = target.with_name(f"{target.name}.part")
    while True:
        have = part.stat().st_size if part.exists() else 0
        if size is not None and have > size:
            part.unlink()
            have = 0
        resumed = True
        if size is None or have < size:
            resumed = _receive(session, url, part, have, source, size, progress)
        if progress is not None:
            progress("verify", 0, None)
        found = _digest(part)
        if found == sha256:
            part.replace(target)
            return target
        part.unlink()
        # What was left from an earlier try may have been another file's beginning: one more try, from zero.
        if not resumed:
            raise DigestMismatch(source, sha256, found)


def _receive(
    session: Session,
    url: str,
    part: Path,
    have: int,
    source: str,
    size: int | None,
    progress: Progress | None,
) -> bool:
    """Append what is missing to `part`; return whether anything from before was used."""
    headers = {"Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    try:
        response = session.get(url, headers=headers, stream=True, timeout=TIMEOUT)
    except OSError as error:
        raise DownloadFailed(source, reason_of(error), kept=have) from error
    try:
        start = _start(response, have, source)
        done = _append(response, part, start, source, size, progress)
    finally:
        response.close()
    if size is not None and done < size:
        raise DownloadFailed(source, f"it ended after {done} of {size} bytes", kept=done)
    return start > 0


def _start(response: Response, have: int, source: str) -> int:
    """Return the offset that the response's body starts at: `have`, or 0 where the server cannot resume."""
    if response.status_code == 200:
        return 0
    if response.status_code == 206:
        sent = response.headers.get("Content-Range", "")
        if sent.startswith(f"bytes {have}-"):
            return have
        raise DownloadFailed(source, f"the server answered with another range ({sent or 'none named'})")
    raise DownloadFailed(source, f"the server answered {response.status_code}", kept=have)


def _append(
    response: Response, part: Path, start: int, source: str, size: int | None, progress: Progress | None
) -> int:
    done = start
    try:
        part.parent.mkdir(parents=True, exist_ok=True)
        out = part.open("ab" if start else "wb")
    except OSError as error:
        raise DiskTrouble(part, error) from error
    try:
        chunks = response.iter_content(CHUNK)
        while True:
            try:
                chunk = next(chunks, None)
            except OSError as error:
                raise DownloadFailed(source, reason_of(error), kept=done) from error
            if chunk is None:
                break
            done += len(chunk)
            if done > (size or LARGEST):
                raise DigestMismatch(source, f"of {size or LARGEST} bytes", "of more bytes than that")
            out.write(chunk)
            if progress is not None:
                progress("download", done, size)
        out.close()
    except DigestMismatch:
        out.close()
        part.unlink(missing_ok=True)
        raise
    except OSError as error:
        _abandon(out, part)
        raise DiskTrouble(part, error) from error
    finally:
        if not out.closed:
            out.close()
    return done


def _abandon(out: Any, part: Path) -> None:
    """Close and remove a part that cannot be written: closing may fail for the same reason as writing did."""
    try:
        out.close()
    except OSError:
        out.raw.close()
    part.unlink(missing_ok=True)


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def reason_of(error: BaseException) -> str:
    """Return the innermost cause of a network error in one short line."""
    while True:
        inner = (
            error.__cause__
            or error.__context__
            or next(
                (value for value in [getattr(error, "reason", None), *error.args] if isinstance(value, BaseException)),
                None,
            )
        )
        if inner is None or inner is error:
            break
        error = inner
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 160 else f"{text[:157]}..."

"""Data for pages as scripts: one line of JavaScript that registers packed JSON, so that it also loads from `file://`.

The same content gives the same text each time.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping
from pathlib import Path

from annotate.files import write_text


def script(register: str, name: str, content: object) -> str:
    """The text of a file that registers `content` (its JSON, as gzip in base64) under `name` of `window.REGISTER`."""
    packed = gzip.compress(json.dumps(content, separators=(",", ":"), allow_nan=False).encode(), 9, mtime=0)
    return f'(window.{register}=window.{register}||{{}})["{name}"]="{base64.b64encode(packed).decode()}";\n'


def write_all(folder: Path, texts: Mapping[str, str]) -> list[Path]:
    """Write each text that is missing or differs as `NAME.js`, and delete the others; answers the paths touched."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = {folder / f"{name}.js": text for name, text in texts.items()}
    touched = [path for path in sorted(folder.glob("*.js")) if path not in wanted]
    for path in touched:
        path.unlink()
    for path, text in wanted.items():
        if not path.is_file() or path.read_text("utf-8") != text:
            write_text(path, text)
            touched.append(path)
    return touched

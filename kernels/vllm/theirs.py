"""vLLM's own compiled cache writer, where a reader has it. Beside the benchmark's peers no other file imports vLLM.

It runs as a script in a process of its own (`python theirs.py FOLDER DEVICE`), perhaps under another Python: vLLM
brings its own PyTorch, prints as it loads, and may crash. So it needs vLLM, PyTorch and NumPy, and nothing of ours.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

INPUT, OUTPUT, ANSWER = "input.npz", "output.npz", "answer.json"
ARRAYS = ("key", "value", "key_cache", "value_cache", "slot_mapping")
"""The arrays of one call, in the order of the op's arguments."""
LIKE = "0.24.0 to 0.32.0"
"""The releases whose argument list the call has."""


class Unavailable(RuntimeError):
    """Something is not here that the op needs: `lacking` says what, by kind (vllm, torch, gpu or op)."""

    def __init__(self, lacking: dict[str, str]) -> None:
        self.lacking = lacking
        super().__init__("; ".join(lacking.values()))


def missing(device: str = "cuda") -> dict[str, str]:
    """What is not here, by kind, in words; empty if vLLM can be imported and PyTorch has the device."""
    lacking = {}
    if importlib.util.find_spec("vllm") is None:
        lacking["vllm"] = "vLLM is not installed"
    if importlib.util.find_spec("torch") is None:
        return {**lacking, "torch": "PyTorch is not installed"}
    try:
        import torch
    except (ImportError, OSError) as error:  # OSError: a shared library that does not load
        return {**lacking, "torch": f"PyTorch is installed but cannot be imported ({error})"}
    if device != "cpu":
        if not (torch.version.cuda or torch.version.hip):
            lacking["torch"] = f"PyTorch {torch.__version__} is a build without CUDA"
        elif not torch.cuda.is_available():
            lacking["gpu"] = f"PyTorch {torch.__version__} finds no GPU"
    return lacking


def _need(device: str) -> None:
    lacking = missing(device)
    if lacking:
        raise Unavailable(lacking)


def reshape_and_cache(calls: Iterable[Sequence[Any]], device: str = "cuda") -> tuple[dict[str, str], list[Any]]:
    """Call vLLM's op once for each of `calls`; return the versions and the device, and both caches of each call.

    A call: `ARRAYS` as NumPy arrays (key and value [rows, heads, head_size], the caches in the x layout, slots int64),
    which stay as they are. The cache dtype is `auto`, the scales are one. Raises `Unavailable`.
    """
    _need(device)
    import torch

    version, op = _op()
    scale = torch.ones((), dtype=torch.float32, device=device)
    found = []
    for call in calls:
        key, value, key_cache, value_cache, slots = (torch.from_numpy(array.copy()).to(device) for array in call)
        arguments = (key, value, key_cache, value_cache, slots, "auto", scale, scale)
        _accepts(op, arguments, version)
        try:
            op(*arguments)
        except (AttributeError, NotImplementedError) as error:  # PyTorch's answers where an op is not registered
            raise Unavailable({"op": f"vLLM {version} has no compiled reshape_and_cache here ({error})"}) from error
        found.append((key_cache.cpu().numpy(), value_cache.cpu().numpy()))
    name = torch.cuda.get_device_name(scale.device) if scale.is_cuda else "CPU"
    return {"vllm": version, "torch": str(torch.__version__), "device": name}, found


def _op() -> tuple[str, Callable[..., Any]]:
    """vLLM's version and its Python function in front of the op; raises `Unavailable`."""
    try:
        version = str(getattr(importlib.import_module("vllm"), "__version__", "of unknown version"))
        op: Callable[..., Any] = importlib.import_module("vllm._custom_ops").reshape_and_cache
    except (ImportError, OSError) as error:
        raise Unavailable({"vllm": f"vLLM is installed but cannot be imported ({error})"}) from error
    except AttributeError as error:
        raise Unavailable({"op": f"vLLM {version} has no reshape_and_cache"}) from error
    return version, op


def _accepts(op: Callable[..., Any], arguments: Sequence[Any], version: str) -> None:
    try:
        inspect.signature(op).bind(*arguments)
    except ValueError:  # a function that does not tell
        return
    except TypeError as error:
        problem = f"reshape_and_cache of vLLM {version} takes other arguments than that of {LIKE} ({error})"
        raise Unavailable({"op": problem}) from error


def main(folder: Path, device: str) -> None:
    """Read the calls from `folder`; write the caches and an answer there: ran, unavailable or error, and why."""
    try:
        _need(device)  # first: who lacks vLLM may lack NumPy, too
        np = importlib.import_module("numpy")
        with np.load(folder / INPUT) as given:
            calls = [[given[f"{name}{n}"] for name in ARRAYS] for n in range(len(given) // len(ARRAYS))]
        about, found = reshape_and_cache(calls, device)
        caches = {f"{name}{n}": cache for n, pair in enumerate(found) for name, cache in zip("kv", pair, strict=True)}
        np.savez(folder / OUTPUT, **caches)
        answer: dict[str, Any] = {"status": "ran", **about}
    except Unavailable as error:
        answer = {"status": "unavailable", "lacking": error.lacking}
    except Exception as error:
        answer = {"status": "error", "message": f"{type(error).__name__}: {error}"}
    (folder / ANSWER).write_text(json.dumps(answer), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])

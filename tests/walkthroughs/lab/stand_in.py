"""A stand-in for vLLM's server: counts tokens and blocks of 32 in a pool of 64 as vLLM does, and finds prefixes again.

A script: `stand_in.py PORT [--refuse] [--hang] [--engine]`. The environment says more: EXTRA blocks too many, DIE_AFTER
so many tokens, PACE seconds a token, PIDS a file for the numbers of its processes.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

SIZE, POOL = 32, 64
EXTRA, DIE_AFTER = int(os.environ.get("EXTRA", 0)), int(os.environ.get("DIE_AFTER", 0))
PACE = float(os.environ.get("PACE", "0.003"))
OTHERS = ("num_requests_running", "num_requests_waiting", "num_preemptions_total")


class State:
    """What all requests share."""

    lock = threading.Lock()
    held: dict[int, int] = {}  # noqa: RUF012
    known: list[list[int]] = []  # noqa: RUF012
    total = hits = 0


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        """Say nothing."""

    def reply(self, text: str, status: int = 200) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text.encode())

    def do_GET(self) -> None:
        if self.path == "/health":
            return self.reply("")
        if self.path == "/v1/models":
            return self.reply(os.environ["PAGEWALK_LAB_NAME"])
        with State.lock:
            used = sum(State.held.values()) + (EXTRA if State.held else 0)
            text = f"vllm:kv_cache_usage_perc {used / POOL}\nvllm:generation_tokens_total {State.total}\n"
            text += f"vllm:prefix_cache_hits_total {State.hits}\n"
        return self.reply(text + "".join(f"vllm:{name} 0\n" for name in OTHERS))

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        prompt, count = asked["prompt"], asked["max_tokens"]
        if len(prompt) > 400:
            return self.reply("too long", 400)
        self.send_response(200)
        self.end_headers()
        for n in range(1, count + 1):
            self.step(prompt, n, count)
            self.wfile.write(b"data: " + json.dumps({"choices": [{"token_ids": [7]}]}).encode() + b"\n\n")
            self.wfile.flush()
            time.sleep(PACE)
        self.wfile.write(b"data: [DONE]\n\n")
        return None

    def step(self, prompt: list[int], n: int, count: int) -> None:
        """One token: it is counted before it is sent, as the blocks are."""
        with State.lock:
            State.total += 1
            if n == 1:
                State.hits += max((found(other, prompt) for other in State.known), default=0)
                State.known.append(prompt)
            State.held[id(self)] = math.ceil((len(prompt) + n - 1) / SIZE)
            if n == count:
                del State.held[id(self)]
            if DIE_AFTER and State.total >= DIE_AFTER:
                os.kill(os.getpid(), signal.SIGKILL)


def found(other: list[int], prompt: list[int]) -> int:
    """Tokens in whole blocks with which both begin."""
    blocks = 0
    while (blocks + 1) * SIZE < len(prompt) and other[: (blocks + 1) * SIZE] == prompt[: (blocks + 1) * SIZE]:
        blocks += 1
    return blocks * SIZE


def main() -> None:
    if "--refuse" in sys.argv:
        sys.exit("cannot start: no such model")
    if "--hang" in sys.argv:
        time.sleep(600)
    engine = [subprocess.Popen(["sleep", "600"]).pid] if "--engine" in sys.argv else []
    if "PIDS" in os.environ:
        Path(os.environ["PIDS"]).write_text(" ".join(map(str, (os.getppid(), os.getpid(), *engine))))
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()


if __name__ == "__main__":
    main()

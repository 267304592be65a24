"""vLLM's OpenAI-compatible server as a child process on loopback: started, asked, read, and ended whatever happens.

Requests are streamed by a thread each; meanwhile the metrics are read, and each reading is held against what the
requests allow. The server is niced: on two cores it would starve the one who asks. Its engine is niced more: it would
starve the part that answers.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from walkthroughs.lab.environment import Lab
from walkthroughs.lab.errors import EngineDied, EngineFailed, LabError, PortInUse, TookTooLong, TookTooMuch
from walkthroughs.lab.metrics import Scrape, read
from walkthroughs.lab.phases import BLOCK_SIZE, MAX_LEN, NOT_SENT, NUM_BLOCKS, Outcome, Phase, Sample
from walkthroughs.lab.priority import hold_back
from walkthroughs.lab.process import TICK, Limits, Running, running
from walkthroughs.lab.scenarios import Ask

HOST = "127.0.0.1"
GUARD = Path(__file__).with_name("guard.py")
NICE, ENGINE_NICE = 5, 7
"""How much less of the processor the server gets than we do, and its engine than the server."""
PATIENCE = 3.0
NEEDED = 5 * 2**29
"""Bytes of memory that must be free: the server has several processes, and holds about 1.5 GiB."""
LAYERS = 24
"""Layers of the lab's own model here: with its two, tokens come faster than a busy machine reads the metrics."""
NAME = "PAGEWALK_LAB_NAME"
"""In the server's environment: the name of its model, which no other server's has."""


class Stream(threading.Thread):
    """One request, streamed; `received` grows as its tokens come. `problem`: why it came to nothing."""

    def __init__(self, port: int, model: str, ask: Ask) -> None:
        super().__init__(daemon=True)
        self.port, self.model, self.ask = port, model, ask
        self.received, self.sent, self.problem = 0, False, ""

    def run(self) -> None:
        """Send the request and count what comes."""
        body = {"model": self.model, "prompt": list(self.ask.prompt), "max_tokens": self.ask.generate,
                "temperature": 0, "ignore_eos": True, "stream": True, "return_token_ids": True}  # fmt: skip
        connection = http.client.HTTPConnection(HOST, self.port, timeout=120)
        try:
            with contextlib.closing(connection):
                self._receive(connection, body)
        except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
            self.problem = f"{type(error).__name__}: {error}"
        if not self.problem and self.received != self.ask.generate:
            self.problem = f"{self.received} tokens came, {self.ask.generate} were asked for"

    def _receive(self, connection: http.client.HTTPConnection, body: dict[str, Any]) -> None:
        self.sent = True
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        with connection.getresponse() as answer:
            if answer.status != http.client.OK:
                self.problem = f"HTTP {answer.status}: {answer.read(300).decode('utf-8', 'replace')}"
            for line in answer:
                if line.startswith(b"data: {"):
                    self.received += sum(len(c.get("token_ids") or ()) for c in json.loads(line[6:])["choices"])


@dataclass
class Server:
    """A server that answers. `model`: the name that requests give."""

    child: Running
    port: int
    model: str
    limits: Limits
    num_blocks: int = NUM_BLOCKS

    def scrape(self) -> Scrape:
        """Read the metrics; raises EngineDied if the server has ended, and EngineFailed if it says something else."""
        try:
            status, text = get(self.port, "/metrics")
        except (OSError, http.client.HTTPException) as error:
            self.check(PATIENCE)
            raise EngineFailed(type(error).__name__, f"/metrics does not answer ({error})") from error
        try:
            if status != http.client.OK:
                raise LookupError(f"/metrics answers with status {status}")
            return read(text, self.num_blocks)
        except LookupError as error:
            self.check(PATIENCE)  # a server that dies may leave half a page
            raise EngineFailed("LookupError", str(error)) from error

    def check(self, patience: float = 0.0) -> None:
        """Raise EngineDied or TookTooMuch where the server has ended or holds too much memory.

        `patience`: seconds to wait for its end, where there is a sign of it already.
        """
        with contextlib.suppress(subprocess.TimeoutExpired):
            raise EngineDied(self.child.process.wait(patience), self.child.said)
        _, held = self.child.kin.held()
        if held > self.limits.memory:
            raise TookTooMuch(held, self.limits.memory)

    def run(self, phase: Phase, seen: Callable[[Outcome], None] = lambda outcome: None) -> Outcome:
        """Send a phase's requests, and read the metrics until all are done; `seen` is called after each reading.

        Raises TookTooLong, and what `check` and `scrape` do.
        """
        outcome, start = Outcome(phase), self.scrape()
        streams = [Stream(self.port, self.model, ask) for ask in phase.asks]
        begun = threading.Thread(target=_begin, args=(streams, phase.apart), daemon=True)
        started, looked = time.monotonic(), 0.0
        begun.start()
        while begun.is_alive() or any(stream.is_alive() for stream in streams):
            before = [stream.received for stream in streams]
            scrape = self.scrape()
            # What was received before is a lower bound of what was counted; what was sent must be known from after.
            received = tuple(n if stream.sent else NOT_SENT for n, stream in zip(before, streams, strict=True))
            generated, now = scrape.generated - start.generated, time.monotonic() - started
            low, high = phase.expected(generated, received)
            outcome.samples.append(Sample(now, generated, scrape.used, low, high, received))
            seen(outcome)
            if now > self.limits.seconds:
                raise TookTooLong(self.limits.seconds, f"{phase.id} ran")
            if now - looked > TICK:
                looked = now
                self.check()
        for stream in streams:
            if stream.problem:
                self.check(PATIENCE)
                raise EngineFailed(f"request {stream.ask.name}", stream.problem)
        end = self.scrape()
        outcome.hits, outcome.left = end.hits - start.hits, end.used
        seen(outcome)
        return outcome


def _begin(streams: Sequence[Stream], apart: float) -> None:
    for number, stream in enumerate(streams):
        if number:
            time.sleep(apart)
        stream.start()


def free_port(wanted: int = 0) -> int:
    """A port of 127.0.0.1 that nobody listens on: `wanted`, or any for 0. Raises PortInUse."""
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((HOST, wanted))
        except PermissionError as error:
            raise LabError(f"port {wanted} of {HOST} may not be used: name one above 1023 with --port") from error
        except OSError as error:
            raise PortInUse(wanted) from error
        return int(trial.getsockname()[1])


def get(port: int, path: str, timeout: float = 30.0) -> tuple[int, str]:
    """GET a page of a server on loopback; its status and text. Raises OSError and HTTPException."""
    connection = http.client.HTTPConnection(HOST, port, timeout=timeout)
    try:
        connection.request("GET", path)
        with connection.getresponse() as answer:
            return answer.status, answer.read().decode("utf-8", "replace")
    finally:
        connection.close()


def command(lab: Lab, port: int, name: str) -> list[str]:
    """The server's command line. Nothing is in flight when a step is counted: no asynchronous scheduling."""
    given: dict[str, Any] = {
        "host": HOST, "port": port, "model": lab.model, "served-model-name": name, "block-size": BLOCK_SIZE,
        "num-gpu-blocks-override": NUM_BLOCKS, "max-model-len": MAX_LEN, "max-num-seqs": 8,
        **({"load-format": "dummy", "hf-overrides": json.dumps({"num_hidden_layers": LAYERS})} if lab.own else {}),
    }  # fmt: skip
    options = [part for name, value in given.items() for part in (f"--{name}", str(value))]
    return [str(lab.python), "-m", "vllm.entrypoints.openai.api_server", *options, "--enforce-eager",
            "--no-async-scheduling"]  # fmt: skip


@contextlib.contextmanager
def serving(
    lab: Lab,
    port: int = 0,
    limits: Limits | None = None,
    line: Sequence[str] = (),
    meanwhile: Callable[[Server], None] = lambda server: None,
) -> Iterator[Server]:
    """Start a server, wait until it answers, and end it on the way out, with all that it started.

    `line` stands in for the command. `meanwhile` is called while it starts; the time it takes does not count. Raises
    PortInUse before anything starts, and also where another program was quicker; EngineDied, TookTooLong, TookTooMuch.
    """
    limits = limits or Limits()
    chosen, name = free_port(port), f"lab-{secrets.token_hex(4)}"
    variables = {**lab.variables(), "VLLM_ENABLE_V1_MULTIPROCESSING": "1", NAME: name}
    guarded = [sys.executable, str(GUARD), *(line or command(lab, chosen, name))]
    with running(guarded, variables, nice=NICE) as child:
        server = Server(child, chosen, name, limits)
        meanwhile(server)
        end = time.monotonic() + limits.seconds
        while not _answers(chosen, name):
            server.check()
            if time.monotonic() > end:
                raise TookTooLong(limits.seconds, "the server was starting")
            time.sleep(0.2)
        server.check()
        hold_back(child.kin, ENGINE_NICE)
        yield server


def _answers(port: int, name: str) -> bool:
    """True once our server is ready; raises PortInUse where it is another that answers."""
    with contextlib.suppress(OSError, http.client.HTTPException):
        if get(port, "/health", timeout=5.0)[0] == http.client.OK:
            if name not in get(port, "/v1/models", timeout=5.0)[1]:
                raise PortInUse(port)
            return True
    return False

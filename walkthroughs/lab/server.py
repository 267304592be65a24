"""vLLM's OpenAI-compatible server as a child process on loopback: started, asked, read, and ended whatever happens.

Requests are streamed by a thread each; meanwhile the metrics are read, and each reading is held against what the
requests allow. The server is niced: on two cores it would starve the one who asks.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from walkthroughs.lab.environment import Lab
from walkthroughs.lab.errors import EngineDied, EngineFailed, LabError, PortInUse, TookTooLong, TookTooMuch
from walkthroughs.lab.metrics import Scrape, State, bounds, exact, read
from walkthroughs.lab.process import Limits, Running, running
from walkthroughs.lab.scenarios import Ask, tokens

HOST = "127.0.0.1"
GUARD = Path(__file__).with_name("guard.py")
NICE = 10
PATIENCE = 3.0
NUM_BLOCKS, BLOCK_SIZE, MAX_LEN = 65, 32, 512


@dataclass(frozen=True)
class Phase:
    """Requests that are sent one after the other, `apart` seconds between, and read until all are done.

    `hits`: tokens that they find in the prefix cache in all.
    """

    id: str
    title: str
    asks: tuple[Ask, ...]
    apart: float = 0.0
    hits: int = 0


@dataclass(frozen=True)
class Sample:
    """One reading of the metrics with what it may be: `low` to `high` blocks."""

    seconds: float
    generated: int
    used: int
    low: int
    high: int

    @property
    def fits(self) -> bool:
        """True when the reading lies within its bounds."""
        return self.low <= self.used <= self.high


@dataclass
class Outcome:
    """What a phase showed. `hits`: tokens found in the prefix cache, by the server's own count."""

    phase: Phase
    samples: list[Sample] = field(default_factory=list)
    hits: int = 0
    left: int = -1
    """Blocks in use after the last request: none should be."""

    @property
    def problems(self) -> list[str]:
        """What differs from the prediction, in words."""
        found = [
            f"after {sample.seconds:.2f} s and {sample.generated} tokens: {sample.used} blocks, expected "
            + (f"{sample.low}" if sample.low == sample.high else f"{sample.low} to {sample.high}")
            for sample in self.samples
            if not sample.fits
        ]
        if self.hits != self.phase.hits:
            found.append(f"{self.hits} tokens found in the prefix cache, expected {self.phase.hits}")
        if self.left:
            found.append(f"{self.left} blocks in use after the end, expected 0")
        if not self.samples:
            found.append("the metrics were not read while a request ran")
        return found

    @property
    def status(self) -> str:
        """`passed` when every reading fits, the hits are as predicted and every block was given back."""
        return "failed" if self.problems else "passed"


def phases() -> tuple[Phase, ...]:
    """What `lab serve` sends: one request, several of different lengths, and two with a common prefix in turn."""
    common = tokens("serve shared", 100)
    return (
        Phase("single", "One request", (Ask("a", tokens("serve a", 30), 300),)),
        Phase(
            "several",
            "Three of different lengths, one after the other",
            tuple(Ask(n, tokens(f"serve {n}", p), g) for n, p, g in (("b", 40, 200), ("c", 100, 150), ("d", 7, 250))),
            apart=0.15,
        ),
        Phase("first", "A prefix of 100 tokens, for the first time", (Ask("e", common + tokens("serve e", 9), 20),)),
        Phase("again", "It is found again: 3 whole blocks", (Ask("f", common + tokens("serve f", 20), 20),), hits=96),
    )  # fmt: skip


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

    def state(self) -> State:
        """How far it is."""
        return State(len(self.ask.prompt), self.ask.generate, self.received, self.sent)


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

    def run(self, phase: Phase) -> Outcome:
        """Send a phase's requests, and read the metrics until all are done."""
        outcome, start = Outcome(phase), self.scrape()
        streams = [Stream(self.port, self.model, ask) for ask in phase.asks]
        begun = threading.Thread(target=_begin, args=(streams, phase.apart), daemon=True)
        started = time.monotonic()
        begun.start()
        while begun.is_alive() or any(stream.is_alive() for stream in streams):
            before = [stream.state() for stream in streams]
            scrape = self.scrape()
            # What was received before is a lower bound of what was counted; what was sent must be known from after.
            states = [replace(state, sent=stream.sent) for state, stream in zip(before, streams, strict=True)]
            generated = scrape.generated - start.generated
            if len(streams) == 1:
                low = high = exact(states[0].prompt, states[0].generate, generated, BLOCK_SIZE)
            else:
                low, high = bounds(states, generated, BLOCK_SIZE)
            now = time.monotonic() - started
            outcome.samples.append(Sample(now, generated, scrape.used, low, high))
            if now > self.limits.seconds:
                raise TookTooLong(self.limits.seconds, f"{phase.id} ran")
        for stream in streams:
            if stream.problem:
                self.check(PATIENCE)
                raise EngineFailed(f"request {stream.ask.name}", stream.problem)
        end = self.scrape()
        outcome.hits, outcome.left = end.hits - start.hits, end.used
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


def command(lab: Lab, port: int) -> list[str]:
    """The server's command line. Nothing is in flight when a step is counted: no asynchronous scheduling."""
    given: dict[str, Any] = {
        "host": HOST, "port": port, "model": lab.model, "served-model-name": "lab", "block-size": BLOCK_SIZE,
        "num-gpu-blocks-override": NUM_BLOCKS, "max-model-len": MAX_LEN, "max-num-seqs": 8,
        **({"load-format": "dummy"} if lab.own else {}),
    }  # fmt: skip
    options = [part for name, value in given.items() for part in (f"--{name}", str(value))]
    return [str(lab.python), "-m", "vllm.entrypoints.openai.api_server", *options, "--enforce-eager",
            "--no-async-scheduling"]  # fmt: skip


@contextlib.contextmanager
def serving(lab: Lab, port: int = 0, limits: Limits | None = None, line: Sequence[str] = ()) -> Iterator[Server]:
    """Start a server, wait until it answers, and end it on the way out, with all that it started.

    `line` stands in for the command. Raises PortInUse before anything starts; EngineDied, TookTooLong, TookTooMuch.
    """
    limits = limits or Limits()
    chosen = free_port(port)
    variables = {**lab.variables(), "VLLM_ENABLE_V1_MULTIPROCESSING": "1"}
    guarded = [sys.executable, str(GUARD), *(line or command(lab, chosen))]
    with running(guarded, variables, nice=NICE) as child:
        server = Server(child, chosen, "lab", limits)
        end = time.monotonic() + limits.seconds
        while not _answers(chosen):
            server.check()
            if time.monotonic() > end:
                raise TookTooLong(limits.seconds, "the server was starting")
            time.sleep(0.2)
        server.check()
        yield server


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError, http.client.HTTPException):
        return get(port, "/health", timeout=5.0)[0] == http.client.OK
    return False

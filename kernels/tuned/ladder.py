"""The rungs in their order: what each is called, which file it is, and how it makes a call into launches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kernels.kernel import Backend
from kernels.tuned import classic, grouped, online, ring_launch, split, tensor_cores, token_loop, wide_loads
from kernels.tuned.call import Decode, Launch, Zeros
from kernels.tuned.plan import Plan

Launches = Callable[[Decode, Zeros, Plan | None], tuple[Launch, ...]]
"""A call, where its scratch memory comes from and how it is cut (None: the rung chooses) -> what is launched, in order.
Raises ArgumentError for a call that the rung does not take."""


@dataclass(frozen=True)
class Rung:
    """One step of the ladder. `idea`: what is new in it, in a few words."""

    number: int
    id: str
    title: str
    idea: str
    launches: Launches


RUNGS: dict[str, Rung] = {
    rung.id: rung
    for rung in (
        Rung(
            0, "token-loop", "One token at a time", "tiny-vllm's loop on vLLM's layout: a thread an element",
            token_loop.launches,
        ),
        Rung(1, "classic-v1", "vLLM's v1", "a warp a KV block, all scores in shared memory", classic.launches_v1),
        Rung(2, "classic-v2", "vLLM's v2", "partitions of 512 tokens, merged by a second kernel", classic.launches_v2),
        Rung(3, "wide-loads", "Wide loads", "every access to the cache is one load of 16 bytes", wide_loads.launches),
        Rung(
            4, "grouped", "Query heads in a group", "one thread block for all query heads of a KV head",
            grouped.launches,
        ),
        Rung(5, "online", "Online softmax", "one pass, and no score leaves the registers", online.launches),
        Rung(6, "split", "Splits", "a sequence for as many thread blocks as fill the GPU", split.launches),
        Rung(
            7, "tensor-cores", "Tensor cores", "products on tensor cores, their operands straight from the cache",
            tensor_cores.launches,
        ),
        Rung(
            8, "ring", "A ring of bulk copies", "the copy engine brings blocks while the warp computes",
            ring_launch.launches,
        ),
    )
}  # fmt: skip
"""By id, from the slowest to the fastest."""


def attend(rung: str, call: Decode, *, plan: Plan | None = None, backend: str | Backend = "sim") -> None:
    """Decode attention by one rung; `call.out` is written in place. Raises ArgumentError, LaunchError."""
    for launch in RUNGS[rung].launches(call, np.zeros, plan):
        launch.run(backend)

"""What a process that runs many cases must do with torch between them: memory given back, a broken context noticed."""

from __future__ import annotations

import contextlib

import torch


def one_thread() -> None:
    """Leave the other cores to the other processes."""
    torch.set_num_threads(1)


def give_memory_back(device: str) -> None:
    """Free what torch keeps for later: other processes use the same GPU."""
    if device != "cpu":
        with contextlib.suppress(RuntimeError):
            torch.cuda.empty_cache()


def works(device: str) -> bool:
    """Whether the device still computes: after an illegal access a CUDA context answers every call with an error."""
    try:
        if device != "cpu":
            torch.cuda.synchronize()
        return bool((torch.ones(1, device=device) + 1 == 2).all())
    except RuntimeError:
        return False

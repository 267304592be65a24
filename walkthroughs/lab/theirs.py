"""vLLM's own block pool, cache manager, slot-mapping op and cache view, as an oracle that shares no code with ours.

A script for the Python of the lab's environment: it reads a question a line, JSON, and answers each in a line, until
its stdin closes. It needs vLLM and the standard library, and nothing of ours.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

Question = Mapping[str, Any]


def load(name: str) -> Any:
    """A module of vLLM, or torch."""
    return importlib.import_module(name)


def pool(question: Question) -> list[Any]:
    """Take, share and release blocks; after each, the free blocks and how many hold each block that is held.

    Blocks are known by the order in which they were taken. `stream`: ["take", count], ["share" | "release", which].
    """
    kept = load("vllm.v1.core.block_pool").BlockPool(question["num_blocks"] + 1, False, 1)
    taken: list[Any] = []
    live: list[int] = []
    answers: list[Any] = []
    for action, number in question["stream"]:
        if action == "take" and number > kept.get_num_free_blocks():
            answers.append("full")
            continue
        if action == "take":
            live += range(len(taken), len(taken) + number)
            taken += kept.get_new_blocks(number)
        elif action == "share":
            kept.touch([taken[number]])
        else:
            kept.free_blocks([taken[number]])
            live = [one for one in live if one != number or taken[one].ref_cnt]
        answers.append([kept.get_num_free_blocks(), {str(one): taken[one].ref_cnt for one in live}])
    return answers


def manager(question: Question) -> list[Any]:
    """Let requests come, grow and go; after each, [tokens found, blocks in use, each request's reference counts].

    `stream`: ["new", name, prompt], ["grow", name, token ids], ["free", name]. `full` where nothing was given.
    """
    size, caching = question["block_size"], question["caching"]
    utils, interface = load("vllm.v1.core.kv_cache_utils"), load("vllm.v1.kv_cache_interface")
    digest = load("vllm.utils.hashing").sha256
    utils.init_none_hash(digest)
    spec = interface.FullAttentionSpec(block_size=size, num_kv_heads=1, head_size=8, dtype=load("torch").float32)
    groups = [interface.KVCacheGroupSpec(["layer"], spec)]
    config = interface.KVCacheConfig(num_blocks=question["num_blocks"] + 1, kv_cache_tensors=[], kv_cache_groups=groups)
    kept = load("vllm.v1.core.kv_cache_manager").KVCacheManager(
        config, 100_000, scheduler_block_size=size, hash_block_size=size, enable_caching=caching
    )
    request_class, params = load("vllm.v1.request").Request, load("vllm").SamplingParams(max_tokens=10_000)
    hasher = utils.get_request_block_hasher(size, digest)
    here: dict[str, Any] = {}
    answers: list[Any] = []
    for action, name, *more in question["stream"]:
        found = 0
        if action == "new":
            request = request_class(name, more[0], params, None, block_hasher=hasher)
            blocks, found, *_ = kept.get_computed_blocks(request)
            given = kept.allocate_slots(request, len(more[0]) - found, found, blocks)
        elif action == "grow":
            request = here[name]
            request.append_output_token_ids(more[0])
            given = kept.allocate_slots(request, len(more[0]))
            if given is None:  # take the tokens back, as if they had not been said
                del request._output_token_ids[-len(more[0]) :], request._all_token_ids[-len(more[0]) :]
        else:
            kept.free(here.pop(name))
            given = ()
        if given is None:
            answers.append("full")
            continue
        if action != "free":
            here[name] = request
            request.num_computed_tokens = request.num_tokens
        used = question["num_blocks"] - kept.block_pool.get_num_free_blocks()
        counts = {one: [block.ref_cnt for block in kept.get_blocks(one).blocks[0]] for one in here}
        answers.append([found, used, counts])
    return answers


def slots(question: Question) -> list[int]:
    """The slot of every token: `starts` [requests + 1], `positions` [tokens], `tables` [requests, blocks]."""
    torch = load("torch")
    load("vllm._custom_ops")
    mapping = torch.full((len(question["positions"]),), -9, dtype=torch.int64)
    torch.ops._C.compute_slot_mapping_kernel_impl(
        torch.tensor(question["starts"], dtype=torch.int32),
        torch.tensor(question["positions"], dtype=torch.int64),
        torch.tensor(question["tables"], dtype=torch.int32),
        mapping,
        question["block_size"],
    )
    return [int(slot) for slot in mapping]


def split(question: Question) -> list[Any]:
    """[shape, strides, first element] of the key view and of the value view of a cache, in elements."""
    torch = load("torch")
    attention = load("vllm.v1.attention.ops.paged_attn").PagedAttention
    heads, head_size = question["num_kv_heads"], question["head_size"]
    row = question["block_size"] * heads * head_size
    dtype = {1: torch.uint8, 2: torch.bfloat16, 4: torch.float32}[question["element_size"]]
    cache = torch.empty((2, question["num_blocks"], row), dtype=dtype)
    views = attention.split_kv_cache(cache, heads, head_size)
    return [[list(view.shape), list(view.stride()), view.storage_offset()] for view in views]


def versions(question: Question) -> dict[str, str]:
    """What answers."""
    return {"vllm": str(load("vllm").__version__), "torch": str(load("torch").__version__)}


ANSWERS: dict[str, Callable[[Question], Any]] = {
    "pool": pool, "manager": manager, "slots": slots, "split": split, "versions": versions,
}  # fmt: skip


def main() -> None:
    """Answer questions, `{"ask": NAME, ...}`, until there are no more."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a library prints must not stand among the answers
    for line in sys.stdin:
        question = json.loads(line)
        try:
            answer = {"answer": ANSWERS[question["ask"]](question)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    answers.close()
    os._exit(0)


if __name__ == "__main__":
    main()

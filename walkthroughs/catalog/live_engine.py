"""The live engine: how many blocks a real vLLM held after every step, beside what our own pool says it must.

vLLM's side is the lab's committed record; nothing here runs vLLM. The prediction is made anew at every run, and a
kernel of ours reads through the very block tables that vLLM filled.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernels.layout import blocks_for
from walkthroughs.lab import record
from walkthroughs.lab.predict import Moment, predict
from walkthroughs.lab.record import Kept
from walkthroughs.lab.scenarios import Scenario, scenarios
from walkthroughs.step import Walkthrough
from walkthroughs.workbench import Workbench

ORDER = 9
WALKTHROUGH = Walkthrough(
    id="live-engine",
    title="The live engine: predict, then watch",
    intro="""
Everything so far ran in our own code. Does a real engine do the same? Here vLLM 0.32.0 served a tiny model on a CPU,
one step at a time, and after each step its block tables were written down. A step computes the prompts that came in
and one token of every request that runs.

Before you read a chart, say a number: how many blocks are in use at first, half way, at the end? The line is
our prediction, made by the pool on the left. The points are what vLLM held.

The chart stands on a record. With `make live-lab` and `pagewalk lab run` you watch it yourself, and are asked first.
""",
    source="kernels/block_pool.py",
    port="kernels/gather.py",
    seen="walkthroughs/lab/record.json",
)
HEAD_SIZE = 4
ROUNDING = 1e-12
RNG = np.random.default_rng(9)
QUERY = RNG.standard_normal(HEAD_SIZE)
KEYS, VALUES = RNG.standard_normal((2, 512, HEAD_SIZE))


@dataclass(frozen=True)
class Lab:
    """A scenario with both sides of it."""

    scenario: Scenario
    predicted: tuple[Moment, ...]
    kept: Kept

    def row(self, name: str) -> list[int]:
        """A request's blocks after each step, as predicted; 0 before it came."""
        return [next((row.blocks for row in moment.rows if row.name == name), 0) for moment in self.predicted]

    def tokens(self, name: str) -> int:
        """The tokens of a request that have a key and a value in its longest table that was seen after a step."""
        ask = next(ask for ask in self.scenario.requests if ask.name == name)
        return min(len(ask.prompt) + ask.generate - 1, len(self.kept.tables[name]) * self.scenario.block_size)

    def common(self, one: str, other: str) -> int:
        """How many tokens in front two prompts have in common."""
        prompts = {ask.name: ask.prompt for ask in self.scenario.requests}
        pairs = zip(prompts[one], prompts[other], strict=False)
        return next((n for n, (left, right) in enumerate(pairs) if left != right), 0)

    def alike(self, one: str, other: str) -> int:
        """How many blocks in front two of vLLM's tables have in common, the same physical ones."""
        pairs = zip(self.kept.tables[one], self.kept.tables[other], strict=False)
        return next((n for n, (left, right) in enumerate(pairs) if left != right), 0)


def lab(name: str) -> Lab:
    """A scenario, its prediction, and the record of it; raises LookupError where there is none."""
    made = record.load()
    kept = next((one for one in made.scenarios if one.id == name), None) if made else None
    if kept is None:
        raise LookupError(f"the lab's record has no {name}: `pagewalk lab run --record` makes one")
    scenario = scenarios()[name]
    return Lab(scenario, predict(scenario), kept)


def same_counts(bench: Workbench, seen: Lab) -> None:
    """vLLM's count of blocks in use after every step, against ours."""
    predicted = [moment.used for moment in seen.predicted]
    bench.check(f"vLLM's blocks in use after each of {len(predicted)} steps", list(seen.kept.used), predicted)


def read(bench: Workbench, seen: Lab, name: str) -> None:
    """Fill vLLM's physical blocks of a request with made-up tokens, and read them through its table."""
    size, tokens, table = seen.scenario.block_size, seen.tokens(name), seen.kept.tables[name]
    pools = (np.full((seen.scenario.num_blocks, size, HEAD_SIZE), np.nan),) * 2
    k_pool, v_pool = (pool.copy() for pool in pools)
    for token in range(tokens):
        k_pool[table[token // size], token % size] = KEYS[token]
        v_pool[table[token // size], token % size] = VALUES[token]
    block = bench.watch("block", "physical_block_number", at="gather-lookup", by=("block_idx",))
    run = bench.gather(QUERY, (k_pool, v_pool), np.array(table, np.int32), tokens, 0.5, block)
    scores = KEYS[:tokens] @ QUERY * 0.5
    weights = np.exp(scores - scores.max())
    bench.check(f"physical blocks of {name} that the kernel reads", run.series("block"), list(table))
    bench.check(f"output for {name}", run.out[0], weights @ VALUES[:tokens] / weights.sum(), tolerance=ROUNDING)


@WALKTHROUGH.step(
    "newest-token", title="The newest token has no block yet", reads=("block-table-growth", "gather-lookup")
)
def step_newest_token(bench: Workbench) -> None:
    """
    A prompt of 30 tokens, blocks of 32. Three tokens are generated. That makes 33. How many blocks?

    One. A token is generated at the end of a step, and its key and value are computed in the next one. So the newest
    token never lies in a block yet. After a step that generated token g, a request of prompt p holds
    ceil((p + g − 1) / 32) blocks.

    Leave out the − 1, and you are right most of the time. In this run of 99 steps that still held something, the
    short formula is wrong after 4.

    ::: lab growing-32
    """
    seen = lab("growing-32")
    same_counts(bench, seen)
    held = list(seen.kept.used[:-1])
    prompt = len(seen.scenario.requests[0].prompt)
    bench.check("tokens after three are generated, and those that lie in blocks", [prompt + 3, prompt + 2], [33, 32])
    bench.check("by the formula", held, [blocks_for(30 + g - 1, 32) for g in range(1, 100)])
    wrong = [g for g, used in enumerate(held, 1) if blocks_for(30 + g, 32) != used]
    bench.check("steps after which the short formula is wrong", wrong, [3, 35, 67, 99])
    read(bench, seen, "a")


@WALKTHROUGH.step("edges", title="A block at every edge", reads=("block-table-growth", "block-pool", "gather-lookup"))
def step_edges(bench: Workbench) -> None:
    """
    When does the table of that request grow? When a token falls into a block that is not there.

    Tokens 31 and 32 fill the first block. Token 33 needs a second. It was generated in step 3, and its key is written
    in step 4. From there on every 32nd step takes one block more: steps 4, 36 and 68.

    Between the edges nobody takes anything. That is what the flat parts of the line say.

    One more edge is never seen. In step 100 the last token but one falls into a fifth block, and the request is done in
    the same step. The block is taken and given back before anybody looks.
    """
    seen = lab("growing-32")
    blocks = seen.kept.blocks["a"]
    grew = [step for step in range(2, len(blocks) + 1) if blocks[step - 1] > blocks[step - 2]]
    bench.check("steps at which vLLM took a block", grew, [4, 36, 68])
    token = len(seen.scenario.requests[0].prompt) + grew[0] - 1
    bench.check("last two tokens of the first block, and the next", [token - 2, token - 1, token], [31, 32, 33])
    bench.check("steps that generate that token and write its key", [token - 30, grew[0]], [3, 4])
    edges = [m.step for m in seen.predicted for event in m.events if event.kind == "edge"]
    bench.check("edges of our own table", edges, [*grew, 100])
    read(bench, seen, "a")


@WALKTHROUGH.step("large-blocks", title="Larger blocks, fewer edges", reads=("block-table-growth", "gather-lookup"))
def step_large_blocks(bench: Workbench) -> None:
    """
    The same with blocks of 128 tokens. A prompt of 100 tokens that grows by 60 crosses one edge, in step 30.

    The price stands at the other end. After step 30 the second block holds one token of 128. The rest of it is taken
    and empty, and nobody else can have it.

    ::: lab growing-128
    """
    seen = lab("growing-128")
    same_counts(bench, seen)
    ask = seen.scenario.requests[0]
    bench.check("tokens of the prompt, and those generated", [len(ask.prompt), ask.generate], [100, 60])
    crossed = next(step for step, used in enumerate(seen.kept.used, 1) if used == 2)
    bench.check("step with the second block", crossed, 128 - 100 + 2)
    bench.check("tokens in two blocks then", 100 + crossed - 1, 129)
    read(bench, seen, "a")


@WALKTHROUGH.step("several", title="Several add up", reads=("block-pool", "block-table-growth", "gather-lookup"))
def step_several(bench: Workbench) -> None:
    """
    Six requests of different lengths come and go. None begins like another. So the blocks in use are a plain sum: one
    formula for each request that runs, and nothing for those that are done.

    Look at the prompts of 32 and 33 tokens. They differ by one token, and in their first step by one block. The prompt
    of 32 takes its second block one step later, when the first token that it generated is written.

    ::: lab several-32
    """
    seen = lab("several-32")
    same_counts(bench, seen)
    bench.check("requests", len(seen.kept.tables), 6)
    total = [sum(column) for column in zip(*seen.kept.blocks.values(), strict=True)]
    bench.check("sum over vLLM's tables", total, list(seen.kept.used))
    first = {name: next(count for count in seen.kept.blocks[name] if count) for name in ("c", "d")}
    bench.check("first blocks of the prompts of 32 and 33", [first["c"], first["d"]], [1, 2])
    read(bench, seen, "e")


@WALKTHROUGH.step("shared", title="The same physical blocks", reads=("prefix-sharing", "block-pool", "gather-lookup"))
def step_shared(bench: Workbench) -> None:
    """
    Two requests begin with the same 100 tokens, and arrive together. vLLM knows a block by the tokens in it and
    before it [L1-08]. It looks for such a block before it takes a new one.

    After step 1 the two tables hold 8 blocks between them, and the pool says 5. Three of them stand in both tables.
    Not copies: the same three numbers.

    ::: lab shared-32
    """
    seen = lab("shared-32")
    same_counts(bench, seen)
    bench.check("tokens that the prompts of a and b have in common", seen.common("a", "b"), 100)
    both = seen.kept.blocks["a"][0] + seen.kept.blocks["b"][0]
    bench.check("blocks in both tables after step 1, and in use", [both, seen.kept.used[0]], [8, 5])
    bench.check("physical blocks that a and b have in common", seen.alike("a", "b"), 3)
    read(bench, seen, "b")


@WALKTHROUGH.step("whole-blocks", title="A hit is whole blocks", reads=("prefix-sharing", "gather-lookup"))
def step_whole_blocks(bench: Workbench) -> None:
    """
    100 tokens are common, and 96 are found. Four are computed again. A block that is only partly alike would have to
    differ in its other part, so it cannot be shared.

    So large blocks find less. Of 100 common tokens a block of 128 finds none. Of 300 it finds 256, two blocks, and
    computes 44 again.

    The rule: floor(common / block size) blocks.

    ::: lab shared-128
    """
    small, large = lab("shared-32"), lab("shared-128")
    same_counts(bench, large)
    bench.check("found of 100 tokens, blocks of 32", small.alike("a", "c") * 32, 100 // 32 * 32)
    bench.check("found of 300 tokens, blocks of 128", large.alike("a", "b") * 128, 300 // 128 * 128)
    bench.check("computed again, of those 300", large.common("a", "b") - large.alike("a", "b") * 128, 44)
    hits = {row.name: row.hit for row in large.predicted[-1].rows}
    bench.check("hits of our own tables", [hits["b"], hits["c"]], [256, 256])
    read(bench, large, "c")


@WALKTHROUGH.step(
    "found-again", title="Let go, and found again", reads=("block-pool", "prefix-sharing", "gather-lookup")
)
def step_found_again(bench: Workbench) -> None:
    """
    The last request with that prefix comes after all the others are done. Nothing is in use at that moment. Does it
    have to compute the prefix again?

    No. A block that was let go keeps what is in it until somebody takes it for something else. vLLM remembers the
    tokens of free blocks, too [live-engine/found-again]. The latecomer gets the very blocks of the first one back.

    For the count it makes no difference. A block that is found free is taken all the same.
    """
    seen = lab("shared-32")
    arrives = next(ask.arrives for ask in seen.scenario.requests if ask.name == "d")
    bench.check("blocks in use before it comes", seen.kept.used[arrives - 2], 0)
    bench.check("blocks of the first that it gets back", seen.alike("a", "d"), 3)
    bench.check("blocks in use after it came", seen.kept.used[arrives - 1], blocks_for(105, 32))
    read(bench, seen, "d")


@WALKTHROUGH.step("waiting", title="Who does not fit waits", reads=("block-pool", "gather-lookup"))
def step_waiting(bench: Workbench) -> None:
    """
    Twelve blocks, five requests. When does the next one come in? When its whole sequence fits into what is free, and
    when fewer than four run.

    The first ones come in as they arrive. The last one has to wait until somebody is done. While it waits it holds
    nothing: its table is empty.

    The pool is never more than full. The line never goes above twelve.

    ::: lab demand-32
    """
    seen = lab("demand-32")
    same_counts(bench, seen)
    bench.check("requests, and the most that run at once", [len(seen.kept.tables), seen.scenario.max_seqs], [5, 4])
    bench.check("most blocks in use", max(seen.kept.used), 12)
    came = {name: next(n for n, count in enumerate(blocks, 1) if count) for name, blocks in seen.kept.blocks.items()}
    admitted = {
        event.request: m.step for m in reversed(seen.predicted) for event in m.events if event.kind == "admitted"
    }
    bench.check("step at which each holds its first block", sorted(came.items()), sorted(admitted.items()))
    read(bench, seen, "c")


@WALKTHROUGH.step(
    "preempted", title="The last one gives way", reads=("block-pool", "block-table-growth", "gather-lookup")
)
def step_preempted(bench: Workbench) -> None:
    """
    Every block is in use, and a request crosses an edge. There is no block for it. What now?

    The request that came in last gives back everything, and waits at the head of the queue. Its tokens are kept, its
    keys and values are not. When it comes in again, they are computed once more, prompt and answer in one go.

    In the chart the line drops by all of its blocks at once, by two and later by four. Both times it was the last one
    itself that asked. So nobody takes any of them at that moment.
    """
    seen = lab("demand-32")
    gone = [(event.request, m.step) for m in seen.predicted for event in m.events if event.kind == "preempted"]
    bench.check("who gives way, and in which step", [list(one) for one in gone], [["d", 28], ["c", 41]])
    after = [seen.kept.blocks[name][step - 1] for name, step in gone]
    before = [seen.kept.blocks[name][step - 2] for name, step in gone]
    bench.check("blocks that vLLM left them", after, [0, 0])
    bench.check("blocks that they held before", before, [seen.row(name)[step - 2] for name, step in gone])
    for name, _ in gone:
        bench.check(f"blocks of {name} after each step", list(seen.kept.blocks[name]), seen.row(name))
        read(bench, seen, name)


@WALKTHROUGH.step("freed", title="At the end nothing is held", reads=("block-pool", "gather-lookup"))
def step_freed(bench: Workbench) -> None:
    """
    A request that is done gives its blocks back in the same step in which its last token is generated. So the last
    point of every chart is 0.

    That is worth a look in every scenario. A block that is never given back is a leak. It would show as a line
    that ends above 0, and some day as an engine that admits nobody.

    ::: lab demand-128
    """
    every = [lab(name) for name in scenarios()]
    bench.check("blocks in use at the end of each scenario", [seen.kept.used[-1] for seen in every], [0] * len(every))
    steps = sum(len(seen.kept.used) for seen in every)
    agree = sum(
        used == moment.used for seen in every for used, moment in zip(seen.kept.used, seen.predicted, strict=True)
    )
    bench.check("steps in which vLLM and our pool agree", agree, steps)
    same_counts(bench, lab("demand-128"))
    read(bench, lab("demand-128"), "b")

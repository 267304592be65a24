"""The running softmax by hand: one update, a merge of partitions, and what the kernel's 1e-6 does.

Scores are small whole numbers, so that a table of three powers of e is enough. The answers come from running the
reference and the oracles.
"""

from __future__ import annotations

import random

import numpy as np

from kernels import oracle, oracle_v2, reference
from kernels.cases import DecodeCase
from walkthroughs.drills.compute.problem import Problem, bullets, generator

POWERS = "(e^-1 = 0.36788, e^-2 = 0.13534, e^-3 = 0.04979, e^-4 = 0.01832)"
EPSILON = oracle.KERNEL_EPSILON
OTHER_EPSILON = 1e-10
"""What the 2d kernel adds."""


def _trace(scores: list[int], values: list[int]) -> list[reference.TokenStep]:
    """What the reference knows after each token of a head of one channel, with these scores."""
    keys, rows = [[float(score)] for score in scores], [[float(value)] for value in values]
    return reference.paged_attention_trace([1.0], [keys], [rows], [0], len(scores), len(scores), 1.0)[1]


def _case(scores: list[int]) -> DecodeCase:
    """One query head of one channel with these scores; no paged caches, which the oracles do not read."""
    rows = np.array(scores, np.float64).reshape(-1, 1, 1)
    nothing = np.zeros((1, 1, 1, 1))
    return DecodeCase(
        "drill", 0, np.ones((1, 1, 1)), (rows,), (np.ones_like(rows),), np.zeros((1, 1), np.int32),
        np.array([len(scores)], np.int32), nothing, nothing, len(scores), 1, 1.0,
    )  # fmt: skip


def _update(rng: random.Random) -> tuple[list[int], list[int], list[reference.TokenStep]]:
    scores = [rng.randint(-2, 2) for _ in range(3)]
    values = [rng.randint(1, 9) for _ in range(3)]
    # A new maximum more often than not: there the old state must be rescaled.
    if rng.random() < 0.7:
        scores[2] = max(scores[:2]) + rng.randint(1, 2)
    return scores, values, _trace(scores, values)


@generator(
    "online-sum",
    title="One step of the running sum",
    level=2,
    concepts=("online-softmax", "running-sum", "running-rescale", "running-max"),
    steps=("paged-reference/online-softmax", "vllm-live/max", "tiny-vllm/online-softmax"),
    claims=("L2-38",),
)
def online_sum(rng: random.Random) -> Problem:
    """Three scores -> running sum after the third."""
    scores, _, trace = _update(rng)
    before, after = trace[1], trace[2]
    answer, score = after.running_sum, float(scores[2])
    correction, weight = np.exp(before.running_max - after.running_max), np.exp(score - after.running_max)
    return Problem(
        f"Online softmax, token by token, over the scores `{scores}`. After the first two, the running maximum is "
        f"{before.running_max:g} and the running sum {before.running_sum:.5f}. What is the running sum after the "
        f"third? {POWERS}",
        answer,
        (
            (before.running_sum + float(weight), "did not rescale the old sum to the new maximum"),
            (before.running_sum + float(np.exp(score - before.running_max)), "kept the old maximum"),
            (before.running_sum + float(np.exp(score)), "added exp(score) without taking the maximum away"),
            (before.running_sum * float(correction), "forgot the new token"),
            (
                before.running_sum / float(correction) + float(weight),
                "rescaled the wrong way: exp(old maximum - new maximum) is at most 1",
            ),
            (before.running_sum * float(correction) + score, "added the score itself"),
        ),
        bullets(
            f"new maximum = max({before.running_max:g}, {score:g}) = {after.running_max:g}",
            f"correction = e^({before.running_max:g} - {after.running_max:g}) = {correction:.5f}",
            f"weight = e^({score:g} - {after.running_max:g}) = {weight:.5f}",
            f"{before.running_sum:.5f} * {correction:.5f} + {weight:.5f} = {answer:.6g}",
        ),
        {"scores": scores},
        tolerance=0.005,
    )


@generator(
    "online-accumulator",
    title="One step of the running accumulator",
    level=2,
    concepts=("online-softmax", "accumulate", "running-rescale"),
    steps=("paged-reference/online-softmax", "vllm-live/rescale", "vllm-live/values"),
    claims=("L2-38", "L1-11"),
)
def online_accumulator(rng: random.Random) -> Problem:
    """Three scores and values -> accumulator after the third."""
    scores, values, trace = _update(rng)
    before, after = trace[1], trace[2]
    answer, old = after.accumulator[0], before.accumulator[0]
    correction = float(np.exp(before.running_max - after.running_max))
    weight = float(np.exp(scores[2] - after.running_max))
    return Problem(
        f"Online softmax, token by token, for one channel: scores `{scores}`, values `{values}`. After the first two "
        "tokens the "
        f"running maximum is {before.running_max:g} and the accumulator {old:.5f}. What is the accumulator (not yet "
        "divided) "
        f"after the third? {POWERS}",
        answer,
        (
            (old + weight * values[2], "did not rescale the old accumulator to the new maximum"),
            (answer / after.running_sum, "divided already: that comes once, at the end"),
            (old * correction + values[2], "added the value without its weight"),
            (old + float(np.exp(scores[2] - before.running_max)) * values[2], "kept the old maximum"),
            ((old + weight * values[2]) * correction, "rescaled the new token too"),
            (old * correction + weight, "added the weight without the value"),
        ),
        bullets(
            f"new maximum = max({before.running_max:g}, {scores[2]}) = {after.running_max:g}",
            f"correction = {correction:.5f}, weight = {weight:.5f}",
            f"{old:.5f} * {correction:.5f} + {weight:.5f} * {values[2]} = {answer:.6g}",
        ),
        {"scores": scores, "values": values},
        tolerance=0.005,
    )


def _partitions(rng: random.Random) -> tuple[list[int], list[float], list[int]]:
    """Maxima, sums and outputs of two partitions."""
    first, second = rng.sample(range(-2, 3), 2)
    sums = [round(rng.uniform(1.0, 9.0), 1) for _ in range(2)]
    return [first, second], sums, rng.sample(range(1, 20), 2)


@generator(
    "merge",
    title="Merging two partitions",
    level=3,
    concepts=("v2-merge", "v2-rescale", "v2-max", "v2-reduce"),
    steps=("vllm-classic/v2-merge", "vllm-classic/v2-rescale"),
)
def merge(rng: random.Random) -> Problem:
    """Maxima, sums, outputs of two partitions -> merged output."""
    maxima, sums, outputs = _partitions(rng)
    answer = float(oracle_v2.merge(maxima, sums, [[float(out)] for out in outputs], eps=0.0)[0])
    weight = [float(one) for one in oracle_v2.rescaled(maxima, sums)]
    bare = [float(np.exp(top - max(maxima))) for top in maxima]

    def mean(weights: list[float]) -> float:
        return sum(w * out for w, out in zip(weights, outputs, strict=True)) / sum(weights)

    return Problem(
        f"Two partitions of the v2 kernel, one channel. Largest logits `{maxima}`, sums of exponentials (each "
        "relative to its "
        f"own largest logit) `{sums}`, finished outputs of each partition `{outputs}`. What is the merged output? "
        f"{POWERS}",
        answer,
        (
            (mean([1.0, 1.0]), "took the plain mean of the two outputs"),
            (mean(sums), "weighed by the sums without bringing them to a common maximum"),
            (mean(bare), "weighed by the maxima alone and left the sums out"),
            (sum(w * out for w, out in zip(weight, outputs, strict=True)), "did not divide by the sum of the weights"),
            (float(sum(outputs)), "added the outputs: each is a finished mean already"),
            (mean(weight[::-1]), "swapped the weights of the two partitions"),
            (
                sum(w * out for w, out in zip(bare, outputs, strict=True)) / sum(weight),
                "took the outputs for sums that are not yet divided",
            ),
        ),
        bullets(
            *(
                f"weight = {total} * e^({top} - {max(maxima)}) = {w:.5f}"
                for total, top, w in zip(sums, maxima, weight, strict=True)
            ),
            f"({weight[0]:.5f} * {outputs[0]} + {weight[1]:.5f} * {outputs[1]}) / {sum(weight):.5f} = {answer:.6g}",
        ),
        {"maxima": maxima, "sums": sums, "outputs": outputs},
        tolerance=0.005,
    )


@generator(
    "global-sum",
    title="The sum of exponentials over partitions",
    level=3,
    concepts=("v2-rescale", "partition-stats"),
    steps=("vllm-classic/v2-rescale", "vllm-classic/partition-notes"),
)
def global_sum(rng: random.Random) -> Problem:
    """Maxima and sums of two partitions -> rescaled sum."""
    maxima, sums, _ = _partitions(rng)
    rescaled = [float(one) for one in oracle_v2.rescaled(maxima, sums)]
    answer, gap = sum(rescaled), abs(maxima[0] - maxima[1])
    low = min(maxima)
    return Problem(
        f"Two partitions of the v2 kernel left largest logits `{maxima}` and sums of exponentials `{sums}`, each sum "
        "relative to "
        f"its own largest logit. What is the sum over both, relative to the largest logit of all? {POWERS}",
        answer,
        (
            (sum(sums), "added the sums without bringing them to a common maximum"),
            (
                sum(total * float(np.exp(top - low)) for total, top in zip(sums, maxima, strict=True)),
                "brought the sums to the smaller maximum",
            ),
            (
                sum(total * float(np.exp(top)) for total, top in zip(sums, maxima, strict=True)),
                "brought the sums to 0, not to the largest logit",
            ),
            (sum(sums) * float(np.exp(-gap)), "rescaled both sums"),
            (
                sum(total * float(np.exp(low - top)) for total, top in zip(sums, maxima, strict=True)),
                "rescaled the wrong partition",
            ),
        ),
        bullets(
            *(
                f"{total} * e^({top} - {max(maxima)}) = {one:.5f}"
                for total, top, one in zip(sums, maxima, rescaled, strict=True)
            ),
            f"{rescaled[0]:.5f} + {rescaled[1]:.5f} = {answer:.6g}",
        ),
        {"maxima": maxima, "sums": sums},
        tolerance=0.005,
    )


@generator(
    "epsilon",
    title="How far the classic kernel's weights fall short of 1",
    level=3,
    concepts=("normalise", "exp-sum"),
    steps=("vllm-classic/normalise", "vllm-classic/epsilon-twice", "findings/not-bit-equal"),
    claims=("L1-40",),
)
def epsilon(rng: random.Random) -> Problem:
    """Logits -> 1 minus the sum of the weights."""
    scores = [rng.randint(-2, 2) for _ in range(rng.randint(2, 8))]
    case = _case(scores)
    total = oracle.exp_sum(case, 0, 0)
    answer = 1.0 - float(oracle.weights(case, 0, 0).sum())
    own = float(np.exp(scores).sum())
    return Problem(
        f"The classic v1 kernel has the logits `{scores}` and divides each exponential by their sum plus "
        f"1e-6. By how much "
        f"do the weights then fall short of 1 in total? (Exact arithmetic otherwise.) {POWERS}",
        answer,
        (
            (EPSILON, "left out that 1e-6 is added to the sum of exponentials, and counts in proportion to it"),
            (EPSILON / len(scores), "took the number of tokens for the sum of exponentials"),
            (EPSILON / own, "did not take the largest logit away before the exponentials"),
            (OTHER_EPSILON / total, "took 1e-10, which the 2d kernel adds"),
            (EPSILON * total, "multiplied by the sum instead of dividing"),
            (len(scores) * EPSILON, "took 1e-6 a token"),
            (2 * answer, "counted it twice: only v2 with more than one partition does"),
        ),
        bullets(
            f"sum of exponentials = sum of e^(logit - {max(scores)}) = {total:.5f}",
            f"weights = {total:.5f} / ({total:.5f} + 1e-6)",
            f"1 - weights = 1e-6 / {total:.5f} = {answer:.4g}",
        ),
        {"logits": scores},
        tolerance=0.005,
    )

"""The predictions: which line of which film, what is shown, what is asked, and which wrong answers are typical.

A line is named by the concept that it belongs to and by how it begins; every number is read off the film's trace.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from walkthroughs.drills.moments import Moment, Number


@dataclass(frozen=True)
class Spec:
    """One kind of prediction. `shows`: variables that the reader sees. `also`: what else, by what it is called.

    `wrong`: typical wrong values, by the mistake's name. `lanes_only`: draw among the lanes of warp 0.
    """

    name: str
    title: str
    level: int
    film: str
    concept: str
    begins: str
    steps: tuple[str, ...]
    shows: tuple[str, ...]
    asks: str
    answer: Callable[[Moment], Number]
    wrong: Callable[[Moment], Mapping[str, Number]]
    why: str
    also: Callable[[Moment], Mapping[str, object]] = lambda moment: {}
    when: Callable[[Moment], bool] = lambda moment: True
    lanes_only: bool = False


BEFORE = "the value before the line"
LOGICAL = "the logical block, not the physical one"


def _row(moment: Moment, table: str, row: str, index: str) -> dict[str, Number]:
    """Wrong blocks: the logical one, the first row's, and the next entry."""
    entries, at = moment.data(table), int(moment.before(index))
    offset = int(moment.before(row))
    found: dict[str, Number] = {LOGICAL: at, "the first row of the table": entries[at]}
    if offset + at + 1 < len(entries):
        found["the entry after it"] = entries[offset + at + 1]
    return found


def _table(name: str) -> Callable[[Moment], Mapping[str, object]]:
    return lambda moment: {name: ", ".join(map(str, moment.data(name)))}


def _axes(moment: Moment, pool: int = 0) -> dict[str, int]:
    return {name: size for name, size, _ in moment.film.scene.pools[pool].axes}


def _partners(moment: Moment, name: str, *lanes: int) -> dict[str, object]:
    """A variable in other lanes, those that exist."""
    there = {lane: moment.of(lane) for lane in lanes if 0 <= lane < 32 and lane != moment.lane}
    return {f"{name} of lane {lane}": other.shown(name) for lane, other in sorted(there.items()) if other}


def _in(moment: Moment, lane: int, name: str) -> Number | None:
    other = moment.of(lane) if 0 <= lane < 32 else None
    return other.before(name) if other else None


def _known(values: Mapping[str, Number | None]) -> dict[str, Number]:
    return {name: value for name, value in values.items() if value is not None}


def _slot(moment: Moment) -> dict[str, Number]:
    size, offset = moment.film.scene.block_size, moment.before("slot_offsets")
    return {
        "the logical block in the formula": moment.before("block_indices") * size + offset,
        "the block's first slot": moment.before("block_numbers") * size,
        "the position": moment.before("pos"),
    }


def _stored(moment: Moment) -> dict[str, Number]:
    at = {name: int(moment.before(name)) for name in ("block_idx", "block_offset", "head_idx", "h_block", "i")}
    heads, size, x = (int(moment.before(name)) for name in ("num_heads", "block_size", "x"))
    head_size = int(moment.before("h_block_count")) * x
    rows = ((at["block_idx"] * size + at["block_offset"]) * heads + at["head_idx"]) * head_size
    return {
        "plain rows, without x": rows + at["h_block"] * x + at["i"],
        "the place of a value": int(moment.before("tgt_value_start")) + at["i"] * size,
    }


def _loaded(moment: Moment) -> dict[str, Number]:
    right = moment.reads[0].index
    shift = (moment.before("block_idx") - moment.before("physical_block_number")) * moment.before("kv_block_stride")
    other = moment.of(moment.lane ^ 1)
    found: dict[str, Number | None] = {
        LOGICAL: right + shift,
        "the neighbour lane's element": other.reads[0].index if other else None,
        "the vector's first element": right - moment.before("e"),
    }
    return _known(found)


def _rescaled(moment: Moment) -> dict[str, Number]:
    note = moment.reads[0].value
    return {
        "the sum, not rescaled": note,
        "the factor the wrong way round": note * math.exp(moment.before("max_logit") - moment.before("l")),
    }


SPECS = (
    Spec(
        "physical-block", "The next block", 1, "classic-v1", "block-table-lookup", "physical_block_number =",
        ("vllm-classic/block-table",), ("block_idx", "block_table"), "Which physical block is read next?",
        lambda m: m.reads[0].value, lambda m: _row(m, "block_tables", "block_table", "block_idx"),
        "`block_table` is where this sequence's row begins in the flat table; the entry `block_idx` further on counts.",
        _table("block_tables"),
    ),
    Spec(
        "tile-block", "A token's own block", 1, "paged-2d", "block-table-lookup", "physical =",
        ("vllm-live/table",), ("abs_token_idx", "l_block_idx", "block_table_offset"),
        "Which physical block does this thread find for its token?",
        lambda m: m.reads[0].value, lambda m: {
            LOGICAL: m.before("l_block_idx"), "the token's position": m.before("abs_token_idx"),
        },
        "Each token asks for its own block: its position over the block size, looked up in the row.",
        _table("block_tables_ptr"), lanes_only=True,
    ),
    Spec(
        "running-max", "The largest so far", 1, "gather", "running-max", "m_new =",
        ("paged-reference/online-softmax",), ("m", "score"), "What is `m_new` after this line?",
        lambda m: m.after("m_new"), lambda m: {
            "the maximum before": m.before("m"), "the score, though it is smaller": m.before("score"),
        },
        "The larger of the two. It never falls.",
    ),
    Spec(
        "running-sum", "The sum, mended", 2, "tiny-vllm-attention", "running-sum", "d = d",
        ("tiny-vllm/online-softmax",), ("d", "correction_factor", "exp_score"), "What is `d` after this line?",
        lambda m: m.after("d"), lambda m: {
            BEFORE: m.before("d"), "no rescaling": m.before("d") + m.before("exp_score"),
        },
        "The old sum is brought to the new maximum first, then the token's exponential joins.",
    ),
    Spec(
        "accumulator", "One more value", 2, "tiny-vllm-attention", "accumulate", "acc = acc",
        ("tiny-vllm/online-softmax",), ("acc", "correction_factor", "exp_score", "v"),
        "What is `acc` after this line?", lambda m: m.after("acc"), lambda m: _known({
            BEFORE: m.before("acc"), "no rescaling": m.before("acc") + m.before("exp_score") * m.before("v"),
            "the neighbour lane's": other.after("acc") if (other := m.of(m.lane + 1)) else None,
        }),
        "Rescaled like the sum, then the value joins, weighed with the same exponential.",
    ),
    Spec(
        "second-shuffle", "Eight lanes further up", 2, "tiny-vllm-attention", "warp-reduce",
        "qk += cuda.shfl_down_sync(FULL_MASK, qk, 8)", ("tiny-vllm/score",), ("qk",),
        "What does lane {lane} get from this shuffle, before it is added?", lambda m: m.received,
        lambda m: _known({
            "what the lane itself gives": m.before("qk"), "the lane 8 below": _in(m, m.lane - 8, "qk"),
            "the distance of the first shuffle": _in(m, m.lane + 16, "qk"),
            "the neighbour lane's": _in(m, m.lane + 1, "qk"),
        }),
        "Down means: from the lane 8 higher. Where there is no such lane, a lane gets its own value back.",
        lambda m: _partners(m, "qk", m.lane - 8, m.lane + 1, m.lane + 8, m.lane + 16), lanes_only=True,
    ),
    Spec(
        "butterfly", "A butterfly of maxima", 2, "classic-v1", "qk-max",
        "qk_max = libdevice.fmaxf(qk_max, cuda.shfl_xor_sync", ("vllm-classic/qk-max",), ("qk_max", "lane_mask"),
        "What is lane {lane}'s `qk_max` after this line?", lambda m: m.after("qk_max"), lambda m: _known({
            BEFORE: m.before("qk_max"),
            "the partner's, though it is smaller": _in(m, m.lane ^ int(m.before("lane_mask")), "qk_max"),
            "the lane before": _in(m, m.lane - int(m.before("lane_mask")), "qk_max"),
            "the lane after": _in(m, m.lane + int(m.before("lane_mask")), "qk_max"),
        }),
        "The partner's number is the lane's own with one bit flipped; the larger of the two stays, in both.",
        lambda m: _partners(m, "qk_max", *(m.lane + sign * int(m.before("lane_mask")) for sign in (-1, 1))),
        when=lambda m: m.lane % 2 == 0, lanes_only=True,
    ),
    Spec(
        "slot", "A slot for a token", 1, "slot-mapping", "slot-formula", "slot_ids = slot_offsets",
        ("vllm-live/slots",), ("pos", "block_indices", "block_numbers", "slot_offsets", "block_size"),
        "Which slot is this token written to?", lambda m: m.after("slot_ids"), _slot,
        "Physical block times block size, plus the offset.", lanes_only=True,
    ),
    Spec(
        "stored-element", "Where a key goes", 3, "reshape-and-cache", "k-store", "key_cache[",
        ("vllm-classic/write-keys",),
        ("block_idx", "block_offset", "head_idx", "h_block", "i", "num_heads", "h_block_count", "block_size", "x"),
        "Which element of `key_cache` is written, counted from its start?", lambda m: m.writes[0].index, _stored,
        "Block, head, piece, token and place in the piece, the widest stride first: "
        "[blocks, heads, pieces, block size, x].",
    ),
    Spec(
        "loaded-element", "Where a key is", 3, "classic-v1", "k-address", "k_vecs[j, e] = k_cache",
        ("vllm-classic/k-address",),
        ("block_idx", "physical_block_number", "kv_block_stride", "kv_head_idx", "kv_head_stride",
         "physical_block_offset", "offset1", "offset2", "e"),
        "Which element of `k_cache` is loaded, counted from its start?", lambda m: m.reads[0].index, _loaded,
        "Block and head by their strides, the token times x, the piece times block size times x, and the rest.",
        lambda m: {"BLOCK_SIZE": m.film.scene.block_size, "x": _axes(m)["x"]},
    ),
    Spec(
        "weight", "An exponential", 2, "classic-v1", "exp-sum", "val =",
        ("vllm-classic/exp-sum",), ("i", "qk_max"), "What is `val` after this line?", lambda m: m.after("val"),
        lambda m: {
            "the score itself": m.reads[0].value, "the maximum is not subtracted": math.exp(m.reads[0].value),
            "the difference, not its exponential": m.reads[0].value - m.before("qk_max"),
        },
        "exp(score - maximum): at most one, and one for the largest.",
        lambda m: {"logits[i]": m.reads[0].value},
    ),
    Spec(
        "tail-value", "Behind the end?", 1, "classic-v1", "tail-zeroing", "v_vec[j] =",
        ("vllm-classic/tail",), ("token_idx", "j", "seq_len"), "What does `v_vec[j]` hold after this line?",
        lambda m: m.writes[0].value,
        lambda m: {BEFORE: m.cell("v_vec", int(m.before("j"))), "zero, though the token exists": 0.0},
        "Token `token_idx + j` exists if it is below the length; else its value becomes zero.",
        lambda m: {"v_vec[j]": m.cell("v_vec", int(m.before("j")))}, lanes_only=True,
    ),
    Spec(
        "rescaled-sum", "One scale for all", 2, "classic-v2-reduce", "v2-rescale", "rescaled_exp_sum =",
        ("vllm-classic/v2-rescale",), ("i", "l", "max_logit"), "What is `rescaled_exp_sum` after this line?",
        lambda m: m.after("rescaled_exp_sum"), _rescaled,
        "The partition's sum times exp(its maximum - the largest maximum): a factor of at most one.",
        lambda m: {"exp_sums[i]": m.reads[0].value},
    ),
    Spec(
        "merged-row", "A weighted average grows", 3, "classic-v2-reduce", "v2-merge", "acc +=",
        ("vllm-classic/v2-merge",), ("acc", "j", "inv_global_exp_sum"), "What is `acc` after this line?",
        lambda m: m.after("acc"), lambda m: {
            BEFORE: m.before("acc"), "the partition's row, unweighed": m.before("acc") + m.reads[0].value,
            "not divided by the total": m.before("acc") + m.reads[0].value * m.reads[1].value,
        },
        "The partition's element times its rescaled sum over the total.",
        lambda m: {"this partition's element": m.reads[0].value, "shared_exp_sums[j]": m.reads[1].value},
    ),
    Spec(
        "active-lanes", "Who is awake?", 2, "paged-2d", "block-table-lookup", "physical =",
        ("vllm-live/table", "vllm-live/tail"), ("start_n", "seq_len"),
        "How many lanes of warp 0 run this line in this round?", lambda m: len(m.lanes), lambda m: {
            "all lanes of the warp": 32, "a whole block, though the tail is not there": m.film.scene.block_size,
            "the tokens of the sequence": m.before("seq_len"),
        },
        "A lane for each token of the tile, and of these only the tokens that exist.",
        lambda m: {"BLOCK_SIZE": m.film.scene.block_size}, lanes_only=True,
    ),
    Spec(
        "barriers", "Barriers behind you", 3, "tiny-vllm-attention", "cross-warp-reduce", "dot_product =",
        ("tiny-vllm/score", "tiny-vllm/race"), ("logical_block_idx", "token"),
        "How many barriers has this thread passed by now?", lambda m: m.interval, lambda m: {
            "this token's barriers are missing": m.interval - 2, "one barrier a token": m.interval // 2,
            "the barrier that is not there, one more a token": m.interval // 2 * 3,
        },
        "Two barriers a token, this one included; blocks have 16 tokens.",
    ),
)  # fmt: skip
"""Every prediction, in the order of the bank."""

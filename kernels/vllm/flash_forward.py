"""What a decode step goes through at vLLM 0.26.0: the update of the cache, then the FlashAttention forward pass.

The names and the order are those of the FLASH_ATTN backend. FlashAttention itself is not ported: the 2d kernel stands
in its place, over the same cache, with the same block table, and without an epsilon.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.errors import ArgumentError
from kernels.kernel import Backend
from kernels.vllm.cache_flash import reshape_and_cache_flash, reshape_and_cache_flash_kernel
from kernels.vllm.flash_layout import as_2d_caches, split
from kernels.vllm.paged_2d import kernel_paged_attention_2d, paged_attention_2d


@dataclass(frozen=True)
class CommonAttentionMetadata:
    """What the model runner knows of a batch, once for all layers."""

    num_actual_tokens: int
    """Query rows without padding."""
    max_query_len: int
    """Query rows of the sequence that has most."""
    query_start_loc: Any
    """First query row of each sequence, [num_seqs + 1] int32."""
    max_seq_len: int
    """Tokens of the longest sequence."""
    seq_lens: Any
    """Tokens of each sequence, [num_seqs] int32, the new one included."""
    # region: runner-table
    block_table_tensor: Any
    """Physical blocks, [num_seqs, columns] int32."""
    # endregion
    slot_mapping: Any
    """Slot of each new token, [num_tokens] int64; -1 for padding."""


@dataclass(frozen=True)
class FlashAttentionMetadata:
    """The same, as the backend's forward pass reads it."""

    num_actual_tokens: int
    max_query_len: int
    query_start_loc: Any
    max_seq_len: int
    seq_lens: Any
    # region: flash-metadata
    block_table: Any
    # endregion
    slot_mapping: Any


# region: flash-metadata-build
def build(common: CommonAttentionMetadata) -> FlashAttentionMetadata:
    """Return the backend's metadata: the block table changes its name, nothing else."""
    return FlashAttentionMetadata(
        num_actual_tokens=common.num_actual_tokens,
        max_query_len=common.max_query_len,
        query_start_loc=common.query_start_loc,
        max_seq_len=common.max_seq_len,
        seq_lens=common.seq_lens,
        block_table=common.block_table_tensor,
        slot_mapping=common.slot_mapping,
    )


# endregion

# region: flash-write-apart
FORWARD_INCLUDES_KV_CACHE_UPDATE = False
# endregion


# region: kv-cache-update
def do_kv_cache_update(
    key: Any,
    value: Any,
    kv_cache: Any,
    slot_mapping: Any,
    *,
    backend: str | Backend = "sim",
    entry: Any = reshape_and_cache_flash_kernel,
) -> None:
    """Write the new tokens into the cache, in place.

    key, value: [rows, num_kv_heads, head_size], perhaps with more rows than there are slots; kv_cache: (num_blocks,
    num_kv_heads, block_size, 2 x head_size) in any memory order; slot_mapping: [num_tokens] int64. Raises
    ArgumentError.
    """
    key_cache, value_cache = split(kv_cache, key.shape[-1])
    one = np.ones(1, np.float32)
    reshape_and_cache_flash(
        key, value, key_cache, value_cache, slot_mapping, "auto", one, one, backend=backend, entry=entry
    )


# endregion


# region: flash-forward
def forward(
    query: Any,
    key: Any,
    value: Any,
    kv_cache: Any,
    attn_metadata: FlashAttentionMetadata | None,
    output: Any,
    *,
    scale: float | None = None,
    sliding_window: int | None = None,
    backend: str | Backend = "sim",
    entry: Any = kernel_paged_attention_2d,
) -> Any:
    """Attention of a decode batch over the paged cache; `output` is written in place and returned.

    query, output: [num_tokens, num_heads, head_size], perhaps padded; key, value: never read, since the update has put
    them into the cache; kv_cache: (num_blocks, num_kv_heads, block_size, 2 x head_size) in any memory order;
    attn_metadata: None in a profiling run, which gives zeros. Raises ArgumentError, also for a prefill batch.
    """
    if attn_metadata is None:
        output[:] = 0
        return output
    meta = attn_metadata
    # A padded batch has more rows than tokens.
    rows = slice(0, meta.num_actual_tokens)
    # region: flash-split
    key_cache, value_cache = split(kv_cache, query.shape[-1])
    # endregion

    # region: flash-take-table
    first_rows, lengths = meta.query_start_loc, meta.seq_lens
    most_rows, longest = meta.max_query_len, meta.max_seq_len
    table = meta.block_table
    # endregion
    # region: flash-call
    flash_attn_varlen_func(
        q=query[rows],
        k=key_cache,
        v=value_cache,
        out=output[rows],
        cu_seqlens_q=first_rows,
        max_seqlen_q=most_rows,
        seqused_k=lengths,
        max_seqlen_k=longest,
        softmax_scale=scale,
        # The window counts the tokens to the left of the query; the query itself comes on top.
        window_size=(-1, -1) if not sliding_window else (sliding_window - 1, 0),
        # region: flash-block-table
        block_table=table,
        # endregion
        backend=backend,
        entry=entry,
    )
    # endregion
    return output


# endregion


# region: fa-interface
def flash_attn_varlen_func(
    *,
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    cu_seqlens_q: Any,
    max_seqlen_q: int,
    seqused_k: Any,
    max_seqlen_k: int,
    softmax_scale: float | None = None,
    window_size: tuple[int, int] = (-1, -1),
    # region: fa-block-table
    block_table: Any,
    # endregion
    backend: str | Backend = "sim",
    entry: Any = kernel_paged_attention_2d,
) -> None:
    """Stand in for FlashAttention's paged call, for decoding; k, v: (num_blocks, block_size, num_kv_heads, head_size).

    Raises ArgumentError for more than one query row a sequence, for lengths that are missing or beyond the maximum,
    and for whatever the 2d kernel refuses.
    """
    # region: fa-block-table
    if seqused_k is None:
        raise ArgumentError("seqused_k", None, "must be given with a block table: a cache does not know its own length")
    # endregion
    if max_seqlen_q != 1:
        raise ArgumentError("max_seqlen_q", max_seqlen_q, "must be 1: this stand-in decodes only")
    if len(seqused_k) and max(seqused_k) > max_seqlen_k:
        raise ArgumentError("max_seqlen_k", max_seqlen_k, f"must be at least the longest length, {max(seqused_k)}")
    key_cache, value_cache = as_2d_caches(k, v)
    paged_attention_2d(
        out, q, key_cache, value_cache, block_table, seqused_k, query_start_loc=cu_seqlens_q, sm_scale=softmax_scale,
        sliding_window=window_size[0] + 1, unified=True, backend=backend, entry=entry,
    )  # fmt: skip


# endregion

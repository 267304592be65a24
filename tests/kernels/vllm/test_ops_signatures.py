"""The argument lists of vLLM's ops: written down here as facts, and held against the source where it is."""

from __future__ import annotations

import ast
import inspect
from typing import TYPE_CHECKING, Any

import pytest

from kernels.vllm import ops

if TYPE_CHECKING:
    from annotate.sources import SourceTree

# Facts about vllm/_custom_ops.py at 0.24.0: names in order, and defaults.
REST = (
    "query key_cache value_cache num_kv_heads scale block_tables seq_lens block_size max_seq_len alibi_slopes "
    "kv_cache_dtype k_scale v_scale tp_rank blocksparse_local_blocks blocksparse_vert_stride blocksparse_block_size "
    "blocksparse_head_sliding_step"
)
WRITER = "key value key_cache value_cache slot_mapping kv_cache_dtype k_scale v_scale"
SPARSE = {
    "tp_rank": 0, "blocksparse_local_blocks": 0, "blocksparse_vert_stride": 0, "blocksparse_block_size": 64,
    "blocksparse_head_sliding_step": 0,
}  # fmt: skip
SIGNATURES: dict[str, tuple[str, dict[str, Any]]] = {
    "paged_attention_v1": (f"out {REST}", SPARSE),
    "paged_attention_v2": (f"out exp_sum max_logits tmp_out {REST}", SPARSE),
    "reshape_and_cache": (WRITER, {}),
    "reshape_and_cache_flash": (WRITER, {}),
    "convert_fp8": ("output input scale kv_dtype", {"scale": 1.0, "kv_dtype": "fp8"}),
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_the_argument_list_is_vllms(name: str) -> None:
    names, defaults = SIGNATURES[name]
    parameters = inspect.signature(getattr(ops, name)).parameters
    assert list(parameters) == names.split()
    assert {key: p.default for key, p in parameters.items() if p.default is not p.empty} == defaults
    assert {p.kind for p in parameters.values()} == {inspect.Parameter.POSITIONAL_OR_KEYWORD}


@pytest.mark.source
def test_the_argument_lists_are_those_of_the_source(vllm_024: SourceTree) -> None:
    path = "vllm/_custom_ops.py"
    if path not in vllm_024.paths():
        pytest.skip(f"{path} is not among the files kept of vLLM 0.24.0; pagewalk fetch keeps it")
    tree = ast.parse(vllm_024.read(path))
    found = {node.name: node.args for node in tree.body if isinstance(node, ast.FunctionDef)}
    for name in SIGNATURES:
        theirs = [
            (arg.arg, ast.unparse(arg.annotation) if arg.annotation else "") for arg in found[name].args
        ]  # fmt: skip
        ours = inspect.signature(getattr(ops, name)).parameters
        assert [(key, str(p.annotation)) for key, p in ours.items()] == theirs, name
        defaults = [ast.literal_eval(node) for node in found[name].defaults]
        assert [p.default for p in ours.values() if p.default is not p.empty] == defaults, name
        assert not found[name].kwonlyargs
        assert not found[name].vararg

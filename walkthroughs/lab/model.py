"""A tiny Llama-shaped model and its tokenizer, written as files: no download, and no weights.

The engine fills the weights with numbers of its own (`load_format="dummy"`, from a seed). What the model says is
nonsense; how many KV blocks it takes to say it is the same as for any other model of its block size.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from annotate.files import write_text

VOCABULARY = 1024
SPECIAL = ("<unk>", "<s>", "</s>")
"""The first token ids, in order: unknown, begin, end. Words begin behind them."""
MOST_TOKENS = 2048

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": MOST_TOKENS,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
    "dtype": "bfloat16",
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def words() -> dict[str, int]:
    """Every word of the tokenizer with its id: the special ones, then `w3` for id 3 and so on."""
    return {**{word: n for n, word in enumerate(SPECIAL)}, **{f"w{n}": n for n in range(len(SPECIAL), VOCABULARY)}}


def text(ids: tuple[int, ...]) -> str:
    """The words of token ids, with a blank between: the tokenizer reads exactly these ids from it."""
    return " ".join(f"w{n}" for n in ids)


def tokenizer() -> dict[str, Any]:
    """A word-level tokenizer, as the `tokenizers` library reads it: one word, one token."""
    special = [
        {"id": n, "content": word, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
         "special": True}
        for n, word in enumerate(SPECIAL)
    ]  # fmt: skip
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": special,
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": words(), "unk_token": SPECIAL[0]},
    }


def write(folder: Path) -> Path:
    """Write the model's three files to `folder` (made if need be), and return it."""
    named = {
        "config.json": CONFIG,
        "tokenizer.json": tokenizer(),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "unk_token": SPECIAL[0],
            "bos_token": SPECIAL[1],
            "eos_token": SPECIAL[2],
            "model_max_length": MOST_TOKENS,
        },
    }
    for name, content in named.items():
        write_text(folder / name, json.dumps(content, indent=1) + "\n")
    return folder

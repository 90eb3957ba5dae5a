"""Tiny checkpoints with random weights, written by transformers as it writes real ones."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import torch
import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

CHATML: Final = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL: Final = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TEXT: Final = ["We have burgers, fries and lemonade today. What would you like to order, please?"]
SIZES: Final = {
    "hidden_size": 64,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "initializer_range": 0.4,
}
FAMILIES: Final[dict[str, tuple[str, str, dict[str, Any]]]] = {
    "llama": ("LlamaConfig", "LlamaForCausalLM", {"tie_word_embeddings": False}),
    "llama-biased": (
        "LlamaConfig",
        "LlamaForCausalLM",
        {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
    ),
    "llama-3.1": (
        "LlamaConfig",
        "LlamaForCausalLM",
        {
            "rope_scaling": {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            },
        },
    ),
    "llama-linear": (
        "LlamaConfig",
        "LlamaForCausalLM",
        {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
    ),
    "mistral": ("MistralConfig", "MistralForCausalLM", {"sliding_window": None, "head_dim": 16}),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM", {"tie_word_embeddings": True}),
    "qwen2-yarn": (
        "Qwen2Config",
        "Qwen2ForCausalLM",
        {
            "rope_scaling": {
                "rope_type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 64,
            },
        },
    ),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM", {"head_dim": 32}),
}


def write_tokenizer(folder: Path) -> Tokenizer:
    """A byte-level BPE of some 300 tokens, with ChatML."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, initial_alphabet=alphabet, special_tokens=[], show_progress=False
    )
    tokenizer.train_from_iterator(TEXT, trainer)
    tokenizer.add_special_tokens([AddedToken(one, special=True) for one in SPECIAL])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"eos_token": "<|im_end|>", "bos_token": None, "chat_template": CHATML}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return tokenizer


def write_llm(
    folder: Path,
    family: str,
    *,
    shard: str = "1GB",
    dtype: torch.dtype = torch.float32,
    **changes: Any,
) -> Any:
    """A checkpoint of one of FAMILIES; the model itself."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = write_tokenizer(folder)
    config_class, model_class, own = FAMILIES[family]
    config = getattr(transformers, config_class)(
        vocab_size=tokenizer.get_vocab_size() + 5,  # padded, as many are
        eos_token_id=tokenizer.token_to_id("<|im_end|>"),
        bos_token_id=None,
        pad_token_id=None,
        **{**SIZES, **own, **changes},
    )
    torch.manual_seed(sum(map(ord, family)))
    model = getattr(transformers, model_class)(config).eval()
    with torch.no_grad():
        for name, value in model.named_parameters():
            if name.endswith("bias") or "norm" in name:  # transformers begins with 0 and 1
                value.add_(0.3 * torch.randn_like(value))
    model.to(dtype).save_pretrained(folder, max_shard_size=shard)
    return model


def change(folder: Path, file: str = "config.json", **values: Any) -> None:
    """Other values in one of its JSON files."""
    path = folder / file
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def without(name: str) -> Callable[[Path], None]:
    """What removes a file of a checkpoint."""
    return lambda folder: (folder / name).unlink()


def pickled(folder: Path) -> None:
    """Its weights look like PyTorch's own files."""
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")

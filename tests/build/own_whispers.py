"""Tiny Whispers with random weights, written by transformers as it writes real ones."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor

from build.whisper import weights
from build.whisper.config import TINY_EN

LANGUAGES: Final = ("de", "en", "fr", "yue")
TIMES: Final = ("<|0.00|>", "<|0.02|>", "<|0.04|>")
TEXT: Final = ["Two cheeseburgers and a large coffee, please. Do you have pizza today?"]
PADDING: Final = 5
"""Ids that the tokenizer does not know: many checkpoints are padded."""

SIZES: Final = {
    "d_model": 64,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 96,
    "decoder_ffn_dim": 96,
    "max_target_positions": 64,
    "init_std": 0.2,
}
KINDS: Final[dict[str, dict[str, Any]]] = {
    "english": {"num_mel_bins": 80, "encoder_layers": 2, "decoder_layers": 3},
    "multilingual": {"num_mel_bins": 128, "encoder_layers": 3, "decoder_layers": 1},
}

THEIR_TOP: Final = {
    "positions": "embed_positions.weight",
    "embedding.weight": "embed_tokens.weight",
}
THEIR_PARTS: Final = {
    "attention_norm": ["self_attn_layer_norm"],
    "qkv": ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
    "output": ["self_attn.out_proj"],
    "cross_norm": ["encoder_attn_layer_norm"],
    "cross_query": ["encoder_attn.q_proj"],
    "cross_key_value": ["encoder_attn.k_proj", "encoder_attn.v_proj"],
    "cross_output": ["encoder_attn.out_proj"],
    "ffn_norm": ["final_layer_norm"],
    "up": ["fc1"],
    "down": ["fc2"],
}


def special_tokens(kind: str) -> tuple[str, ...]:
    """In the order of Whisper's vocabularies; silence is named as in old and in new ones."""
    silence = "<|nospeech|>" if kind == "multilingual" else "<|nocaptions|>"
    languages = [f"<|{code}|>" for code in LANGUAGES]
    tasks = ("<|translate|>", "<|transcribe|>", "<|startoflm|>", "<|startofprev|>")
    start = ("<|endoftext|>", "<|startoftranscript|>")
    return (*start, *languages, *tasks, silence, "<|notimestamps|>")


def write_tokenizer(folder: Path, kind: str) -> Tokenizer:
    """A byte-level BPE of some 300 tokens, with those that Whisper has beside words."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[],
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXT, trainer)
    tokenizer.add_special_tokens([AddedToken(one, special=True) for one in special_tokens(kind)])
    tokenizer.add_tokens([AddedToken(one, special=False) for one in TIMES])
    tokenizer.save(str(folder / "tokenizer.json"))
    return tokenizer


def write_whisper(
    folder: Path,
    kind: str,
    *,
    shard: str = "1GB",
    dtype: torch.dtype = torch.float32,
    **changes: Any,
) -> Any:
    """A checkpoint of one of KINDS, its weights as `dtype`; the model. One token that is a word is
    never chosen, and another one not first."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = write_tokenizer(folder, kind)
    of = tokenizer.token_to_id
    known = tokenizer.get_vocab_size()
    config = transformers.WhisperConfig(
        vocab_size=known + PADDING,
        decoder_start_token_id=of("<|startoftranscript|>"),
        eos_token_id=of("<|endoftext|>"),
        bos_token_id=of("<|endoftext|>"),
        pad_token_id=of("<|endoftext|>"),
        **{**SIZES, **KINDS[kind], **changes},
    )
    torch.manual_seed(len(kind))
    model = transformers.WhisperForConditionalGeneration(config).eval()
    with torch.no_grad():
        for name, value in model.named_parameters():
            if name.endswith("bias") or "norm" in name:  # transformers begins with 0 and 1
                value.add_(0.3 * torch.randn_like(value))
        model.model.decoder.embed_tokens.weight.mul_(0.2)  # or it would repeat its last token
    no_words = [of(one) for one in special_tokens(kind) if one != "<|endoftext|>"]
    settings = {
        "is_multilingual": kind == "multilingual",
        "no_timestamps_token_id": of("<|notimestamps|>"),
        "suppress_tokens": [1, *no_words, *range(known - len(TIMES), known + PADDING)],
        "begin_suppress_tokens": [2, of("<|endoftext|>")],
    }
    if kind == "multilingual":
        settings["lang_to_id"] = {f"<|{code}|>": of(f"<|{code}|>") for code in LANGUAGES}
        settings["task_to_id"] = {one: of(f"<|{one}|>") for one in ("transcribe", "translate")}
    model.generation_config.update(**settings)
    for key, value in settings.items():
        setattr(model.generation_config, key, value)
    model.to(dtype).save_pretrained(folder, max_shard_size=shard)
    sound = {"feature_size": config.num_mel_bins, "hop_length": 160, "n_fft": 400}
    (folder / "preprocessor_config.json").write_text(json.dumps({"sampling_rate": 16000, **sound}))
    return model


def as_checkpoint(folder: Path) -> None:
    """Whisper tiny.en, the one that we ship, as transformers would have written it."""
    encoder, decoder = weights.load_encoder(), weights.load_decoder()
    rules = weights.generation()
    config = transformers.WhisperConfig(
        vocab_size=TINY_EN.vocabulary,
        encoder_layers=TINY_EN.encoder_layers,
        decoder_layers=TINY_EN.decoder_layers,
        suppress_tokens=rules["suppress"],
        begin_suppress_tokens=rules["suppress_first"],
    )
    model = transformers.WhisperForConditionalGeneration(config).eval()
    state = _theirs("encoder", encoder.state_dict()) | _theirs("decoder", decoder.state_dict())
    missing, unknown = model.load_state_dict(state, strict=False)
    assert (missing, unknown) == (["proj_out.weight"], [])
    model.tie_weights()
    for key in ("suppress_tokens", "begin_suppress_tokens"):
        setattr(model.generation_config, key, getattr(config, key))
    model.save_pretrained(folder)
    shutil.copyfile(weights.tokenizer_path(), folder / "tokenizer.json")


def _theirs(side: str, ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights of build.whisper.model under the names of transformers."""
    found = {}
    for name, value in ours.items():
        if not name.startswith("layers."):
            top = THEIR_TOP.get(name, name.replace("norm.", "layer_norm."))
            found[f"model.{side}.{top}"] = value
            continue
        layer, _, rest = name.removeprefix("layers.").partition(".")
        part, _, leaf = rest.rpartition(".")
        names = THEIR_PARTS[part]
        for one, piece in zip(names, value.chunk(len(names)), strict=True):
            if leaf == "bias" and one.endswith("k_proj"):
                assert not piece.any()
            else:
                found[f"model.{side}.layers.{layer}.{one}.{leaf}"] = piece.clone()
    return found

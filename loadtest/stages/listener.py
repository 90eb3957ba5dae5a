"""Whisper tiny.en by CTranslate2, int8: the same weights as the product's ears, and their mel.

It hears full windows of 30 s, as Whisper was trained; the product's encoder hears shorter ones too.
"""

import json
from typing import Any

import ctranslate2
import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from client.audio import HEARD_RATE_HZ, resample
from loadtest.sources import source
from loadtest.stages.flow_graphs import REPOSITORY
from python_backends.encoder_window.mel import log_mel

FRAMES, MAX_S = 3000, 30
PROMPT = ("<|startoftranscript|>", "<|notimestamps|>")
TIMESTAMP_S, TIMESTAMPS = 0.02, 1501
"""Whisper's timestamp tokens, the last ones of its vocabulary; the tokenizer's file lacks them."""


class Listener:
    """Greedy. Many threads may ask it at once: `workers` of them are served, by `threads` each."""

    def __init__(self, *, workers: int = 1, threads: int = 1) -> None:
        graph = REPOSITORY / "asr_encoder" / "1" / "model.onnx"
        weights, config, tokenizer = (
            source(graph, name).read_bytes()
            for name in ("model.bin", "config.json", "tokenizer.json")
        )
        self._tokenizer = Tokenizer.from_buffer(tokenizer)
        files = {
            "model.bin": weights,
            "config.json": config,
            "vocabulary.json": json.dumps(vocabulary(self._tokenizer.get_vocab())).encode(),
        }
        self._model = ctranslate2.models.Whisper(
            "whisper-tiny.en",
            compute_type="int8",
            inter_threads=workers,
            intra_threads=threads,
            files=files,
        )

    def hear(self, sound: NDArray[np.float32], rate_hz: int = HEARD_RATE_HZ) -> str:
        """The words in float32 [n] at `rate_hz`. ValueError beyond 30 s."""
        return self.hear_features(features_of(sound, rate_hz))

    def hear_features(self, features: Any) -> str:
        """The words of one recording's features."""
        answer = self._model.generate(features, [list(PROMPT)], beam_size=1)
        return str(self._tokenizer.decode(answer[0].sequences_ids[0])).strip()

    def close(self) -> None:
        """Give the memory back."""
        self._model.unload_model()


def features_of(sound: NDArray[np.float32], rate_hz: int = HEARD_RATE_HZ) -> Any:
    """The log-mel of float32 [n], in a full window. ValueError beyond 30 s: it would be cut off."""
    if len(sound) > MAX_S * rate_hz:
        raise ValueError(f"{len(sound) / rate_hz:.1f} s of sound; at most {MAX_S} s are heard")
    mel = log_mel(resample(sound, rate_hz, HEARD_RATE_HZ), FRAMES)
    return ctranslate2.StorageView.from_array(mel[None])


def vocabulary(tokens: dict[str, int]) -> list[str]:
    """All tokens of the weights, in the order of their ids."""
    known = sorted(tokens, key=tokens.__getitem__)
    return known + [f"<|{number * TIMESTAMP_S:.2f}|>" for number in range(TIMESTAMPS)]

"""Whisper tiny.en by CTranslate2: hears what the voice says, with nothing of the product's ears
but their weights and their mel spectrogram.

It hears a full window of 30 s, as Whisper was trained; the product's encoder hears shorter ones.
"""

import json

import ctranslate2
import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from client.audio import HEARD_RATE_HZ, resample
from loadtest.sources import source
from loadtest.stages.flow_graphs import REPOSITORY
from python_backends.encoder_window.mel import log_mel

FRAMES = 3000
PROMPT = ("<|startoftranscript|>", "<|notimestamps|>")
TIMESTAMP_S, TIMESTAMPS = 0.02, 1501
"""Whisper's timestamp tokens, the last ones of its vocabulary; the tokenizer's file lacks them."""


class Listener:
    """int8 weights, greedy, on so many threads."""

    def __init__(self, threads: int = 1) -> None:
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
            "whisper-tiny.en", compute_type="int8", intra_threads=threads, files=files
        )

    def hear(self, sound: NDArray[np.float32], rate_hz: int) -> str:
        """The words in float32 [n] at `rate_hz`. ValueError beyond 30 s."""
        mel = log_mel(resample(sound, rate_hz, HEARD_RATE_HZ), FRAMES)
        features = ctranslate2.StorageView.from_array(mel[None])
        answer = self._model.generate(features, [list(PROMPT)], beam_size=1)
        return str(self._tokenizer.decode(answer[0].sequences_ids[0])).strip()


def vocabulary(tokens: dict[str, int]) -> list[str]:
    """All tokens of the weights, in the order of their ids."""
    known = sorted(tokens, key=tokens.__getitem__)
    return known + [f"<|{number * TIMESTAMP_S:.2f}|>" for number in range(TIMESTAMPS)]

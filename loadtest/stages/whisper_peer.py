"""CTranslate2, int8: the same Whisper weights, a pool of workers of some threads each.

It is given its features, so that what is timed is encoding and decoding; ours makes them itself.
"""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from loadtest.downloads import cache_dir
from python_backends.encoder_window.audio import SAMPLE_RATE_HZ
from python_backends.encoder_window.mel import log_mel

REPOSITORY = Path(__file__).parents[2] / "model_repository"
TOKENIZER = REPOSITORY / "asr_decode" / "1" / "tokenizer.json"
PROMPT = ("<|startoftranscript|>", "<|notimestamps|>")
FRAMES, MAX_S = 3000, 30
"""It has no other window than Whisper's own."""


class Peer:
    """`hear` may be called by as many threads as are wanted; `workers` of them compute at once."""

    def __init__(self, folder: Path, *, workers: int, threads: int) -> None:
        self._model = ctranslate2.models.Whisper(
            str(_model_folder(folder)),
            device="cpu",
            compute_type="int8",
            inter_threads=workers,
            intra_threads=threads,
        )
        self._tokenizer = Tokenizer.from_file(str(TOKENIZER))

    def hear(self, features: Any) -> str:
        """The text of one recording's `features`, greedily."""
        result = self._model.generate(features, [list(PROMPT)], beam_size=1)
        return str(self._tokenizer.decode(result[0].sequences_ids[0])).strip()

    def close(self) -> None:
        """Give the memory back."""
        self._model.unload_model()


def features_of(sound: NDArray[np.float32]) -> Any:
    """A recording's log-mel in a full window, as the library wants it.

    ValueError beyond 30 s: it would be cut off.
    """
    if len(sound) > MAX_S * SAMPLE_RATE_HZ:
        raise ValueError(f"{len(sound) / SAMPLE_RATE_HZ:.1f} s of sound; at most {MAX_S} s")
    return ctranslate2.StorageView.from_array(log_mel(sound, FRAMES)[None])


def _model_folder(folder: Path) -> Path:
    """The model file that our graphs were built from, with the vocabulary beside it."""
    target = folder / "whisper.ct2"
    model, config = _sources()
    target.mkdir(parents=True, exist_ok=True)
    if not (target / "model.bin").exists():
        (target / "model.bin").symlink_to(model)
    shutil.copyfile(config, target / "config.json")
    shutil.copyfile(TOKENIZER, target / "tokenizer.json")
    tokenizer = Tokenizer.from_file(str(TOKENIZER))
    words = [tokenizer.id_to_token(index) for index in range(tokenizer.get_vocab_size())]
    (target / "vocabulary.json").write_text(json.dumps(words))
    return target


def _sources() -> Sequence[Path]:
    """model.bin and config.json. ValueError where our graph's provenance does not name them."""
    provenance = REPOSITORY / "asr_encoder" / "1" / "model.onnx.json"
    named = json.loads(provenance.read_text())["sources"]
    found = [
        [cache_dir() / one for one in named if Path(one).name == name]
        for name in ("model.bin", "config.json")
    ]
    if not all(found):
        raise ValueError(f"{provenance} does not name the model file and its settings")
    return [paths[0] for paths in found]

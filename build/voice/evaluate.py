"""How well the voice is understood: word error rate of unseen sentences, heard by Whisper."""

import json
import sys
from collections.abc import Callable
from typing import Any

import jiwer
import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from build.fetch import replacing
from build.voice.hearing import Listener, spoken
from build.voice.speaker import Speaker
from build.voice.texts import training_texts
from build.voice.unseen import SENTENCES
from build.voice.weights import FOLDER

STEPS = 4
TEMPERATURES = (0.0, 0.3)


def write_quality(threads: int = 1) -> None:
    """Measures the voice and its teacher; writes `weights/voice/quality.json`."""
    seen = {spoken(text) for text in training_texts()}
    assert not any(spoken(sentence) in seen for sentence in SENTENCES)
    listener = Listener(threads)
    found: dict[str, Any] = {
        "listener": "Whisper tiny.en, int8, 3000 frames, greedy",
        "sentences": len(SENTENCES),
        "flow_steps": STEPS,
        "teacher": word_error_rate(_teacher(), listener),
    }
    for temperature in TEMPERATURES:
        speaker = Speaker.from_git(temperature=temperature, steps=STEPS)
        found[f"temperature_{temperature}"] = word_error_rate(speaker, listener)
    with replacing(FOLDER / "quality.json") as partial:
        partial.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


def word_error_rate(
    speak: Callable[[str, int], NDArray[np.float32]], listener: Listener
) -> dict[str, Any]:
    """Errors and words over all unseen sentences; what was misheard goes to standard error."""
    errors = words = 0
    misheard = []
    for seed, sentence in enumerate(tqdm(SENTENCES, "speak and hear", unit="sentence")):
        heard = listener.hear(speak(sentence, seed))
        compared = jiwer.process_words(spoken(sentence), spoken(heard))
        wrong = compared.substitutions + compared.deletions + compared.insertions
        errors += wrong
        words += compared.hits + compared.substitutions + compared.deletions
        if wrong:
            misheard.append({"said": sentence, "heard": heard})
    print(f"{errors} of {words} words wrong", file=sys.stderr)
    return {"wer": round(errors / words, 4), "errors": errors, "words": words, "misheard": misheard}


def _teacher() -> Callable[[str, int], NDArray[np.float32]]:
    from hibari import Hibari

    hibari = Hibari(threads=1)

    def speak(text: str, seed: int) -> NDArray[np.float32]:
        return np.asarray(hibari(text, seed=seed))

    return speak

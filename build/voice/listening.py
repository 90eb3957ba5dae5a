"""A page to listen to: every voice at several numbers of steps, and the teacher, side by side.

One HTML file with everything in it: sounds as Ogg Vorbis, spectrograms as PNG.
"""

import base64
import html
from io import BytesIO
from pathlib import Path
from typing import Final

import numpy as np
import soundfile
from hibari import Hibari
from numpy.typing import NDArray
from rich.progress import Progress

from build.fetch import replacing
from build.voice.speaker import Speaker
from python_backends.speech import SAMPLE_RATE_HZ, VOICES

Sound = NDArray[np.float32]

TEXTS: Final = (
    "Got it, two cheeseburgers and a large Coke. Anything else?",
    "Your total comes to $14.50, and it will be ready at 7:45.",
    "Sorry, our shake machine is being cleaned, but we do have milkshakes in bottles.",
    "Would you prefer curly fries or a baked potato on the side?",
    "When the storm finally passed, the children ran outside, jumped over the puddles, and looked "
    "for the rainbow behind the hills.",
)
WAYS: Final = (
    ("shortcut", 1),
    ("shortcut", 2),
    ("shortcut", 4),
    ("euler", 2),
    ("euler", 4),
    ("euler", 16),
)
HOT: Final = 1.0
"""Temperature of the prosody in the last columns; the others have the default."""

WARM: Final = 0.3
SEEDS: Final = (1, 2, 3)

_STYLE: Final = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:1500px;color:#222}"
    "h2{font-size:1.05em;margin:2em 0 .4em}.row{display:flex;flex-wrap:wrap;gap:12px}"
    "figure{margin:0;width:230px}figcaption{font-size:.85em}img,audio{width:100%;display:block}"
)


def write_page(path: Path, progress: Progress) -> None:
    """Speaks TEXTS in every way and writes the page."""
    speakers = _speakers()
    task = progress.add_task("listening page", total=len(TEXTS) * len(speakers), told="")
    hibari = Hibari(threads=1)
    parts = []
    for number, text in enumerate(TEXTS):
        figures = [_figure("teacher (hibari)", np.asarray(hibari(text, seed=0), np.float32))]
        for name, speaker, seed in speakers:
            figures.append(_figure(name, speaker(text, seed)))
            progress.advance(task)
        parts.append(f"<h2>{number + 1}. {html.escape(text)}</h2>")
        parts.append(f'<div class="row">{"".join(figures)}</div>')
    page = (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>The voices</title>'
        f"<style>{_STYLE}</style><h1>The voices, by steps of the flow decoder</h1>"
        f"<p>Prosody at temperature {WARM}, the default, and one seed; the last of each voice are "
        f"three seeds at temperature {HOT}. Spectrograms: 0 to 12 kHz, 80 dB.</p>{''.join(parts)}"
    )
    with replacing(path) as partial:
        partial.write_text(page, encoding="utf-8")


def _speakers() -> list[tuple[str, Speaker, int]]:
    found = []
    for voice in VOICES:
        for solver, steps in WAYS:
            speaker = Speaker.from_git(voice=voice, temperature=WARM, solver=solver, steps=steps)
            found.append((f"{voice}, {solver}, {steps} step{'s' * (steps > 1)}", speaker, 0))
        hot = Speaker.from_git(voice=voice, temperature=HOT)
        found += [(f"{voice}, temperature {HOT:g}, seed {seed}", hot, seed) for seed in SEEDS]
    return found


def _figure(name: str, sound: Sound) -> str:
    seconds = len(sound) / SAMPLE_RATE_HZ
    return (
        f'<figure><img alt="spectrogram" src="data:image/png;base64,{_coded(spectrogram(sound))}">'
        f"{player(sound)}<figcaption>{html.escape(name)}, {seconds:.1f} s</figcaption></figure>"
    )


def player(sound: Sound) -> str:
    """Controls that play float32 [n] at 24 kHz, with the sound in them."""
    source = f"data:audio/ogg;base64,{_coded(_ogg(sound))}"
    return f'<audio controls preload="none" src="{source}"></audio>'


def _coded(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _ogg(sound: Sound) -> bytes:
    file = BytesIO()
    soundfile.write(file, np.clip(sound, -1, 1), SAMPLE_RATE_HZ, format="OGG", subtype="VORBIS")
    return file.getvalue()


def spectrogram(sound: Sound) -> bytes:
    """A small picture of float32 [n] as PNG: time to the right, frequency up, louder is darker."""
    from matplotlib import image

    window, hop, step_db = 512, 480, 4
    frames = np.lib.stride_tricks.sliding_window_view(np.pad(sound, window), window)[::hop]
    power = np.abs(np.fft.rfft(frames * np.hanning(window))) ** 2
    decibels = step_db * np.round(10 / step_db * np.log10(power.T[::-1] + 1e-12))
    file = BytesIO()
    top = float(decibels.max())
    image.imsave(file, decibels, vmin=top - 80, vmax=top, cmap="gray_r", format="png")
    return file.getvalue()

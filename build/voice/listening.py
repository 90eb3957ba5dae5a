"""A page to listen to: every voice at several numbers of steps, and the teacher, side by side.

Sounds as Ogg Vorbis, spectrograms as PNG.
"""

import html
from io import BytesIO
from pathlib import Path
from typing import Final

import numpy as np
from hibari import Hibari
from rich.progress import Progress

from build import pages
from build.pages import Sound, coded, player
from build.voice.speaker import EULER, Models, Speaker
from build.voice.ways import DEFAULT_TEMPERATURE, HOTTEST, SOLVERS, STEPS, UNTAUGHT
from python_backends.speech import SAMPLE_RATE_HZ, VOICES

TEXTS: Final = (
    "Got it, two cheeseburgers and a large Coke. Anything else?",
    "Your total comes to $14.50, and it will be ready at 7:45.",
    "Sorry, our shake machine is being cleaned, but we do have milkshakes in bottles.",
    "Would you prefer curly fries or a baked potato on the side?",
    "When the storm finally passed, the children ran outside, jumped over the puddles, and looked "
    "for the rainbow behind the hills.",
)
WAYS: Final = (
    *((steps, SOLVERS[steps]) for steps in STEPS),
    *((steps, EULER) for steps in UNTAUGHT),
)
"""What a caller gets at each number of steps, then Euler's method where that is the shortcut."""

SEEDS: Final = (1, 2, 3)
"""Of the last columns, at the highest temperature of the prosody; the others have the default."""

_STYLE: Final = (
    ".row{display:flex;flex-wrap:wrap;gap:12px}figure{margin:0;width:230px}"
    "figcaption{font-size:.85em}img{width:100%;display:block}"
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
    pages.write_page(
        path,
        "The voices, by steps of the flow decoder",
        f"<p>Prosody at temperature {DEFAULT_TEMPERATURE}, the default, and one seed; the last of "
        f"each voice are three seeds at temperature {HOTTEST:g}. Spectrograms: 0 to 12 kHz, 80 dB."
        f"</p>{''.join(parts)}",
        style=_STYLE,
        width=1500,
    )


def _speakers() -> list[tuple[str, Speaker, int]]:
    """Name, who speaks, seed."""
    found, models = [], Models.from_git()
    for voice in VOICES:
        for steps, solver in WAYS:
            name = f"{voice}, {solver}, {steps} step{'s' * (steps > 1)}"
            speaker = Speaker(
                models, voice=voice, temperature=DEFAULT_TEMPERATURE, steps=steps, solver=solver
            )
            found.append((name, speaker, 0))
        hot = Speaker(models, voice=voice, temperature=HOTTEST)
        found += [(f"{voice}, temperature {HOTTEST:g}, seed {seed}", hot, seed) for seed in SEEDS]
    return found


def _figure(name: str, sound: Sound) -> str:
    seconds = len(sound) / SAMPLE_RATE_HZ
    return (
        f'<figure><img alt="spectrogram" src="data:image/png;base64,{coded(spectrogram(sound))}">'
        f"{player(sound)}<figcaption>{html.escape(name)}, {seconds:.1f} s</figcaption></figure>"
    )


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

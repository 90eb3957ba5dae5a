"""Pictures of the listening half: utterances per second, and who mishears what."""

from collections.abc import Mapping
from statistics import median
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from loadtest.ledger.palette import BLUE, GREEN, GREY, ORANGE, SKY, bare

NAMES = {
    "shipped": ("ours, as shipped", BLUE),
    "3000_frames": ("ours, full windows", SKY),
    "ctranslate2_1x2": ("CTranslate2, 1 worker of 2 threads", GREEN),
    "ctranslate2_2x1": ("CTranslate2, 2 workers of 1", GREEN),
    "ctranslate2_4x1": ("CTranslate2, 4 workers of 1", GREEN),
}
ENCODERS = {
    "int8": ("ours, int8 (as shipped)", BLUE),
    "fp32": ("ours, fp32", ORANGE),
    "ctranslate2": ("CTranslate2, int8", GREEN),
}
BAR = 0.26
"""Width of a bar, of the room between two corpora."""


def hearing(found: Mapping[str, Any]) -> Figure:
    """A bar a contestant; every round is a dot."""
    per_s = found["utterances_per_s"]
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    axes = figure.subplots()
    for at, (name, values) in enumerate(per_s.items()):
        label, colour = NAMES[name]
        axes.barh(at, median(values), color=colour, height=0.6)
        axes.plot(values, [at] * len(values), ".", color=GREY)
        axes.annotate(
            f"{median(values):.1f}",
            (median(values), at),
            (6, 9),
            textcoords="offset points",
            va="center",
        )
        axes.text(0.1, at, label, color="white", va="center")
    axes.invert_yaxis()
    axes.set_yticks([])
    axes.set_xlabel("utterances per second, eight callers at once")
    axes.set_title("Listening beside CTranslate2")
    bare(axes)
    return figure


def encoders(found: Mapping[str, Any]) -> Figure:
    """Words misheard in each corpus."""
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    axes = figure.subplots()
    for number, (who, (label, colour)) in enumerate(ENCODERS.items()):
        values = [each["wer"][who] for each in found.values()]
        bars = axes.bar(np.arange(len(found)) + (number - 1) * BAR, values, BAR * 0.92)
        for bar in bars:
            bar.set_color(colour)
        bars.set_label(label)
        axes.bar_label(bars, [f"{value:.1f}" for value in values], fontsize=8, padding=2)
    labels = [
        f"{name.replace('_', ' ').replace(' db', ' dB')}\n{each['words']} words"
        for name, each in found.items()
    ]
    axes.set_xticks(range(len(found)), labels)
    axes.tick_params(axis="x", length=0)
    axes.set_ylabel("% of words misheard")
    axes.set_title("Is int8 heard as well?")
    axes.legend()
    bare(axes)
    return figure

"""Pictures: what the trainings were like, beside the weights; what more steps of the flow give."""

import json
from collections.abc import Mapping
from typing import Final

from build.fetch import replacing
from build.voice.training import History
from build.voice.ways import SOLVERS, STEPS
from build.voice.weights import FOLDER
from python_backends.speech import VOICES

HISTORY: Final = FOLDER / "training.json"
PICTURE: Final = FOLDER / "training.png"
STEPS_PICTURE: Final = FOLDER / "steps.png"

_PANELS: Final = (
    ("prosody_lm", "prosody LM: nats a token", ("duration", "pitch")),
    ("flow_decoder", "flow decoder: squared error of the velocity", ("training", "held_out")),
    (
        "shortcut",
        "shortcuts: squared distance from 8 fine steps",
        ("euler_1", "shortcut_1", "euler_2", "shortcut_2", "euler_4", "shortcut_4"),
    ),
)
"""Training, title, curves."""


def write_curves(histories: Mapping[str, History]) -> None:
    """Writes HISTORY and PICTURE."""
    with replacing(HISTORY) as partial:
        partial.write_text(json.dumps(histories, indent=1) + "\n", encoding="utf-8")
    with replacing(PICTURE) as partial:
        partial.write_bytes(drawn(histories))


def drawn(histories: Mapping[str, History]) -> bytes:
    """One panel a training, as PNG; losses are of data that was not trained on, but `training`."""
    from matplotlib.figure import Figure

    from loadtest.ledger.palette import bare, png, styled

    with styled():
        figure = Figure(figsize=(15, 4), layout="constrained")
        for axes, (name, title, curves) in zip(figure.subplots(1, 3), _PANELS, strict=True):
            for curve in curves:
                points = [
                    (one["step"], one[curve])
                    for one in histories[name]
                    if curve != "training" or one["step"]
                ]
                axes.plot(*zip(*points, strict=True), label=curve.replace("_", " "), marker=".")
            axes.set(title=title, xlabel="step", yscale="log" if name == "shortcut" else "linear")
            axes.margins(y=0.3)
            axes.legend(ncols=2)
            bare(axes)
        return png(figure)


def drawn_steps(figures: Mapping[str, float]) -> bytes:
    """Words misheard, and distance from the most steps, over steps of the flow, as PNG.

    `figures` are those of `evaluate.evaluate_voice`; steps without such a figure have no point.
    """
    from matplotlib.figure import Figure

    from loadtest.ledger.palette import bare, png, styled

    with styled():
        figure = Figure(figsize=(10, 3.6), layout="constrained")
        words, distance = figure.subplots(1, 2)
        for voice in VOICES:
            for axes, name, scale in ((words, "wer", 100), (distance, "distance_db", 1)):
                points = by_steps(figures, f"voice_{name}_{voice}_")
                values = [scale * value for _, value in points]
                axes.plot([steps for steps, _ in points], values, "o-", label=voice)
        for axes, title in ((words, "words misheard, %"), (distance, "dB from 16 steps")):
            axes.set(title=title, xlabel="steps of the flow decoder", xscale="log")
            axes.set(xlim=(0.9, 18), ylim=(0, None))
            axes.set_xticks(STEPS, [str(steps) for steps in STEPS], minor=False)
            axes.minorticks_off()
            axes.legend()
            bare(axes)
        return png(figure)


def by_steps(figures: Mapping[str, float], prefix: str) -> list[tuple[int, float]]:
    """(steps, figure) of what a caller gets who names no solver, where it was measured."""
    names = ((steps, f"{prefix}{SOLVERS[steps]}_{steps}_steps") for steps in STEPS)
    return [(steps, figures[name]) for steps, name in names if name in figures]

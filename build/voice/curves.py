"""What the trainings were like: validation curves as JSON and as a picture beside the weights."""

import json
from collections.abc import Mapping
from typing import Final

from build.fetch import replacing
from build.voice.training import History
from build.voice.weights import FOLDER

HISTORY: Final = FOLDER / "training.json"
PICTURE: Final = FOLDER / "training.png"

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

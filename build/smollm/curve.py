"""The picture of a training: `weights/orders/training.png` from `training.json`."""

import json
from pathlib import Path

from matplotlib.figure import Figure

from build.fetch import replacing
from build.smollm.train_orders import CURVE

PICTURE = CURVE.with_suffix(".png")


def draw() -> Path:
    """Loss of every step, and at the marks loss and exact answers on dialogs not trained on."""
    points = json.loads(CURVE.read_text())["points"]
    steps = [point for point in points if "loss" in point]
    marks = [point for point in points if "validation_loss" in point]
    figure = Figure(figsize=(7, 3.6), layout="constrained")
    loss, exact = figure.subplots(1, 2)
    loss.plot([p["step"] for p in steps], [p["loss"] for p in steps], lw=0.8, label="training")
    at = [point["step"] for point in marks]
    loss.plot(at, [point["validation_loss"] for point in marks], "o-", label="validation")
    loss.set(yscale="log", xlabel="step", ylabel="nats a token of the answers")
    loss.legend()
    exact.plot(at, [100 * point["exact"] for point in marks], "o-", color="tab:green")
    exact.set(ylim=(0, 100), xlabel="step", ylabel="answers right word for word, %")
    with replacing(PICTURE) as partial, partial.open("wb") as file:
        figure.savefig(file, format="png", dpi=110)
    return PICTURE

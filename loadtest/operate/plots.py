"""Pictures of what operators do."""

from collections.abc import Callable, Mapping, Sequence
from math import nan
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from matplotlib.figure import Figure

from deploy.kubernetes.around import BUSY, WAITED
from loadtest.ledger.palette import BLUE, GREEN, GREY, ORANGE, bare, png, styled

Detail = Mapping[str, Any]
"""What an experiment tells beside its figures."""

COLOURS: Final = {"upgrade": GREEN, "rollback": ORANGE}


def draw(detail: Mapping[str, Detail], folder: Path) -> list[Path]:
    """Write `<experiment>.png` for every experiment that was run and has a picture."""
    drawn = []
    with styled():
        for name in sorted(PICTURES.keys() & detail.keys()):
            path = folder / f"{name}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(png(PICTURES[name](detail[name])))
            drawn.append(path)
    return drawn


def upgrade(found: Detail) -> Figure:
    """First audio of every turn, and the changes that were made meanwhile."""
    figure = Figure(figsize=(9.0, 4.0), layout="constrained")
    axes = figure.subplots()
    for one in found["changes"]:
        axes.axvspan(one["since_s"], one["until_s"], color=COLOURS[one["kind"]], alpha=0.25, lw=0)
    for old, colour in ((True, GREY), (False, BLUE)):
        dots = [(at, ms) for at, ms, words in found["turns"] if words.startswith("emulated") == old]
        told = "words of the first version" if old else "words of the new version"
        axes.scatter([x for x, _ in dots], [y for _, y in dots], s=8, color=colour, label=told)
    for kind, colour in COLOURS.items():
        axes.fill_between([], [], color=colour, alpha=0.25, label=kind)
    axes.set_xlabel("s")
    axes.set_ylabel("first audio, ms")
    axes.set_ylim(0)
    axes.set_title(f"{found['people']} people while stages are upgraded and rolled back")
    axes.legend(loc="lower right")
    bare(axes)
    return figure


def scale(found: Detail) -> Figure:
    """How many replicas were asked for, and why: how long requests waited, how full pods were."""
    figure = Figure(figsize=(9.0, 6.0), layout="constrained")
    count, waited, busy = figure.subplots(3, sharex=True)
    ends = found["phases_end_s"]
    for since, until, people in zip([0.0, *ends], ends, found["people"], strict=False):
        for axes in (count, waited, busy):
            axes.axvspan(since, until, color=BLUE, alpha=0.02 * people, lw=0)
        count.text((since + until) / 2, 3.6, f"{people} callers", ha="center", va="top")
    times, counts = zip(*found["replicas"], strict=True)
    count.step([*times, ends[-1]], [*counts, counts[-1]], where="post", color=GREEN)
    count.set_ylim(0, 3.8)
    count.set_yticks(range(4))
    count.set_ylabel("replicas")
    for axes, metric, told in ((waited, WAITED, "waited, ms"), (busy, BUSY, "busy, %")):
        means = [(one["at_s"], _mean(one[metric])) for one in found["measured"]]
        scaled = 1000 if metric == WAITED else 100
        axes.plot([at for at, _ in means], [scaled * mean for _, mean in means], color=ORANGE)
        axes.axhline(scaled * found["targets"][metric], color=GREY, ls="--", label="target")
        axes.set_ylabel(told)
        axes.set_ylim(0)
        axes.legend(loc="upper right")
    busy.set_xlabel("s")
    count.set_title("Replicas follow the load by the autoscaler's formula")
    for axes in (count, waited, busy):
        bare(axes)
    return figure


def _mean(values: Sequence[float | None]) -> float:
    """Of the pods that tell; NaN where none does."""
    known = [value for value in values if value is not None]
    return fmean(known) if known else nan


PICTURES: Final[Mapping[str, Callable[[Detail], Figure]]] = {"scale": scale, "upgrade": upgrade}

"""Pictures of what operators do."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from matplotlib.figure import Figure

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


PICTURES: Final[Mapping[str, Callable[[Detail], Figure]]] = {"upgrade": upgrade}

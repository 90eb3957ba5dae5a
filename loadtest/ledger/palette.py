"""Colours that colour-blind people can tell apart (Okabe and Ito, Tol), and the pictures' style.

One idea has one colour in all pictures: gaps between steps are orange whoever waits for them.
"""

from contextlib import AbstractContextManager
from io import BytesIO
from typing import Final

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from loadtest.ledger.device import SEVERAL, Idle
from loadtest.ledger.request import Cause

BLUE, SKY, GREEN, YELLOW = "#0072B2", "#56B4E9", "#009E73", "#F0E442"
ORANGE, VERMILLION, PINK, GREY = "#E69F00", "#D55E00", "#CC79A7", "#9A9A9A"
OLIVE, INDIGO, WINE, TEAL, SAND = "#999933", "#332288", "#882255", "#44AA99", "#F7D08A"
PURPLE, FOREST, BROWN = "#AA4499", "#117733", "#661100"
BLACK, PALE, TEXT = "#000000", "#E8E8E8", "#333333"

CAUSES: Final = {
    Cause.COMPUTING: BLUE,
    Cause.ENCODER: VERMILLION,
    Cause.STEPS: SKY,
    Cause.HOST_GAP: ORANGE,
    Cause.BUILDING: OLIVE,
    Cause.LOCK: INDIGO,
    Cause.WINDOW: YELLOW,
    Cause.ADMISSION: PINK,
    Cause.SENDING: WINE,
    Cause.TRANSPORT: GREY,
    Cause.UNEXPLAINED: BLACK,
}
IDLE: Final = {
    Idle.HOST_GAP: ORANGE,
    Idle.WAKE_UP: SAND,
    Idle.BUILDING: OLIVE,
    Idle.WINDOW: YELLOW,
    Idle.ADMISSION: PINK,
    Idle.TRANSPORT: GREY,
    Idle.ELSEWHERE: TEAL,
    Idle.NOTHING: PALE,
    Idle.UNEXPLAINED: BLACK,
}
_STAGES = {
    "listen": VERMILLION,
    "encode": VERMILLION,
    "asr_decode": SKY,
    "think": BLUE,
    "speak": GREEN,
    "prosody": PURPLE,
    "acoustic": WINE,
    "vocoder": FOREST,
    SEVERAL: INDIGO,
}
SERIES: Final = (VERMILLION, BLUE, GREEN, PINK, ORANGE, SKY, BLACK)
MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X")
_STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.edgecolor": "#888888",
    "axes.labelcolor": TEXT,
    "text.color": TEXT,
    "xtick.color": TEXT,
    "ytick.color": TEXT,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "savefig.dpi": 130,
}


def stage_colour(stage: str) -> str:
    """Of a stage that computes."""
    return _STAGES.get(stage, BROWN)


def ink_on(colour: str) -> str:
    """Black or white, whichever is read more easily on a colour."""
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return "#000000" if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else "#FFFFFF"


def bare(axes: Axes, *, keep_left: bool = True) -> None:
    """Without the lines that say nothing."""
    axes.spines[["top", "right"]].set_visible(False)
    if not keep_left:
        axes.spines["left"].set_visible(False)
        axes.tick_params(axis="y", length=0)


def styled() -> AbstractContextManager[None]:
    """`with styled():` makes and saves figures in the report's style."""
    return rc_context(_STYLE)


def png(figure: Figure) -> bytes:
    """The figure as PNG."""
    buffer = BytesIO()
    figure.savefig(buffer, format="png", bbox_inches="tight", facecolor="white")
    return buffer.getvalue()

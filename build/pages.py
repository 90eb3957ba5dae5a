"""Pages for people: one HTML file with everything in it."""

import base64
import html
from io import BytesIO
from pathlib import Path
from typing import Final

import numpy as np
import soundfile
from numpy.typing import NDArray

from build.fetch import replacing
from python_backends.speech import SAMPLE_RATE_HZ

Sound = NDArray[np.float32]
"""[n] at 24 kHz."""

_STYLE: Final = (
    "body{{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:{width}px;color:#222}}"
    "h2{{font-size:1.05em;margin:2em 0 .4em}}audio{{height:32px;width:100%;display:block}}"
    "small{{color:#666}}"
)


def write_page(path: Path, title: str, body: str, *, style: str = "", width: int = 1200) -> None:
    """A page with a heading; `body` is HTML, `title` is not."""
    head = html.escape(title)
    with replacing(path) as partial:
        partial.write_text(
            f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{head}</title>'
            f"<style>{_STYLE.format(width=width)}{style}</style><h1>{head}</h1>{body}",
            encoding="utf-8",
        )


def player(sound: Sound) -> str:
    """Controls that play a sound, with the sound in them, as Ogg Vorbis."""
    file = BytesIO()
    soundfile.write(file, np.clip(sound, -1, 1), SAMPLE_RATE_HZ, format="OGG", subtype="VORBIS")
    source = f"data:audio/ogg;base64,{coded(file.getvalue())}"
    return f'<audio controls preload="none" src="{source}"></audio>'


def coded(content: bytes) -> str:
    """As a data URL has it."""
    return base64.b64encode(content).decode()

"""An emulated server whose stages are upgraded: think, the diffusion stage and listening."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from deploy.keeper import keeping
from deploy.launcher import Server
from deploy.rolling.upgrades import Upgrades
from deploy.settings import Settings
from loadtest.apart.stand import emulating
from loadtest.chaos.caller import DOOR, Told
from loadtest.emulated.leaves.words import WORDS_FILE
from loadtest.seed.experiment import EMULATED

THINK, ACOUSTIC, LISTEN = STAGES = ("emu_think_pieces", "emu_acoustic", "emu_listen")
WIRING: Final = "emu_turn_diffusion"
FIRST: Final = "1"


@dataclass
class Stand:
    """`news`: what the keeper of the server told."""

    server: Server
    upgrades: Upgrades
    news: list[tuple[str, str]] = field(default_factory=list)


@contextmanager
def standing(out: Path) -> Iterator[Stand]:
    """All of it ends with the block."""
    door = {"ensemble": WIRING, "stages": ",".join((LISTEN, THINK, ACOUSTIC))}
    settings = Settings(
        repositories=[EMULATED], models=[DOOR], overrides={DOOR: door}, out=out, exit_timeout_s=2
    )
    with emulating(profile="profile-diffusion"), Server(settings) as server:
        stand = Stand(server, Upgrades(server))
        with keeping(server, lambda kind, what: stand.news.append((kind, what))):
            yield stand


def release(folder: Path, stages: Sequence[str], words: str = "") -> Path:
    """A repository with new versions of stages; `words`: what think says in it."""
    for stage in stages:
        version = folder / stage / "1"
        version.mkdir(parents=True, exist_ok=True)
        shutil.copy(EMULATED / stage / "config.pbtxt", folder / stage)
        if words and stage == THINK:
            (version / WORDS_FILE).write_text(words)
    return folder


def versions_of(told: Told, stage: str) -> set[str]:
    """Which versions of a stage a turn has passed."""
    return {one.get("version", FIRST) for one in told.spans if one["stage"] == stage}


def is_mixed(told: Told) -> bool:
    """A turn that has seen two versions of one stage, or two ways of thinking."""
    ways = {text.rsplit(" ", 1)[0] for text in told.said if text}
    return len(ways) > 1 or any(len(versions_of(told, stage)) > 1 for stage in STAGES)

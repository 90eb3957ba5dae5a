"""A second turn of a session whose first one the server still holds, and at one that keeps nothing.

A session whose HISTORY extends its last turn has that turn's KV prefix restored; a server without
room for any prefix prefills it from its beginning. What is said must be the same.
"""

import time
from pathlib import Path
from statistics import median
from typing import Any
from uuid import uuid4

from rich.progress import Progress

from deploy.launcher import Server
from deploy.settings import Settings
from loadtest.engine.figures import Found, ratio, rotated
from loadtest.engine.serving import Reply, ask, calling

SAID = (
    "I would like two cheeseburgers and a large Coke please.",
    "Can I also get a small order of fries with that?",
    "And three tacos with hot sauce for my son.",
    "Please make one of the cheeseburgers without onions.",
)
JUDGED = (2, 4)
"""Turns that are measured; the second is the one that is judged."""

PAUSE_S = 0.2
"""From an answer's end to the next turn: a person listens and speaks for longer. A turn that comes
at once is not what is asked about here."""

KNOWN, FRESH = "with", "without"
NOTHING_KEPT = {"think": {"session_bytes": "0"}}
Times = dict[tuple[str, int], list[float]]
"""(with or without reuse, turn) -> ms to the first token, one of each round."""


def reuse(folder: Path, rounds: int, progress: Progress) -> Found:
    """One conversation again and again, at a server that keeps prefixes and one that does not."""
    took: Times = {(how, turn): [] for how in (KNOWN, FRESH) for turn in JUDGED}
    same = True
    task = progress.add_task("second turns", total=rounds, told="")
    with (
        Server(Settings(models=["think"])) as keeping,
        Server(Settings(models=["think"], overrides=NOTHING_KEPT)) as forgetting,
        calling(keeping) as known,
        calling(forgetting) as fresh,
    ):
        stubs = {KNOWN: known, FRESH: fresh}
        for stub in stubs.values():
            _conversation(stub)
        for number in range(rounds):
            said: dict[str, list[Reply]] = {}
            for how in rotated([KNOWN, FRESH], number):
                said[how] = _conversation(stubs[how])
                for turn in JUDGED:
                    took[how, turn].append(said[how][turn - 1].first_token_ms)
            same = same and _texts(said[KNOWN]) == _texts(said[FRESH])
            progress.advance(task)
    return Found(reuse_figures(took, same), {"conversation": list(SAID)})


def _conversation(stub: Any) -> list[Reply]:
    """All turns of a new session, one after the other."""
    session = f"bench-{uuid4().hex}"
    history: list[dict[str, str]] = []
    replies = []
    for heard in SAID:
        time.sleep(PAUSE_S)
        reply = ask(stub, heard, history=history, session=session, stream=False)
        history += [{"role": "user", "text": heard}, {"role": "assistant", "text": reply.text}]
        replies.append(reply)
    return replies


def reuse_figures(took: Times, same: bool) -> dict[str, float | None]:
    """ms to the first token with and without reuse, and their ratio."""
    found: dict[str, float | None] = {"reuse_same_answers": float(same)}
    for turn in JUDGED:
        for how in (KNOWN, FRESH):
            found[f"reuse_turn_{turn}_{how}_ms"] = median(took[how, turn])
        found[f"reuse_turn_{turn}_ratio"] = ratio(took[KNOWN, turn], took[FRESH, turn])
    return found


def _texts(replies: list[Reply]) -> list[str]:
    return [reply.text for reply in replies]

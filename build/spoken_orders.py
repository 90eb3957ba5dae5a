"""The held-out conversations by sound, a part of `make eval`: customers speak, a server answers.

What the written evaluation leaves out is in this one: what the recogniser makes of an order, and
how the answer sounds. Every reply is judged by the same rules; the page has both sides of it.
"""

import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from hibari import Hibari
from rich.progress import Progress

from build import pages
from build.pages import Sound, player
from build.smollm.evaluate import judge
from build.smollm.held_out import CONVERSATIONS
from build.smollm.turns import Line
from client.audio import HEARD_RATE_HZ, resample
from client.conversation import Conversation
from client.requests import TurnOptions
from client.responses import TurnChunk
from client.turns import TurnClient
from deploy.launcher import Server
from deploy.settings import Settings
from loadtest.stages.reheard import Heard, word_error_rate
from python_backends.errors import StageError
from python_backends.ordering.exchange import join_pieces
from python_backends.speech import SAMPLE_RATE_HZ, VOICES

Row = dict[str, Any]
"""A turn, as `judge` has it."""

_STYLE: Final = (
    ".said,.reply{border-radius:10px;padding:.5em .8em;margin:.5em 0;width:75%}"
    ".said{background:#f1f1f1}.reply{background:#e8f5e9;margin-left:auto}.wrong{background:#fdecea}"
)


@dataclass(frozen=True, eq=False)
class SpokenTurn:
    """One exchange: what was said, what was heard of it, and the answer as far as it came."""

    line: Line
    spoken: Sound
    heard: str
    answer: str
    reply: Sound
    order: str
    error: str = ""

    @property
    def told(self) -> dict[str, str]:
        """What readers of the figures may want to know besides the judgement."""
        return {"understood": self.heard} | ({"error": self.error} if self.error else {})


def evaluate_spoken(path: Path, progress: Progress) -> dict[str, Any]:
    """Figures by name and `detail`; the page is written to `path`."""
    task = progress.add_task("spoken orders", total=sum(map(len, CONVERSATIONS)), told="")
    customer, turns, rows, parts = Hibari(threads=1), list[SpokenTurn](), list[Row](), list[str]()
    with Server(Settings()) as server, TurnClient(server.grpc_address) as client:
        for number, lines in enumerate(CONVERSATIONS):
            options = TurnOptions(voice=VOICES[number % len(VOICES)], seed=number)
            own = []
            for turn in _spoken(client, customer, lines, options):
                own.append(turn)
                progress.advance(task)
            judged = judge(lines, [turn.answer for turn in own])
            title = f"Conversation {number + 1}, {options.voice}"
            parts.append(conversation_html(title, own, judged))
            rows += [row | turn.told for row, turn in zip(judged, own, strict=True)]
            turns += own
    right = sum(row["right"] for row in rows)
    about = (
        f"<p>Customers (hibari) speak to the server: grey is what they say, with what was "
        f"understood of it; green is the answer, red one that is not right: {right} of "
        f"{len(rows)} are. Training has seen none of it.</p>"
    )
    body = about + "".join(parts)
    pages.write_page(path, "Ordering by voice", body, style=_STYLE, width=800)
    return {
        "spoken_turns": float(len(rows)),
        "spoken_right": float(right),
        "spoken_failed": float(sum(bool(turn.error) for turn in turns)),
        "spoken_wer": word_error_rate([Heard(turn.line.heard, turn.heard) for turn in turns]),
        "detail": {"conversations": rows},
    }


def _spoken(
    client: TurnClient, customer: Hibari, lines: Sequence[Line], options: TurnOptions
) -> Iterator[SpokenTurn]:
    """One conversation; after a turn that fails the next one goes on with what had arrived."""
    conversation = Conversation(client)
    for line in lines:
        spoken = np.asarray(customer(line.heard, seed=options.seed), np.float32)
        chunks, error = list[TurnChunk](), ""
        try:
            for chunk in conversation.turn(
                resample(spoken, SAMPLE_RATE_HZ, HEARD_RATE_HZ), options=options
            ):
                chunks.append(chunk)
        except StageError as fault:
            error = str(fault)
        nothing = np.zeros(0, np.float32)
        yield SpokenTurn(
            line,
            spoken,
            heard=chunks[0].heard if chunks else "",
            answer=join_pieces(chunk.text for chunk in chunks),
            reply=np.concatenate([nothing, *(chunk.speech for chunk in chunks)]),
            order=conversation.order.line,
            error=error,
        )


def conversation_html(title: str, turns: Sequence[SpokenTurn], rows: Sequence[Row]) -> str:
    """Both sides of a conversation with their sounds; what is not right is marked."""
    parts = [f"<h2>{html.escape(title)}</h2>"]
    for turn, row in zip(turns, rows, strict=True):
        understood = "" if turn.heard == turn.line.heard else f"understood: {turn.heard}"
        kind = "reply" if row["right"] else "reply wrong"
        parts.append(
            f'<div class="said">{html.escape(turn.line.heard)}{player(turn.spoken)}'
            f"<small>{html.escape(understood)}</small></div>"
            f'<div class="{kind}">{html.escape(turn.answer)}{player(turn.reply)}'
            f"<small>{html.escape(turn.error or turn.order)}</small></div>"
        )
    return "".join(parts)

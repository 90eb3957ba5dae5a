"""The held-out conversations by sound, a part of `make eval`: customers speak, a server answers.

What the written evaluation leaves out is in this one: what the recogniser makes of an order, and
how the answer sounds. Every reply is judged by the same rules; the page has both sides of it.
"""

import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from hibari import Hibari
from rich.progress import Progress

from build.fetch import replacing
from build.smollm.evaluate import judge
from build.smollm.held_out import CONVERSATIONS
from build.smollm.turns import Line
from build.voice.listening import Sound, player
from client.audio import HEARD_RATE_HZ, resample
from client.conversation import Conversation
from client.requests import TurnOptions
from client.responses import join_pieces
from client.turns import TurnClient
from deploy.launcher import Server
from deploy.settings import Settings
from loadtest.stages.reheard import Heard, word_error_rate
from python_backends.errors import StageError
from python_backends.speech import SAMPLE_RATE_HZ, VOICES

_STYLE: Final = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:800px;color:#222}"
    "h2{font-size:1.05em;margin:2.5em 0 .6em}p{margin:.2em 0}audio{height:32px;width:100%}"
    ".said,.reply{border-radius:10px;padding:.5em .8em;margin:.5em 0;width:75%}"
    ".said{background:#f1f1f1}.reply{background:#e8f5e9;margin-left:auto}"
    ".wrong{background:#fdecea}small{color:#666}"
)


@dataclass(frozen=True, eq=False)
class SpokenTurn:
    """One exchange: sounds at 24 kHz, what was heard, and the answer."""

    line: Line
    spoken: Sound
    heard: str
    answer: str
    reply: Sound
    order: str


def evaluate_spoken(path: Path, progress: Progress) -> dict[str, Any]:
    """Figures by name and `detail`; the page is written to `path`."""
    told, parts = [], []
    everything: list[SpokenTurn] = []
    task = progress.add_task("spoken orders", total=sum(map(len, CONVERSATIONS)), told="")
    with Server(Settings()) as server, TurnClient(server.grpc_address) as client:
        for number, lines in enumerate(CONVERSATIONS):
            voice = VOICES[number % len(VOICES)]
            turns = []
            for turn in _spoken(client, lines, voice, seed=number):
                turns.append(turn)
                progress.advance(task)
            rows = judge(lines, [turn.answer for turn in turns])
            told.append(
                [{**row, "understood": t.heard} for row, t in zip(rows, turns, strict=True)]
            )
            parts.append(conversation_html(f"Conversation {number + 1}, {voice}", turns, rows))
            everything += turns
    with replacing(path) as partial:
        partial.write_text(_page(parts), encoding="utf-8")
    rows = [row for conversation in told for row in conversation]
    return {
        "spoken_turns": float(len(rows)),
        "spoken_right": float(sum(row["right"] for row in rows)),
        "spoken_wer_of_customers": word_error_rate(
            [Heard(t.line.heard, t.heard) for t in everything]
        ),
        "detail": {"conversations": told},
    }


def _spoken(client: TurnClient, lines: Sequence[Line], voice: str, seed: int) -> list[SpokenTurn]:
    """One conversation; a turn that fails has no answer, and the next one goes on."""
    customer, found = Hibari(threads=1), []
    conversation = Conversation(client)
    for line in lines:
        spoken = np.asarray(customer(line.heard, seed=seed), np.float32)
        audio = resample(spoken, SAMPLE_RATE_HZ, HEARD_RATE_HZ)
        try:
            chunks = list(conversation.turn(audio, options=TurnOptions(voice=voice, seed=seed)))
        except StageError:
            chunks = []
        found.append(
            SpokenTurn(
                line,
                spoken,
                heard=chunks[0].heard if chunks else "",
                answer=join_pieces(chunk.text for chunk in chunks),
                reply=np.concatenate([np.zeros(1, np.float32), *(c.speech for c in chunks)]),
                order=conversation.order.line,
            )
        )
    return found


def _page(conversations: Sequence[str]) -> str:
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Ordering by voice</title>'
        f"<style>{_STYLE}</style><h1>Ordering by voice</h1><p>Customers (hibari) speak to the "
        "server; grey is what they say, with what was understood; green is the answer, red one "
        f"that is not right. Training has seen none of it.</p>{''.join(conversations)}"
    )


def conversation_html(
    title: str, turns: Sequence[SpokenTurn], rows: Sequence[dict[str, Any]]
) -> str:
    """Both sides of a conversation with their sounds; what is not right is marked."""
    parts = [f"<h2>{html.escape(title)}</h2>"]
    for turn, row in zip(turns, rows, strict=True):
        understood = "" if turn.heard == turn.line.heard else f"understood: {turn.heard}"
        kind = "reply" if row["right"] else "reply wrong"
        parts.append(
            f'<div class="said">{html.escape(turn.line.heard)}{player(turn.spoken)}'
            f"<small>{html.escape(understood)}</small></div>"
            f'<div class="{kind}">{html.escape(turn.answer)}{player(turn.reply)}'
            f"<small>{html.escape(turn.order)}</small></div>"
        )
    return "".join(parts)

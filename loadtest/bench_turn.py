"""`make bench-turn`: what streaming buys one caller, on real weights.

The same order is spoken to `turn` with streaming on and off, in turns, on one server. Streamed, the
answer leaves clause by clause and chunk by chunk; unstreamed it is one piece and one chunk. First
audio is the time from sending the request to the first chunk with sound.

Then 1, 2, 4 and 8 people speak at once, closed loop, and the ledger says where their time went.
There are fewer recordings than people, so `encode` must not share equal sounds here: people do not
say the same to the last sample. On
two cores, shared by server, stages and callers, a stage's compute span also holds its waiting for a
core.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import track

from client import audio
from client.turns import TurnChunk, TurnClient, TurnOptions
from deploy.launcher import Server
from deploy.settings import Settings
from loadtest.ledger import explain
from loadtest.ledger.explanation import Figure
from loadtest.load import RunSpec, run
from loadtest.load.spec import recordings

ROOT = Path(__file__).parent.parent
ORDER = ROOT / "samples" / "order-long.wav"
OUT = ROOT / "out" / "bench" / "turn.json"
MAX_RATIO = 0.75
MIN_WORDS, MAX_WORDS = 12, 20
WARM_UPS = 2
PEOPLE = (1, 2, 4, 8)
CROWD_S = 12.0
CROWD_FIGURES = (
    "turns",
    "failed",
    "turns_per_s",
    "latency_ms_p50",
    "first_audio_ms_p50",
    "first_audio_ms_p95",
    "rtf_p50",
    "underrun_share",
    "unexplained_p50_share",
    "unexplained_p95_share",
    "valid",
)


@dataclass(frozen=True)
class Measured:
    """One turn as its caller saw it."""

    reply: str
    pieces: int
    chunks: int
    first_audio_s: float
    total_s: float
    audio_s: float


def measure(client: TurnClient, *, stream: bool) -> Measured:
    """Speak the order once, greedily."""
    options = TurnOptions(temperature=0.0, speech_temperature=0.0, stream=stream)
    turn = client.turn(audio.read(ORDER), options=options)
    chunks = list(turn)
    first = next(chunk for chunk in chunks if chunk.speech.size)
    return Measured(
        reply=_reply(chunks),
        pieces=chunks[-1].piece + 1,
        chunks=len(chunks),
        first_audio_s=(first.received_ns - turn.sent_ns) / 1e9,
        total_s=(chunks[-1].received_ns - turn.sent_ns) / 1e9,
        audio_s=sum(chunk.speech.size / chunk.sample_rate_hz for chunk in chunks),
    )


def interleaved(client: TurnClient, rounds: int) -> tuple[list[Measured], list[Measured]]:
    """(streamed, unstreamed), one of each a round, after warm-up turns that are not counted."""
    streamed: list[Measured] = []
    whole: list[Measured] = []
    for number in track(range(-WARM_UPS, rounds), description="turns", transient=True):
        pair = measure(client, stream=True), measure(client, stream=False)
        if number >= 0:
            streamed.append(pair[0])
            whole.append(pair[1])
    return streamed, whole


def crowds(address: str) -> dict[str, dict[str, Figure]]:
    """People -> what they got, and the rows of the request book (ms a turn)."""
    found = {}
    for people in PEOPLE:
        spec = RunSpec(
            name=f"turn-{people}",
            target="turn",
            model="turn",
            people=people,
            seconds=CROWD_S,
            warm_up_s=2.0,
            ramp_s=1.0,
            timeout_s=30.0,
            recordings=recordings(ORDER.parent),
            out=OUT.parent / "turn",
        )
        told = explain(run(spec, address), console=Console(quiet=True))
        found[str(people)] = {key: told.figures().get(key) for key in CROWD_FIGURES} | {
            key: value for key, value in told.figures().items() if key.startswith("request/")
        }
    return found


def report(streamed: Sequence[Measured], whole: Sequence[Measured]) -> dict[str, object]:
    """The figures, what was asked of them, and every single turn."""
    first_audio_s = _median(one.first_audio_s for one in streamed)
    unstreamed_total_s = _median(one.total_s for one in whole)
    ratio = first_audio_s / unstreamed_total_s
    words = len(streamed[0].reply.split())
    same = len({one.reply for one in (*streamed, *whole)}) == 1
    return {
        "summary": {
            "first_audio_s": first_audio_s,
            "unstreamed_total_s": unstreamed_total_s,
            "first_audio_ratio": ratio,
            "streamed_total_s": _median(one.total_s for one in streamed),
            "unstreamed_first_audio_s": _median(one.first_audio_s for one in whole),
            "reply_words": words,
            "reply_pieces": streamed[0].pieces,
            "rounds": len(streamed),
        },
        "targets": {
            "first_audio_ratio": f"<= {MAX_RATIO}",
            "reply_words": f"{MIN_WORDS} to {MAX_WORDS}",
            "reply_pieces": ">= 2",
            "same_reply_every_time": True,
        },
        "met": {
            "first_audio_ratio": ratio <= MAX_RATIO,
            "reply_words": MIN_WORDS <= words <= MAX_WORDS,
            "reply_pieces": streamed[0].pieces >= 2,
            "same_reply_every_time": same,
        },
        "reply": streamed[0].reply,
        "streamed": [asdict(one) for one in streamed],
        "unstreamed": [asdict(one) for one in whole],
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print the summary, write the JSON; 1 when a target is not met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--out", type=Path, default=OUT)
    chosen = parser.parse_args(arguments)
    settings = Settings(overrides={"encode": {"share_identical": "false"}})
    with Server(settings, progress=print) as server, TurnClient(server.grpc_address) as client:
        result = report(*interleaved(client, chosen.rounds))
        result["people"] = crowds(server.grpc_address)
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    chosen.out.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps({key: result[key] for key in ("summary", "met", "reply")}, indent=2))
    met = result["met"]
    assert isinstance(met, dict)
    return 0 if all(met.values()) else 1


def _reply(chunks: Iterable[TurnChunk]) -> str:
    return " ".join(chunk.text for chunk in chunks if chunk.text)


def _median(values: Iterable[float]) -> float:
    return statistics.median(values)


if __name__ == "__main__":
    sys.exit(main())

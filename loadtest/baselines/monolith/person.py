"""What the monolith knows of a turn beside its progress: the request, and its spans."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadtest.baselines.monolith.turns import Chunk, Turn
from loadtest.device import Pass
from python_backends.bridge import Request, span
from python_backends.bridge.tensors import text
from python_backends.errors import InvalidInput
from python_backends.speech import SAMPLE_RATE_HZ

STAGE = "monolith"
NOTHING = text("")
ANSWER = text("(emulated: nothing was really said)")
HEARD = text("(emulated: nothing was really heard)")
FINISHED = text("stop")
RATE = np.array([[SAMPLE_RATE_HZ]], np.int32)


class Person:
    """A caller. `phases` are (stage, piece) -> [start_ns, end_ns], first pass to last."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.phases: dict[tuple[str, int], list[int]] = {}
        self.admitted_ns = 0

    def computed(self, stage: str, piece: int, done: Pass) -> None:
        """A pass with this turn in it is on the device."""
        self.admitted_ns = self.admitted_ns or done.submitted_ns
        phase = self.phases.setdefault((stage, piece), [done.start_ns, done.end_ns])
        phase[1] = done.end_ns

    def send(self, chunk: Chunk) -> None:
        """Send a chunk; TEXT and HEARD go with the first, STATUS and EVENTS with the last."""
        first, last = (chunk.piece, chunk.number) == (0, 0), chunk.ends_turn
        outputs: dict[str, NDArray[Any]] = {
            "PIECE": np.array([[chunk.piece, chunk.number, chunk.flags]], np.int32),
            "TEXT": ANSWER if chunk.number == 0 else NOTHING,
            "HEARD": HEARD if first else NOTHING,
            "STATUS": FINISHED if last else NOTHING,
            "EVENTS": self.request.with_events(*self.events()) if last else NOTHING,
            "SPEECH": np.array([[chunk.audio_ms]], np.float32),
            "SAMPLE_RATE": RATE,
        }
        if last:
            self.request.finish(outputs)
        else:
            self.request.send(outputs)

    def events(self) -> list[bytes]:
        """Arrival to admission as "queue", then each phase by its name."""
        turn = self.request.turn
        queue = span(STAGE, turn, "queue", self.request.arrived_ns, self.admitted_ns)
        phases = [
            span(STAGE, turn, stage, start_ns, end_ns, piece=piece)
            for (stage, piece), (start_ns, end_ns) in self.phases.items()
        ]
        return [queue, *phases]


def arrived(request: Request) -> Turn:
    """The turn of a request with AUDIO, whose first sample, rounded, is its shape bucket."""
    sound = request.required("AUDIO")
    if not sound.size:
        raise InvalidInput("AUDIO has no samples; the first one names the shape bucket")
    bucket = round(float(sound.flat[0]))
    return Turn(Person(request), bucket=bucket, whole=not request.options.stream)

"""What think and speak have in common: a number of steps, spans, and host work after each step."""

import time
from pathlib import Path

import numpy as np

from loadtest.device import Emulation, SpanLog
from loadtest.device.sleep import sleep_ms, sleep_until
from loadtest.emulated.leaves.engine import WIDTH
from python_backends.ar_loop.sequence import Sequence
from python_backends.bridge import Request
from python_backends.slot_engine.command import Tokens

PROMPT = np.zeros((1, WIDTH), np.int64)


class Steps:
    """Base of the tasks; after each step its host work is padded to the emulation's gap."""

    width = WIDTH

    def __init__(self, emulation: Emulation, stage: str) -> None:
        self.emulation = emulation
        self.profile = emulation.profile.stages[stage]
        self.device = Path(emulation.devices[stage]).name
        self._spans = SpanLog(emulation.spans, stage, self.device)
        self._host_since_ns = 0

    def open(self, request: Request) -> list[Sequence]:
        """See Task."""
        sleep_ms(self.emulation.delays.admission_ms)
        return [self.sequence(request)]

    def sequence(self, request: Request) -> Sequence:
        """What `request` decodes."""
        raise NotImplementedError

    def abandon(self, turn: str) -> None:
        """See Task."""

    def host_work_begins(self) -> None:
        """The first token of a step is about to be used."""
        self._host_since_ns = self._host_since_ns or time.monotonic_ns()

    def after_step(self, members: int) -> None:
        """See Task. Host work that is really done counts towards the gap."""
        start_ns = self._host_since_ns or time.monotonic_ns()
        sleep_until(start_ns + round(self.emulation.gap_ms(members) * 1e6))
        self._spans.write("host", start_ns, time.monotonic_ns(), members)
        self._host_since_ns = 0


class Stepped(Sequence):
    """One request of so many steps, the first of which is its prefill."""

    def __init__(self, request: Request, steps: int, task: Steps) -> None:
        super().__init__(request, PROMPT, steps)
        self._task = task
        self._steps = 0
        self._since_ns = 0
        self._until_ns = 0

    def advance(self, token: Tokens) -> bool:
        """See Sequence: every token is fed the same, and only their number ends it."""
        return False

    def deliver(self, token: Tokens, score: float, no_speech: float) -> None:
        """See Sequence."""
        self._task.host_work_begins()
        submitted_ns, end_ns = map(int, token)
        self._since_ns = self._since_ns or submitted_ns
        self._until_ns = end_ns
        self._steps += 1
        self.stepped(self._steps)

    def stepped(self, steps: int) -> None:
        """So many steps are done."""
        raise NotImplementedError

    def queued(self, piece: int) -> bytes:
        """The span before its first step was submitted."""
        arrived_ns = self.request.arrived_ns
        device = self._task.device
        return self.request.span("queue", arrived_ns, self._since_ns, piece=piece, device=device)

    def computed(self, piece: int, since_ns: int, steps: int) -> bytes:
        """The span of its last `steps` steps; begun at `since_ns`, or with its first (0)."""
        start_ns = since_ns or self._since_ns
        about = {"steps": steps, "device": self._task.device}
        return self.request.span("compute", start_ns, self._until_ns, piece=piece, **about)

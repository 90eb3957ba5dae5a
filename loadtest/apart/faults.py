"""A server dies, or hangs, in the middle of a load: who notices, when, and who goes on."""

import signal
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import psutil

from loadtest.apart.stand import Stand
from loadtest.device import newest_pass
from loadtest.ledger import Explanation
from loadtest.ledger.run import Run, Turn

STAGE = "think"
SERVER = "think-1"
AWAY_S = 1000.0
PATIENCE_S = 10.0
"""At most so long a stage is waited for that is to be hit while it computes."""


@dataclass(frozen=True)
class Fault:
    """What a load showed of a fault at `at_ns`; times in s."""

    run: Run
    at_ns: int

    @property
    def hit(self) -> list[Turn]:
        """Turns that were open when it came and failed."""
        return [
            turn
            for turn in self.run.turns
            if self._open(turn) and turn.outcome != "open" and not turn.is_ok
        ]

    @property
    def noticed_s(self) -> float:
        """Until the last of them was told."""
        return max((turn.end_ns - self.at_ns for turn in self.hit), default=0) / 1e9

    @property
    def untyped(self) -> int:
        """Failures of the whole run that were no typed error of a stage: time-outs among them, and
        what a server said in words of its own."""
        failed = [turn for turn in self.run.turns if not turn.is_ok and turn.outcome != "open"]
        return sum(
            turn.outcome not in ("error", "refused")
            or turn.reason.endswith((" at client", " at server"))
            for turn in failed
        )

    @property
    def back_s(self) -> float:
        """Until the stage computed again; `AWAY_S` when it never did."""
        again = [
            one.start_ns
            for one in self.run.passes
            if one.stage == STAGE and one.submitted_ns > self.at_ns + 200_000_000
        ]
        return (min(again) - self.at_ns) / 1e9 if again else AWAY_S

    @property
    def listened_meanwhile(self) -> int:
        """Encoder passes that were asked for while the stage was away."""
        until_ns = self.at_ns + round(min(self.back_s, AWAY_S) * 1e9)
        passes = [one for one in self.run.passes if one.stage == "listen"]
        return sum(self.at_ns < one.submitted_ns < until_ns for one in passes)

    @property
    def served_on_share(self) -> float:
        """Of the turns that were beyond thinking when it came: those that were answered well."""
        return sum(turn.is_ok for turn in self.beyond) / max(1, len(self.beyond))

    @property
    def beyond(self) -> list[Turn]:
        """Turns that were being spoken when it came."""
        return [turn for turn in self.run.turns if self._open(turn) and self._beyond(turn)]

    def _open(self, turn: Turn) -> bool:
        return turn.sent_ns < self.at_ns < turn.end_ns

    def _beyond(self, turn: Turn) -> bool:
        """Some sound of it had come."""
        return bool(turn.chunks_ns) and turn.chunks_ns[0] < self.at_ns


def killed(stand: Stand, name: str, people: int, seconds: float) -> tuple[Explanation, Fault]:
    """The server of think is killed with everything in it."""
    return _with_fault(stand, name, people, seconds, signal.SIGKILL)


def stopped(stand: Stand, name: str, people: int, seconds: float) -> tuple[Explanation, Fault]:
    """The server of think stands still: its connections stay, and nothing comes any more."""
    return _with_fault(stand, name, people, seconds, signal.SIGSTOP)


def _with_fault(
    stand: Stand, name: str, people: int, seconds: float, sign: signal.Signals
) -> tuple[Explanation, Fault]:
    with ThreadPoolExecutor(1) as threads:
        hit = threads.submit(_hit, stand, 4.0 + seconds / 3, sign)
        told = stand.load(name, people, seconds, ramp_s=2.0)
    return told, Fault(told.run, hit.result())


def _hit(stand: Stand, after_s: float, sign: signal.Signals) -> int:
    """Signal the server and its stubs while it computes; when that was."""
    time.sleep(after_s)
    server = psutil.Process(stand.cluster.servers[SERVER].pid)
    victims = [server, *server.children(recursive=True)]
    _wait_until_computing(stand.device(STAGE))
    at_ns = time.monotonic_ns()
    for victim in victims:
        victim.send_signal(sign)
    return at_ns


def _wait_until_computing(device: Path) -> None:
    """Until the stage has the device: an idle one hurts nobody."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        one = newest_pass(device)
        if one is not None and one.stage == STAGE and one.end_ns > time.monotonic_ns():
            return
        time.sleep(0.002)
    raise RuntimeError(f"{STAGE} has not computed for {PATIENCE_S:g} s, so it cannot be hit")

"""Inside the generator: Locust's runner from the first arrival to the last answer.

A run is: warm-up, measured time, settling (load goes on until every turn that counts has ended),
then whatever is open is cancelled. Every half second one JSON line on stdout says how it goes.
"""

import gc
import json
import os
import resource
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import gevent
from locust.env import Environment

from loadtest.load.caller import Caller
from loadtest.load.folder import GENERATOR, SPEC
from loadtest.load.live_users import LiveCallUser
from loadtest.load.punctuality import BEAT_S, limit_ms, shares
from loadtest.load.records import OK, TurnWriter
from loadtest.load.session import Session, Window
from loadtest.load.spec import RunSpec
from loadtest.load.users import ArrivingTurnsUser, Plan, SpokenTurnUser, attach

LOOK_S = 0.05
TELL_S = 0.5
LIVE_GRACE_S = 60.0
"""The answers of live calls are played before they have ended."""

SETTLE_GRACE_S = 2.0
"""Beyond the callers' time-out, for the unlikely call that does not end."""


def drive(folder: Path, address: str) -> None:
    """Run the spec in `folder` against a server; leaves turns.jsonl and generator.json there."""
    spec = RunSpec.from_json((folder / SPEC).read_text())
    caller, writer = Caller(address, spec), TurnWriter(folder)
    caller.connect()
    session = Session(caller, spec.timeout_s, writer)
    try:
        facts = _Run(spec, session).go()
    finally:
        writer.close()
        caller.close()
    partial = folder / f"{GENERATOR}.partial"
    partial.write_text(json.dumps(facts, indent=1))
    os.replace(partial, folder / GENERATOR)


class _Run:
    def __init__(self, spec: RunSpec, session: Session) -> None:
        self._spec = spec
        self._session = session
        gc.collect()
        gc.freeze()
        self._started_ns = self._told_ns = time.monotonic_ns()
        from_ns = self._started_ns + round(spec.warm_up_s * 1e9)
        session.window = Window(from_ns, from_ns + round(spec.seconds * 1e9))

    def go(self) -> dict[str, Any]:
        """The whole run; what is to be known about it."""
        is_open = self._spec.mode == "open"
        alone = ArrivingTurnsUser if is_open else SpokenTurnUser
        environment = Environment(user_classes=[LiveCallUser if self._spec.live else alone])
        attach(environment, Plan(self._spec, self._session, self._started_ns))
        runner = environment.create_local_runner()
        heart = gevent.spawn(_heartbeat, self._session)
        people = 1 if is_open else self._spec.people
        runner.start(people, spawn_rate=people)
        cpu_cores = self._measure()
        self._settle()
        ended_ns = time.monotonic_ns()
        runner.quit()
        heart.kill()
        return self._facts(ended_ns, cpu_cores)

    def _measure(self) -> float:
        """Wait for the end of the measured time; cores that the generator used in it."""
        self._until(self._session.window.from_ns, "warm-up")
        before_s, before_ns = _cpu_s(), time.monotonic_ns()
        self._until(self._session.window.to_ns, "measuring")
        return (_cpu_s() - before_s) / (time.monotonic_ns() - before_ns) * 1e9

    def _settle(self) -> None:
        """A turn may have been due in the very last moment: look again before all is settled."""
        self._until(self._session.window.to_ns + round(LOOK_S * 1e9), "settling")
        grace_s = LIVE_GRACE_S if self._spec.live else SETTLE_GRACE_S
        patience_ns = round((self._spec.timeout_s + grace_s) * 1e9)
        last_ns = self._session.window.to_ns + patience_ns
        self._until(last_ns, "settling", self._session.settled)
        self._tell("done")

    def _until(self, due_ns: int, phase: str, done: Callable[[], bool] = lambda: False) -> None:
        while (left_s := (due_ns - time.monotonic_ns()) / 1e9) > 0 and not done():
            gevent.sleep(min(left_s, LOOK_S))
            if time.monotonic_ns() - self._told_ns > TELL_S * 1e9:
                self._tell(phase)

    def _tell(self, phase: str) -> None:
        """Fails when nobody listens any more, which ends the run."""
        self._session.flush()
        self._told_ns = time.monotonic_ns()
        at_s = (self._told_ns - self._started_ns) / 1e9
        counts = self._session.counts
        line = {"phase": phase, "at_s": at_s, "open": self._session.open, "ok": counts[OK]}
        print(json.dumps(line | {"failed": self._session.failed}), flush=True)

    def _facts(self, ended_ns: int, cpu_cores: float) -> dict[str, Any]:
        window = self._session.window
        gap_ms = 1e3 / self._spec.rate if self._spec.rate else None
        punctual = self._session.punctuality(limit_ms(gap_ms))
        return {
            "started_ns": self._started_ns,
            "measured_from_ns": window.from_ns,
            "measured_to_ns": window.to_ns,
            "ended_ns": ended_ns,
            "counts": dict(self._session.counts),
            "times_ms": {name: shares(ms) for name, ms in self._session.times_ms.items()},
            "generator": asdict(punctual) | {"cpu_cores": round(cpu_cores, 3)},
        }


def _heartbeat(session: Session) -> None:
    while True:
        due_ns = time.monotonic_ns() + round(BEAT_S * 1e9)
        gevent.sleep(BEAT_S)
        session.beat(time.monotonic_ns() - due_ns)


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime

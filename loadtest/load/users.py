"""Locust users that speak turns: people who wait for their answers, and arrivals that do not.

Locust's own percentiles would mix fast refusals into the latencies, and its streams are timed to
the first byte or to the end, never both. So only answered turns are reported under "turn" and
"first audio"; every failure has an entry of its own, by reason.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import gevent
from gevent.pool import Group
from locust import User, task
from locust.exception import StopUser

from loadtest.load import arrivals
from loadtest.load.records import OK, OPEN, Turn
from loadtest.load.session import Session
from loadtest.load.spec import RunSpec

KIND = "gRPC stream"


@dataclass
class Plan:
    """What users need to know; in Locust's environment."""

    spec: RunSpec
    session: Session
    started_ns: int
    numbers: Iterator[int] = field(default_factory=count)

    def first_ns(self, number: int) -> int:
        """When a person speaks for the first time: evenly spread, so that nobody is in step."""
        return self.started_ns + round(self.spec.ramp_s * 1e9 * number / self.spec.people)

    def offsets_ns(self) -> Iterator[int]:
        """Arrivals of the open loop."""
        if self.spec.trace is not None:
            return iter(arrivals.read_trace(self.spec.trace))
        assert self.spec.rate is not None
        return arrivals.poisson(self.spec.rate, self.spec.seed)

    def speak(self, environment: Any, number: int, intended_ns: int) -> int:
        """One turn; when its caller would speak again at the earliest, CLOCK_MONOTONIC ns."""
        turn, pause_s = self.session.speak(number, intended_ns)
        report(environment, turn)
        return turn.end_ns + round(max(self.spec.think_time_ms / 1e3, pause_s) * 1e9)


class SpokenTurnUser(User):
    """One person: speaks, hears the answer out, thinks, speaks again."""

    def on_start(self) -> None:
        plan = plan_of(self.environment)
        self.number = next(plan.numbers)
        self.due_ns = max(plan.first_ns(self.number), time.monotonic_ns())
        sleep_until(self.due_ns)

    @task
    def turn(self) -> None:
        self.due_ns = plan_of(self.environment).speak(self.environment, self.number, self.due_ns)

    def wait_time(self) -> float:
        """Until the next turn is due, in s."""
        return max(0.0, (self.due_ns - time.monotonic_ns()) / 1e9)


class ArrivingTurnsUser(User):
    """The whole open loop: each turn starts when it is meant to and has a greenlet of its own."""

    fixed_count = 1

    @task
    def arrive(self) -> None:
        plan, turns = plan_of(self.environment), Group()
        try:
            for number, offset_ns in enumerate(plan.offsets_ns()):
                due_ns = plan.started_ns + offset_ns
                sleep_until(due_ns)
                turns.spawn(plan.speak, self.environment, number, due_ns)
            turns.join()
        finally:
            turns.kill()
        raise StopUser


def attach(environment: Any, plan: Plan) -> None:
    """Let the users of a Locust environment follow this plan; those in live calls one of theirs."""
    if plan.spec.live:
        environment.live_plan = plan
    else:
        environment.plan = plan


def plan_of(environment: Any) -> Plan:
    """The plan that was attached."""
    plan: Plan = environment.plan
    return plan


def live_plan_of(environment: Any) -> Plan:
    """That of people in live calls."""
    plan: Plan = environment.live_plan
    return plan


def sleep_until(due_ns: int) -> None:
    """Let others run until then, at least once."""
    gevent.sleep(max(0.0, (due_ns - time.monotonic_ns()) / 1e9))


def report(environment: Any, turn: Turn) -> None:
    """Tell Locust's statistics about a turn that has ended."""
    fire = environment.events.request.fire
    common = {"request_type": KIND, "response_length": 0, "exception": None}
    latency_ms = turn.latency_ns / 1e6
    if turn.outcome == OPEN:
        return
    if turn.outcome != OK:
        failure = RuntimeError(turn.reason)
        name = f"failed: {turn.outcome}, {turn.reason}"
        fire(**common | {"name": name, "response_time": latency_ms, "exception": failure})
        return
    fire(**common, name="turn", response_time=latency_ms)
    if (first_ns := turn.first_audio_ns) is not None:
        fire(**common, name="first audio", response_time=first_ns / 1e6)

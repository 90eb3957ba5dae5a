"""The world of a tiny exact server in fake time: devices, turns, and where their time truly goes.

Its truth does not come from intervals: whenever time passes, every open turn's state at that moment
says where the time goes. Nothing is random, nothing sleeps; costs are those of the seed.
"""

import heapq
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from loadtest.ledger.device import Idle
from loadtest.ledger.request import Cause

MS = 1_000_000
COST_MS = {"listen": (22.0, 8.0), "think": (8.6, 0.05), "speak": (4.7, 0.04)}
STEPS = {"think": 40, "speak": 75}
STEPS_PER_CHUNK, AUDIO_MS_PER_STEP = 4, 80.0


@dataclass(frozen=True)
class Knobs:
    """What can be made slow, ms; `slots` of each loop, `encoder_apart` on a device of its own."""

    people: int = 8
    seconds: float = 4.0
    monolith: bool = False
    slots: int = 128
    encoder_batch: int = 8
    hop: float = 1.0
    gap: float = 0.0
    build: float = 2.0
    window: float = 0.0
    encoder_extra: float = 0.0
    pause: float = 0.0
    encoder_apart: bool = False


@dataclass(eq=False)
class Turn:
    """A turn in the simulator: `state` is hop, build, window, encode, queue, think or speak."""

    name: str
    user: int
    sent: int
    state: str = "hop"
    since: int = 0
    steps: int = 0
    spans: list[dict[str, Any]] = field(default_factory=list)
    chunks: list[int] = field(default_factory=list)
    truth: Counter[Cause] = field(default_factory=Counter)

    def enter(self, state: str, now: int) -> None:
        self.state, self.since = state, now

    def note(self, stage: str, what: str, now: int) -> None:
        times = {"start_ns": self.since, "end_ns": now}
        self.spans.append({"stage": stage, "turn": self.name, "piece": 0, "what": what, **times})


class Device:
    """One task at a time, first come first served."""

    def __init__(self, name: str) -> None:
        self.name, self.free_at = name, 0
        self.running: list[tuple[int, int, str]] = []
        self.busy: Counter[str] = Counter()
        self.idle: Counter[Idle] = Counter()

    def at(self, now: int) -> str:
        """The stage that computes from `now` on, empty when none does."""
        self.running = [task for task in self.running if task[1] > now]
        return next((stage for start, _, stage in self.running if start <= now), "")


class World:
    """Time, turns, devices, truth."""

    def __init__(self, knobs: Knobs) -> None:
        self.knobs, self.now = knobs, 1_000_000 * MS
        self.start = self.now
        self.events: list[tuple[int, int, Callable[[], None]]] = []
        self.open: dict[str, Turn] = {}
        self.done: list[tuple[Turn, int]] = []
        self.passes: list[dict[str, Any]] = []
        self.number = 0
        shared = Device("shared")
        self.devices = dict.fromkeys(COST_MS, shared)
        if knobs.encoder_apart:
            self.devices["listen"] = Device("encoder")
        self.in_flight: set[str] = set()

    def after(self, ms: float, action: Callable[[], None]) -> None:
        self.number += 1
        heapq.heappush(self.events, (self.now + round(ms * MS), self.number, action))

    def submit(self, stage: str, members: int, action: Callable[[], None]) -> None:
        """Have a pass computed, then act."""
        device = self.devices[stage]
        base, per_item = COST_MS[stage]
        extra = self.knobs.encoder_extra if stage == "listen" else 0.0
        start = max(self.now, device.free_at)
        end = start + round((base + per_item * members + extra) * MS)
        device.free_at = end
        device.running.append((start, end, stage))
        times = {"submitted_ns": self.now, "start_ns": start, "end_ns": end}
        self.passes.append({"device": device.name, "stage": stage, "members": members, **times})
        self.in_flight.add(stage)
        # the truth looks at what computes now, so it must be looked at when a pass starts as well
        self.after((start - self.now) / MS, lambda: None)
        self.after((end - self.now) / MS, lambda: self._computed(stage, action))

    def _computed(self, stage: str, action: Callable[[], None]) -> None:
        self.in_flight.discard(stage)
        action()

    def run(self) -> "World":
        until = self.start + round(self.knobs.seconds * 1000 * MS)
        while self.events and self.events[0][0] < until:
            time, _, action = heapq.heappop(self.events)
            self._pass_time(time)
            action()
        self._pass_time(until)
        return self

    def _pass_time(self, time: int) -> None:
        spent, computing = time - self.now, {d: d.at(self.now) for d in self.devices.values()}
        for device, stage in computing.items() if spent else ():
            if stage:
                device.busy[stage] += spent
            else:
                device.idle[self._why_idle(device)] += spent
        for turn in self.open.values():
            turn.truth[self._where(turn, computing)] += spent
        self.now = time

    def _where(self, turn: Turn, computing: dict[Device, str]) -> Cause:
        plain = {"hop": Cause.TRANSPORT, "build": Cause.BUILDING, "queue": Cause.ADMISSION}
        if turn.state in plain:
            return plain[turn.state]
        stage = "listen" if turn.state in ("window", "encode") else turn.state
        taken = computing[self.devices[stage]]
        if taken == stage and turn.state != "window":
            return Cause.COMPUTING
        if taken and (stage in self.in_flight or self.knobs.monolith):
            return Cause.ENCODER if taken == "listen" else Cause.STEPS
        return Cause.WINDOW if turn.state == "window" else Cause.HOST_GAP

    def _why_idle(self, device: Device) -> Idle:
        here = {stage for stage, where in self.devices.items() if where is device}
        states = {turn.state for turn in self.open.values()}
        listens = "listen" in here
        reasons = [
            (bool(states & here) or (listens and "encode" in states), Idle.HOST_GAP),
            (listens and "build" in states, Idle.BUILDING),
            (listens and "window" in states, Idle.WINDOW),
            ("think" in here and "queue" in states, Idle.ADMISSION),
            ("hop" in states, Idle.TRANSPORT),
            (bool(states), Idle.ELSEWHERE),
        ]
        return next((cause for holds, cause in reasons if holds), Idle.NOTHING)

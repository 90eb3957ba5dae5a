"""Simulated servers, and the run folders they leave: their true books are known."""

import json
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from tests.unit.ledger_world import (
    AUDIO_MS_PER_STEP,
    MS,
    STEPS,
    STEPS_PER_CHUNK,
    Knobs,
    Turn,
    World,
)


class Server:
    """What people talk to; a subclass takes turns in with `arrive`."""

    def __init__(self, knobs: Knobs) -> None:
        self.world, self.knobs = World(knobs), knobs
        for user in range(knobs.people):
            self.world.after(0, partial(self.send, user))

    def arrive(self, turn: Turn) -> None:
        raise NotImplementedError

    def send(self, user: int) -> None:
        world = self.world
        turn = Turn(f"t{world.number}", user, world.now)
        world.open[turn.name] = turn
        world.after(self.knobs.hop, lambda: self.arrive(turn))

    def speak_step(self, turn: Turn) -> None:
        """A chunk leaves every few steps; the last one ends the turn when it has arrived."""
        if turn.steps % STEPS_PER_CHUNK == 0 or turn.steps == STEPS["speak"]:
            last = turn.steps == STEPS["speak"]
            self.world.after(self.knobs.hop, lambda: self.heard(turn, last))

    def heard(self, turn: Turn, last: bool) -> None:
        turn.chunks.append(self.world.now)
        if last:
            self.world.done.append((self.world.open.pop(turn.name), self.world.now))
            self.world.after(self.knobs.pause, lambda: self.send(turn.user))


class Loop:
    """Continuous batching of one stage, with the host gap on its critical path."""

    def __init__(self, server: "Stages", stage: str, then: Callable[[Turn], None]) -> None:
        self.server, self.world, self.stage, self.then = server, server.world, stage, then
        self.waiting: list[Turn] = []
        self.members: list[Turn] = []
        self.idle = True

    def join(self, turn: Turn) -> None:
        turn.enter("queue", self.world.now)
        self.waiting.append(turn)
        if self.idle:
            self.idle = False
            self.step()

    def step(self) -> None:
        while self.waiting and len(self.members) < self.server.knobs.slots:
            turn = self.waiting.pop(0)
            turn.note(self.stage, "queue", self.world.now)
            turn.enter(self.stage, self.world.now)
            turn.steps = 0
            self.members.append(turn)
        self.idle = not self.members
        if self.members:
            self.world.submit(self.stage, len(self.members), self.stepped)

    def stepped(self) -> None:
        for turn in list(self.members):
            turn.steps += 1
            if self.stage == "speak":
                self.server.speak_step(turn)
            if turn.steps == STEPS[self.stage]:
                self.members.remove(turn)
                turn.note(self.stage, "compute", self.world.now)
                turn.enter("hop", self.world.now)
                self.world.after(self.server.knobs.hop, partial(self.then, turn))
        self.world.after(self.server.knobs.gap, self.step)


class Stages(Server):
    """Every stage with a loop of its own."""

    def __init__(self, knobs: Knobs) -> None:
        super().__init__(knobs)
        self.speak = Loop(self, "speak", lambda turn: None)
        self.think = Loop(self, "think", self.speak.join)
        self.ready: list[Turn] = []

    def arrive(self, turn: Turn) -> None:
        turn.enter("build", self.world.now)
        self.world.after(self.knobs.build, lambda: self.built(turn))

    def built(self, turn: Turn) -> None:
        turn.note("emu_listen", "build", self.world.now)
        turn.enter("window", self.world.now)
        self.ready.append(turn)
        self.world.after(self.knobs.window, self.release)

    def release(self) -> None:
        waited = round(self.knobs.window * MS)
        due = [turn for turn in self.ready if self.world.now - turn.since >= waited]
        if "listen" in self.world.in_flight or not due:
            return
        batch = due[: self.knobs.encoder_batch]
        self.ready = [turn for turn in self.ready if turn not in batch]
        for turn in batch:
            turn.note("emu_listen", "queue", self.world.now)
            turn.enter("encode", self.world.now)
        self.world.submit("listen", len(batch), lambda: self.encoded(batch))

    def encoded(self, batch: list[Turn]) -> None:
        for turn in batch:
            turn.note("emu_listen", "compute", self.world.now)
            turn.enter("hop", self.world.now)
            self.world.after(self.knobs.hop, partial(self.think.join, turn))
        self.release()


class Monolith(Server):
    """The profile's rule: an admission, a think step, a speak step, half the gap after each."""

    def __init__(self, knobs: Knobs) -> None:
        super().__init__(knobs)
        self.waiting: list[Turn] = []
        self.members: list[Turn] = []
        self.idle = True

    def arrive(self, turn: Turn) -> None:
        turn.enter("queue", self.world.now)
        self.waiting.append(turn)
        if self.idle:
            self.idle = False
            self.admit()

    def admit(self) -> None:
        if not self.waiting or len(self.members) >= self.knobs.slots:
            self.step("think")
            return
        turn = self.waiting.pop(0)
        turn.note("monolith", "queue", self.world.now)
        turn.enter("encode", self.world.now)
        self.world.submit("listen", 1, lambda: self.admitted(turn))

    def admitted(self, turn: Turn) -> None:
        turn.note("monolith", "listen", self.world.now)
        turn.enter("think", self.world.now)
        turn.steps = 0
        self.members.append(turn)
        self.step("think")

    def step(self, stage: str) -> None:
        turns = [turn for turn in self.members if turn.state == stage]
        done = partial(self.stepped, stage, turns)
        if turns:
            self.world.submit(stage, len(turns), done)
        else:
            done()

    def stepped(self, stage: str, turns: list[Turn]) -> None:
        for turn in turns:
            turn.steps += 1
            if stage == "speak":
                self.speak_step(turn)
            if turn.steps == STEPS[stage]:
                turn.note("monolith", stage, self.world.now)
                turn.enter("speak" if stage == "think" else "hop", self.world.now)
                turn.steps = 0
        self.members = [turn for turn in self.members if turn.state != "hop"]
        then = partial(self.step, "speak") if stage == "think" else self.round
        self.world.after(self.knobs.gap / 2, then)

    def round(self) -> None:
        self.idle = not self.members and not self.waiting
        if not self.idle:
            self.admit()


def simulate(knobs: Knobs, folder: Path) -> World:
    """Run, and write the folder; the whole run is measured."""
    server: Server = Monolith(knobs) if knobs.monolith else Stages(knobs)
    world = server.world.run()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.json").write_text(json.dumps(_facts(world)))
    _write(folder / "turns.jsonl", [_line(*pair) for pair in world.done] + _cut_short(world))
    _write(folder / "device.jsonl", world.passes)
    return world


def _facts(world: World) -> dict[str, Any]:
    knobs = world.knobs
    target = "monolith" if knobs.monolith else "stages"
    facts: dict[str, Any] = {"name": f"{target}-{knobs.people}", "emulated": True}
    facts |= {"target": target, "people": knobs.people, "mode": "closed", "rate": None}
    facts |= {"seconds": knobs.seconds, "warm_up_s": 0.0, "started_ns": world.start}
    facts |= {"measured_from_ns": world.start, "measured_to_ns": world.now}
    facts |= {"knobs": asdict(knobs), "profile": {}, "emulation": {}, "machine": {}}
    return facts | {"generator": {"late_p99_ms": 0.0, "valid": True, "why": ""}}


def _line(turn: Turn, end: int, outcome: str = "ok", reason: str = "") -> dict[str, Any]:
    steps = [STEPS_PER_CHUNK] * (STEPS["speak"] // STEPS_PER_CHUNK)
    steps += [STEPS["speak"] % STEPS_PER_CHUNK]
    return {
        "turn": turn.name,
        "user": turn.user,
        "intended_ns": turn.sent,
        "sent_ns": turn.sent,
        "outcome": outcome,
        "reason": reason,
        "chunks_ns": turn.chunks,
        "chunk_audio_ms": [AUDIO_MS_PER_STEP * n for n in steps[: len(turn.chunks)]],
        "end_ns": end,
        "events": turn.spans,
    }


def _cut_short(world: World) -> list[dict[str, Any]]:
    """Turns that are open at the end, with the span they are in: the truth about them is known."""
    names = dict.fromkeys(("build", "window", "encode"), "emu_listen") | {"queue": "think"}
    whats = {"build": "build", "window": "queue", "queue": "queue"}
    for turn in world.open.values():
        if world.knobs.monolith:
            turn.note("monolith", {"encode": "listen"}.get(turn.state, turn.state), world.now)
        elif turn.state != "hop":
            stage = names.get(turn.state, turn.state)
            turn.note(stage, whats.get(turn.state, "compute"), world.now)
    return [_line(turn, world.now, "open") for turn in world.open.values()]


def _write(path: Path, entries: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))

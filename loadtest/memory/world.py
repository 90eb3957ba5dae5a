"""Three stages on one device and one memory, in virtual time.

The device runs one task at a time, and the stages take turns, as those do that ask for the next
pass when the last one has ended. An encoder pass takes bytes for its members until it ends; a turn
that is thought takes its prompt's KV when it joins and a token's with every step; one that is
spoken takes a constant. Who asks for bytes that are not there fails, is counted as an OOM, and the
person says it again. The longer story of a turn (host gaps, transport) is left out: it is the same
under every plan.
"""

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final, Protocol

from loadtest.memory.memory import Memory
from loadtest.memory.sizes import Length, Lengths, Sizes
from loadtest.sim.costs import Costs

LISTEN: Final = "listen"
THINK: Final = "think"
SPEAK: Final = "speak"
CURVES: Final = (LISTEN, THINK, SPEAK)
TURN: Final = "turn"
"""What a gate is asked for before the first stage."""

GATHER_S: Final = 0.1
"""As the emulated encoder: while others run, a ready caller waits so long for a fuller pass."""


@dataclass(frozen=True, eq=False)
class Turn:
    """One turn of somebody."""

    length: Length


class Gate(Protocol):
    """A plan at work: it says who may begin what."""

    def admit(self, what: str, turn: Turn) -> bool:
        """Whether `turn` may enter a stage, or begin at all (TURN)."""

    def leave(self, what: str, turn: Turn) -> None:
        """It has left, one way or another."""


Then = Callable[[Turn], None]


class Listen:
    """Passes of as many as are ready; they leave full, or after a while, or if nobody else runs."""

    def __init__(self, world: "World", then: Then) -> None:
        self._world = world
        self._then = then
        self._stage = world.costs.profile.stages[LISTEN]
        self._ready: deque[tuple[float, Turn]] = deque()
        self._pass: list[Turn] = []
        self.passes = self.encoded = 0

    def send(self, turn: Turn) -> None:
        """A turn arrives; its features are built beside the device."""
        self._ready.append((self._world.now + self._stage.build_ms / 1000, turn))

    def begin(self) -> float:
        """Device seconds of the pass that begins, 0 when none does."""
        world = self._world
        ready = [turn for since, turn in self._ready if since <= world.now]
        ready = ready[: self._stage.max_batch]
        full = len(ready) == self._stage.max_batch
        if not ready or not (full or self._waited() >= GATHER_S or not world.streams):
            return 0.0
        for turn in ready:
            if not world.gate.admit(LISTEN, turn):
                break
            self._pass.append(turn)
            self._ready.popleft()
        size = len(self._pass)
        if size and not world.memory.take(LISTEN, size * world.sizes.encoder_member):
            failed, self._pass = self._pass, []
            world.out_of_memory(LISTEN, failed)
            size = 0
        return world.costs.pass_s(LISTEN, size) if size else 0.0

    def end(self) -> None:
        """The pass has ended."""
        done, self._pass = self._pass, []
        self._world.memory.give_back(LISTEN, len(done) * self._world.sizes.encoder_member)
        self.passes += 1
        self.encoded += len(done)
        for turn in done:
            self._world.gate.leave(LISTEN, turn)
            self._then(turn)

    @property
    def next_s(self) -> float | None:
        """When it may begin, should nobody else run."""
        return self._ready[0][0] if self._ready else None

    def _waited(self) -> float:
        return self._world.now - self._ready[0][0]


class Steps:
    """A continuous batch: turns join and leave between any two steps, and grow with every one."""

    def __init__(
        self,
        world: "World",
        name: str,
        then: Then,
        *,
        opening: Callable[[Turn], int],
        growth: int,
        steps: Callable[[Turn], int],
    ) -> None:
        self._world = world
        self._name = name
        self._then = then
        self._opening = opening
        """Bytes that a turn takes when it joins."""

        self._growth = growth
        """Bytes that a turn takes with every step."""

        self._steps = steps
        self._most = world.costs.profile.stages[name].max_batch
        self._waiting: deque[Turn] = deque()
        self._rows: dict[Turn, int] = {}
        """Turns, and the number of the step that they joined at."""

        self._ending: defaultdict[int, list[Turn]] = defaultdict(list)
        self._step = 0

    def send(self, turn: Turn) -> None:
        """A turn arrives and waits to join."""
        self._waiting.append(turn)

    @property
    def running(self) -> int:
        """Turns in the batch."""
        return len(self._rows)

    def begin(self) -> float:
        """Device seconds of the step that begins, 0 when nobody is there."""
        self._join()
        self._grow()
        return self._world.costs.pass_s(self._name, self.running) if self._rows else 0.0

    def end(self) -> None:
        """The step has ended."""
        self._step += 1
        for turn in self._ending.pop(self._step, ()):
            if turn in self._rows:
                self._drop(turn)
                self._world.gate.leave(self._name, turn)
                self._then(turn)

    def _join(self) -> None:
        world = self._world
        while self._waiting and self.running < self._most:
            turn = self._waiting[0]
            if not world.gate.admit(self._name, turn):
                break
            self._waiting.popleft()
            if world.memory.take(self._name, self._opening(turn)):
                self._rows[turn] = self._step
                self._ending[self._step + self._steps(turn)].append(turn)
            else:
                world.out_of_memory(self._name, [turn])

    def _grow(self) -> None:
        """All at once where there is room, else one after another: who finds none fails, and what
        he had is there for those after him."""
        world = self._world
        if world.memory.take(self._name, self._growth * self.running):
            return
        for turn in list(self._rows):
            if not world.memory.take(self._name, self._growth):
                self._drop(turn)
                world.out_of_memory(self._name, [turn])

    def _drop(self, turn: Turn) -> None:
        grown = self._growth * (self._step - self._rows.pop(turn))
        self._world.memory.give_back(self._name, self._opening(turn) + grown)


class World:
    """So many people in front of the stages; each speaks again when answered, or when failed."""

    def __init__(
        self, costs: Costs, sizes: Sizes, lengths: Lengths, gate: Gate, memory: Memory, seed: int
    ) -> None:
        self.costs, self.sizes, self.gate, self.memory = costs, sizes, gate, memory
        self.answered = self.failed = 0
        self.ooms: list[tuple[float, str]] = []
        """When, and the stage that asked."""

        self._lengths, self._random = lengths, Random(seed)
        self._door: deque[Turn] = deque()
        self.speak = Steps(
            self,
            SPEAK,
            self._answered,
            opening=lambda turn: sizes.speech,
            growth=0,
            steps=lambda turn: turn.length.speech,
        )
        self.think = Steps(
            self,
            THINK,
            self.speak.send,
            opening=lambda turn: sizes.token * turn.length.prompt,
            growth=sizes.token,
            steps=lambda turn: turn.length.answer,
        )
        self.listen = Listen(self, self.think.send)

    @property
    def now(self) -> float:
        """Seconds."""
        return self.memory.now

    @property
    def streams(self) -> int:
        """Turns that an encoder pass would hold up."""
        return self.think.running + self.speak.running

    @property
    def turns(self) -> int:
        """That have ended, one way or another."""
        return self.answered + self.failed

    def run(self, people: int, warm_up: int, turns: int) -> None:
        """Until `turns` have ended after the first `warm_up`, which are not counted."""
        for _ in range(people):
            self._say()
        self._until(warm_up)
        self.answered = self.failed = 0
        self.ooms = []
        self.memory.begin_measuring()
        self._until(turns)

    def out_of_memory(self, stage: str, turns: list[Turn]) -> None:
        """What asked for bytes that were not there fails."""
        self.ooms.append((self.now, stage))
        for turn in turns:
            self.failed += 1
            self.gate.leave(stage, turn)
            self._over(turn)

    def _answered(self, turn: Turn) -> None:
        self.answered += 1
        self._over(turn)

    def _over(self, turn: Turn) -> None:
        self.gate.leave(TURN, turn)
        self._say()

    def _say(self) -> None:
        self._door.append(Turn(self._lengths.draw(self._random)))
        while self._door and self.gate.admit(TURN, self._door[0]):
            self.listen.send(self._door.popleft())

    def _until(self, turns: int) -> None:
        while self.turns < turns:
            if not self._round():
                ready = self.listen.next_s
                if ready is None or ready <= self.now:
                    raise RuntimeError("nobody can go on")
                self.memory.pass_time(ready)

    def _round(self) -> bool:
        """Each stage at most once; whether any had something to do."""
        before = self.now
        for stage in (self.listen, self.think, self.speak):
            cost_s = stage.begin()
            if cost_s:
                self.memory.pass_time(self.now + cost_s)
                stage.end()
        return self.now > before

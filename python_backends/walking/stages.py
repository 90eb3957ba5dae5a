"""Which stages are there: the processes of this server are watched, and whoever is inside one that
ends is told at once, since the server answers such a request late or never."""

import asyncio
import math
import os
import time
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from python_backends.bridge import Meters
from python_backends.errors import StageFailed
from python_backends.siblings import started_s, stubs
from python_backends.versions import stage_of

LOOK_S: Final = 0.5
"""How often new processes are looked for while all are there; ends are told at once."""

LOOK_AGAIN_S: Final = 0.03
"""How often while one is missing."""

LAST_WORDS_S: Final = 0.15
"""What a process has answered before its end may still be on the way."""

Find = Callable[[Collection[str]], list[tuple[str, int]]]
InUse = Callable[[Collection[str]], Collection[str]]
"""The models that serve stages, to whoever is on the way."""


@dataclass(eq=False)
class _Life:
    """A process of a stage, when it began (CLOCK_BOOTTIME), and the requests that wait for it."""

    model: str
    pid: int
    handle: int
    started_s: float
    inside: set["_Stay"] = field(default_factory=set)
    ended: bool = False
    retired: bool = False
    """It ended when no turn went there any more, or when the next process of the model was there
    already: it was replaced, and the next one is no restart."""


@dataclass(eq=False)
class _Stay:
    """A request at a process, and since when. Of several processes of a stage that is loaded again,
    which of them has it is known only when the earlier ones have ended."""

    task: "asyncio.Task[object]"
    life: _Life
    since_s: float
    told: bool = False


def of_this_server(models: Collection[str]) -> list[tuple[str, int]]:
    """Stubs of the server whose stub this process is."""
    return stubs(os.getppid(), models)


class Stages:
    """The stages `models`, by the versions of them that are in use. One that has never had a
    process here is taken to be there: native backends are part of the server."""

    def __init__(
        self,
        models: Collection[str],
        find: Find = of_this_server,
        meters: Meters | None = None,
        in_use: InUse = tuple,
    ) -> None:
        self._models = models
        self._in_use = in_use
        self._looked_for: frozenset[str] = frozenset()
        self._meters = meters or Meters()
        self._find = find
        self._lives: dict[str, _Life] = {}
        """The newest process of each, as far as is known."""

        self._older: dict[int, _Life] = {}
        """By their pids: processes beside a newer one of their model that have requests yet."""

        self._told_up: dict[str, bool] = {}
        self._seen = asyncio.Condition()
        self._saying: asyncio.Task[None] | None = None

    async def watch(self) -> None:
        """Until cancelled."""
        try:
            while True:
                if self._look():
                    await self._say_so()
                missing = any(life.ended for life in self._lives.values())
                await asyncio.sleep(LOOK_AGAIN_S if missing else LOOK_S)
        finally:
            for life in [*self._lives.values(), *self._older.values()]:
                self._release(life)

    def is_up(self, model: str) -> bool:
        """Its process runs, as far as is known."""
        life = self._lives.get(model)
        return life is None or not life.ended

    async def until_up(self, model: str) -> None:
        """Wait for a process of the stage."""
        async with self._seen:
            await self._seen.wait_for(lambda: self.is_up(model))

    @asynccontextmanager
    async def inside(self, model: str) -> AsyncIterator[None]:
        """While a request is there: StageFailed when the process ends."""
        if model not in self._looked_for:
            self._look()
        life, task = self._lives.get(model), asyncio.current_task()
        if life is None or task is None:
            yield
            return
        if life.ended:
            raise _ended(model)
        stay = _Stay(task, life, time.clock_gettime(time.CLOCK_BOOTTIME))
        life.inside.add(stay)
        try:
            yield
        except asyncio.CancelledError:
            if stay.told and task.uncancel() == 0:
                raise _ended(model) from None
            raise
        finally:
            stay.life.inside.discard(stay)

    async def _say_so(self) -> None:
        async with self._seen:
            self._seen.notify_all()

    def _look(self) -> bool:
        """Whether a stage is there that was not."""
        fresh: set[str] = set()
        self._looked_for = frozenset(self._in_use(self._models))
        for gone in [one for model, one in self._lives.items() if model not in self._looked_for]:
            if not gone.inside:
                self._release(self._lives.pop(gone.model))
        processes = self._find(self._looked_for)
        for model, pid in sorted(processes, key=lambda one: started_s(one[1]), reverse=True):
            known = self._lives.get(model)
            if known is not None and (known.pid == pid or not known.ended):
                continue
            life = self._older.pop(pid, None) or self._opened(model, pid)
            if life is None:
                continue
            if known is None or known.retired:
                self._meters.begin("restarts_total", of=stage_of(model))
            else:
                self._meters.count("restarts_total", of=stage_of(model))
            self._lives[model] = life
            fresh.add(stage_of(model))
        there = {model for model, _ in processes}
        for life in self._lives.values():
            life.retired = life.retired and life.model in there  # who took its place has ended, too
        self._tell_up(fresh)
        return bool(fresh)

    def _tell_up(self, fresh: Collection[str] = ()) -> None:
        """A stage is up while each of its models that is in use, and has had a process, has one.

        Told where that has changed, and of stages that have a `fresh` process."""
        up: dict[str, bool] = {}
        for model in sorted(self._looked_for & self._lives.keys()):
            life, stage = self._lives[model], stage_of(model)
            up[stage] = up.get(stage, True) and (not life.ended or life.retired)
        for stage, is_up in up.items():
            if stage in fresh or self._told_up.get(stage) is not is_up:
                self._meters.gauge("stage_up", int(is_up), of=stage)
        self._told_up |= up

    def _opened(self, model: str, pid: int) -> _Life | None:
        """A process whose end will be told; None when it has ended."""
        try:
            handle = os.pidfd_open(pid)
        except OSError:
            return None
        life = _Life(model, pid, handle, started_s(pid))
        asyncio.get_running_loop().add_reader(handle, self._end, life)
        return life

    def _end(self, life: _Life) -> None:
        life.ended = True
        self._older.pop(life.pid, None)
        replaced = bool(self._younger(life))
        life.retired = replaced or life.model not in self._in_use(self._models)
        self._tell_up()
        self._release(life)
        asyncio.get_running_loop().call_later(LAST_WORDS_S, self._tell, life)

    def _younger(self, life: _Life) -> list[int]:
        """Pids of its model's processes that began after it, the newest first."""
        began = {pid: started_s(pid) for _, pid in self._find([life.model]) if pid != life.pid}
        younger = [pid for pid, at in began.items() if life.started_s < at < math.inf]
        return sorted(younger, key=began.__getitem__, reverse=True)

    def _tell(self, life: _Life) -> None:
        """Whoever is still inside waits in vain, unless it came when a later process of the stage
        was there already: a stage that is loaded again has two for a while, or more."""
        if self._look():
            self._saying = asyncio.create_task(self._say_so())
        inside, life.inside = life.inside, set()
        heirs = self._heirs(life) if inside else []
        for stay in inside:
            heir = next((one for one in heirs if one.started_s <= stay.since_s), None)
            if heir is None:
                stay.told = True
                stay.task.cancel()
            else:
                stay.life = heir
                heir.inside.add(stay)

    def _heirs(self, life: _Life) -> list[_Life]:
        """The younger processes of its model, the newest first."""
        found = [self._life_of(life.model, pid) for pid in self._younger(life)]
        return [one for one in found if one is not None]

    def _life_of(self, model: str, pid: int) -> _Life | None:
        newest = self._lives.get(model)
        if newest is not None and newest.pid == pid:
            return newest
        if pid not in self._older and (life := self._opened(model, pid)):
            self._older[pid] = life
        return self._older.get(pid)

    @staticmethod
    def _release(life: _Life) -> None:
        if life.handle >= 0:
            asyncio.get_running_loop().remove_reader(life.handle)
            os.close(life.handle)
            life.handle = -1


def _ended(model: str) -> StageFailed:
    return StageFailed(
        "its process has ended while it worked on this turn", stage=model, reason="ended"
    )

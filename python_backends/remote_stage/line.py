"""The line to one replica: its channel, its clock, and whether it still answers."""

import asyncio
import time
from collections.abc import Callable

from python_backends.bridge.events import host, now_ns
from python_backends.errors import StageError, StageFailed
from python_backends.peer import Peer, Silent
from python_backends.regions import Region
from python_backends.remote_stage.clock import HostClock
from python_backends.remote_stage.settings import RemoteSettings
from python_backends.scheduling.replicas import Replica

CLOSE_TIMEOUT_S = 1.0


class Line:
    """Asks its replica again and again whether it is there, by an order that its stage answers:
    neither a dead process behind a living server nor a stopped server answers that.

    `on_lost` is called with the reason whenever it has not answered for too long; what is open
    there would otherwise wait for ever, since TCP keeps a stopped process's connection.
    """

    def __init__(
        self,
        replica: Replica,
        stage: str,
        settings: RemoteSettings,
        on_lost: Callable[["Line", StageError], None],
        region: Region | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`region`: shared memory that a replica on this host may read inputs from."""
        self.replica = replica
        self._region = region if _is_here(replica.address) else None
        self._shares = False
        self.peer = Peer(replica.address)
        self.host_clock = HostClock(host())
        self._stage = stage
        self._settings = settings
        self._on_lost = on_lost
        self._clock = clock
        self._heard_s = clock()
        self._task = asyncio.get_running_loop().create_task(self._watch())

    @property
    def region(self) -> Region | None:
        """Shared memory that the replica knows; None: everything is to be sent."""
        return self._region if self._shares else None

    def check(self) -> None:
        """Raise what has ended the watch, if anything has."""
        if self._task.done():
            self._task.result()

    def heard(self) -> None:
        """Something has come from there."""
        self._heard_s = self._clock()

    def broke(self) -> None:
        """A connection to it broke: it gets nothing new until it answers again."""
        self.replica.lost = True
        self._shares = False

    async def close(self) -> None:
        """End the channel."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        if self.region is not None:
            await self.peer.unshare(self.region, CLOSE_TIMEOUT_S)
        await self.peer.close()

    async def _watch(self) -> None:
        while True:
            await self._look()
            await asyncio.sleep(self._settings.probe_ms / 1000)

    async def _look(self) -> None:
        """One question, which lasts until the replica would be lost. One that answers is there
        again, whatever it was before; one that answers that it does not serve gets nothing new."""
        left_s = self._heard_s + self._settings.lost_ms / 1000 - self._clock()
        try:
            await self._ask(max(left_s, self._settings.probe_ms / 1000))
        except Silent:
            pass  # how long it has been silent decides, and it may still be heard on a stream
        except StageError:
            self.broke()
        else:
            await self._share()
            self.heard()
            self.replica.lost = False
        silent_s = self._clock() - self._heard_s
        if silent_s >= self._settings.lost_ms / 1000:
            await self._lose(silent_s)

    async def _share(self) -> None:
        """A server that has been started again has forgotten the region."""
        if self._region is not None and not self._shares:
            self._shares = await self.peer.share(self._region, self._settings.lost_ms / 1000)

    async def _ask(self, timeout_s: float) -> None:
        if not self._settings.controlled:
            if not await self.peer.is_live(timeout_s):
                raise Silent("the server does not answer", stage=self._stage)
            return
        sent_ns = now_ns()
        told = await self.peer.control(self._stage, {"clock": True}, timeout_s)
        self.host_clock.heard(sent_ns, now_ns(), told.get("EVENTS"))

    async def _lose(self, silent_s: float) -> None:
        """Whatever is open there is failed by who is told. The channel is dialled anew: after a cut
        the old connection would only come back at TCP's own pace."""
        self.broke()
        where = f"replica {self.replica.name} at {self.replica.address}"
        message = f"{where} has answered nothing for {silent_s:.1f} s"
        self._on_lost(self, StageFailed(message, stage=self._stage))
        old, self.peer = self.peer, Peer(self.replica.address)
        await old.close()


def _is_here(address: str) -> bool:
    """Reached over loopback, so on this host."""
    return address.startswith(("127.", "localhost:"))

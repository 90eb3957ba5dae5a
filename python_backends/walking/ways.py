"""The route of an ensemble, and which stages on it are there: asked for by whoever is first."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from python_backends.bridge import Meters
from python_backends.errors import StageError
from python_backends.peer import AWAY, Peer
from python_backends.walking.route import Route
from python_backends.walking.stages import Find, Stages, of_this_server
from python_backends.walking.versions import Versions

ASK_AGAIN_S = 0.02
CONFIG_TIMEOUT_S = 2.0

Begin = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]


class Ways:
    """`begin` starts what watches the stages until it is cancelled; what it fails of is a bug."""

    def __init__(
        self,
        peer: Peer,
        model: str,
        *,
        hold_s: float,
        begin: Begin,
        route: Route | None = None,
        find: Find = of_this_server,
        meters: Meters | None = None,
        versions: Versions | None = None,
    ) -> None:
        """`model`: an ensemble, or one model. `route`: instead of asking the server for it."""
        self.route = route
        self.stages: Stages | None = None
        """Until somebody has asked: None."""

        self._peer = peer
        self._model = model
        self._hold_s = hold_s
        self._begin = begin
        self._find = find
        self._meters = meters or Meters()
        self._versions = versions or Versions(None)

    async def get(self) -> tuple[Route, Stages]:
        """Both; StageFailed when the server can't tell the route within `hold_s`."""
        clock = asyncio.get_running_loop().time
        until_s = clock() + self._hold_s
        while self.route is None:
            try:
                self.route = Route.of(await self._peer.config(self._model, CONFIG_TIMEOUT_S))
            except StageError as error:
                if not AWAY.search(error.message) or clock() > until_s:
                    raise
                await asyncio.sleep(ASK_AGAIN_S)
        if self.stages is None:
            self.stages = Stages(self.route.models, self._find, self._meters, self._versions.in_use)
            self._begin(self.stages.watch())
            await asyncio.sleep(0)  # it has looked once
        return self.route, self.stages

"""One request to one step: held while its stage is away or full, sent when it can be."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Any, Final

from python_backends.errors import Overloaded, StageError
from python_backends.peer import AWAY, Outputs, Peer
from python_backends.versions import Serving
from python_backends.walking.route import Step
from python_backends.walking.stages import Stages
from python_backends.walking.walk import Deliver

AGAIN_S: Final = 0.05


class Asking:
    """What all requests of one turn have in common. `parameters` are asked for at each request, as
    the time left to a turn is one of them; `serving`: the versions that it goes to."""

    def __init__(
        self,
        peer: Peer,
        stages: Stages,
        *,
        turn: str,
        parameters: Callable[[], Mapping[str, Any]],
        silence_s: float,
        hold_s: float,
        refused: Callable[[str, float], None],
        serving: Serving | None = None,
    ) -> None:
        self._peer = peer
        self._stages = stages
        self._turn = turn
        self._parameters = parameters
        self._silence_s = silence_s
        self._hold_s = hold_s
        self._refused = refused
        self._serving = serving or Serving()

    async def ask(self, step: Step, tensors: Outputs, deliver: Deliver) -> None:
        """Send `tensors` to a step and deliver its responses.

        A request that the stage has not begun is held for `hold_s` at most and sent again. Raises
        what the stage answered; Overloaded after that time.
        """
        clock, model = asyncio.get_running_loop().time, self._serving.model(step.model)
        until_s = clock() + self._hold_s
        while True:
            await self._until_up(model, step.model, until_s - clock())
            answered = False
            try:
                async with self._stages.inside(model):
                    responses = self._peer.stream(
                        model,
                        step.inputs(tensors),
                        turn=self._turn,
                        parameters=self._parameters(),
                        silence_s=self._silence_s,
                    )
                    async with contextlib.aclosing(responses):
                        async for answer in responses:
                            answered = True
                            await deliver(step.outputs(answer.outputs))
                return
            except StageError as error:
                pause_s = self._pause_s(step.model, error)
                if answered or pause_s is None:
                    raise
                if clock() + pause_s > until_s:
                    raise self._too_long(step.model, error) from None
                await asyncio.sleep(pause_s)

    def _pause_s(self, model: str, error: StageError) -> float | None:
        """When to try again; None for an error that stands."""
        if isinstance(error, Overloaded):
            pause_s = max(AGAIN_S, (error.retry_after_ms or 0) / 1000)
            if error.reason != "bytes":  # which a smaller turn may find
                self._refused(model, pause_s)
            return pause_s
        return AGAIN_S if AWAY.search(error.message) else None

    async def _until_up(self, model: str, stage: str, left_s: float) -> None:
        try:
            async with asyncio.timeout(left_s):
                await self._stages.until_up(model)
        except TimeoutError:
            raise self._away(stage) from None

    def _too_long(self, model: str, error: StageError) -> StageError:
        return error if isinstance(error, Overloaded) else self._away(model)

    def _away(self, model: str) -> Overloaded:
        return Overloaded(
            f"the stage is being started; the turn has waited {self._hold_s:g} s for it",
            stage=model,
            reason="stage",
            retry_after_ms=1000,
        )

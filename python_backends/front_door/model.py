"""Triton model class of the front door."""

import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from python_backends.bridge import ModelConfig, Request, StageBackend
from python_backends.front_door.loop import Door
from python_backends.front_door.settings import DoorSettings
from python_backends.front_door.traces import ENDPOINT, Traces
from python_backends.siblings import stubs


class TritonPythonModel(StageBackend):
    """Relays whole turns. An id may be used again at once: behind the door it is another one.

    Three orders more than other stages have: {"drain": true}, take no more turns; {"open": [turn
    ids]}, answered with those that are `gone`, in EVENTS, if there are any; {"epochs": true}, see
    Versions.told.
    """

    remembers_cancels = False
    _drains = False
    _traces: Traces | None = None

    def make_loop(self, config: ModelConfig) -> Door:
        settings = config.settings(DoorSettings)
        address = os.environ.get("TRISTAGE_GRPC", settings.server)
        self._door = Door(settings, address, meters=self.meters, traces=self._traced())
        if self._drains:
            self._door.drain()
        return self._door

    def finalize(self) -> None:
        """See StageBackend."""
        super().finalize()
        if self._traces is not None:
            self._traces.close()

    def _traced(self) -> Traces | None:
        """Where turns are told of, if anywhere; OpenTelemetry takes 0.2 s to import."""
        if self._traces is None and (endpoint := os.environ.get(ENDPOINT)):
            from python_backends.tracing.exporter import Exporter

            self._traces = Exporter(endpoint, self.meters)
        return self._traces

    def screen(self, request: Request) -> None:
        """See StageBackend."""
        self._door.offer(request)

    def obey(self, order: Any) -> Mapping[str, NDArray[Any]] | None:
        """See StageBackend."""
        match order:
            case {"drain": True}:
                self._drains = True
                self._door.drain()
            case {"epochs": True}:
                return self._door.versions.told()
            case {"open": list(turns)} if all(isinstance(turn, str) for turn in turns):
                gone = sorted(set(turns) - self.open_turns())
                if gone and not self._has_company():
                    return {"EVENTS": np.array([[json.dumps({"gone": gone}).encode()]], object)}
            case _:
                return None
        return {}

    def _has_company(self) -> bool:
        """Another process serves the model too, as the old one does for a while when the model is
        loaded again: what is not here may be there."""
        return len(stubs(os.getppid(), [self._config.name])) > 1

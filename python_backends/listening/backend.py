"""What the models of calls have in common."""

import os
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from python_backends.bridge import ModelConfig, StageBackend
from python_backends.listening.loop import Calls


class CallsBackend(StageBackend):
    """A call is a sequence; a cancel names its request id. Two orders more than other stages
    have: {"drain": true}, take no more calls; {"epochs": true}, see Versions.told."""

    remembers_cancels = False
    _drains = False

    def make_calls(self, config: ModelConfig, address: str) -> Calls:
        """The stage, whose models are at `address`."""
        raise NotImplementedError(type(self).__name__)

    def make_loop(self, config: ModelConfig) -> Calls:
        """See StageBackend. `server` is overridden by TRISTAGE_GRPC, which the launcher sets."""
        address = os.environ.get("TRISTAGE_GRPC", config.parameters["server"])
        self._calls = self.make_calls(config, address)
        self._calls.draining = self._drains
        return self._calls

    def obey(self, order: Any) -> Mapping[str, NDArray[Any]] | None:
        """See StageBackend."""
        match order:
            case {"drain": True}:
                self._drains = self._calls.draining = True
                return {}
            case {"epochs": True}:
                return self._calls.versions.told("EVENT")
        return None

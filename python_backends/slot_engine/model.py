"""Triton model class of the slot engine: one request, one command."""

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from python_backends.bridge import ModelConfig, PlainBackend
from python_backends.slot_engine.command import from_inputs, to_outputs
from python_backends.slot_engine.opening import open_engine
from python_backends.slot_engine.settings import EngineSettings


class TritonPythonModel(PlainBackend):
    """Keeps the pool; takes numbered commands."""

    def load(self, config: ModelConfig) -> None:
        settings = config.settings(EngineSettings)
        self._engine = open_engine(config.artefact("model.onnx").parent, settings)
        config.declared.check_kv(self._engine.pools.nbytes)

    def held_bytes(self) -> int:
        """The KV and context pools."""
        return self._engine.pools.nbytes

    def serve(self, inputs: Mapping[str, NDArray[Any]]) -> Mapping[str, NDArray[Any]]:
        command = from_inputs(inputs, self._engine.width)
        return to_outputs(self._engine.run(command), self._engine.width)

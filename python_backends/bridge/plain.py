"""The Triton model class of models that answer inside `execute()`."""

from collections.abc import Mapping
from typing import Any

import triton_python_backend_utils as pb_utils
from numpy.typing import NDArray

from python_backends.bridge.byte_figures import ByteFigures
from python_backends.bridge.config import ModelConfig
from python_backends.bridge.figures import Figures
from python_backends.bridge.log import log_fault
from python_backends.bridge.tensors import to_tensors
from python_backends.errors import StageError, StageFailed


class PlainBackend:
    """Base of a model that computes one request at a time; supplies `load` and `serve`."""

    def load(self, config: ModelConfig) -> None:
        """Open what the model needs."""
        raise NotImplementedError(type(self).__name__)

    def serve(self, inputs: Mapping[str, NDArray[Any]]) -> Mapping[str, NDArray[Any]]:
        """Outputs for one request's inputs; both are views valid during the call only."""
        raise NotImplementedError(type(self).__name__)

    def held_bytes(self) -> int:
        """What its pools take once it is loaded; 0 for a model without pools."""
        return 0

    def initialize(self, args: Mapping[str, str]) -> None:
        """Called by Triton when the model loads."""
        self._config = ModelConfig.from_args(args)
        self.load(self._config)
        self._figures = Figures(self._config.stage, self._config.told_version)
        ByteFigures(self._figures, self._config.declared)
        if held := self.held_bytes():
            self._figures.tell("bytes", (), held)

    def execute(self, requests: list[Any]) -> list[Any]:
        """Called by Triton: one response a request, an expected failure as that one's error."""
        return [self._answer(native) for native in requests]

    def finalize(self) -> None:
        """Called by Triton when the model unloads."""
        self._figures.close()

    def _answer(self, native: Any) -> Any:
        try:
            inputs = {tensor.name(): tensor.as_numpy() for tensor in native.inputs()}
            return pb_utils.InferenceResponse(to_tensors(self.serve(inputs)))
        except StageError as error:
            return self._refusal(error, native)
        except Exception as fault:
            log_fault(f"{self._config.name} failed", fault)
            return self._refusal(StageFailed("the model failed; its log says why"), native)

    def _refusal(self, error: StageError, native: Any) -> Any:
        wire = error.at(self._config.name, native.request_id()).to_wire()
        return pb_utils.InferenceResponse(error=pb_utils.TritonError(wire))

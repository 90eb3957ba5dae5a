"""What stand-ins do alike: requests that the server has put together are run together."""

from __future__ import annotations  # the stub has no native classes yet while this is imported

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import triton_python_backend_utils as pb_utils

from python_backends.errors import told

if TYPE_CHECKING:
    from deploy.standins.shared.batching import Answer, Arrays, Run, run_alone, run_together
else:
    from batching import run_alone, run_together


def require_numpy() -> None:
    """RuntimeError with a NumPy that this server's stub cannot use."""
    if int(np.__version__.split(".")[0]) >= 2:
        raise RuntimeError(f"numpy {np.__version__}: this server's Python stub needs numpy < 2")


class StandIn:
    """A backend whose models compute by `run`; `label` says whose words its errors are."""

    label: str

    def open(self, config: Mapping[str, Any], run: Run) -> None:
        """Serve a model of this config."""
        self._run = run
        self._run_all = run_together if config["max_batch_size"] > 0 else run_alone

    def execute(
        self, requests: Sequence[pb_utils.InferenceRequest]
    ) -> list[pb_utils.InferenceResponse]:
        """Answer requests that the server has put together."""
        answers = self._run_all(self._run, [self.feed(request) for request in requests])
        pairs = zip(requests, answers, strict=True)
        return [self.respond(request, answer) for request, answer in pairs]

    def feed(self, request: pb_utils.InferenceRequest) -> Arrays:
        """Inputs of a request."""
        return {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}

    def respond(
        self, request: pb_utils.InferenceRequest, answer: Answer
    ) -> pb_utils.InferenceResponse:
        """The outputs that were asked for, or the error."""
        if isinstance(answer, Exception):
            reason = f"{self.label}: {told(str(answer))}"
            error = pb_utils.TritonError(reason, pb_utils.TritonError.INVALID_ARG)
            return pb_utils.InferenceResponse(error=error)
        wanted = request.requested_output_names()
        tensors = [
            pb_utils.Tensor(name, np.ascontiguousarray(values))
            for name, values in answer.items()
            if name in wanted
        ]
        return pb_utils.InferenceResponse(tensors)

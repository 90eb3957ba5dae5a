"""Calling another model from a stage."""

from collections.abc import Mapping, Sequence
from typing import Any

import triton_python_backend_utils as pb_utils
from numpy.typing import NDArray

from python_backends.bridge.tensors import to_tensors
from python_backends.errors import StageFailed, from_text


def call(
    model: str,
    inputs: Mapping[str, NDArray[Any]],
    outputs: Sequence[str],
    *,
    turn: str = "",
    parameters: Mapping[str, str | int | bool] | None = None,
) -> dict[str, NDArray[Any]]:
    """Run a model that answers once, and return copies of the outputs that were asked for.

    Only while a request of the calling model is open: an `exec` during its unload takes the whole
    server down. Raises the StageError that the model answered with, or StageFailed.
    """
    request = pb_utils.InferenceRequest(
        model_name=model,
        requested_output_names=list(outputs),
        inputs=to_tensors(inputs),
        request_id=turn,
        parameters=dict(parameters or {}),
        # A model on a GPU would leave its outputs there, where numpy cannot read them.
        preferred_memory=pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_CPU),
    )
    try:
        response = request.exec()
    except pb_utils.TritonModelException as fault:
        raise from_text(str(fault), stage=model, turn=turn) from fault
    if response.has_error():
        raise from_text(response.error().message(), stage=model, turn=turn)
    found = {tensor.name(): tensor.as_numpy().copy() for tensor in response.output_tensors()}
    missing = [name for name in outputs if name not in found]
    if missing:
        raise StageFailed(f"model {model!r} answered without {missing}", stage=model, turn=turn)
    return found

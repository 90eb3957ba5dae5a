"""CPU stand-in for the native onnxruntime backend, for a server that lacks it.

Serves the same config.pbtxt: batches, implicit state, thread counts. What it proves is
configuration, protocol and scheduling; the native backend's speed and memory it does not.
Never copied to a stock image, where it would shadow the real one.
"""

from __future__ import annotations  # the stub has no native classes yet while this is imported

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import triton_python_backend_utils as pb_utils
from numpy.typing import NDArray

from python_backends.contract import states

if TYPE_CHECKING:
    from deploy.standins.onnxruntime.native_graph import Graph
    from deploy.standins.shared.batching import Answer, Arrays, SequenceStates
    from deploy.standins.shared.serving import StandIn, require_numpy
else:
    from batching import SequenceStates
    from native_graph import Graph
    from serving import StandIn, require_numpy


class TritonPythonModel(StandIn):
    """Called by the server's Python stub."""

    label = "onnxruntime"

    def initialize(self, args: Mapping[str, str]) -> None:
        """Open the model's graph. Whatever is wrong with it fails the load, with a reason."""
        require_numpy()
        config = json.loads(args["model_config"])
        name = config.get("default_model_filename") or "model.onnx"
        graph = Graph(Path(args["model_repository"], args["model_version"], name), config)
        self.open(config, lambda feed: graph.run(feed, graph.outputs))
        self._state_names = {s["input_name"]: s["output_name"] for s in states(config)}
        self._states = SequenceStates(_zeros(config), _most_sequences(config))

    def execute(
        self, requests: Sequence[pb_utils.InferenceRequest]
    ) -> list[pb_utils.InferenceResponse]:
        """Answer requests that the server has put together."""
        served = [request for request in requests if not self._is_idle_slot(request)]
        answers = dict(zip(map(id, served), super().execute(served), strict=True))
        return [answers.get(id(r)) or pb_utils.InferenceResponse([]) for r in requests]

    def feed(self, request: pb_utils.InferenceRequest) -> Arrays:
        """Inputs of a request, and the state of its sequence."""
        feed = dict(super().feed(request))
        if self._state_names:
            start = bool(request.flags() & pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START)
            feed.update(self._states.before(request.correlation_id(), start=start))
        return feed

    def respond(
        self, request: pb_utils.InferenceRequest, answer: Answer
    ) -> pb_utils.InferenceResponse:
        """The outputs that were asked for, or the error; the state stays here."""
        if self._state_names and not isinstance(answer, Exception):
            self._keep_state(request, answer)
        return super().respond(request, answer)

    def _is_idle_slot(self, request: pb_utils.InferenceRequest) -> bool:
        """The direct strategy fills idle slots with requests of sequence 0 and garbage inside."""
        return bool(self._state_names) and request.correlation_id() in (0, "")

    def _keep_state(self, request: pb_utils.InferenceRequest, answer: Arrays) -> None:
        end = bool(request.flags() & pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_END)
        state = {name: answer[output] for name, output in self._state_names.items()}
        self._states.after(request.correlation_id(), state, end=end)


def _zeros(config: Mapping[str, Any]) -> Arrays:
    """Initial state tensors [1, ...]; states without `zero_data` are refused."""
    initial: dict[str, NDArray[Any]] = {}
    for state in states(config):
        given = state.get("initial_state", [])
        if any("data_file" in value for value in given):
            raise ValueError(f"state {state['input_name']}: only zero_data is served here")
        dtype = pb_utils.triton_string_to_numpy(state["data_type"])
        dims = given[0]["dims"] if given else state["dims"]
        initial[state["input_name"]] = np.zeros([1, *map(int, dims)], dtype)
    return initial


def _most_sequences(config: Mapping[str, Any]) -> int:
    """How many sequences the scheduler lets live at once."""
    oldest = (config.get("sequence_batching") or {}).get("oldest") or {}
    return max(1, int(oldest.get("max_candidate_sequences", 0)), int(config["max_batch_size"]))

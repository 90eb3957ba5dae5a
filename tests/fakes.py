"""What a Triton stub offers, as small real classes: the `triton_python_backend_utils` of tests.

`conftest.py` installs this module under that name. `MODELS` is what `InferenceRequest.exec` calls;
`arriving` makes a request as a stage receives it, and its sender keeps what was answered.
"""

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

TRITONSERVER_REQUEST_FLAG_SEQUENCE_START, TRITONSERVER_REQUEST_FLAG_SEQUENCE_END = 1, 2
TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1
WAIT_S = 20.0
"""A test fails when an answer takes longer; nothing is ever slept for so long."""


class TritonModelException(Exception):
    """What the stub raises when a call cannot be made at all."""


class TritonError:
    UNKNOWN, INTERNAL, NOT_FOUND, INVALID_ARG = "UNKNOWN", "INTERNAL", "NOT_FOUND", "INVALID_ARG"
    UNAVAILABLE, UNSUPPORTED, CANCELLED = "UNAVAILABLE", "UNSUPPORTED", "CANCELLED"

    def __init__(self, message: str, code: str = INTERNAL) -> None:
        self._message, self._code = message, code

    def message(self) -> str:
        return self._message

    def code(self) -> str:
        return self._code


class Tensor:
    def __init__(self, name: str, values: NDArray[Any], /) -> None:
        if not isinstance(values, np.ndarray):
            raise TypeError(f"tensor {name} is a {type(values).__name__}, not an array")
        self._name, self._values = name, values

    def name(self) -> str:
        return self._name

    def as_numpy(self) -> NDArray[Any]:
        return self._values


class InferenceResponse:
    def __init__(
        self, output_tensors: Sequence[Tensor] = (), error: TritonError | None = None
    ) -> None:
        self._tensors, self._error = list(output_tensors), error

    def output_tensors(self) -> list[Tensor]:
        return self._tensors

    def has_error(self) -> bool:
        return self._error is not None

    def error(self) -> TritonError | None:
        return self._error


class InferenceResponseSender:
    """Keeps responses, refuses anything after FINAL as the stub does, and can be waited for."""

    def __init__(self) -> None:
        self.responses: list[InferenceResponse] = []
        self.finals = 0
        self.cancelled = False
        self.ended = threading.Event()

    def send(self, response: InferenceResponse | None = None, flags: int = 0) -> None:
        if self.finals:
            raise TritonModelException("Unable to send response. Response sender has been closed.")
        if response is not None:
            self.responses.append(response)
        if flags & TRITONSERVER_RESPONSE_COMPLETE_FINAL:
            self.finals += 1
            self.ended.set()

    def is_cancelled(self) -> bool:
        assert not self.finals, "a server dies of this question after FINAL"
        return self.cancelled

    def wait(self) -> list[InferenceResponse]:
        """Every response, once FINAL has come."""
        assert self.ended.wait(WAIT_S), "no FINAL came"
        return self.responses

    def values(self) -> list[dict[str, NDArray[Any]]]:
        """The outputs of every response, once FINAL has come."""
        return [
            {tensor.name(): tensor.as_numpy() for tensor in response.output_tensors()}
            for response in self.wait()
        ]

    def error(self) -> str:
        """The text of the error it was ended with; empty without one."""
        last = self.wait()[-1:]
        fault = last[0].error() if last else None
        return fault.message() if fault else ""


Model = Callable[["InferenceRequest"], InferenceResponse]
MODELS: dict[str, Model] = {}
"""Models that `exec` finds, by name; emptied before every test."""


TRITONSERVER_MEMORY_CPU = "CPU"


class PreferredMemory:
    def __init__(self, preferred_memory_type: str) -> None:
        self.kind = preferred_memory_type


class InferenceRequest:
    def __init__(
        self,
        request_id: str = "",
        *,
        inputs: Sequence[Tensor],
        requested_output_names: Sequence[str] = (),
        model_name: str = "",
        parameters: Mapping[str, Any] | None = None,
        correlation_id: int | str = 0,
        flags: int = 0,
        preferred_memory: PreferredMemory | None = None,
    ) -> None:
        self.model_name = model_name
        self.preferred_memory = preferred_memory
        self._correlation_id, self._flags = correlation_id, flags
        self.sender = InferenceResponseSender()
        self._id, self._inputs, self._names = request_id, list(inputs), requested_output_names
        self._parameters = json.dumps(dict(parameters or {}))

    def request_id(self) -> str:
        return self._id

    def correlation_id(self) -> int | str:
        return self._correlation_id

    def flags(self) -> int:
        return self._flags

    def inputs(self) -> list[Tensor]:
        return self._inputs

    def values(self) -> dict[str, NDArray[Any]]:
        """The inputs, for the models of a test."""
        return {tensor.name(): tensor.as_numpy() for tensor in self._inputs}

    def requested_output_names(self) -> Sequence[str]:
        return self._names

    def parameters(self) -> str:
        return self._parameters

    def get_response_sender(self) -> InferenceResponseSender:
        return self.sender

    def exec(self) -> InferenceResponse:
        if self.model_name not in MODELS:
            raise TritonModelException(f"Model {self.model_name} - 1 is not ready")
        return MODELS[self.model_name](self)


class Logger:
    lines: ClassVar[list[tuple[str, str]]] = []
    """(level, message) of everything logged; emptied before every test."""

    @staticmethod
    def log_info(message: str) -> None:
        Logger.lines.append(("info", message))

    @staticmethod
    def log_warn(message: str) -> None:
        Logger.lines.append(("warn", message))

    @staticmethod
    def log_error(message: str) -> None:
        Logger.lines.append(("error", message))

    @staticmethod
    def log_verbose(message: str) -> None:
        Logger.lines.append(("verbose", message))


METRICS: dict[str, list[float]] = {}
"""What /metrics would show, by `name{label="value",...}`: every duration of a histogram, one number
of the others; emptied before every test."""

GIVEN_UP: list[str] = []
"""Names of families, and rows of metrics, in the order in which they were; so is this."""


class Metric:
    """Does what its family's kind allows, as the server does."""

    def __init__(self, row: str, kind: str) -> None:
        self._row, self._kind = row, kind
        METRICS[row] = [] if kind == MetricFamily.HISTOGRAM else [0.0]

    def set(self, value: float) -> None:
        self._need(MetricFamily.GAUGE)
        METRICS[self._row][0] = value

    def increment(self, value: float) -> None:
        self._need(MetricFamily.COUNTER, MetricFamily.GAUGE)
        METRICS[self._row][0] += value

    def observe(self, value: float) -> None:
        self._need(MetricFamily.HISTOGRAM)
        METRICS[self._row].append(value)

    def _need(self, *kinds: str) -> None:
        if self._kind not in kinds:
            raise TritonModelException(f"{self._row} is a {self._kind}")

    def __del__(self) -> None:
        GIVEN_UP.append(self._row)


class MetricFamily:
    COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"

    def __init__(self, name: str, description: str, kind: str) -> None:
        self.name, self.description, self.kind = name, description, kind

    def Metric(
        self, labels: Mapping[str, str] | None = None, buckets: Sequence[float] | None = None
    ) -> Metric:
        if (buckets is not None) != (self.kind == MetricFamily.HISTOGRAM):
            raise TritonModelException("buckets belong to a histogram, and to nothing else")
        known = dict(labels or {})
        float(known.pop("started"))  # no two processes may have a row in common
        written = ",".join(f'{key}="{value}"' for key, value in known.items())
        return Metric(f"{self.name}{{{written}}}", self.kind)

    def __del__(self) -> None:
        GIVEN_UP.append(self.name)


def arriving(
    inputs: Mapping[str, NDArray[Any]],
    *,
    request_id: str = "turn-1",
    parameters: Mapping[str, Any] | None = None,
    sequence: int | str = 0,
    start: bool = False,
    end: bool = False,
) -> InferenceRequest:
    """A request as a stage receives it; read its answers from `.sender`."""
    return InferenceRequest(
        request_id,
        inputs=[Tensor(name, values) for name, values in inputs.items()],
        parameters=parameters,
        correlation_id=sequence,
        flags=(TRITONSERVER_REQUEST_FLAG_SEQUENCE_START if start else 0)
        | (TRITONSERVER_REQUEST_FLAG_SEQUENCE_END if end else 0),
    )


def text(*lines: str) -> NDArray[np.object_]:
    """A BYTES tensor [1, len(lines)]."""
    return np.array([[line.encode() for line in lines]], dtype=np.object_)


def answer(**outputs: NDArray[Any]) -> InferenceResponse:
    """A response of a model in `MODELS`."""
    return InferenceResponse([Tensor(name, values) for name, values in outputs.items()])


def refusal(message: str, code: str = TritonError.INTERNAL) -> InferenceResponse:
    """An error of a model in `MODELS`."""
    return InferenceResponse(error=TritonError(message, code))


def model_args(
    name: str,
    parameters: Mapping[str, str],
    *,
    inputs: Sequence[str] = (),
    instances: int = 1,
    repository: str = "/repository",
) -> dict[str, str]:
    """What Triton hands to `initialize()`."""
    config = {
        "name": name,
        "instance_group": [{"count": instances, "kind": "KIND_CPU"}],
        "parameters": {key: {"string_value": value} for key, value in parameters.items()},
        "input": [{"name": tensor} for tensor in inputs],
    }
    return {
        "model_config": json.dumps(config),
        "model_name": name,
        "model_repository": f"{repository}/{name}",
        "model_version": "1",
    }

"""TensorRT's runtime API, as `tensorrt` and as the bindings of TensorRT-RTX have it alike.

The module is always a parameter: nothing here imports it. No other file of this package calls it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from python_backends.errors import StageFailed
from python_backends.tensorrt.errors import EngineUnfit

Shape = tuple[int, ...]

ALIGNMENT = 256
"""Of every address that TensorRT is given, in bytes."""

_NUMPY = {
    "FLOAT": "float32",
    "HALF": "float16",
    "INT64": "int64",
    "INT32": "int32",
    "INT8": "int8",
    "UINT8": "uint8",
    "BOOL": "bool",
}


@dataclass(frozen=True)
class Toolkit:
    """A TensorRT module and the one logger it is used with: TensorRT keeps the first it is given
    for the whole process, and ignores all others."""

    trt: Any
    said: list[str] = field(default_factory=list)
    """Warnings and errors, as TensorRT words them."""

    logger: Any = None

    @classmethod
    def of(cls, trt: Any) -> "Toolkit":
        """Of a module, with a logger that keeps what is said."""
        said: list[str] = []
        return cls(trt, said, _logger(trt, said.append))

    @property
    def library(self) -> str:
        """Which TensorRT it is: engines of one are not read by the other."""
        return "tensorrt_rtx" if "rtx" in str(self.trt.__name__) else "tensorrt"

    @property
    def version(self) -> str:
        """Of the library: an engine is read by the version that built it."""
        return str(self.trt.__version__)

    @cached_property
    def runtime(self) -> Any:
        """Which must outlive its engines."""
        return self.trt.Runtime(self.logger)

    def deserialized(self, engine: bytes) -> Any:
        """TensorRT's own engine object. EngineUnfit, with what TensorRT said, for what is none."""
        before = len(self.said)
        found = self.runtime.deserialize_cuda_engine(engine)
        if found is None:
            told = "; ".join(self.said[before:]) or "TensorRT gave no reason"
            raise EngineUnfit(f"no engine that this GPU and TensorRT {self.version} read: {told}")
        return found


@dataclass(frozen=True)
class Tensor:
    """An input or output. `shape`: -1 where it varies; `dtype` as NumPy and PyTorch name it."""

    shape: Shape
    dtype: str


@dataclass(frozen=True)
class Bounds:
    """The least and the largest shape that a profile takes of one input."""

    least: Shape
    most: Shape

    def hold(self, shape: Shape) -> bool:
        """A shape within."""
        return len(shape) == len(self.least) and all(
            low <= size <= high
            for low, size, high in zip(self.least, shape, self.most, strict=True)
        )


class Engine:
    """A deserialized engine: what goes in, what comes out, and for which shapes it was built."""

    def __init__(self, kit: Toolkit, engine: bytes) -> None:
        self._kit, self._engine = kit, kit.deserialized(engine)
        self.inputs: dict[str, Tensor] = {}
        self.outputs: dict[str, Tensor] = {}
        for number in range(self._engine.num_io_tensors):
            name = str(self._engine.get_tensor_name(number))
            is_input = self._engine.get_tensor_mode(name) == kit.trt.TensorIOMode.INPUT
            (self.inputs if is_input else self.outputs)[name] = self._tensor(name)
        self.profiles: list[dict[str, Bounds]] = [
            {name: self._bounds(name, profile) for name in self.inputs}
            for profile in range(self._engine.num_optimization_profiles)
        ]

    def context(self, profile: int, stream: int) -> "Context":
        """A context of its own for one profile, whose work runs on one CUDA stream."""
        made = self._engine.create_execution_context()
        if made is None or not made.set_optimization_profile_async(profile, stream):
            raise EngineUnfit(f"no execution context for profile {profile}: is memory left?")
        return Context(made, self, stream)

    def _tensor(self, name: str) -> Tensor:
        kind = str(self._engine.get_tensor_dtype(name)).rpartition(".")[2]
        if kind not in _NUMPY:
            raise EngineUnfit(f"tensor {name} is {kind}; {', '.join(_NUMPY)} are served")
        return Tensor(tuple(self._engine.get_tensor_shape(name)), _NUMPY[kind])

    def _bounds(self, name: str, profile: int) -> Bounds:
        least, _, most = self._engine.get_tensor_profile_shape(name, profile)
        return Bounds(tuple(least), tuple(most))


class Context:
    """An execution context. Shapes and addresses that have not changed are not set again."""

    def __init__(self, context: Any, engine: Engine, stream: int) -> None:
        self._context = context
        self._owner = engine
        """Which must outlive it."""

        self._stream = stream
        self._shapes: dict[str, Shape] = {}
        self._addresses: dict[str, int] = {}

    def shape(self, name: str, shape: Shape) -> None:
        """Of an input. StageFailed for one outside of the profile."""
        if self._shapes.get(name) == shape:
            return
        if not self._context.set_input_shape(name, shape):
            raise StageFailed(f"the engine was not built for {name} of shape {list(shape)}")
        self._shapes[name] = shape

    def bind(self, addresses: Mapping[str, int]) -> None:
        """Where inputs and outputs lie on the device; an output may lie where an input does."""
        for name, address in addresses.items():
            if self._addresses.get(name) == address:
                continue
            if not self._context.set_tensor_address(name, address):
                raise StageFailed(f"TensorRT refused the address of {name}")
            self._addresses[name] = address

    def shape_of(self, name: str) -> Shape:
        """Of an output, once the shapes of all inputs are set."""
        return tuple(self._context.get_tensor_shape(name))

    def execute(self) -> None:
        """Put one run on the stream; nothing is waited for."""
        if not self._context.execute_async_v3(self._stream):
            raise StageFailed("the engine failed; the server's log says why")


def _logger(trt: Any, say: Callable[[str], None]) -> Any:
    class Logger(trt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()

        def log(self, severity: Any, message: str) -> None:
            if str(severity).rpartition(".")[2] in ("WARNING", "ERROR", "INTERNAL_ERROR"):
                say(message)

    return Logger()

"""TensorRT's runtime API over ONNX Runtime: an "engine" names an ONNX graph and its profiles.

It computes on the raw addresses that it is given, as TensorRT does, and is stricter: an address
that was never set, a shape outside of the profile, and a KV pool whose past and present are two
places are refused. With the folder above on `sys.path`, `import tensorrt` finds it.
"""

import enum
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

__version__ = "11.4.0.106"

CAPABILITY = "0.0"
"""Of the device that it "runs" on."""

CALLS: Counter[str] = Counter()
"""How often each method of a context was called."""

ALIGNMENT = 256
_PRESENT = re.compile(r"([kv])o(\d+)")
_TYPES = {
    "tensor(float)": ("FLOAT", np.float32),
    "tensor(float16)": ("HALF", np.float16),
    "tensor(int64)": ("INT64", np.int64),
    "tensor(int32)": ("INT32", np.int32),
    "tensor(bool)": ("BOOL", np.bool_),
}


class ILogger:
    """What a logger is derived from."""


class TensorIOMode(enum.Enum):
    INPUT = 1
    OUTPUT = 2


def plan(graph: Path, profiles: list[dict[str, Any]], **other: str) -> bytes:
    """The engine of a graph; `other`: another version, or another capability, than ours."""
    told = {"version": __version__, "capability": CAPABILITY} | other
    return json.dumps({"magic": "fake", "graph": str(graph), "profiles": profiles} | told).encode()


class Runtime:
    def __init__(self, logger: Any) -> None:
        self._logger = logger

    def deserialize_cuda_engine(self, engine: bytes) -> "Engine | None":
        try:
            found = json.loads(engine)
            assert found["magic"] == "fake"
        except (ValueError, AssertionError, TypeError, KeyError):
            return self._refuse("magicTag: the serialized engine is not one of TensorRT")
        if found["version"] != __version__:
            return self._refuse(f"version {found['version']} of a serialized engine")
        if found["capability"] != CAPABILITY:
            return self._refuse(f"the engine was made for compute {found['capability']}")
        return Engine(found, self._logger)

    def _refuse(self, why: str) -> None:
        self._logger.log("Severity.ERROR", why)


class Engine:
    def __init__(self, found: dict[str, Any], logger: Any) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = 1, 3
        self.session = ort.InferenceSession(found["graph"], options)
        self.logger = logger
        self.inputs = {one.name: one for one in self.session.get_inputs()}
        self.outputs = {one.name: one for one in self.session.get_outputs()}
        self.profiles: list[dict[str, Any]] = found["profiles"]
        self.device_memory_size_v2 = 2**20

    @property
    def num_io_tensors(self) -> int:
        return len(self.inputs) + len(self.outputs)

    @property
    def num_optimization_profiles(self) -> int:
        return len(self.profiles)

    def get_tensor_name(self, number: int) -> str:
        return [*self.inputs, *self.outputs][number]

    def get_tensor_mode(self, name: str) -> TensorIOMode:
        return TensorIOMode.INPUT if name in self.inputs else TensorIOMode.OUTPUT

    def get_tensor_dtype(self, name: str) -> str:
        return f"DataType.{_TYPES[self.tensor(name).type][0]}"

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return tuple(dim if isinstance(dim, int) else -1 for dim in self.tensor(name).shape)

    def get_tensor_profile_shape(self, name: str, profile: int) -> list[tuple[int, ...]]:
        return [tuple(shape) for shape in self.profiles[profile][name]]

    def create_execution_context(self) -> "Context":
        return Context(self)

    def tensor(self, name: str) -> Any:
        return {**self.inputs, **self.outputs}[name]


class Context:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._profile = 0
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._addresses: dict[str, int] = {}
        self._found: dict[Any, dict[str, tuple[int, ...]]] = {}

    def set_optimization_profile_async(self, profile: int, stream: int) -> bool:
        self._profile = profile
        return 0 <= profile < len(self._engine.profiles)

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        CALLS["set_input_shape"] += 1
        least, _, most = self._engine.profiles[self._profile][name]
        inside = len(shape) == len(least) and all(
            low <= size <= high for low, size, high in zip(least, shape, most, strict=True)
        )
        if not inside:
            return self._refuse(f"{name}: {shape} is outside of profile {self._profile}")
        self._shapes[name] = tuple(shape)
        return True

    def set_tensor_address(self, name: str, address: int) -> bool:
        CALLS["set_tensor_address"] += 1
        self._engine.tensor(name)
        if address == 0 or address % ALIGNMENT:
            return self._refuse(f"{name}: {address} is no address of {ALIGNMENT} bytes alignment")
        self._addresses[name] = address
        return True

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return self._shapes[name] if name in self._engine.inputs else self._outputs()[name]

    def execute_async_v3(self, stream: int) -> bool:
        CALLS["execute_async_v3"] += 1
        engine = self._engine
        lacking = [name for name in engine.inputs if name not in self._shapes]
        lacking += [n for n in [*engine.inputs, *engine.outputs] if n not in self._addresses]
        if lacking:
            return self._refuse(f"no shape or no address was set: {lacking}")
        for name in engine.outputs:
            pool = _PRESENT.fullmatch(name)
            if pool and self._addresses[name] != self._addresses[pool[1] + pool[2]]:
                return self._refuse(f"{name} is not where its past is")
        binding = engine.session.io_binding()
        for name, tensor in engine.inputs.items():
            kind, address = _TYPES[tensor.type][1], self._addresses[name]
            binding.bind_input(name, "cpu", 0, kind, self._shapes[name], address)
        for name, shape in self._outputs().items():
            kind, address = _TYPES[engine.outputs[name].type][1], self._addresses[name]
            binding.bind_output(name, "cpu", 0, kind, shape, address)
        engine.session.run_with_iobinding(binding)
        return True

    def _outputs(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the outputs for the inputs' shapes; what the names of dimensions do not tell is
        found by running the graph on zeros."""
        key = tuple(sorted(self._shapes.items()))
        if key not in self._found:
            self._found[key] = self._told_outputs() or self._run_outputs()
        return self._found[key]

    def _told_outputs(self) -> dict[str, tuple[int, ...]] | None:
        sizes: dict[Any, int] = {}
        for name, tensor in self._engine.inputs.items():
            sizes |= dict(zip(tensor.shape, self._shapes[name], strict=True))
        found = {
            name: tuple(dim if isinstance(dim, int) else sizes.get(dim, -1) for dim in one.shape)
            for name, one in self._engine.outputs.items()
        }
        return None if any(-1 in shape for shape in found.values()) else found

    def _run_outputs(self) -> dict[str, tuple[int, ...]]:
        feeds = {
            name: np.zeros(self._shapes[name], _TYPES[one.type][1])
            for name, one in self._engine.inputs.items()
        }
        names = list(self._engine.outputs)
        values = self._engine.session.run(names, feeds)
        return {name: value.shape for name, value in zip(names, values, strict=True)}

    def _refuse(self, why: str) -> bool:
        self._engine.logger.log("Severity.ERROR", why)
        return False

"""An engine as the native tensorrt backend would choose and run it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from python_backends.contract import Tensors, require_fit
from python_backends.errors import InvalidInput
from python_backends.tensorrt import record
from python_backends.tensorrt.device import Device
from python_backends.tensorrt.errors import EngineUnfit
from python_backends.tensorrt.opening import opened
from python_backends.tensorrt.runtime import Bounds, Context, Shape, Tensor

_KINDS = {
    "float32": "TYPE_FP32",
    "float16": "TYPE_FP16",
    "int64": "TYPE_INT64",
    "int32": "TYPE_INT32",
    "int8": "TYPE_INT8",
    "uint8": "TYPE_UINT8",
    "bool": "TYPE_BOOL",
}
DEVICE = "device"
"""A parameter of a model that overrides the GPU of its instance: `cpu` in tests."""


def device_of(args: Mapping[str, str], config: Mapping[str, Any]) -> Device:
    """The GPU that the server gave the instance."""
    asked = config.get("parameters", {}).get(DEVICE, {}).get("string_value")
    return Device(asked or f"cuda:{args['model_instance_device_id']}")


def engine_file(config: Mapping[str, Any], capability: str) -> str:
    """The file of the engine for a GPU: of `cc_model_filenames`, or the default one."""
    named = config.get("cc_model_filenames") or {}
    return str(named.get(capability) or config.get("default_model_filename") or "model.plan")


class EngineGraph:
    """One engine with a context for each profile, and memory on the device for the largest shape
    that was seen of each tensor. Inputs and outputs are batch-leading, as in config.pbtxt."""

    def __init__(self, folder: Path, config: Mapping[str, Any], device: Device) -> None:
        path = folder / engine_file(config, device.capability)
        self._device = device
        engine = opened(path, device, recorded=False)
        self._inputs, self._outputs = engine.inputs, engine.outputs
        require_fit(config, _tensors(engine.inputs), _tensors(engine.outputs))
        self._profiles = engine.profiles
        with record.naming(path), device.working():
            _require_batches(config["max_batch_size"], engine.profiles)
            self._contexts = [
                engine.context(number, device.stream) for number in range(len(engine.profiles))
            ]
        self._memory: dict[str, Any] = {}

    def run(self, feeds: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """All outputs of one call. InvalidInput for shapes that no profile takes."""
        arrays = {name: np.ascontiguousarray(feeds[name]) for name in self._inputs}
        context = self._contexts[self._profile_of({n: a.shape for n, a in arrays.items()})]
        with self._device.working():
            for name, array in arrays.items():
                context.shape(name, array.shape)
                self._room(name, array.shape, self._inputs[name]).copy_(self._host(array))
            found = {name: self._output(context, name) for name in self._outputs}
            held = {name: memory.data_ptr() for name, memory in self._memory.items()}
            context.bind(held)
            context.execute()
            answers = {name: tensor.to("cpu", non_blocking=True) for name, tensor in found.items()}
            self._device.synchronize()
        return {name: tensor.numpy().copy() for name, tensor in answers.items()}

    def _output(self, context: Context, name: str) -> Any:
        return self._room(name, context.shape_of(name), self._outputs[name])

    def _room(self, name: str, shape: Shape, tensor: Tensor) -> Any:
        """Memory of this shape; what was there is not kept."""
        held = self._memory.get(name)
        size = int(np.prod(shape))
        if held is None or held.numel() < size:
            held = self._memory[name] = self._device.zeros((size,), tensor.dtype)
        return held[:size].view(shape)

    def _host(self, array: NDArray[Any]) -> Any:
        """The request's memory may be read-only, which PyTorch warns of."""
        return self._device.torch.from_numpy(array if array.flags.writeable else array.copy())

    def _profile_of(self, shapes: Mapping[str, Shape]) -> int:
        for number, profile in enumerate(self._profiles):
            if all(profile[name].hold(shape) for name, shape in shapes.items()):
                return number
        first = self._profiles[0]
        outside = [
            f"{name} {list(shape)}: {_told(first[name])}"
            for name, shape in shapes.items()
            if not first[name].hold(shape)
        ]
        raise InvalidInput(f"no profile of the engine takes {'; '.join(outside)}")


def _require_batches(most: int, profiles: list[dict[str, Bounds]]) -> None:
    """EngineUnfit unless some profile takes the largest batch that the config promises."""
    taken = max(min(bounds.most[0] for bounds in profile.values()) for profile in profiles)
    if taken < most:
        raise EngineUnfit(f"takes batches of {taken}, and max_batch_size is {most}")


def _tensors(found: Mapping[str, Tensor]) -> Tensors:
    return {name: (_KINDS[tensor.dtype], tensor.shape) for name, tensor in found.items()}


def _told(bounds: Bounds) -> str:
    return f"{list(bounds.least)} to {list(bounds.most)} is accepted"

"""Opening an engine file: on this device, by the TensorRT that is installed."""

import functools
from pathlib import Path

from python_backends.tensorrt import record
from python_backends.tensorrt.device import Device, imported
from python_backends.tensorrt.record import Place
from python_backends.tensorrt.runtime import Engine, Toolkit


def opened(path: Path, device: Device, *, recorded: bool = True) -> Engine:
    """The engine in a file. EngineUnfit says what is wrong with it, or with the machine, and what
    to do. Not `recorded`: it may lack the record that our build writes."""
    kit = _toolkit()
    with record.naming(path):
        place = Place(kit.library, kit.version, device.capability)
        record.require(path, place, recorded=recorded)
        with device.working():
            return Engine(kit, path.read_bytes())


@functools.cache
def _toolkit() -> Toolkit:
    """One for the process."""
    return Toolkit.of(imported("tensorrt"))

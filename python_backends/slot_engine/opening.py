"""The engine that a model's parameters ask for."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

from python_backends.slot_engine.device_rows import DeviceRows
from python_backends.slot_engine.engine import SlotPoolEngine
from python_backends.slot_engine.rows import Rows, Rules
from python_backends.slot_engine.settings import TENSORRT
from python_backends.slot_engine.shelf import Shelf
from python_backends.tensorrt import record
from python_backends.tensorrt.device import Device
from python_backends.tensorrt.errors import EngineUnfit
from python_backends.tensorrt.opening import opened


class Wanted(Protocol):
    """Settings of a slot_engine model, or of a loop that opens its engine itself."""

    @property
    def slots(self) -> int:
        """Rows."""

    @property
    def capacity(self) -> int:
        """Tokens of a row."""

    @property
    def threads(self) -> int:
        """Of ONNX Runtime."""

    @property
    def runtime(self) -> str:
        """One of RUNTIMES."""

    @property
    def device(self) -> str:
        """Of runtime tensorrt."""


def open_engine(
    folder: Path,
    wanted: Wanted,
    *,
    chunk: int = 1,
    shelf: Shelf | None = None,
    device: Callable[[str], Device] = Device,
) -> SlotPoolEngine:
    """The engine of a version folder, for chunks of so many tokens at least.

    EngineUnfit where TensorRT's is missing, of another machine, or built for other sizes.
    """
    is_tensorrt = wanted.runtime == TENSORRT
    return SlotPoolEngine(
        folder,
        slots=wanted.slots,
        capacity=wanted.capacity,
        threads=wanted.threads,
        shelf=shelf,
        rows=partial(_device_rows, folder, wanted, chunk, device) if is_tensorrt else None,
    )


def _device_rows(
    folder: Path,
    wanted: Wanted,
    chunk: int,
    make: Callable[[str], Device],
    context: Sequence[str],
    rules: Rules,
) -> Rows:
    device = make(wanted.device)
    path = folder / record.engine_name(device.capability)
    engine = opened(path, device)
    with record.naming(path):
        rows = DeviceRows(
            engine,
            device,
            slots=wanted.slots,
            capacity=wanted.capacity,
            context=context,
            rules=rules,
        )
        if rows.longest_chunk < chunk:
            raise EngineUnfit(f"built for chunks of {rows.longest_chunk}, {chunk} are configured")
    return rows

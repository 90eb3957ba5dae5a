"""What this machine can run graphs on, and the rates that it reaches."""

import functools
import importlib
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import onnxruntime as ort

PROVIDERS = ("CUDAExecutionProvider", "TensorrtExecutionProvider")
CPU = "CPUExecutionProvider"
REPEATS = 20
COPIED_BYTES = 2**28
SIDE = 4096
"""Of the square matrices that are multiplied."""


@dataclass(frozen=True)
class Machine:
    """Where graphs run. `options` are of its provider."""

    name: str
    provider: str
    device: str
    options: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def rehearsal(cls) -> Self:
        """The CPU in the place of a GPU: tries the harness, proves nothing of a GPU."""
        return cls("CPU, as a rehearsal", CPU, "cpu")


def found() -> Machine | str:
    """The GPU of this machine, or in one line why there is none to be used."""
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        return "PyTorch is not installed"
    if not torch.cuda.is_available():
        return "PyTorch finds no GPU"
    available = [name for name in PROVIDERS if name in ort.get_available_providers()]
    if not available:
        return f"onnxruntime has none of {', '.join(PROVIDERS)}: install onnxruntime-gpu instead"
    # TF32 would be told as an error of the graph.
    options = {"use_tf32": 0} if available[0] == PROVIDERS[0] else {}
    return Machine(torch.cuda.get_device_name(0), available[0], "cuda", options)


@dataclass(frozen=True)
class Rates:
    """What simple kernels reach here, per second."""

    bytes_per_s: float
    operations: dict[str, float]

    def floor_s(self, operations: float, nbytes: float, kind: str) -> float:
        """The least time of so many operations and bytes, if both overlap."""
        return max(operations / self.operations[kind], nbytes / self.bytes_per_s)


def rates(machine: Machine) -> Rates:
    """Measured with PyTorch: a copy within the memory, and products of large matrices."""
    torch = importlib.import_module("torch")
    source = torch.empty(COPIED_BYTES, dtype=torch.uint8, device=machine.device)
    target = torch.empty_like(source)
    copied = _seconds(torch, machine, lambda: target.copy_(source))
    side = SIDE if machine.device == "cuda" else SIDE // 4
    operations = {}
    for kind, dtype in (("fp32", torch.float32), ("fp16", torch.float16)):
        matrix = torch.ones(side, side, dtype=dtype, device=machine.device)
        took = _seconds(torch, machine, functools.partial(torch.matmul, matrix, matrix))
        operations[kind] = 2 * side**3 / took
    return Rates(2 * COPIED_BYTES / copied, operations)


def _seconds(torch: Any, machine: Machine, work: Callable[[], object]) -> float:
    def wait() -> None:
        if machine.device == "cuda":
            torch.cuda.synchronize()

    work()
    wait()
    began = time.perf_counter()
    for _ in range(REPEATS):
        work()
    wait()
    return (time.perf_counter() - began) / REPEATS


@contextmanager
def one_stream(machine: Machine) -> Iterator[dict[str, Any]]:
    """Provider options by which sessions share one stream; a CPU has none to share."""
    if machine.device != "cuda":
        yield dict(machine.options)
        return
    stream = importlib.import_module("torch").cuda.Stream()
    yield {**machine.options, "user_compute_stream": str(stream.cuda_stream)}


class Busy:
    """How busy the GPU is meanwhile, by nvidia-smi: the share of time in which any kernel ran."""

    def __init__(self) -> None:
        self.samples: list[float] = []
        self._process: subprocess.Popen[str] | None = None
        self._reader = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Self:
        query = ["--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "--id=0"]
        try:
            self._process = subprocess.Popen(
                ["nvidia-smi", *query, "--loop-ms=200"], stdout=subprocess.PIPE, text=True
            )
        except OSError:
            return self
        self._reader.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._reader.join()

    @property
    def percent(self) -> float | None:
        """None where nobody could tell."""
        return sum(self.samples) / len(self.samples) if self.samples else None

    def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            self.samples += [float(line) for line in lines if line.strip().isdigit()]

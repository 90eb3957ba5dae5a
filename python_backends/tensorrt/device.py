"""A GPU by PyTorch: memory, one stream, and CUDA graphs of what was put on it.

`cpu` stands in for a GPU in tests: there work is done when it is asked for, and nothing captured.
"""

import importlib
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from python_backends.tensorrt.errors import EngineUnfit
from python_backends.tensorrt.runtime import ALIGNMENT, Shape

Work = Callable[[], None]
INSTALL = "pip install torch (a build with CUDA), and tensorrt of the version that built the engine"
NO_GPU = "0.0"
"""The compute capability of the CPU."""


def imported(module: str) -> Any:
    """`torch` or `tensorrt`. EngineUnfit says how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as fault:
        raise EngineUnfit(f"runtime tensorrt needs {module} ({fault}); {INSTALL}") from fault


class Device:
    """Memory of one device, and a stream on which everything of its owner happens in order."""

    def __init__(self, name: str) -> None:
        self.torch = imported("torch")
        self.is_gpu = name.startswith("cuda")
        if not self.is_gpu and name != "cpu":
            raise EngineUnfit(f"device {name!r}; cuda, cuda:1 and so on, and cpu are known")
        if self.is_gpu and not self.torch.cuda.is_available():
            raise EngineUnfit(f"device {name!r}: PyTorch finds no GPU here (a CPU-only build?)")
        self._where = self.torch.device(name)
        self._stream = self.torch.cuda.Stream(self._where) if self.is_gpu else None
        self._graphs = self.torch.cuda.graph_pool_handle() if self.is_gpu else None

    @property
    def capability(self) -> str:
        """Compute capability, as "8.9"."""
        if not self.is_gpu:
            return NO_GPU
        major, minor = self.torch.cuda.get_device_capability(self._where)
        return f"{major}.{minor}"

    @property
    def stream(self) -> int:
        """CUDA's handle of the stream."""
        return 0 if self._stream is None else int(self._stream.cuda_stream)

    @contextmanager
    def working(self) -> Iterator[None]:
        """What PyTorch does inside, on this thread, goes to the stream."""
        if self._stream is None:
            yield
            return
        with self.torch.cuda.stream(self._stream):
            yield

    def zeros(self, shape: Shape, dtype: str) -> Any:
        """A tensor at an address that TensorRT takes."""
        kind = getattr(self.torch, dtype)
        size = math.prod(shape) * kind.itemsize
        raw = self.torch.zeros(size + ALIGNMENT, dtype=self.torch.uint8, device=self._where)
        begin = -raw.data_ptr() % ALIGNMENT
        return raw[begin : begin + size].view(kind).view(shape)

    def page_locked(self, size: int) -> Any:
        """So many bytes of the host that are copied without a stop."""
        return self.torch.zeros(size, dtype=self.torch.uint8, pin_memory=self.is_gpu)

    def there(self, values: Any) -> Any:
        """A NumPy array as a tensor on the device."""
        return self.torch.as_tensor(values).to(self._where, non_blocking=True)

    def used(self, tensor: Any) -> None:
        """A tensor of another stream is read on this one: its memory is not given away before."""
        if self._stream is not None:
            tensor.record_stream(self._stream)

    def synchronize(self) -> None:
        """Wait until all that was put on the stream is done."""
        if self._stream is not None:
            self._stream.synchronize()

    def captured(self, prepare: Work, work: Work) -> Work:
        """What does `work` again, as one CUDA graph; its addresses and shapes are those of now.

        `prepare` is what need not be repeated; both are done once before, as TensorRT wants it. The
        CPU does both every time.
        """
        prepare()
        work()
        if self._stream is None:
            return both(prepare, work)
        self.synchronize()
        graph = self.torch.cuda.CUDAGraph()
        # Other threads of the process may use the GPU meanwhile.
        with self.torch.cuda.graph(
            graph, pool=self._graphs, stream=self._stream, capture_error_mode="thread_local"
        ):
            work()
        replay: Work = graph.replay
        return replay


def both(first: Work, then: Work) -> Work:
    """One after the other."""

    def work() -> None:
        first()
        then()

    return work

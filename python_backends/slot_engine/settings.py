"""Parameters of a slot_engine model."""

from dataclasses import dataclass

ONNXRUNTIME, TENSORRT = RUNTIMES = ("onnxruntime", "tensorrt")


@dataclass(frozen=True)
class EngineSettings:
    """`slots` rows of `capacity` tokens; `threads` of ONNX Runtime.

    `runtime` onnxruntime runs model.onnx on the CPU, tensorrt the engine of `python -m build
    tensorrt` on `device`: cuda, or cuda:1 and so on.
    """

    slots: int
    capacity: int
    threads: int = 1
    runtime: str = ONNXRUNTIME
    device: str = "cuda"

    def __post_init__(self) -> None:
        check_runtime(self.runtime)


def check_runtime(runtime: str) -> None:
    """ValueError for one that is not known."""
    if runtime not in RUNTIMES:
        raise ValueError(f"runtime {runtime!r}; {RUNTIMES} are known")

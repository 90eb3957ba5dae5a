"""Parameters of a slot_engine model."""

from dataclasses import dataclass


@dataclass(frozen=True)
class EngineSettings:
    """`slots` rows of `capacity` tokens; `threads` of ONNX Runtime."""

    slots: int
    capacity: int
    threads: int = 1

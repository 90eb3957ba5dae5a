"""Parameters of the model `acoustic`."""

from dataclasses import dataclass

from python_backends.diffusion_lock.sharing import MODES
from python_backends.diffusion_lock.solver import SOLVERS
from python_backends.sizes import RowBytes


@dataclass(frozen=True)
class AcousticSettings:
    """Read from config.pbtxt, strictly."""

    condition_model: str
    step_model: str
    steps: int
    """Flow steps where a request names none."""

    solver: str
    """Solver where a request names none; see `solver.chosen`."""

    max_batch: int
    max_frames: int
    """Frames of the longest piece."""

    max_waiting: int
    """Open requests beyond which new ones are refused."""

    mode: str = "lock"
    """lock: a batch keeps its members from the first step to the last. interleave: members come and
    go between steps."""

    max_batch_bytes: int = 0
    """Bytes that the pieces computed together may take; 0: as many as max_batch brings."""

    row_bytes: str = ""
    """What a piece takes of them by its frames, the graphs' share included:
    "400=8MiB, 1600=32MiB"."""

    patience_ms: float = 500.0
    """After this wait a later piece ranks with first pieces."""

    hold_s: float = 15.0
    """How long a finished piece is held back for an earlier one that has not even arrived."""

    leaf: str = ""
    """Another decoder than our own: "module:factory", called with (ModelConfig, these settings),
    makes Voices and what is called instead of the two models."""

    def __post_init__(self) -> None:
        if min(self.steps, self.max_batch, self.max_frames, self.max_waiting) < 1:
            raise ValueError("steps, max_batch, max_frames and max_waiting must be at least 1")
        RowBytes.read(self.row_bytes)
        if self.max_batch_bytes < 0:
            raise ValueError("max_batch_bytes must not be negative")
        if self.solver not in SOLVERS:
            raise ValueError(f"solver {self.solver!r} is none of {sorted(SOLVERS)}")
        if self.mode not in MODES:
            raise ValueError(f"mode {self.mode!r} is none of {sorted(MODES)}")
        if min(self.patience_ms, self.hold_s) < 0:
            raise ValueError("patience_ms and hold_s must not be negative")

"""What the models of a Whisper take: measured in processes of their own, or after ours."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from build.artifact import REPOSITORY
from build.contract import read_config
from build.own.measuring import told_by
from build.own.placing import MIB, mebibytes
from build.whisper.config import TINY_EN, WhisperConfig
from python_backends.encoder_window.windows import LONG_FRAMES, SHORT_FRAMES, bytes_a_frame
from python_backends.sizes import byte_count

FLOAT_BYTES: Final = 4
PEAK: Final = """
import sys
from pathlib import Path
import numpy as np, psutil
from python_backends.slot_engine.bound import open_session
from python_backends.slot_engine.command import *
from python_backends.slot_engine.engine import SlotPoolEngine
me = psutil.Process()
def resident():
    return me.memory_info().rss
def peak_of(run):
    Path("/proc/self/clear_refs").write_text("5")
    run()
    told = Path("/proc/self/status").read_text().partition("VmHWM:")[2]
    return 1024 * int(told.split()[0])
before = resident()
"""
"""Writing 5 there makes the most that was resident the present again (Linux, proc(5))."""

PASS: Final = (
    PEAK
    + """
session = open_session(Path(sys.argv[1]), 2)
held = resident()
mel = np.zeros((1, int(sys.argv[2]), int(sys.argv[3])), np.float32)
print(held - before, peak_of(lambda: session.run(None, {"MEL": mel})) - held)
"""
)
"""Of the graph, and of one window's pass beside it."""

STEP: Final = (
    PEAK
    + """
engine = SlotPoolEngine(Path(sys.argv[1]), slots=1, capacity=int(sys.argv[2]))
held = resident()
states = np.zeros((int(sys.argv[3]), int(sys.argv[4])), np.float32)
prompt = np.zeros(4, np.int64)
def run():
    part = Prefill(0, 0, prompt, True, GREEDY, {"HIDDEN": states})
    engine.run(Command(RESTART, prefill=part))
print(held - before, peak_of(run) - held)
"""
)
"""Of the graphs, and of a row's first chunk beside them, its pools included."""


@dataclass(frozen=True)
class Budgets:
    """Parameters of the four models, of what was measured: bytes of each graph, of a pass by its
    frames, and of a row's first chunk."""

    sizes: WhisperConfig
    slots: int
    encoder_graph: int
    passes: dict[int, int]
    step_graph: int
    chunk: int

    @property
    def encoder_weights(self) -> str:
        """Of asr_encoder."""
        return mebibytes(self.encoder_graph)

    @property
    def step_weights(self) -> str:
        """Of asr_decode_step, and of asr_decode, which opens it."""
        return mebibytes(self.step_graph)

    @cached_property
    def encoder(self) -> dict[str, str | int]:
        """Of asr_encoder."""
        return {
            "bytes_weights": self.encoder_weights,
            "bytes_activation": mebibytes(self._largest),
            "bytes_shm": _scaled("asr_encoder", "bytes_shm", self._window_share),
        }

    @cached_property
    def window(self) -> dict[str, str | int]:
        """Of encode."""
        return {
            "row_bytes": ", ".join(f"{frames}={size}" for frames, size in self._rows.items()),
            "max_batch_bytes": self._largest,
            "bytes_activation": _scaled("encode", "bytes_activation", self._window_share),
            "bytes_shm": _scaled("encode", "bytes_shm", self._window_share),
        }

    @cached_property
    def step(self) -> dict[str, str | int]:
        """Of asr_decode_step."""
        return self._engine | {
            "bytes_shm": _scaled("asr_decode_step", "bytes_shm", self._width_share)
        }

    @cached_property
    def loop(self) -> dict[str, str | int]:
        """Of asr_decode, whose open requests bring encoder states."""
        return self._engine | {
            key: _scaled("asr_decode", key, self._width_share)
            for key in ("bytes_requests", "bytes_shm")
        }

    @property
    def _engine(self) -> dict[str, str | int]:
        sizes = self.sizes
        token = 2 * sizes.decoder_layers * sizes.width * FLOAT_BYTES
        states = sizes.encoder_context // 2 + sizes.encoder_context
        logits = FLOAT_BYTES * self.slots * sizes.vocabulary
        return {
            "bytes_weights": self.step_weights,
            "bytes_kv_token": token,
            "bytes_kv_row": token * states,
            "bytes_activation": mebibytes(
                max(0, self.chunk - token * sizes.encoder_context) + logits
            ),
        }

    @property
    def _rows(self) -> dict[int, str]:
        return {frames: mebibytes(size) for frames, size in self.passes.items()}

    @property
    def _largest(self) -> int:
        """The largest pass that is let in."""
        config = read_config(REPOSITORY / "encode" / "config.pbtxt")
        return byte_count(self._rows[LONG_FRAMES]) * int(
            config.parameters["max_batch"].string_value
        )

    @property
    def _window_share(self) -> float:
        """Of a window's features and states, to those of ours."""
        ours = bytes_a_frame(TINY_EN.mels, TINY_EN.width)
        return bytes_a_frame(self.sizes.mels, self.sizes.width) / ours

    @property
    def _width_share(self) -> float:
        return self.sizes.width / TINY_EN.width


def measured(sizes: WhisperConfig, encoder: Path, step: Path, slots: int) -> Budgets:
    """Of the graphs in the folders `encoder` and `step`. BuildError when one does not run."""
    graph, passes = 0, {}
    for frames in (SHORT_FRAMES, LONG_FRAMES):
        graph, passes[frames] = told_by(PASS, encoder / "model.onnx", sizes.mels, frames)
    engine = told_by(STEP, step, sizes.decoder_context, sizes.encoder_context, sizes.width)
    return Budgets(sizes, slots, graph, passes, *engine)


def _scaled(model: str, key: str, share: float) -> str:
    """A budget of ours by what the tensors grow; a smaller model's is not lowered."""
    ours = byte_count(read_config(REPOSITORY / model / "config.pbtxt").parameters[key].string_value)
    return f"{-(-round(ours * max(1.0, share)) // MIB)}MiB"

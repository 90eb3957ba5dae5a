"""The teacher: hibari with its inner quantities made graph outputs.

hibari (Apache-2.0, distilled from Kokoro-82M) reads phonemes aloud without diffusion and without
autoregression; its durations, F0 and last hidden layer are what our own models learn to produce.
"""

from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

from python_backends import spoken
from python_backends.speech import SILENCE

HIDDEN: Final = 256
"""Width of the teacher's last hidden layer."""

_HIDDEN_OUTPUT: Final = "/dec_norm/LayerNormalization_output_0"
_TICKS_OUTPUT: Final = "/Cast_32_output_0"
_HEAD: Final = "/head/Transpose_output_0"


@dataclass(frozen=True)
class Reading:
    """How the teacher reads one utterance of P phonemes in T frames."""

    text: str
    phonemes: NDArray[np.int64]
    """[P], ids of hibari's vocabulary, 0 at both ends."""
    ticks: NDArray[np.int64]
    """[P], duration in ticks of two frames; 2 * sum = T."""
    f0: NDArray[np.float32]
    """[T], Hz; near 0 where unvoiced."""
    hidden: NDArray[np.float32]
    """[T, HIDDEN]."""


def model_path() -> Path:
    """The teacher's network inside the installed hibari package."""
    return Path(str(resources.files("hibari") / "assets" / "hibari.onnx"))


class Phonemizer:
    """Text to phoneme ids as the server reads it: see `python_backends.spoken`."""

    def __init__(self) -> None:
        self._read = spoken.Phonemizer()

    def __call__(self, text: str) -> NDArray[np.int64]:
        """Phoneme ids int64 [P] of a text, 0 at both ends."""
        return np.array([SILENCE, *self._read(text), SILENCE], np.int64)


class Teacher:
    """hibari's network with durations and hidden layer exposed, one thread."""

    def __init__(self) -> None:
        model = onnx.load(model_path())
        exposed = (
            (_HIDDEN_OUTPUT, onnx.TensorProto.FLOAT),
            (_TICKS_OUTPUT, onnx.TensorProto.INT64),
        )
        for name, kind in exposed:
            model.graph.output.append(onnx.helper.make_tensor_value_info(name, kind, None))
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(model.SerializeToString(), options)
        self._phonemes = Phonemizer()

    def read(self, text: str, pace: float = 1.0) -> Reading:
        """Reads a text as one utterance, sentences unsplit, `pace` times as fast as it would."""
        phonemes = self._phonemes(text)
        ticks, f0, hidden = self._session.run(
            [_TICKS_OUTPUT, "f0", _HIDDEN_OUTPUT],
            {"ids": phonemes[None], "speed": np.array([pace], np.float32)},
        )
        return Reading(text, phonemes, ticks.reshape(-1), f0[0], hidden[0])


def head() -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The teacher's spectral head, dequantised: weight [HIDDEN, 5 * bins] and bias [5 * bins]."""
    graph = onnx.load(model_path()).graph
    tensors = {t.name: t for t in graph.initializer}
    tensors |= {n.output[0]: n.attribute[0].t for n in graph.node if n.op_type == "Constant"}

    def value(name: str) -> NDArray[Any]:
        return np.asarray(onnx.numpy_helper.to_array(tensors[name]))

    quantised = value(f"{_HEAD}_quantized").astype(np.float32)
    zero = value(f"{_HEAD}_zero_point").astype(np.float32)
    return (quantised - zero) * value(f"{_HEAD}_scale"), value("m.head.bias")

"""Whisper behind the window: log-mels in, hidden states out."""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from python_backends.bridge import Request
from python_backends.encoder_window.audio import checked
from python_backends.encoder_window.encoder import Call, Encoder
from python_backends.encoder_window.leaf import Encoded
from python_backends.encoder_window.mel import log_mel
from python_backends.encoder_window.settings import EncodeSettings
from python_backends.encoder_window.windows import Window, bytes_a_frame, to_windows
from python_backends.errors import StageFailed


class Whisper:
    """See Leaf. `call` is `bridge.call`."""

    def __init__(self, settings: EncodeSettings, call: Call) -> None:
        self._max_audio_s = settings.max_audio_s
        self._mels, self._width = settings.mels, settings.width
        self._frame_bytes = bytes_a_frame(settings.mels, settings.width)
        self._encoder = Encoder(call, settings.encoder_model, settings.width)

    def windows(self, request: Request) -> list[Window]:
        """Windows of at most 30 s of AUDIO [1, N]."""
        sound = checked(request.required("AUDIO"), self._max_audio_s)
        return to_windows(sound, request.options.min_frames, self._frame_bytes)

    def build(self, window: Window) -> NDArray[np.float32]:
        """The log-mel [mels, frames] of a window. StageFailed unless it may stand in a batch."""
        mel = log_mel(window.sound, window.frames, self._mels)
        if mel.shape != (self._mels, window.frames) or not np.isfinite(mel).all():
            raise StageFailed(f"the log-mel {list(mel.shape)} has a wrong shape or is not finite")
        return mel

    def encode(self, built: Sequence[NDArray[np.float32]]) -> Encoded:
        """Hidden states [frames / 2, width] of each mel."""
        start_s = time.monotonic()
        outcomes = self._encoder.encode(built)
        return Encoded(list(outcomes), time.monotonic() - start_s)

    def outputs(
        self, windows: Sequence[Window], results: Sequence[NDArray[np.float32] | None]
    ) -> dict[str, NDArray[Any]]:
        """HIDDEN [1, W, F, width], padded with zeros to the largest window, and the rest."""
        states = [window.states for window in windows]
        hidden = np.zeros((1, len(windows), max(1, *states), self._width), np.float32)
        for number, result in enumerate(results):
            if result is not None:
                hidden[0, number, : len(result)] = result
        return {
            "HIDDEN": hidden,
            "VALID": np.array([states], np.int32),
            "SPAN_MS": np.array([[window.span_ms for window in windows]], np.int32),
            "NO_SPEECH": np.array([[window.silent for window in windows]], np.float32),
        }

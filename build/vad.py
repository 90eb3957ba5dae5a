"""Silero VAD (16 kHz) with every tensor batch-leading: a sequence batcher can hold its state.

The published graph keeps its state as [2, B, 128], takes the sampling rate as a scalar and branches
with If; this module computes the same from its weights. (The wheel's safetensors file comes from
another training run.)
"""

from collections.abc import Callable
from pathlib import Path

import onnx
import torch
from onnx import numpy_helper
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from build.fetch import member
from build.torch_export import export_native

WINDOW = 512
"""Samples a request brings: 32 ms."""

CONTEXT = 64
"""Samples of the window before that are prepended."""

STATE = 128
_FFT, _HOP = 256, 128
_BINS = _FFT // 2 + 1


class SileroVad(nn.Module):
    """Magnitude spectrum, four convolutions, one LSTM cell, one logistic unit."""

    def __init__(self) -> None:
        super().__init__()
        self.stft_conv = nn.Conv1d(1, 2 * _BINS, _FFT, stride=_HOP, bias=False)
        self.conv1 = nn.Conv1d(_BINS, 128, 3, padding=1)
        self.conv2 = nn.Conv1d(128, 64, 3, stride=2, padding=1)
        self.conv3 = nn.Conv1d(64, 64, 3, stride=2, padding=1)
        self.conv4 = nn.Conv1d(64, STATE, 3, padding=1)
        self.lstm_cell = nn.LSTMCell(STATE, STATE)
        self.final_conv = nn.Conv1d(STATE, 1, 1)

    def forward(
        self, audio: Tensor, state: Tensor, context: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """audio [B, 512] in -1..1, state [B, 2, 128], context [B, 64], zeros at the start.

        Gives the probability of speech [B, 1], the next state and the next context.
        """
        x = self.seen(torch.cat([context, audio], 1))
        hidden, cell = self._recur(x, state[:, 0], state[:, 1])
        speech = torch.sigmoid(self.final_conv(functional.relu(hidden)[:, :, None]))
        return speech[:, :, 0], torch.stack([hidden, cell], 1), audio[:, -CONTEXT:]

    def seen(self, framed: Tensor) -> Tensor:
        """Windows behind their contexts [N, 576] to what the LSTM is fed [N, 128]."""
        x = self.stft_conv(functional.pad(framed[:, None], (0, CONTEXT), mode="reflect"))
        x = torch.sqrt(x[:, :_BINS].square() + x[:, _BINS:].square())
        for layer in (self.conv1, self.conv2, self.conv3, self.conv4):
            x = functional.relu(layer(x))
        return x.flatten(1)

    def _recur(self, x: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """One LSTM step, written out: gates in PyTorch's order input, forget, cell, output."""
        weights = self.lstm_cell
        gates = functional.linear(x, weights.weight_ih, weights.bias_ih)
        gates = gates + functional.linear(hidden, weights.weight_hh, weights.bias_hh)
        enter, forget, candidate, leave = gates.chunk(4, 1)
        cell = torch.sigmoid(forget) * cell + torch.sigmoid(enter) * torch.tanh(candidate)
        return torch.sigmoid(leave) * torch.tanh(cell), cell


class SileroVadRuns(nn.Module):
    """The same over some windows in a row of each caller."""

    def __init__(self, vad: SileroVad) -> None:
        super().__init__()
        self.vad = vad
        self.lstm = nn.LSTM(STATE, STATE, batch_first=True)
        self.lstm.load_state_dict(
            {f"{name}_l0": value for name, value in vad.lstm_cell.state_dict().items()}
        )

    def forward(
        self, audio: Tensor, windows: Tensor, state: Tensor, context: Tensor
    ) -> tuple[Tensor, Tensor]:
        """audio [B, T, 512], of which the first `windows` [B, 1] are a caller's; state [B, 2, 128]
        and context [B, 64] before them, zeros at the start.

        Gives the probability of speech [B, T], and the state behind the last of a caller's windows.
        """
        batch, most, _ = audio.shape
        before = torch.cat([context[:, None], audio[:, :-1, -CONTEXT:]], 1)
        framed = torch.cat([before, audio], 2).reshape(-1, CONTEXT + WINDOW)
        x = self.vad.seen(framed).reshape(batch, most, STATE)
        packed = pack_padded_sequence(x, windows[:, 0], batch_first=True)
        own = (state[:, 0][None].contiguous(), state[:, 1][None].contiguous())
        out, (hidden, cell) = self.lstm(packed, own)
        out, _ = pad_packed_sequence(out, batch_first=True, total_length=most)
        weight = self.vad.final_conv.weight[:, :, 0]
        speech = functional.linear(functional.relu(out), weight, self.vad.final_conv.bias)
        return torch.sigmoid(speech)[:, :, 0], torch.stack([hidden[0], cell[0]], 1)


_RENAMED = {
    "model.stft.forward_basis_buffer": "stft_conv.weight",
    "model.encoder.0.reparam_conv": "conv1",
    "model.encoder.1.reparam_conv": "conv2",
    "model.encoder.2.reparam_conv": "conv3",
    "model.encoder.3.reparam_conv": "conv4",
    "model.decoder.rnn": "lstm_cell",
    "model.decoder.decoder.2": "final_conv",
}
"""Prefixes of the published graph's initialisers to the names above."""


def path() -> Path:
    """The published ONNX graph, fetched first where it is missing."""
    return member("silero-vad", "silero_vad/data/silero_vad_16k_op15.onnx")


def load_vad() -> SileroVad:
    """Silero VAD with its weights."""
    vad = SileroVad()
    vad.load_state_dict(
        {
            _renamed(tensor.name): torch.from_numpy(numpy_helper.to_array(tensor).copy())
            for tensor in onnx.load(path()).graph.initializer
        }
    )
    return vad.eval()


def _renamed(name: str) -> str:
    for published, ours in _RENAMED.items():
        name = name.replace(published, ours)
    return name


def export_vad(target: Path) -> None:
    """vad/1/model.onnx: one window, whose state the server keeps."""
    names = ["AUDIO", "STATE_IN", "CONTEXT_IN", "SPEECH_PROBABILITY", "STATE_OUT", "CONTEXT_OUT"]
    export_native(
        load_vad(),
        [torch.zeros(2, WINDOW), torch.zeros(2, 2, STATE), torch.zeros(2, CONTEXT)],
        target,
        inputs=names[:3],
        outputs=names[3:],
        dynamic={name: {0: "B"} for name in names},
    )


def export_runs(target: Path) -> None:
    """vad_step/1/model.onnx: windows of many callers, whose state comes along."""
    names = ["AUDIO", "WINDOWS", "STATE_IN", "CONTEXT_IN", "SPEECH_PROBABILITY", "STATE_OUT"]
    export_native(
        SileroVadRuns(load_vad()),
        [
            torch.zeros(2, 3, WINDOW),
            torch.tensor([[3], [2]]),
            torch.zeros(2, 2, STATE),
            torch.zeros(2, CONTEXT),
        ],
        target,
        inputs=names[:4],
        outputs=names[4:],
        dynamic={name: {0: "B"} for name in names}
        | {name: {0: "B", 1: "T"} for name in ("AUDIO", "SPEECH_PROBABILITY")},
    )


TARGETS: dict[tuple[str, str], Callable[[Path], None]] = {
    ("vad", "model.onnx"): export_vad,
    ("vad_step", "model.onnx"): export_runs,
}


def sources() -> list[Path]:
    """The weights files the artefact is made of."""
    return [path()]

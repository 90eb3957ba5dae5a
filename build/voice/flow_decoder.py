"""The flow-matching acoustic decoder: phonemes with prosody to acoustic frames."""

import math
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from build.voice.layers import PHONEMES, ConvNeXtBlock
from python_backends.diffusion_lock.solver import STRIDES
from python_backends.speech import CHANNELS, PITCHES, VOICES

CONDITION: Final = 128
"""Channels of the condition."""

_WIDTH: Final = 192
_BLOCKS: Final = 8
_KERNEL: Final = 7
_PHONEME_BLOCKS: Final = 3
_PHONEME_KERNEL: Final = 5
_TIME_FREQUENCIES: Final = 32

PHONEME_REACH: Final = _PHONEME_BLOCKS * (_PHONEME_KERNEL // 2)
"""Phonemes on either side that influence a phoneme's condition."""


class Condition(nn.Module):
    """What the decoder is to say, frame by frame, by whom, in how long strides; once a piece."""

    def __init__(self) -> None:
        super().__init__()
        self.phoneme = nn.Embedding(PHONEMES, CONDITION)
        self.pitch = nn.Embedding(PITCHES, CONDITION)
        self.blocks = nn.ModuleList(
            ConvNeXtBlock(CONDITION, _PHONEME_KERNEL) for _ in range(_PHONEME_BLOCKS)
        )
        self.position = nn.Linear(3, CONDITION)
        self.voice = _zeroed(len(VOICES))
        self.stride = _zeroed(STRIDES)

    def forward(
        self,
        phoneme: Tensor,
        pitch: Tensor,
        frame_phoneme: Tensor,
        frame_position: Tensor,
        voice: Tensor,
        stride: Tensor,
    ) -> Tensor:
        """The condition of every frame.

        Args:
            phoneme: int64 [B, P], phoneme ids.
            pitch: int64 [B, P], pitch tokens; -1 marks padding.
            frame_phoneme: int64 [B, T], index of each frame's phoneme; anything on padding.
            frame_position: float32 [B, T, 3], see `frames.frame_positions`.
            voice: int64 [B, 1], place in VOICES.
            stride: int64 [B, 1], see `solver.stride`.

        Returns:
            float32 [B, T, CONDITION].
        """
        mask = (pitch >= 0).to(self.position.weight.dtype)[..., None]
        h = self.phoneme(phoneme) + self.pitch(pitch.clamp(min=0))
        for block in self.blocks:
            h = block(h, mask)
        index = frame_phoneme.clamp(min=0).minimum(_last_index(h))[..., None]
        place: Tensor = self.position(frame_position)
        manner: Tensor = self.voice(voice) + self.stride(stride)
        return torch.gather(h, 1, index.expand(-1, -1, CONDITION)) + place + manner


def _zeroed(rows: int) -> nn.Embedding:
    """An embedding that says nothing until it is trained."""
    table = nn.Embedding(rows, CONDITION)
    nn.init.zeros_(table.weight)
    return table


def _last_index(h: Tensor) -> Tensor:
    """The last index of dimension 1, as a tensor: it stays symbolic in an exported graph."""
    return torch.ones_like(h[:1, :, 0], dtype=torch.int64).sum() - 1


class FlowDecoder(nn.Module):
    """The velocity field of optimal-transport conditional flow matching (arXiv:2210.02747).

    Along x_t = (1 - t) * noise + t * speech it estimates speech - noise; integrating from t = 0 to
    1 turns noise into acoustic frames. Convolutions only: a frame sees 24 frames on either side.
    """

    def __init__(self) -> None:
        super().__init__()
        self.condition = Condition()
        self.enter = nn.Linear(CHANNELS + CONDITION, _WIDTH)
        self.time = nn.Sequential(
            nn.Linear(2 * _TIME_FREQUENCIES, _WIDTH), nn.SiLU(), nn.Linear(_WIDTH, _WIDTH)
        )
        self.blocks = nn.ModuleList(
            ConvNeXtBlock(_WIDTH, _KERNEL, modulation=_WIDTH) for _ in range(_BLOCKS)
        )
        self.norm = nn.LayerNorm(_WIDTH)
        self.leave = nn.Linear(_WIDTH, CHANNELS)
        nn.init.zeros_(self.leave.weight)
        nn.init.zeros_(self.leave.bias)

    def forward(self, x: Tensor, time: Tensor, condition: Tensor, length: Tensor) -> Tensor:
        """One evaluation of the velocity.

        Args:
            x: float32 [B, T, CHANNELS], the state.
            time: float32 [B, 1] in [0, 1].
            condition: float32 [B, T, CONDITION].
            length: int64 [B, 1], valid frames of each row; what lies beyond is ignored.

        Returns:
            float32 [B, T, CHANNELS], zero beyond `length`.
        """
        frames = torch.arange(x.shape[1], device=x.device)
        mask = (frames[None] < length).to(x.dtype)[..., None]
        modulation = functional.silu(self.time(_time_features(time)))[:, None]
        h = self.enter(torch.cat([x, condition], -1))
        for block in self.blocks:
            h = block(h, mask, modulation)
        velocity: Tensor = self.leave(self.norm(h))
        return velocity * mask

    @torch.inference_mode()
    def sample(self, noise: Tensor, condition: Tensor, length: Tensor, steps: int) -> Tensor:
        """Integrates from noise [B, T, CHANNELS] to acoustic frames in `steps` Euler steps."""
        x = noise
        for i in range(steps):
            time = torch.full((len(x), 1), i / steps)
            x = x + self(x, time, condition, length) / steps
        return x


def _time_features(time: Tensor) -> Tensor:
    """Sines and cosines [B, 64] of 1000 * time at geometric frequencies, 1 down to 1/1000."""
    exponent = torch.arange(_TIME_FREQUENCIES, device=time.device) / (_TIME_FREQUENCIES - 1)
    angle = 1000 * time * torch.exp(-math.log(1000) * exponent)
    return torch.cat([angle.sin(), angle.cos()], -1)

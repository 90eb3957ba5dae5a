"""The voice in git: `weights/voice/*.safetensors` (fp16) and `speech.json`."""

import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import Final, TypeVar

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from build.fetch import replacing
from build.voice.corpus import Basis, Corpus, Statistics
from build.voice.flow_decoder import FlowDecoder
from build.voice.prosody_lm import ProsodyLM
from build.voice.teacher import head
from build.voice.vocoder import Vocoder, frame_advance

Model = TypeVar("Model", bound=nn.Module)

FOLDER: Final = Path(__file__).parents[2] / "weights" / "voice"
PROSODY: Final = FOLDER / "prosody_lm.safetensors"
FLOW: Final = FOLDER / "flow_decoder.safetensors"
VOCODER: Final = FOLDER / "vocoder.safetensors"
SPEECH: Final = FOLDER / "speech.json"


def load_prosody() -> ProsodyLM:
    """The prosody LM in float32, for inference."""
    return _load(ProsodyLM(), PROSODY)


def load_flow() -> FlowDecoder:
    """The flow decoder in float32, for inference."""
    return _load(FlowDecoder(), FLOW)


def load_vocoder() -> Vocoder:
    """The vocoder in float32, for inference."""
    return _load(Vocoder(), VOCODER)


def load_statistics() -> Statistics:
    """How F0 is normalised and pitch binned."""
    described = json.loads(SPEECH.read_text(encoding="utf-8"))
    return Statistics(**{field.name: described[field.name] for field in fields(Statistics)})


def save(model: nn.Module, path: Path) -> None:
    """Writes a model's weights in float16, atomically."""
    state = {name: tensor.half().contiguous() for name, tensor in model.state_dict().items()}
    with replacing(path) as partial:
        save_file(state, partial)


def save_voice(corpus: Corpus, prosody: ProsodyLM, flow: FlowDecoder) -> None:
    """Writes everything the build needs, so that it never asks the teacher."""
    save(prosody, PROSODY)
    save(flow, FLOW)
    save(folded_vocoder(corpus.basis), VOCODER)
    description = asdict(corpus.statistics) | {"frame_advance": frame_advance()}
    with replacing(SPEECH) as partial:
        partial.write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")


def folded_vocoder(basis: Basis) -> Vocoder:
    """The vocoder whose head takes latents: the teacher's head after the inverse of the basis."""
    weight, bias = head()
    vocoder = Vocoder()
    expand = basis.scale[:, None] * basis.components.T
    vocoder.weight.copy_(torch.from_numpy(expand @ weight))
    vocoder.bias.copy_(torch.from_numpy(basis.mean @ weight + bias))
    return vocoder


def _load(model: Model, path: Path) -> Model:
    state = {name: tensor.float() for name, tensor in load_file(path).items()}
    model.load_state_dict(state)
    return model.eval().requires_grad_(False)

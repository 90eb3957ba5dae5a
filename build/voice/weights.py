"""The voice in git: `weights/voice/*.safetensors` (fp16) and `speech.json`."""

from pathlib import Path
from typing import Final, TypeVar

from safetensors.torch import load_file, save_file
from torch import nn

from build.fetch import replacing
from build.voice.flow_decoder import FlowDecoder
from build.voice.prosody_lm import ProsodyLM
from build.voice.vocoder import Vocoder

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


def save(model: nn.Module, path: Path) -> None:
    """Writes a model's weights in float16, atomically."""
    state = {name: tensor.half().contiguous() for name, tensor in model.state_dict().items()}
    with replacing(path) as partial:
        save_file(state, partial)


def _load(model: Model, path: Path) -> Model:
    state = {name: tensor.float() for name, tensor in load_file(path).items()}
    model.load_state_dict(state)
    return model.eval().requires_grad_(False)

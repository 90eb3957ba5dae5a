"""Low-rank adaptation (Hu et al. 2021) of the linear layers of SmolLM2."""

import math
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional

from build.llama.model import Llama

ADAPTERS = Path(__file__).parents[2] / "weights" / "orders" / "adapters.safetensors"
"""The committed ordering adapters."""

RANK = 16
SCALE = 2.0
"""alpha / rank."""

ADAPTED = ("query", "key", "value", "output", "gate", "up", "down")


class LoraLinear(nn.Module):
    """A frozen linear layer plus a trained low-rank update: x W^T + SCALE (x A^T) B^T."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        scale = 1 / math.sqrt(base.in_features)
        self.down = nn.Parameter(torch.randn(RANK, base.in_features) * scale)
        self.up = nn.Parameter(torch.zeros(base.out_features, RANK))

    def forward(self, x: Tensor) -> Tensor:
        """[..., in] -> [..., out]."""
        update = functional.linear(functional.linear(x, self.down), self.up)
        return functional.linear(x, self.base.weight) + update * SCALE


def attach(model: Llama) -> list[nn.Parameter]:
    """Freeze `model`, put an adapter beside each of its linear layers, and return what trains."""
    model.requires_grad_(False)
    trained: list[nn.Parameter] = []
    for block in model.blocks:
        for name in ADAPTED:
            adapter = LoraLinear(getattr(block, name))
            setattr(block, name, adapter)
            trained += [adapter.down, adapter.up]
    return trained


def adapter_state(model: Llama) -> dict[str, Tensor]:
    """The adapters of an attached model: `blocks.<i>.<layer>.down|up`."""
    return {
        f"blocks.{index}.{name}.{side}": getattr(getattr(block, name), side).detach()
        for index, block in enumerate(model.blocks)
        for name in ADAPTED
        for side in ("down", "up")
    }


def save(state: dict[str, Tensor], path: Path) -> None:
    """Write adapters as fp16 safetensors."""
    save_file({name: weight.half().contiguous() for name, weight in state.items()}, path)
    path.chmod(0o644)


def load(path: Path) -> dict[str, Tensor]:
    """Adapters as fp32."""
    return {name: weight.float() for name, weight in load_file(path).items()}


@torch.no_grad()
def merge(model: Llama, state: dict[str, Tensor]) -> Llama:
    """Add the adapters into the plain linear layers of `model`, in place."""
    for index, block in enumerate(model.blocks):
        for name in ADAPTED:
            key = f"blocks.{index}.{name}"
            layer: nn.Linear = getattr(block, name)
            layer.weight += SCALE * (state[f"{key}.up"] @ state[f"{key}.down"])
    return model

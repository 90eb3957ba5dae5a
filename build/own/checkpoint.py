"""A checkpoint folder as Hugging Face's `save_pretrained` writes it. Nothing of it is executed."""

import json
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError, safe_open
from tokenizers import Tokenizer
from torch import Tensor, nn

from build.errors import CheckpointUnfit

INDEX: Final = "model.safetensors.index.json"
SINGLE: Final = "model.safetensors"
PICKLED: Final = ("pytorch_model.bin", "pytorch_model.bin.index.json")
MOST_TOLD: Final = 6
FLOATS: Final = (torch.float32, torch.float16, torch.bfloat16)


class Checkpoint:
    """`config.json`, weights in one safetensors file or in shards, tokenizer and templates.

    CheckpointUnfit says what is missing or not supported, and what is.
    """

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise CheckpointUnfit(f"{folder} is no folder; give one with config.json in it")
        self.folder = folder
        self.config = self.read("config.json")
        if "quantization_config" in self.config:
            raise CheckpointUnfit(
                f"{folder}: its weights are quantised already; float weights (fp32, fp16, bf16) "
                "are read, and quantised here"
            )

    @property
    def architecture(self) -> str:
        """The class that it was made for: "LlamaForCausalLM"."""
        return next(iter(self.config.get("architectures") or []), "unknown")

    @cached_property
    def generation(self) -> dict[str, Any]:
        """Of generation_config.json; empty where there is none."""
        return self.read("generation_config.json", needed=False)

    @cached_property
    def tokenizer_config(self) -> dict[str, Any]:
        """Of tokenizer_config.json; empty where there is none."""
        return self.read("tokenizer_config.json", needed=False)

    @property
    def tokenizer(self) -> Path:
        """The fast tokenizer's file."""
        path = self.folder / "tokenizer.json"
        if not path.exists():
            raise CheckpointUnfit(
                f"{self.folder} has no tokenizer.json; write one with transformers: "
                "AutoTokenizer.from_pretrained(folder).save_pretrained(folder)"
            )
        return path

    def open_tokenizer(self) -> Tokenizer:
        """The fast tokenizer."""
        path = self.tokenizer
        try:
            return Tokenizer.from_file(str(path))
        except Exception as fault:  # the library raises Exception itself
            raise CheckpointUnfit(f"{path} cannot be read: {fault}") from fault

    @cached_property
    def chat_template(self) -> str:
        """Jinja text: a file of its own, or in tokenizer_config.json."""
        path = self.folder / "chat_template.jinja"
        if path.exists():
            return path.read_text()
        given = self.tokenizer_config.get("chat_template")
        if given is None:
            given = self.read("chat_template.json", needed=False).get("chat_template")
        if isinstance(given, list):  # several, by name
            given = {one["name"]: one["template"] for one in given}.get("default")
        if not given:
            raise CheckpointUnfit(
                f"{self.folder} has no chat template (chat_template.jinja, or chat_template in "
                "tokenizer_config.json): is it a base model? Give one with --template"
            )
        return str(given)

    def special(self, name: str) -> str:
        """The text of a special token: "bos_token"; empty where there is none."""
        found = self.tokenizer_config.get(name) or ""
        return str(found["content"] if isinstance(found, dict) else found)

    def number(self, key: str, default: float | None = None) -> float:
        """A value of config.json."""
        found = self.config.get(key)
        found = default if found is None else found
        if not isinstance(found, int | float):
            raise CheckpointUnfit(f"{self.folder}/config.json: {key} is {found!r}, not a number")
        return found

    def size(self, key: str, default: int | None = None) -> int:
        """A value of config.json that counts something."""
        found = self.number(key, default)
        if found != int(found) or found < 1:
            raise CheckpointUnfit(f"{self.folder}/config.json: {key} is {found!r}, not a count")
        return int(found)

    def read(self, name: str, *, needed: bool = True) -> dict[str, Any]:
        """A JSON object of the folder."""
        path = self.folder / name
        if not path.exists():
            if needed:
                raise CheckpointUnfit(f"{self.folder} has no {name}")
            return {}
        try:
            found = json.loads(path.read_text())
        except (ValueError, UnicodeDecodeError) as fault:
            raise CheckpointUnfit(f"{path} is not JSON: {fault}") from fault
        if not isinstance(found, dict):
            raise CheckpointUnfit(f"{path} is not a JSON object")
        return found

    @cached_property
    def files(self) -> list[Path]:
        """Of the weights."""
        if (self.folder / SINGLE).exists():
            return [self.folder / SINGLE]
        if (self.folder / INDEX).exists():
            shards = self.read(INDEX).get("weight_map", {}).values()
            found = [self.folder / name for name in sorted(set(map(str, shards)))]
            if missing := [path.name for path in found if not path.exists()]:
                raise CheckpointUnfit(f"{self.folder} lacks {', '.join(missing)}, named by {INDEX}")
            if found:
                return found
        if any((self.folder / name).exists() for name in PICKLED):
            raise CheckpointUnfit(
                f"{self.folder} has pickled weights, which may run code when they are read; write "
                "them as safetensors with transformers: save_pretrained(folder)"
            )
        raise CheckpointUnfit(f"{self.folder} has neither {SINGLE} nor {INDEX}")

    def names(self) -> set[str]:
        """Of all tensors."""
        return {name for file in self.files for name in self._names(file)}

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Every tensor by its name, in fp32, one at a time."""
        for file in self.files:
            for name in self._names(file):
                yield name, self._tensor(file, name)

    def _names(self, file: Path) -> list[str]:
        with self._opened(file) as opened:
            return list(opened.keys())

    def _tensor(self, file: Path, name: str) -> Tensor:
        with self._opened(file) as opened:
            found: Tensor = opened.get_tensor(name)
        if found.dtype not in FLOATS:
            raise CheckpointUnfit(
                f"{file}: {name} is {found.dtype}; fp32, fp16 and bf16 are read, and quantised here"
            )
        return found.float()

    def _opened(self, file: Path) -> Any:
        try:
            return safe_open(file, framework="pt")
        except (SafetensorError, OSError) as fault:
            raise CheckpointUnfit(f"{file} is damaged or cut short: {fault}") from fault


def fill(module: nn.Module, state: dict[str, Tensor], folder: Path) -> None:
    """Put weights into a module; CheckpointUnfit names what is missing, unknown or of another
    shape."""
    own = dict(module.state_dict())
    wrong = [f"{name} is missing" for name in own.keys() - state.keys()]
    wrong += [f"{name} is not known" for name in state.keys() - own.keys()]
    wrong += [
        f"{name} is {list(state[name].shape)}, not {list(own[name].shape)}"
        for name in own.keys() & state.keys()
        if own[name].shape != state[name].shape
    ]
    if wrong:
        more = f" and {len(wrong) - MOST_TOLD} more" if len(wrong) > MOST_TOLD else ""
        raise CheckpointUnfit(f"{folder}: {'; '.join(sorted(wrong)[:MOST_TOLD])}{more}")
    module.load_state_dict(state, assign=True)

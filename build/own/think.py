"""A Llama-family checkpoint as the models `think` and `think_step`."""

import json
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer

from build import contract
from build.errors import CheckpointUnfit, ContractBroken
from build.llama.config import LlamaConfig
from build.llama.graph import step_model
from build.llama.model import Llama
from build.optional_head import with_optional_head
from build.own.checkpoint import Checkpoint
from build.own.llama import ends_of, model_of, sizes_of
from build.own.measuring import deviation, engine_bytes
from build.own.placing import Place, mebibytes, save_graph, write_provenance
from build.quantize import int8_weights
from build.sampler import export_sampler
from build.step_graph import FusedKernels
from python_backends.ar_loop.chat import Chat, ChatPrompt
from python_backends.slot_engine.command import RESTART, Command, Prefill
from python_backends.slot_engine.engine import SlotPoolEngine

SYSTEM: Final = (
    "You are talking to somebody on the telephone. Answer in one or two short sentences, in plain "
    "words: what you write is read aloud."
)
PRECISIONS: Final = ("int8", "fp32")
FLOAT_BYTES: Final = 4
SPECIAL_TOKENS: Final = ("bos_token", "eos_token", "unk_token", "pad_token")
QUIET: Final = {"enable_thinking": False}
"""Thoughts that are written down first are read aloud, too, and nobody waits for them."""

CHECKED_TOKENS: Final = 32
WORST: Final = {"int8": 0.15, "fp32": 1e-3}
"""Difference of the logits from those in PyTorch that is let pass: root mean square, in their
standard deviations. Random weights of 0.5 G parameters are 0.05 off in int8."""


@dataclass(frozen=True)
class ThinkOptions:
    """How a checkpoint is to be served."""

    capacity: int = 2048
    """Tokens of a row: prompt and answer."""

    slots: int = 8
    max_new_tokens: int = 128
    precision: str = "int8"
    system: str = SYSTEM
    template: str | None = None
    """A chat template in place of the checkpoint's."""

    def __post_init__(self) -> None:
        if self.max_new_tokens >= self.capacity:
            raise CheckpointUnfit(
                f"an answer of {self.max_new_tokens} tokens leaves no room for a prompt in a row "
                f"of {self.capacity}: lower --max-new-tokens or raise --capacity"
            )


def build_think(
    source: Path, into: Path, options: ThinkOptions, command: str
) -> Iterator[tuple[str, str]]:
    """Make both models in the repository `into`; yields what is being done, and what was found.

    Raises CheckpointUnfit, or ContractBroken where the graph does not compute what PyTorch does;
    what was there before stays until the graph is known to be right.
    """
    checkpoint = Checkpoint(source)
    yield "reading", f"{checkpoint.architecture}, {len(checkpoint.files)} file(s) of weights"
    sizes = sizes_of(checkpoint, options.capacity)
    chat, tokenizer = _chat(checkpoint, options)
    prompt = _prompt(chat, tokenizer, options)
    ends = ends_of(checkpoint)
    model = model_of(checkpoint, sizes)
    yield "exporting", f"{sum(one.numel() for one in model.parameters()) / 1e6:.0f} M parameters"
    think, step = Place(into, "think"), Place(into, "think_step")
    with tempfile.TemporaryDirectory(prefix=".trial-", dir=into) as folder:
        trial = Path(folder)
        export_step(model, trial / "model.onnx", options)
        (trial / "generation.json").write_text(json.dumps({"end": ends}))
        export_sampler(trial / "sampler.onnx")
        yield "checking", f"its first logits beside PyTorch's, {options.precision}"
        off = difference(model, trial, prompt, options)
        if not off <= WORST[options.precision]:
            raise ContractBroken(
                f"{source}: the graph's logits are {off:.3g} standard deviations off PyTorch's; "
                f"{WORST[options.precision]} is let pass"
            )
        weights = engine_bytes(trial, options.capacity)
        step.take(trial)
    think.copy(checkpoint.tokenizer)
    think.write("chat.json", json.dumps(asdict(chat), indent=1))
    shared = _shared(sizes, options, weights)
    own: dict[str, str | int] = {"max_new_tokens": options.max_new_tokens, "prompt": "chat"}
    think.configure(shared | own, {}, command=command, source=source)
    step.configure(shared, {}, command=command, source=source)
    contract.check(step.folder / "config.pbtxt", step.version / "model.onnx")
    facts = {
        "precision": options.precision,
        "logits_off": off,
        "capacity": options.capacity,
        "slots": options.slots,
    }
    used = [checkpoint.folder / "config.json", checkpoint.tokenizer, *checkpoint.files]
    write_provenance(into / "think.json", used, facts)
    yield (
        "done",
        f"logits off by {off:.2g} standard deviations; {shared['bytes_weights']} of weights",
    )


def export_step(model: Llama, target: Path, options: ThinkOptions) -> None:
    """The graph that is served."""
    step = step_model(model, FusedKernels, "S", positions=options.capacity)
    if options.precision == "int8":
        step = int8_weights(step)
    save_graph(with_optional_head(step), target)


def difference(
    model: Llama, folder: Path, prompt: NDArray[np.int64], options: ThinkOptions
) -> float:
    """Between the logits of the graph in `folder` and PyTorch's behind `prompt`: root mean square,
    in standard deviations of the latter; NaN where the graph's are."""
    prompt = prompt[-CHECKED_TOKENS:]
    engine = SlotPoolEngine(folder, slots=1, capacity=options.capacity)
    engine.run(Command(RESTART, prefill=Prefill(0, 0, prompt, is_last=True)))
    found = engine.logits(0)
    with torch.no_grad():
        hidden, _ = model(torch.from_numpy(prompt)[None])
        expected = model.logits(hidden[0, -1]).numpy()
    return deviation(found, expected)


def _chat(checkpoint: Checkpoint, options: ThinkOptions) -> tuple[Chat, Tokenizer]:
    template = options.template or checkpoint.chat_template
    tokens = {name: checkpoint.special(name) for name in SPECIAL_TOKENS}
    return Chat(template, options.system, tokens, dict(QUIET)), checkpoint.open_tokenizer()


def _prompt(chat: Chat, tokenizer: Tokenizer, options: ThinkOptions) -> NDArray[np.int64]:
    """An example; CheckpointUnfit where the server could not make one."""
    room = options.capacity - options.max_new_tokens
    try:
        prompter = ChatPrompt(chat, tokenizer, room)
        return np.array(prompter.tokens([], "What is on the menu today?"), np.int64)
    except ValueError as fault:
        raise CheckpointUnfit(str(fault)) from fault


def _shared(sizes: LlamaConfig, options: ThinkOptions, weights: int) -> dict[str, str | int]:
    """Parameters of both models."""
    token = 2 * sizes.layers * sizes.kv_heads * sizes.head_width * FLOAT_BYTES
    return {
        "slots": options.slots,
        "capacity": options.capacity,
        "bytes_weights": mebibytes(weights),
        "bytes_kv_token": token,
        "bytes_activation": mebibytes(_activation(sizes, options)),
    }


def _activation(sizes: LlamaConfig, options: ThinkOptions) -> int:
    """Logits of every row, and what the widest product of a whole chunk makes."""
    chunk = 64
    widest = max(2 * sizes.hidden, 3 * sizes.heads * sizes.head_width)
    return FLOAT_BYTES * (options.slots * sizes.vocabulary + 4 * chunk * widest)

"""A Whisper checkpoint as the models `asr_encoder`, `encode`, `asr_decode`, `asr_decode_step`."""

import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from build import contract
from build.errors import ContractBroken
from build.lineage import ROOT
from build.own.asr_bytes import Budgets, measured
from build.own.checkpoint import Checkpoint
from build.own.measuring import deviation
from build.own.placing import Place, save_graph, write_provenance
from build.own.whisper import generation_of, models_of, sizes_of
from build.quantize import int8_weights
from build.step_graph import FusedKernels
from build.whisper import graph
from build.whisper.config import WhisperConfig
from build.whisper.model import Decoder, Encoder
from client import audio
from python_backends.encoder_window.mel import log_mel
from python_backends.encoder_window.windows import SHORT_FRAMES
from python_backends.slot_engine.bound import open_session
from python_backends.slot_engine.command import GREEDY, RESTART, Command, Prefill
from python_backends.slot_engine.engine import SlotPoolEngine

SAMPLE: Final = ROOT / "samples" / "order-1.wav"
"""What is heard while the graphs are checked."""

LONGEST_TEXT: Final = 224
"""Tokens of a window: Whisper's own limit."""

SAID: Final = 8
"""Tokens behind the prompt whose logits are checked."""

STATES_OFF: Final = {"int8": 0.25, "fp32": 1e-3}
"""Difference of encoder states from PyTorch's that is let pass: its root mean square, of theirs.
Tiny.en is 0.034 off in int8."""

LOGITS_OFF: Final = {"int8": 0.25, "fp32": 1e-3}
"""Of logits: its root mean square, in standard deviations of PyTorch's. Tiny.en: 0.059."""

TOLD: Final = ("config.json", "generation_config.json", "preprocessor_config.json")
ENCODER, WINDOW, LOOP, STEP = "asr_encoder", "encode", "asr_decode", "asr_decode_step"


@dataclass(frozen=True)
class AsrOptions:
    """How a checkpoint is to be served; `language` None: English."""

    language: str | None = None
    precision: str = "int8"
    slots: int = 8


@dataclass(frozen=True)
class Whisper:
    """A checkpoint that has been read."""

    sizes: WhisperConfig
    generation: dict[str, Any]
    encoder: Encoder
    decoder: Decoder

    @classmethod
    def read(cls, checkpoint: Checkpoint, language: str | None) -> "Whisper":
        """CheckpointUnfit."""
        sizes = sizes_of(checkpoint)
        generation = generation_of(checkpoint, sizes, checkpoint.open_tokenizer(), language)
        return cls(sizes, generation, *models_of(checkpoint, sizes))

    @property
    def max_new_tokens(self) -> int:
        """The last token of a row is never written to it."""
        room = self.sizes.decoder_context - len(self.generation["prompt"]) + 1
        return min(LONGEST_TEXT, room)

    @property
    def millions(self) -> float:
        """Parameters."""
        both = (*self.encoder.parameters(), *self.decoder.parameters())
        return sum(one.numel() for one in both) / 1e6


def build_asr(
    source: Path, into: Path, options: AsrOptions, command: str
) -> Iterator[tuple[str, str]]:
    """Make the four models in the repository `into`; yields what is being done, and what was found.

    Raises CheckpointUnfit, or ContractBroken where a graph does not compute what PyTorch does;
    what was there before stays until the graphs are known to be right.
    """
    checkpoint = Checkpoint(source)
    yield "reading", f"{checkpoint.architecture}, {len(checkpoint.files)} file(s) of weights"
    whisper = Whisper.read(checkpoint, options.language)
    yield "exporting", f"{whisper.millions:.0f} M parameters"
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".trial-", dir=into) as name:
        trial = Path(name)
        export(whisper, trial, options.precision)
        yield "checking", f"its states and logits beside PyTorch's, {options.precision}"
        off = check(whisper, trial, options.precision)
        budgets = measured(whisper.sizes, trial / ENCODER, trial / STEP, options.slots)
        places = {model: Place(into, model) for model in (ENCODER, WINDOW, LOOP, STEP)}
        for model in (ENCODER, STEP):
            places[model].take(trial / model)
    places[LOOP].copy(checkpoint.tokenizer)
    _configure(whisper, places, budgets, options, command=command, source=source)
    for model in (ENCODER, STEP):
        contract.check(places[model].folder / "config.pbtxt", places[model].version / "model.onnx")
    told = [path for name in TOLD if (path := checkpoint.folder / name).exists()]
    used = [*told, checkpoint.tokenizer, *checkpoint.files]
    facts = {"precision": options.precision, "prompt": whisper.generation["prompt"], **off}
    write_provenance(into / "asr.json", used, facts | {"slots": options.slots})
    yield (
        "done",
        f"states off by {off['states_off']:.2g} of their size, logits by {off['logits_off']:.2g} "
        f"standard deviations; {budgets.encoder_weights} and {budgets.step_weights} of weights",
    )


def export(whisper: Whisper, folder: Path, precision: str) -> None:
    """The graphs that are served, and the settings beside them, in `folder`/model."""
    for model in (ENCODER, STEP):
        (folder / model).mkdir()
    in_rows = {
        folder / ENCODER / "model.onnx": partial(graph.export_encoder, whisper.encoder),
        folder / STEP / "admit.onnx": partial(graph.export_admission, whisper.decoder),
    }
    for path, make in in_rows.items():
        exported = graph.in_int8_rows(make) if precision == "int8" else graph.in_memory(make)
        save_graph(exported, path)
    step = graph.step_model(whisper.decoder, FusedKernels)
    save_graph(int8_weights(step) if precision == "int8" else step, folder / STEP / "model.onnx")
    (folder / STEP / "generation.json").write_text(json.dumps(whisper.generation))


def check(whisper: Whisper, folder: Path, precision: str) -> dict[str, float]:
    """How far the graphs in `folder` are off PyTorch. ContractBroken when it is too far."""
    mel = log_mel(audio.read(SAMPLE), SHORT_FRAMES, whisper.sizes.mels)[None]
    with torch.no_grad():
        hidden = whisper.encoder(torch.from_numpy(mel))
    off = {
        "states_off": states_off(folder / ENCODER / "model.onnx", mel, hidden.numpy()),
        "logits_off": logits_off(whisper, folder / STEP, hidden),
    }
    allowed = {"states_off": STATES_OFF[precision], "logits_off": LOGITS_OFF[precision]}
    wrong = [
        f"{key} {off[key]:.3g}, of {allowed[key]}" for key in off if not off[key] <= allowed[key]
    ]
    if wrong:
        hint = "; --precision fp32 quantises nothing" if precision == "int8" else ""
        raise ContractBroken(f"the graphs are too far off PyTorch: {', '.join(wrong)}{hint}")
    return off


def states_off(path: Path, mel: NDArray[np.float32], expected: NDArray[np.float32]) -> float:
    """Root mean square of the difference of HIDDEN, over that of what is expected; NaN if NaN."""
    found = open_session(path, 2).run(["HIDDEN"], {"MEL": mel})[0]
    return float(np.sqrt(np.mean((found - expected) ** 2) / np.mean(expected**2)))


def logits_off(whisper: Whisper, folder: Path, hidden: torch.Tensor) -> float:
    """Between the logits of the graphs in `folder` and PyTorch's behind some tokens: root mean
    square, in standard deviations of the latter; NaN where the graph's are."""
    decoder, rules = whisper.decoder, whisper.generation
    prompt = rules["prompt"]
    limit = min(SAID, whisper.max_new_tokens - 1)
    ids = [*prompt, *decoder.greedy(hidden, prompt, end=rules["end"], limit=limit)]
    with torch.no_grad():
        logits, _ = decoder(torch.tensor([ids]), decoder.empty(1), decoder.cross(hidden))
    engine = SlotPoolEngine(folder, slots=1, capacity=whisper.sizes.decoder_context)
    context = {"HIDDEN": hidden[0].numpy()}
    engine.run(Command(RESTART, prefill=Prefill(0, 0, np.array(ids), True, GREEDY, context)))
    chosen = np.ones(whisper.sizes.vocabulary, np.bool_)
    chosen[[*rules["suppress"], *rules["suppress_first"]]] = False
    expected = logits[0].numpy()[chosen]
    found = engine.logits(0)[chosen]
    return deviation(found, expected)


def _configure(
    whisper: Whisper,
    places: dict[str, Place],
    budgets: Budgets,
    options: AsrOptions,
    *,
    command: str,
    source: Path,
) -> None:
    sizes = whisper.sizes
    rows: dict[str, str | int] = {"slots": options.slots, "capacity": sizes.decoder_context}
    parameters = {
        ENCODER: budgets.encoder,
        WINDOW: {"mels": sizes.mels, "width": sizes.width, **budgets.window},
        LOOP: {**rows, "max_new_tokens": whisper.max_new_tokens, **budgets.loop},
        STEP: rows | budgets.step,
    }
    dims = {
        ENCODER: {"MEL": [sizes.mels, -1], "HIDDEN": [-1, sizes.width]},
        WINDOW: {"HIDDEN": [-1, -1, sizes.width]},
        LOOP: {"HIDDEN": [-1, -1, sizes.width]},
        STEP: {"HIDDEN": [-1, sizes.width]},
    }
    for model, place in places.items():
        place.configure(parameters[model], dims[model], command=command, source=source)

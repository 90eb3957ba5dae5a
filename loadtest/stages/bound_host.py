"""What a served stage takes beyond its graphs, for a lone caller on real weights.

Every stage is called by itself, so that no other one takes its core: encode, asr_decode, think,
prosody, acoustic, vocoder, vad, each with what the one before has answered. A call's time is the
caller's own, from sending to the last answer, gRPC on this machine included (`probe_ms` is a call
that does nothing); inside a turn tensors go from stage to stage without it. What its graphs take
is Triton's own count (compute_infer) where Triton runs them; the engines of asr_decode, think and
prosody run in their loops' processes, and their graphs are run again bare at the same shapes, right
after each call and on whatever core is free, as the call was.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.progress import Progress
from tritonclient.grpc import service_pb2

from client import audio
from deploy.figures import read_metrics, rows
from deploy.launcher import Server
from deploy.repositories import read_models
from deploy.settings import Settings
from loadtest.engine.bare import ROOT
from loadtest.engine.serving import HEARD, calling, think_prompt
from loadtest.stages.bound_graphs import generation, graph_path, steps_of
from loadtest.stages.flow_graphs import REPOSITORY
from python_backends import wire
from python_backends.slot_engine.bound import open_session

Tensors = Mapping[str, NDArray[Any]]
ORDER = ROOT / "samples" / "order-1.wav"
MAX_TOKENS = 24
WARM_UPS = 2
TIMEOUT_S = 60.0
SETTLE_S = 1.2
"""Stages publish their figures twice a second."""

PLACED: Mapping[str, tuple[str, ...]] = {
    "encode": ("asr_encoder",),
    "acoustic": ("acoustic_condition", "acoustic_step"),
    "vocoder": ("vocoder",),
    "vad": ("vad",),
}
"""Stage -> the graphs that Triton runs for it."""

LOOPS = ("asr_decode", "think", "prosody")
STAGES = (*PLACED, *LOOPS)


@dataclass
class Times:
    """ms of each call of a stage, and of its graphs."""

    call_ms: list[float] = field(default_factory=list)
    graph_ms: list[float] = field(default_factory=list)

    @property
    def host_ms(self) -> float:
        """Beyond the graphs, median of the rounds' own. Where these are replayed in this process
        it is no better known than a replay is, and may be less than 0."""
        pairs = zip(self.call_ms, self.graph_ms, strict=True)
        return median(call_ms - graph_ms for call_ms, graph_ms in pairs)

    @property
    def compute_ms(self) -> float:
        """Of the graphs, median."""
        return median(self.graph_ms)


@dataclass(frozen=True)
class Host:
    """Of all stages."""

    stages: Mapping[str, Times]
    probe_ms: float
    """A call that does nothing: what gRPC, Triton and a stub's execute() take."""

    steps: Mapping[str, int]
    """Commands that the engine of a stage runs for a call."""


def host(rounds: int, progress: Progress) -> Host:
    """Call every stage `rounds` times, behind WARM_UPS calls that are not counted."""
    settings = Settings(models=["turn", "vad"], overrides={"think": {"session_bytes": "0"}})
    task = progress.add_task("host", total=WARM_UPS + rounds, told="")
    with Server(settings) as server, calling(server) as stub:
        lone = _Lone(stub)
        before = _commands(server)
        for number in range(WARM_UPS):
            lone.round(number)
            progress.advance(task)
        steps = commands_per_call(before, _commands(server), WARM_UPS)
        lone.times.clear()
        lone.replays = {stage: _replay(stage, steps[stage], lone.phonemes) for stage in LOOPS}
        for number in range(WARM_UPS, WARM_UPS + rounds):
            lone.round(number)
            progress.advance(task)
    stages = {stage: lone.times[stage] for stage in STAGES}
    return Host(stages, median(lone.times["probe"].call_ms), steps)


class _Lone:
    """One caller, one call at a time."""

    def __init__(self, stub: Any) -> None:
        self.times: dict[str, Times] = defaultdict(Times)
        self.phonemes = 1
        self.replays: Mapping[str, Callable[[], object]] = {}
        """Stage -> running the graphs of a call of it, bare."""
        self._stub = stub

    def round(self, number: int) -> None:
        """Each stage once, and a probe."""
        turn = f"host-{number}"
        sound = audio.read(ORDER)[None]
        self._timed(
            "probe", lambda: self._one("encode", {"CONTROL": _text('{"probe": true}')}, turn)
        )
        (states,) = self._timed("encode", lambda: self._one("encode", {"AUDIO": sound}, turn))
        given = {name: states[name] for name in ("HIDDEN", "VALID", "SPAN_MS", "NO_SPEECH")}
        self._timed("asr_decode", lambda: self._one("asr_decode", given, turn))
        heard = {"HEARD": _text(HEARD)}
        said = self._timed("think", lambda: self._stream("think", heard, turn, _GREEDY))
        piece = {name: said[0][name] for name in ("PIECE", "TEXT", "HEARD", "STATUS")}
        (toned,) = self._timed("prosody", lambda: self._one("prosody", piece, turn, **_PLAIN))
        self.phonemes = toned["PROSODY"].shape[1]
        toned = {name: toned[name] for name in (*piece, "PROSODY")}
        chunks = self._timed("acoustic", lambda: self._stream("acoustic", toned, turn))
        names = ("LATENT", "F0", "VOICED", "PHASE", "NOISE", "VOICE")
        chunk = {name: chunks[min(1, len(chunks) - 1)][name] for name in names}
        self._timed("vocoder", lambda: self._one("vocoder", chunk, turn))
        window = {"AUDIO": np.ascontiguousarray(sound[:, :512])}
        place = {"sequence_id": number + 1, "sequence_start": True, "sequence_end": True}
        self._timed("vad", lambda: self._one("vad", window, turn, **place))

    def _timed(self, stage: str, call: Callable[[], list[dict[str, Any]]]) -> list[dict[str, Any]]:
        models = PLACED.get(stage, ())
        before = self._computed_ns(models)
        began = time.perf_counter()
        answered = call()
        self.times[stage].call_ms.append(1e3 * (time.perf_counter() - began))
        if models:
            self.times[stage].graph_ms.append((self._computed_ns(models) - before) / 1e6)
        if stage in self.replays:
            began = time.perf_counter()
            self.replays[stage]()
            self.times[stage].graph_ms.append(1e3 * (time.perf_counter() - began))
        return answered

    def _computed_ns(self, models: Sequence[str]) -> int:
        asked = [self._stub.ModelStatistics(_statistics(model)) for model in models]
        return sum(one.model_stats[0].inference_stats.compute_infer.ns for one in asked)

    def _one(self, model: str, inputs: Tensors, turn: str, **options: Any) -> list[dict[str, Any]]:
        request = wire.to_request(model, inputs, turn=turn, parameters=options)
        return [wire.to_arrays(self._stub.ModelInfer(request, timeout=TIMEOUT_S))]

    def _stream(
        self, model: str, inputs: Tensors, turn: str, options: Mapping[str, Any] = {}
    ) -> list[dict[str, Any]]:
        request = wire.to_request(model, inputs, turn=turn, parameters=options)
        return list(_answers(self._stub.ModelStreamInfer(iter([request]), timeout=TIMEOUT_S)))


_PLAIN = {"speech_temperature": 0.0}
_GREEDY = {"max_tokens": MAX_TOKENS, "temperature": 0.0}


def _answers(messages: Any) -> Iterator[dict[str, Any]]:
    for message in messages:
        if message.error_message:
            raise RuntimeError(message.error_message)
        if outputs := wire.to_arrays(message.infer_response):
            yield outputs
        if wire.is_final(message.infer_response):
            return


def _text(value: str) -> NDArray[np.object_]:
    return np.array([[value.encode()]], np.object_)


def _statistics(model: str) -> Any:
    return service_pb2.ModelStatisticsRequest(name=model)


def _commands(server: Server) -> dict[str, float]:
    """Stage -> commands that its engine has run since it was loaded."""
    time.sleep(SETTLE_S)
    return commands_told(read_metrics(server.metrics_address))


def commands_told(metrics: str) -> dict[str, float]:
    """Stage -> commands that its engine has run, from the text of /metrics."""
    return {row.stage: row.value for row in rows(metrics) if row.name == "tristage_steps_total"}


def commands_per_call(
    before: Mapping[str, float], after: Mapping[str, float], calls: int
) -> dict[str, int]:
    """Of every stage with a loop. ValueError where one has run none: a call takes one at least, and
    without them all of its time would be the host's."""
    found = {
        stage: round((after.get(stage, 0.0) - before.get(stage, 0.0)) / calls) for stage in LOOPS
    }
    silent = [stage for stage, count in found.items() if count < 1]
    if silent:
        raise ValueError(f"no commands were counted in {', '.join(silent)}")
    return found


def _replay(stage: str, commands: int, phonemes: int) -> Callable[[], None]:
    """Running a call's graphs, bare: admission, prompt and `commands` in all; once untimed."""
    model = f"{stage}_step"
    graph = steps_of(model)
    admit = _admission(model, phonemes)
    prompt = prompt_length(stage)
    parameters = read_models([REPOSITORY], {})[stage].parameters
    chunk = int(parameters.get("lone_chunk", parameters["prefill_chunk"]))
    starts = range(0, prompt, chunk)

    def replay() -> None:
        admit()
        if "no_speech" in generation(model):
            graph.chunk(0, 1)
        for start in starts:
            graph.chunk(start, min(chunk, prompt - start), draws=start == starts[-1])
        for step in range(commands - len(starts)):
            graph.step(1, prompt + step)

    replay()
    return replay


def prompt_length(stage: str) -> int:
    """Tokens of the prompt of a call."""
    if stage == "think":
        return len(think_prompt())
    return len(generation(f"{stage}_step").get("prompt", [0]))


def _admission(model: str, phonemes: int) -> Callable[[], object]:
    path = graph_path(model).with_name("admit.onnx")
    if not path.exists():
        return lambda: None
    session = open_session(path, 1)
    feeds: dict[str, NDArray[Any]] = {
        "PHONEMES": np.ones((1, phonemes), np.int64),
        "VOICE": np.zeros((1, 1), np.int64),
    }
    if model == "asr_decode_step":
        feeds = {"HIDDEN": np.zeros((1, steps_of(model).states, 384), np.float32)}
    return lambda: session.run(None, feeds)

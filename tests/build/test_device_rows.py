"""The slot-pool engine on TensorRT contexts says what it says on ONNX Runtime.

The TensorRT is a fake (tests/fake_gpu) that computes the portable graphs at the raw addresses that
it is given, and the device is the CPU: what is proved is addresses, shapes, order and drawing.
"""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from build.onnx_graph import Graph
from build.smollm.export import export_portable
from build.step_graph import PortableKernels, Rotary, StepSizes
from build.tensorrt.half import in_half
from build.tensorrt.profiles import Range, profile
from build.tensorrt.recipes import open_inputs
from python_backends.ar_loop.settings import LoopSettings
from python_backends.errors import InvalidInput, StageFailed
from python_backends.scheduling.continuous import Move
from python_backends.slot_engine.command import (
    GREEDY,
    Command,
    Decode,
    Keep,
    Prefill,
    Restore,
    Result,
    Sampling,
)
from python_backends.slot_engine.device_rows import DeviceRows
from python_backends.slot_engine.engine import SlotPoolEngine
from python_backends.slot_engine.opening import open_engine
from python_backends.slot_engine.settings import EngineSettings
from python_backends.slot_engine.shelf import Shelf
from python_backends.tensorrt.device import Device, Work
from python_backends.tensorrt.errors import EngineUnfit
from tests import fake_engines

REPOSITORY = Path(__file__).parents[2] / "model_repository"
SLOTS, CAPACITY, VOCABULARY = 4, 64, 300
WAYS = (
    GREEDY,
    Sampling(1.0, 11),
    Sampling(2.0, 12, 50, 0.9, 1.3, ((7, 2.0), (8, -100.0))),
    Sampling(0.0, 0, repetition_penalty=1.7),
)


class CountingDevice(Device):
    """The CPU, which counts what a GPU would be asked to do."""

    def __init__(self) -> None:
        super().__init__("cpu")
        self.counts: Counter[str] = Counter()

    def synchronize(self) -> None:
        self.counts["waits"] += 1

    def captured(self, prepare: Work, work: Work) -> Work:
        self.counts["graphs"] += 1
        run = super().captured(prepare, work)

        def replay() -> None:
            self.counts["replays"] += 1
            run()

        return replay


def small_llm(folder: Path, capacity: int = CAPACITY) -> Path:
    """A version folder with a random graph of two layers, built as SmolLM's portable one is."""
    draw = np.random.default_rng(0)
    sizes = StepSizes(layers=2, heads=4, kv_heads=2, head_width=16, capacity=capacity)
    angles = np.arange(capacity)[:, None] / 100.0 ** (np.arange(8) / 8)
    rotary = Rotary(np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32))
    step = PortableKernels("small", sizes, rotary)
    wide = 64

    def weight(rows: int, columns: int) -> Any:
        return (draw.standard_normal((rows, columns)) / columns**0.5).astype(np.float32)

    graph: Graph = step.graph
    x = graph.op("Gather", graph.weight("embedding", weight(VOCABULARY, wide) * 8), "ids")
    for layer in range(2):
        packed = step.linear(x, f"qkv{layer}", weight((4 + 2 * 2) * 16, wide))
        attended = step.linear(step.attend(layer, packed), f"o{layer}", weight(wide, wide))
        x = graph.op("Add", x, attended)
    logits = step.linear(step.last(x), "head", weight(VOCABULARY, wide) * 4)
    graph.op("Identity", logits, out="logits")
    folder.mkdir(parents=True)
    onnx.save(step.finish("logits", VOCABULARY), folder / "model.onnx")
    (folder / "generation.json").write_text(json.dumps({"suppress": [3], "suppress_first": [4]}))
    return folder


def profiles(graph: Path, slots: int, chunk: int) -> list[Any]:
    """Decode and prefill."""
    inputs = open_inputs(graph)
    context = {"C": Range(1, 750, 1500)}
    decode = {"B": Range(1, slots, slots), "T": Range.only(1)} | context
    prefill = {"B": Range(1, 1, slots), "T": Range(1, chunk, chunk)} | context
    return [profile(inputs, lengths) for lengths in (decode, prefill)]


@dataclass(frozen=True)
class Pair:
    """The same commands for both."""

    host: SlotPoolEngine
    gpu: SlotPoolEngine
    device: CountingDevice

    def run(self, number: int, **parts: Any) -> Result:
        """What both answer; it is the same."""
        command = Command(number, **parts)
        expected, found = self.host.run(command), self.gpu.run(command)
        assert numbers(found) == numbers(expected)
        assert found.no_speech == pytest.approx(expected.no_speech, abs=1e-5)
        return found


def numbers(result: Result) -> list[Any]:
    """Tokens, and scores as far as their last bits agree."""
    drawn = [result.prefill, result.decode, *result.joins]
    return [
        None if one is None else (one.tokens.tolist(), np.round(one.scores, 3).tolist())
        for one in drawn
    ]


def pair(
    folder: Path, graph: str, *, slots: int = SLOTS, capacity: int = CAPACITY, chunk: int = 32
) -> Pair:
    """A version folder's graph on ONNX Runtime, and as an engine on a device that counts."""
    fake_engines.write(folder, folder / graph, profiles(folder / graph, slots, chunk))
    settings = EngineSettings(slots, capacity, runtime="tensorrt", device="cpu")
    host = SlotPoolEngine(folder, slots=slots, capacity=capacity, graph=graph)
    fake_engines.fake().CALLS.clear()
    device = CountingDevice()
    return Pair(host, open_engine(folder, settings, chunk=chunk, device=lambda _: device), device)


@pytest.fixture
def llm(tmp_path: Path) -> Pair:
    return pair(small_llm(tmp_path / "small_step" / "1"), "model.onnx")


def prompt(seed: int, count: int) -> Any:
    return np.random.default_rng(seed).integers(5, VOCABULARY, count)


def token(result: Result) -> int:
    assert result.prefill is not None
    return int(result.prefill.tokens[0, 0])


def test_rows_that_join_move_and_leave_say_the_same(llm: Pair) -> None:
    """Random commands: whole prompts and chunks, joins, moves, every way of drawing."""
    draw = np.random.default_rng(1)
    rows: list[tuple[int, int, Sampling]] = []
    sampled = 0
    for number in range(120):
        parts: dict[str, Any] = {}
        if len(rows) > 1 and draw.random() < 0.2:
            gone = int(draw.integers(len(rows) - 1))
            parts["moves"] = (Move(len(rows) - 1, gone, rows[-1][1]),)
            rows[gone] = rows.pop()
        full = [row for row in rows if row[1] >= CAPACITY - 1]
        if full:
            rows = []
        before, fresh = list(rows), []
        while len(rows) + len(fresh) < SLOTS and draw.random() < 0.4:
            how = WAYS[int(draw.integers(len(WAYS)))]
            ids = prompt(number, int(draw.integers(2, 20)))
            fresh.append(Prefill(len(rows) + len(fresh), 0, ids, True, how))
        if fresh:
            parts["prefill"], parts["joins"] = fresh[0], tuple(fresh[1:])
        if before:
            last, starts, ways = zip(*before, strict=True)
            parts["decode"] = Decode(np.array(last), np.array(starts), ways)
        result = llm.run(number, **parts)
        if result.decode is not None:
            drawn = result.decode.tokens[:, 0].tolist()
            rows = [(t, s + 1, w) for t, (_, s, w) in zip(drawn, before, strict=True)]
            sampled += len(drawn)
        firsts = [one for one in (result.prefill, *result.joins) if one is not None]
        for part, one in zip(fresh, firsts, strict=True):
            rows.append((int(one.tokens[0, 0]), len(part.tokens), part.sampling))
    assert sampled > 150


def test_a_prompt_in_chunks_and_a_restored_one_say_the_same(llm: Pair) -> None:
    ids = prompt(0, 30)
    how = WAYS[2]
    llm.run(0, prefill=Prefill(0, 0, ids[:16], False, how))
    whole = llm.run(1, prefill=Prefill(0, 16, ids[16:], True, how))
    keep = Keep(77, 0, 20)
    again = Prefill(1, 20, ids[20:], True, how, restore=Restore(77, 20))
    assert token(llm.run(2, keeps=(keep,), prefill=again)) == token(whole)
    llm.run(3, drops=(77,))
    with pytest.raises(StageFailed, match="nothing is set aside under 77"):
        llm.gpu.run(Command(4, prefill=again))


def test_what_one_engine_set_aside_another_restores(tmp_path: Path) -> None:
    folder = small_llm(tmp_path / "small_step" / "1")
    fake_engines.write(folder, folder / "model.onnx", profiles(folder / "model.onnx", SLOTS, 32))
    shelf, settings = Shelf(), EngineSettings(SLOTS, CAPACITY, runtime="tensorrt", device="cpu")
    first, second = (open_engine(folder, settings, shelf=shelf) for _ in range(2))
    ids = prompt(3, 20)
    expected = first.run(Command(0, prefill=Prefill(2, 0, ids, True)))
    first.run(Command(1, keeps=(Keep(5, 2, 12),)))
    part = Prefill(0, 12, ids[12:], True, restore=Restore(5, 12))
    assert token(second.run(Command(0, prefill=part))) == token(expected)


def test_a_decode_step_is_one_graph_and_a_command_waits_once(
    llm: Pair,
) -> None:
    """One graph for each number of rows, with and without sampling."""
    one, calls = llm.device, fake_engines.fake().CALLS
    assert one.counts["graphs"] == 2 * SLOTS
    parts = [Prefill(row, 0, prompt(row, 9), True) for row in range(3)]
    llm.run(0, prefill=parts[0], joins=tuple(parts[1:]))
    one.counts.clear()
    calls.clear()
    step = Decode(np.array([5, 6, 7]), np.array([9, 9, 9]), (GREEDY,) * 3)
    for number in range(1, 6):
        llm.run(number, decode=step)
    assert one.counts == {"replays": 5, "waits": 5}
    assert calls["execute_async_v3"] == 5
    assert calls["set_tensor_address"] == 0
    llm.run(6, prefill=Prefill(3, 0, prompt(9, 9), True), decode=step)
    assert one.counts == {"replays": 6, "waits": 6}
    assert calls["execute_async_v3"] == 7


def test_past_and_present_are_one_address(llm: Pair) -> None:
    """The fake refuses anything else: this is seen to be so."""
    rows = llm.gpu.rows
    assert isinstance(rows, DeviceRows)
    rows._contexts[0]._context._addresses["ko0"] += 256
    step = Decode(np.array([5]), np.array([9]), (GREEDY,))
    with pytest.raises(StageFailed, match="the engine failed"):
        llm.gpu.run(Command(0, decode=step))


def test_a_row_that_became_non_finite_is_marked_and_scrubbed(llm: Pair) -> None:
    ids = prompt(4, 10)
    said = token(llm.run(0, prefill=Prefill(0, 0, ids, True)))
    llm.run(1, prefill=Prefill(1, 0, ids, True))
    llm.gpu.pools.kv["v0"][0, :, :10] = float("nan")
    step = Decode(np.array([said] * 2), np.array([10] * 2), (GREEDY,) * 2)
    result = llm.gpu.run(Command(2, decode=step))
    assert result.decode is not None
    assert result.decode.tokens[0, 0] == -1
    assert result.decode.tokens[1, 0] >= 0
    assert bool(np.isfinite(llm.gpu.pools.kv["v0"].numpy()).all())
    llm.host.run(Command(2))
    assert token(llm.run(3, prefill=Prefill(0, 0, ids, True))) == said


def test_pools_are_as_large_and_commands_as_strict(llm: Pair) -> None:
    assert llm.gpu.pools.nbytes == llm.host.pools.nbytes
    assert llm.gpu.pools.token_bytes == llm.host.pools.token_bytes
    with pytest.raises(StageFailed, match="came where 0 was due"):
        llm.gpu.run(Command(5))
    long = Prefill(0, 0, prompt(0, 33), True)
    with pytest.raises(InvalidInput, match="a chunk of 33 tokens; at most 32 are accepted"):
        llm.gpu.run(Command(0, prefill=long))
    many = Sampling(bias=tuple((at, 1.0) for at in range(65)))
    with pytest.raises(InvalidInput, match="65 biases"):
        llm.gpu.run(Command(0, prefill=Prefill(0, 0, prompt(0, 3), True, many)))
    llm.run(0, prefill=Prefill(0, 0, prompt(0, 3), True))
    np.testing.assert_allclose(llm.gpu.logits(0), llm.host.logits(0), atol=1e-5)


def test_pools_in_half_precision_are_half_as_large_and_nearly_as_exact(tmp_path: Path) -> None:
    """As the engines of think_step and asr_decode_step have them; moved, set aside and restored."""
    folder = small_llm(tmp_path / "small_step" / "1")
    onnx.save(in_half(folder / "model.onnx"), folder / "half.onnx")
    host = SlotPoolEngine(folder, slots=SLOTS, capacity=CAPACITY)
    gpu = pair(folder, "half.onnx").gpu
    assert 2 * gpu.pools.nbytes == host.pools.nbytes
    assert 2 * gpu.pools.token_bytes == host.pools.token_bytes
    ids = prompt(5, 30)
    restored = Prefill(2, 20, ids[20:], True, restore=Restore(9, 20))
    step = Decode(np.array([7]), np.array([30]), (GREEDY,))
    commands = (
        Command(0, prefill=Prefill(1, 0, ids, True)),
        Command(1, keeps=(Keep(9, 1, 25),), prefill=restored),
        Command(2, moves=(Move(2, 0, 30),), decode=step),
    )
    for command, row in zip(commands, (1, 2, 0), strict=True):
        for engine in (host, gpu):
            engine.run(command)
        shown = np.isfinite(host.logits(row))
        expected, found = host.logits(row)[shown], gpu.logits(row)[shown]
        assert np.abs(found - expected).max() < 0.01 * np.abs(expected).max()


@pytest.fixture
def whisper(tmp_path: Path) -> Pair:
    source = REPOSITORY / "asr_decode_step" / "1"
    folder = fake_engines.beside_links(source, tmp_path / "asr_decode_step" / "1")
    return pair(folder, "portable.onnx", slots=3, capacity=448, chunk=16)


def sound(states: int) -> dict[str, Any]:
    draw = np.random.default_rng(states)
    return {"HIDDEN": draw.standard_normal((states, 384)).astype(np.float32)}


def test_whisper_hears_the_same_in_narrow_and_in_wide_pools(whisper: Pair) -> None:
    """Scores, silence, first tokens that are suppressed, and rows that are widened and moved."""
    told = json.loads((REPOSITORY / "asr_decode_step/1/generation.json").read_text())
    ids = np.array(told["prompt"])
    rows: list[int] = []
    for row, states in enumerate((100, 700, 1000)):
        part = Prefill(row, 0, ids, True, GREEDY, sound(states))
        step = None
        if rows:
            starts = np.full(len(rows), len(ids) + row - 1)
            step = Decode(np.array(rows), starts, (GREEDY,) * len(rows))
        result = whisper.run(row, prefill=part, decode=step)
        if result.decode is not None:
            rows = result.decode.tokens[:, 0].tolist()
        rows.append(token(result))
    widths = [whisper.gpu.pools.context.width_of(0, count) for count in (2, 3)]
    assert widths == [750, 1500]
    moves = (Move(2, 0, len(ids)),)
    step = Decode(np.array([rows[2]]), np.array([len(ids)]), (GREEDY,))
    whisper.run(3, moves=moves, decode=step)


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_prosody_draws_the_same_inside_its_graph(tmp_path: Path, temperature: float) -> None:
    source = REPOSITORY / "prosody_step" / "1"
    folder = fake_engines.beside_links(source, tmp_path / "prosody_step" / "1")
    both = pair(folder, "portable.onnx", slots=3, capacity=512, chunk=16)
    ways = [Sampling(temperature, seed) for seed in range(3)]

    def part(row: int) -> Prefill:
        context = {"PHONEMES": np.arange(3, 20 + row), "VOICE": np.zeros(1, np.int64)}
        return Prefill(row, 0, np.zeros((1, 2), np.int64), True, ways[row], context)

    result = both.run(0, prefill=part(0), joins=(part(1), part(2)))
    assert result.prefill is not None
    last = np.concatenate([one.tokens for one in (result.prefill, *result.joins)])
    for number in range(1, 8):
        step = Decode(last, np.full(3, number), tuple(ways))
        decoded = both.run(number, decode=step).decode
        assert decoded is not None
        last = decoded.tokens


@pytest.mark.parametrize(
    ("slots", "chunk", "said"),
    [
        (5, 32, "built for 1 to 4 rows, and there are 5 slots"),
        (4, 64, "built for chunks of 32, 64 are configured"),
    ],
)
def test_an_engine_for_other_sizes_is_refused(
    tmp_path: Path, slots: int, chunk: int, said: str
) -> None:
    folder = small_llm(tmp_path / "small_step" / "1")
    fake_engines.write(folder, folder / "model.onnx", profiles(folder / "model.onnx", SLOTS, 32))
    settings = EngineSettings(slots, CAPACITY, runtime="tensorrt", device="cpu")
    with pytest.raises(EngineUnfit) as refused:
        open_engine(folder, settings, chunk=chunk)
    assert said in str(refused.value)
    assert str(refused.value).endswith("run: python -m build tensorrt small_step")


def test_a_capacity_whose_rows_tensorrt_could_not_address_is_refused(tmp_path: Path) -> None:
    folder = small_llm(tmp_path / "small_step" / "1", 65)
    with pytest.raises(EngineUnfit, match="a row of k0 takes 8320 bytes, no multiple of 256"):
        pair(folder, "model.onnx", capacity=65)


def test_an_engine_with_one_profile_is_refused(tmp_path: Path) -> None:
    folder = small_llm(tmp_path / "small_step" / "1")
    graph = folder / "model.onnx"
    fake_engines.write(folder, graph, profiles(graph, SLOTS, 32)[:1])
    settings = EngineSettings(SLOTS, CAPACITY, runtime="tensorrt", device="cpu")
    with pytest.raises(EngineUnfit, match="1 profiles; decode and prefill are needed"):
        open_engine(folder, settings)


@pytest.mark.full
def test_smollm_says_the_same(tmp_path: Path) -> None:
    """In fp32: prompts that join, one greedy and one sampled."""
    source, copy = REPOSITORY / "think_step" / "1", tmp_path / "think_step" / "1"
    folder = fake_engines.beside_links(source, copy)
    if not (folder / "portable.onnx").exists():
        export_portable(folder / "portable.onnx")
    both = pair(folder, "portable.onnx", slots=2, capacity=768, chunk=64)
    ways = (GREEDY, Sampling(1.0, 5, 40, 0.95, 1.2))
    lengths = (40, 64)
    parts = [
        Prefill(row, 0, np.random.default_rng(row).integers(100, 40_000, count), True, ways[row])
        for row, count in enumerate(lengths)
    ]
    result = both.run(0, prefill=parts[0], joins=(parts[1],))
    last = np.array([token(result), int(result.joins[0].tokens[0, 0])])
    for number in range(12):
        step = Decode(last, np.array(lengths) + number, ways)
        decoded = both.run(number + 1, decode=step).decode
        assert decoded is not None
        last = decoded.tokens[:, 0]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"runtime": "cuda"}, "runtime 'cuda'; .'onnxruntime', 'tensorrt'. are known"),
        ({"runtime": "tensorrt", "engine": "bls"}, "runtime is of engine in_process"),
    ],
)
def test_a_runtime_that_is_not_known_or_not_the_loop_s_is_refused(
    given: dict[str, Any], said: str
) -> None:
    loop: dict[str, Any] = {"task": "converse", "step_model": "x_step", "engine": "in_process"}
    sizes = {"slots": 1, "capacity": 8, "prefill_chunk": 1, "max_new_tokens": 1, "max_waiting": 1}
    with pytest.raises(ValueError, match=said):
        LoopSettings(**(loop | sizes | given))

"""Whisper's graphs in the model repository against the PyTorch modules they come from."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from tokenizers import Tokenizer

from build.errors import WeightsInvalid
from build.whisper import weights
from build.whisper.model import Decoder, Encoder
from build.whisper.weights import load_decoder, load_encoder
from python_backends.ar_loop.tasks.repetition import Said
from python_backends.encoder_window.mel import log_mel
from python_backends.errors import InvalidInput
from python_backends.scheduling.continuous import Move
from python_backends.slot_engine.command import GREEDY, Command, Decode, Prefill
from python_backends.slot_engine.engine import SlotPoolEngine
from tests.build.greedy import REPOSITORY, Context, Stepper, open_graph

SAMPLES = Path(__file__).parents[2] / "samples"
FRAMES = 1500
WIDTHS = [750, 1500]
PROMPT = [50257, 50362]
END = 50256
NO_SPEECH = 50361
CAPACITY = 448
IN_INT8 = 0.05
"""Of the size of values, their mean error by products in int8."""


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return load_encoder()


@pytest.fixture(scope="module")
def decoder() -> Decoder:
    return load_decoder()


@pytest.fixture(scope="module")
def hidden(encoder: Encoder) -> torch.Tensor:
    """States [3, 750, 384] of three spoken orders."""
    sounds = [soundfile.read(SAMPLES / f"order-{n}.wav", dtype="float32")[0] for n in (1, 2, 4)]
    mel = np.stack([log_mel(sound, FRAMES) for sound in sounds])
    with torch.no_grad():
        states: torch.Tensor = encoder(torch.from_numpy(mel))
    return states


@pytest.fixture(scope="module")
def long_hidden(encoder: Encoder) -> torch.Tensor:
    """States [1500, 384] of an order in a window of 30 s."""
    sound = soundfile.read(SAMPLES / "order-5.wav", dtype="float32")[0]
    with torch.no_grad():
        states: torch.Tensor = encoder(torch.from_numpy(log_mel(sound, 3000)[None]))
    return states[0]


@pytest.fixture(scope="module")
def alone(decoder: Decoder, hidden: torch.Tensor, long_hidden: torch.Tensor) -> list[list[int]]:
    """What torch says to each of the three, and to the long one."""
    return [decoder.greedy(one[None], PROMPT, end=END) for one in (*hidden, long_hidden)]


@pytest.fixture(scope="module", params=WIDTHS)
def cross(hidden: torch.Tensor, request: pytest.FixtureRequest) -> Context:
    """Cross pools of those orders, filled by admit.onnx; stale values beyond the valid states."""
    width: int = request.param
    admit = open_graph(REPOSITORY / "asr_decode_step/1/admit.onnx")
    names = [node.name for node in admit.get_outputs()]
    filled = dict(zip(names, admit.run(names, {"HIDDEN": hidden.numpy()}), strict=True))
    count, length = hidden.shape[:2]
    pools = {name: np.full((count, 6, width, 64), 3.0, np.float32) for name in names}
    for name, pool in pools.items():
        pool[:, :, :length] = filled[name]
    return pools | {"clen": np.full(count, length, np.int64)}


@pytest.mark.parametrize(
    ("batch", "frames"),
    [
        *((1, 1), (1, 2), (1, 3), (2, 30), (2, 31), (8, 50), (1, 1499), (3, 1500)),
        pytest.param(1, 3000, marks=pytest.mark.full),
    ],
)
def test_the_encoder_graph_gives_the_states_of_the_module(
    encoder: Encoder, batch: int, frames: int
) -> None:
    """Public cases B6, I2, J6 and J8: half as many states as frames, rounded up."""
    mel = np.random.default_rng(0).standard_normal((batch, 80, frames)).astype(np.float32)
    graph = open_graph(REPOSITORY / "asr_encoder/1/portable.onnx")
    (states,) = graph.run(["HIDDEN"], {"MEL": mel})
    with torch.no_grad():
        expected = encoder(torch.from_numpy(mel)).numpy()
    assert states.shape == (batch, -(-frames // 2), 384)
    np.testing.assert_allclose(states, expected, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("graph_name", ["model.onnx", "portable.onnx"])
def test_a_window_has_the_same_states_among_eight_as_alone(graph_name: str) -> None:
    """Public case C16: to the last bit in a batch of one, within float32's rounding in company."""
    mel = np.random.default_rng(1).standard_normal((8, 80, 200)).astype(np.float32)
    graph = open_graph(REPOSITORY / "asr_encoder/1" / graph_name)

    def states(rows: Any) -> Any:
        return graph.run(["HIDDEN"], {"MEL": rows})[0]

    together = states(mel)
    for row in range(8):
        alone = states(mel[row : row + 1])
        np.testing.assert_array_equal(alone, states(mel[row : row + 1]))
        np.testing.assert_allclose(together[row], alone[0], atol=2e-4, rtol=1e-4)


def test_admission_gives_the_cross_keys_and_values_of_every_layer(
    decoder: Decoder, hidden: torch.Tensor, cross: Context
) -> None:
    with torch.no_grad():
        expected = decoder.cross(hidden)
    for layer, pair in enumerate(expected):
        for side, values in zip("kv", pair, strict=True):
            found = cross[f"c{side}{layer}"][:, :, : hidden.shape[1]]
            wrong = np.sqrt(np.mean((found - values.numpy()) ** 2))
            assert wrong < IN_INT8 * np.sqrt(np.mean(values.numpy() ** 2)), f"{side}{layer}"


@pytest.mark.parametrize("chunk", [1, 2])
@pytest.mark.parametrize("graph", ["portable.onnx", "model.onnx"])
def test_three_orders_decode_together_to_the_tokens_torch_gives_each_alone(
    graph: str, chunk: int, alone: list[list[int]], cross: Context
) -> None:
    path = REPOSITORY / "asr_decode_step/1" / graph
    stepper = Stepper(path, rows=3, capacity=CAPACITY, context=cross)
    assert stepper.greedy([PROMPT] * 3, end=END, limit=60, chunk=chunk) == alone[:3]
    text = Tokenizer.from_file(str(REPOSITORY / "asr_decode/1/tokenizer.json")).decode(alone[0])
    assert "two cheeseburgers and a large" in text.lower().replace("2", "two")


def admitted(row: int, states: torch.Tensor) -> Prefill:
    """The prompt of a window whose encoder states [F, 384] are given."""
    context = {"HIDDEN": states.numpy()}
    return Prefill(row, 0, np.array(PROMPT, np.int64), True, GREEDY, context)


class Rows:
    """An engine of four rows that are decoded together, greedily."""

    def __init__(self, graph: str) -> None:
        folder = REPOSITORY / "asr_decode_step/1"
        self.engine = SlotPoolEngine(folder, slots=4, capacity=CAPACITY, graph=graph)
        self.said: list[list[int]] = []
        self.number = 0

    def join(self, states: torch.Tensor) -> None:
        """One more row; its first token is drawn."""
        result = self._run(prefill=admitted(len(self.said), states))
        self.said.append([int(result[0][0, 0])])

    def leave(self, row: int) -> list[int]:
        """Give up a row, and move the last one into it; what it has said."""
        last, said = len(self.said) - 1, self.said[row]
        moves = (Move(last, row, self._length(last)),) if row < last else ()
        self.said[row] = self.said[last]
        self.said.pop()
        self._run(moves=moves)
        return said

    def step(self, count: int) -> int:
        """So many more tokens of every row; the width of the cross pools they were drawn in."""
        for _ in range(count):
            last = np.array([tokens[-1] for tokens in self.said], np.int64)
            starts = np.array([self._length(row) for row in range(len(last))], np.int64)
            drawn = self._run(decode=Decode(last, starts, (GREEDY,) * len(self.said)))[1]
            for tokens, token in zip(self.said, drawn[:, 0].tolist(), strict=True):
                tokens.append(token)
        return self.engine.pools.context.width_of(0, len(self.said))

    def _length(self, row: int) -> int:
        """Tokens written: the last one drawn is not."""
        return len(PROMPT) + len(self.said[row]) - 1

    def _run(self, **parts: Any) -> tuple[Any, Any]:
        result = self.engine.run(Command(self.number, **parts))
        self.number += 1
        return tuple(one and one.tokens for one in (result.prefill, result.decode))


@pytest.mark.parametrize("graph", ["portable.onnx", "model.onnx"])
def test_short_windows_say_the_same_before_beside_and_after_a_long_one(
    graph: str, alone: list[list[int]], hidden: torch.Tensor, long_hidden: torch.Tensor
) -> None:
    """They are decoded in the narrow pools, in the wide ones, are moved, and widened once more.

    Public case C4: whole token sequences, not only their ends.
    """
    rows = Rows(graph)
    for states in hidden:
        rows.join(states)
    widths = [rows.step(1)]
    rows.join(long_hidden)
    widths.append(rows.step(1))
    first = rows.leave(0)
    widths.append(rows.step(1))
    long = rows.leave(0)
    widths.append(rows.step(1))
    rows.join(long_hidden)
    widths.append(rows.step(20))
    assert widths == [750, 1500, 1500, 750, 1500]
    for tokens, one in zip([first, long, *rows.said], (0, 3, 2, 1, 3), strict=True):
        expected = [*alone[one], END]
        found = tokens[: tokens.index(END) + 1] if END in tokens else tokens
        assert found == expected[: len(found)]
    assert all(END in tokens for tokens in rows.said)


def test_a_wide_pool_is_for_states_that_the_narrow_one_cannot_hold(
    hidden: torch.Tensor, long_hidden: torch.Tensor
) -> None:
    rows = Rows("model.onnx")
    pools = rows.engine.pools.context
    rows.join(hidden[0])
    rows.join(long_hidden[:751])
    assert [pools.width_of(row, 1) for row in (0, 1)] == WIDTHS
    assert pools.width_of(0, 2) == 1500
    rows.join(hidden[1, :1])
    assert pools.width_of(2, 1) == 750
    with pytest.raises(InvalidInput, match="context of length 1501; at most 1500 fits"):
        rows.join(torch.zeros(1501, 384))


def test_silence_is_told_where_whisper_tells_it(
    encoder: Encoder, decoder: Decoder, hidden: torch.Tensor
) -> None:
    """Behind the first token of the prompt, which is <|startoftranscript|>."""
    noise = 1e-3 * np.random.default_rng(0).standard_normal(6 * 16_000).astype(np.float32)
    with torch.no_grad():
        of_noise = encoder(torch.from_numpy(log_mel(noise, FRAMES)[None]))
        found, expected = [], []
        for states in (hidden[:1], of_noise):
            logits, _ = decoder(torch.tensor([PROMPT[:1]]), decoder.empty(1), decoder.cross(states))
            expected.append(float(logits[0].softmax(0)[NO_SPEECH]))
            command = Command(0, prefill=admitted(0, states[0]))
            found.append(Rows("model.onnx").engine.run(command).no_speech)
    assert found == pytest.approx(expected, abs=0.02)
    assert found[0] < 0.1
    assert found[1] > 0.9


def test_a_row_is_filled_to_its_last_position_and_no_further(hidden: torch.Tensor) -> None:
    """Public case B9: Whisper has 448; one more would be looked up beside its table."""
    engine = Rows("model.onnx").engine
    whole = np.array(PROMPT + [400] * (CAPACITY - 3), np.int64)
    context = {"HIDDEN": hidden[0].numpy()}
    engine.run(Command(0, prefill=Prefill(0, 0, whole, True, GREEDY, context)))
    last = Decode(np.array([400]), np.array([CAPACITY - 1]), (GREEDY,))
    result = engine.run(Command(1, decode=last))
    assert result.decode is not None
    assert result.decode.tokens[0, 0] >= 0
    beyond = Decode(np.array([400]), np.array([CAPACITY]), (GREEDY,))
    with pytest.raises(InvalidInput, match="tokens 448 to 449"):
        engine.run(Command(2, decode=beyond))


def test_more_positions_than_whisper_has_are_refused_at_load() -> None:
    with pytest.raises(ValueError, match="capacity 449, but the graph has room for 448"):
        SlotPoolEngine(REPOSITORY / "asr_decode_step/1", slots=1, capacity=CAPACITY + 1)


@pytest.mark.parametrize(
    "heard",
    [
        " No, no, no, no, no, no, no. I said no.",
        " Ha ha ha ha ha ha ha ha ha ha ha ha, that is a good one.",
        " My number is 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8.",
        " It is 5555555555 or 000-000-0000 or 7 7 7 7 7 7 7 7 7 7.",
        " Can you hear me? Can you hear me? Can you hear me? Hello?",
        " Testing, one, two, three. Testing, one, two, three. Testing, one, two, three.",
    ],
)
def test_what_people_do_repeat_is_no_loop(heard: str) -> None:
    tokenizer = Tokenizer.from_file(str(REPOSITORY / "asr_decode/1/tokenizer.json"))
    said = Said()
    for token in tokenizer.encode(heard, add_special_tokens=False).ids:
        said.add(token)
        assert not said.period


def test_a_window_in_which_whisper_loops_is_cut_to_one_round(encoder: Encoder) -> None:
    """Public case B1: three seconds without the padding that shows Whisper the end."""
    sound = soundfile.read(SAMPLES / "order-4.wav", dtype="float32")[0]
    with torch.no_grad():
        states = encoder(torch.from_numpy(log_mel(sound[: 300 * 160], 300)[None]))[0]
    rows, said = Rows("model.onnx"), Said()
    rows.join(states)
    while not said.period:
        said.add(rows.said[0][-1])
        rows.step(1)
        assert len(said.tokens) < 60
    tokenizer = Tokenizer.from_file(str(REPOSITORY / "asr_decode/1/tokenizer.json"))
    assert tokenizer.decode(said.once) == " Make that a small coffee instead."


@pytest.mark.parametrize("phrase", [" you", " Thank you.", " I'm going to go to the store."])
def test_what_whisper_repeats_is_cut_to_one_round(phrase: str) -> None:
    tokenizer = Tokenizer.from_file(str(REPOSITORY / "asr_decode/1/tokenizer.json"))
    said = Said()
    for token in tokenizer.encode(" Hello" + phrase * 60, add_special_tokens=False).ids:
        said.add(token)
        if said.period:
            break
    assert tokenizer.decode(said.once) == " Hello" + phrase
    assert len(said.tokens) < 50


def test_generation_settings_name_the_tokens_of_the_tokenizer() -> None:
    """Public case B7."""
    settings = weights.generation()
    assert settings["prompt"] == PROMPT
    assert settings["end"] == END
    assert settings["no_speech"] == NO_SPEECH


def test_a_cut_or_lengthened_weights_file_is_refused(tmp_path: Path) -> None:
    whole = weights.path().read_bytes()
    broken = tmp_path / "model.bin"
    for content in (whole[:1000], whole + b"x", b"\x01" + whole[1:]):
        broken.write_bytes(content)
        with pytest.raises(WeightsInvalid):
            weights.read_ctranslate2(broken)

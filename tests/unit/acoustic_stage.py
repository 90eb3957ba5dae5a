"""The model `acoustic` between a fake flow decoder and the fake stub, for the tests beside this."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from python_backends.diffusion_lock.model import TritonPythonModel
from python_backends.diffusion_lock.sharing import MODES
from tests.fakes import (
    MODELS,
    WAIT_S,
    InferenceRequest,
    InferenceResponse,
    InferenceResponseSender,
    answer,
    arriving,
    model_args,
    refusal,
    text,
)

PARAMETERS = {
    "condition_model": "acoustic_condition",
    "step_model": "acoustic_step",
    "steps": "4",
    "solver": "euler",
    "max_batch": "8",
    "max_frames": "1600",
    "max_waiting": "12",
    "hold_s": "0.05",
}
SPEECH = {
    "frame_advance": [37.5, 225.0, 37.5],
    "voices": {
        "alto": {"log_f0_mean": 5.2, "log_f0_std": 0.2},
        "baritone": {"log_f0_mean": 4.7, "log_f0_std": 0.1},
    },
}
LAST = 2
NAN_PHONEME, DEAF_PHONEME, REFUSED_PHONEME = 101, 102, 103


class FakeFlow:
    """A flow towards the phoneme's number, row by row; it can be held shut.

    Phoneme NAN_PHONEME gives NaN, DEAF_PHONEME gives zeros, REFUSED_PHONEME an error of the batch.
    """

    def __init__(self) -> None:
        self.conditions: list[tuple[int, ...]] = []
        self.manners: list[list[list[int]]] = []
        """By call: VOICE and STRIDE of each row."""

        self.steps: list[tuple[int, ...]] = []
        self.lengths: list[list[int]] = []
        self.times: list[list[float]] = []
        self.open = threading.Event()
        self.open.set()
        self.entered = threading.Semaphore(0)
        MODELS["acoustic_condition"] = self.condition
        MODELS["acoustic_step"] = self.step

    def condition(self, request: InferenceRequest) -> InferenceResponse:
        given = request.values()
        self.conditions.append(given["FRAME_PHONEME"].shape)
        self.manners.append([given[name][:, 0].tolist() for name in ("VOICE", "STRIDE")])
        self.entered.release()
        assert self.open.wait(WAIT_S)
        if (given["PHONEME"] == REFUSED_PHONEME).any():
            return refusal("index out of range")
        assert ((given["PITCH"] == -1) <= (given["PHONEME"] == 0)).all()
        phoneme = np.take_along_axis(given["PHONEME"], given["FRAME_PHONEME"], axis=1)
        marks = phoneme + given["FRAME_POSITION"][..., 0]
        return answer(CONDITION=np.repeat(marks[..., None], 128, axis=2).astype(np.float32))

    def step(self, request: InferenceRequest) -> InferenceResponse:
        given = request.values()
        x, length, mark = given["X"], given["LENGTH"], given["CONDITION"][..., :1]
        self.steps.append(x.shape)
        self.times.append(given["TIME"][:, 0].tolist())
        self.lengths.append(length[:, 0].tolist())
        velocity = mark / 100 - 0.1 * x * (1 + given["TIME"][..., None])
        velocity = np.where(
            np.round(mark) == DEAF_PHONEME, -x / (1 - given["TIME"][..., None]), velocity
        )
        velocity = np.where(np.round(mark) == NAN_PHONEME, np.nan, velocity)
        valid = np.arange(x.shape[1])[None, :, None] < length[..., None]
        return answer(VELOCITY=np.where(valid, velocity, 0).astype(np.float32))


class Turnstile:
    """Holds velocity call number `number` from now, counted from 0, until `go` is set."""

    def __init__(self, flow: FakeFlow, number: int) -> None:
        self.go = threading.Event()
        self._flow, self._left = flow, number
        self._reached = threading.Event()
        MODELS["acoustic_step"] = self._step

    def wait(self) -> None:
        """Until that call has been made; it is not answered yet."""
        assert self._reached.wait(WAIT_S)

    def _step(self, request: InferenceRequest) -> InferenceResponse:
        self._left -= 1
        if self._left == -1:
            self._reached.set()
            assert self.go.wait(WAIT_S)
        return self._flow.step(request)


class Stage:
    """The model, with short ways to send to it."""

    def __init__(self, repository: Path, flow: FakeFlow, **changed: str) -> None:
        self.flow = flow
        self.sent: list[InferenceResponseSender] = []
        folder = repository / "acoustic" / "1"
        folder.mkdir(parents=True)
        (folder / "speech.json").write_text(json.dumps(SPEECH))
        self.model = TritonPythonModel()
        args = model_args("acoustic", {**PARAMETERS, **changed}, repository=str(repository))
        self.model.initialize(args)

    def send(
        self,
        frames: int = 40,
        *,
        piece: tuple[int, int] | None = None,
        turn: str = "",
        phoneme: int = 7,
        inputs: dict[str, NDArray[Any]] | None = None,
        **parameters: Any,
    ) -> InferenceResponseSender:
        """Two phonemes of `frames` frames together; `piece` is (number, flags)."""
        rows = [(phoneme, frames - frames // 2, 3), (9, frames // 2, 0)]
        given: dict[str, NDArray[Any]] = {"PROSODY": np.array([rows], np.int32)}
        if piece is not None:
            given["PIECE"] = np.array([[piece[0], 0, piece[1]]], np.int32)
        request = arriving({**given, **(inputs or {})}, request_id=turn, parameters=parameters)
        self.model.execute([request])
        self.sent.append(request.sender)
        return request.sender

    def cancel(self, turn: str) -> None:
        order = arriving({"CONTROL": text(json.dumps({"cancel": turn}))}, request_id="control")
        self.model.execute([order])
        order.sender.wait()

    def hold(self, **how: Any) -> InferenceResponseSender:
        """Occupy the decoder with a request until `flow.open` is set."""
        self.flow.open.clear()
        holder = self.send(24, **{"turn": "holder", **how})
        assert self.flow.entered.acquire(timeout=WAIT_S)
        return holder

    def settle(self) -> None:
        """Return when everything sent before has been taken in."""
        assert "nothing of it is negative" in self.send(piece=(-1, 0)).error()


@pytest.fixture(params=MODES)
def stage(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Stage]:
    """In either mode."""
    yield from served(tmp_path, mode=request.param)


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[Stage]:
    """Locked batches, which are the default."""
    yield from served(tmp_path)


@pytest.fixture
def interleaved(tmp_path: Path) -> Iterator[Stage]:
    """Step by step."""
    yield from served(tmp_path, mode="interleave")


def served(folder: Path, **changed: str) -> Iterator[Stage]:
    """A stage; afterwards everything has been answered and nothing is left open."""
    made = Stage(folder, FakeFlow(), **changed)
    yield made
    made.flow.open.set()
    assert all(sender.wait() is not None for sender in made.sent)
    made.model.finalize()
    loop = made.model._loop
    loop.check_integrity()  # type: ignore[attr-defined]
    assert not loop._open  # type: ignore[attr-defined]


def latents(sender: InferenceResponseSender) -> NDArray[np.float32]:
    """The frames that will be heard, all chunks joined."""
    return np.concatenate([values["LATENT"][0, 5:-5] for values in sender.values()])


def places(sender: InferenceResponseSender) -> list[list[int]]:
    return [values["PIECE"][0].tolist() for values in sender.values()]

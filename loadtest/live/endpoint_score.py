"""How well ends of turns were found, and how well fixed time-outs would have found them.

With a time-out the end of a turn follows from voice activity alone: the product's own policy is
given the probabilities of the product's own model, as the server would have given them to it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Final

import numpy as np
import onnxruntime

from client.live.speaker import to_pcm
from loadtest.live.endpoint_orders import Order
from loadtest.live.sounds import Floats
from python_backends.listening.ear import WINDOW
from python_backends.listening.pcm import FULL_SCALE
from python_backends.scheduling.endpoint import Endpoint, EndpointSettings, Finished

VAD: Final = Path(__file__).parents[2] / "model_repository" / "vad_step" / "1" / "model.onnx"
NEAR_S: Final = 0.25
"""An end this near to an order's, or behind it, is its end; one before is false."""


@dataclass(frozen=True)
class End:
    """A turn's last speech, and how much silence was waited for behind it, in the call's sound."""

    at_s: float
    waited_s: float
    told_s: float = 0.0
    """When the caller was told, since the call's first sample was spoken; 0: nobody was."""


@dataclass(frozen=True)
class Score:
    """Of some orders."""

    found: tuple[tuple[Order, End], ...]
    """Orders, each with the end of its turn."""

    false_ends: int
    lost: int
    """Orders whose end was not found."""

    phantoms: int
    """Turns in which nobody spoke."""

    @property
    def delays_ms(self) -> list[float]:
        """From the last speech of each order until its end was decided, in the call's sound."""
        return [1000 * (end.at_s + end.waited_s - order.end_s) for order, end in self.found]

    @property
    def told_ms(self) -> list[float]:
        """From the last speech of each order until its caller was told."""
        return [1000 * (end.told_s - order.end_s) for order, end in self.found]

    @property
    def delay_ms(self) -> float:
        """The mean of the delays."""
        return fmean(self.delays_ms)


def score(calls: Sequence[tuple[Sequence[Order], Sequence[End]]]) -> Score:
    """Orders of each call, and the ends that were found in it."""
    false = lost = phantoms = 0
    found = []
    for orders, ends in calls:
        phantoms += sum(one.at_s < orders[0].begin_s for one in ends)
        nexts = [*(order.begin_s for order in orders[1:]), float("inf")]
        for order, until_s in zip(orders, nexts, strict=True):
            own = [one for one in ends if order.begin_s <= one.at_s < until_s]
            early = [one for one in own if one.at_s < order.end_s - NEAR_S]
            true = own[len(early) :]
            false += len(early)
            phantoms += max(0, len(true) - 1)
            lost += not true
            found += [(order, one) for one in true[:1]]
    return Score(tuple(found), false, lost, phantoms)


def fixed(timeout_s: float, probabilities: Sequence[float]) -> list[End]:
    """Ends of turns in one call, by a time-out that knows no words."""
    policy = Endpoint(
        EndpointSettings(
            closed_s=timeout_s, complete_s=timeout_s, unknown_s=timeout_s, hanging_s=timeout_s
        )
    )
    heard = [news for one in probabilities for news in policy.hear(one)]
    return [End(news.ended_s, news.waited_s) for news in heard if isinstance(news, Finished)]


def voice_activity(sounds: Sequence[Floats]) -> list[list[float]]:
    """Probability of speech in each window of each sound [samples], as the server computes it."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(VAD), options, providers=["CPUExecutionProvider"])
    return [_activity(session, sound) for sound in sounds]


def _activity(session: onnxruntime.InferenceSession, sound: Floats) -> list[float]:
    heard = np.asarray(to_pcm(sound) / FULL_SCALE, np.float32)
    windows = heard[: len(heard) // WINDOW * WINDOW].reshape(1, -1, WINDOW)
    sizes = {one.name: (1, *one.shape[1:]) for one in session.get_inputs()}
    given = {name: np.zeros(sizes[name], np.float32) for name in ("STATE_IN", "CONTEXT_IN")}
    given |= {"AUDIO": windows, "WINDOWS": np.array([[windows.shape[1]]])}
    (found,) = session.run(["SPEECH_PROBABILITY"], given)
    return list(map(float, found[0]))

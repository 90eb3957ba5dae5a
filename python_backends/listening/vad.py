"""Voice activity of everybody: the next windows of each caller in one pass, on a thread of its own.

The model `vad` keeps its state on the server by sequence id, a request a window: 64 callers would
make 2,000 requests a second. Here a caller's state comes along, so that one request has them all;
while it is under way the next ones gather.
"""

import queue
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from python_backends.bridge import call
from python_backends.errors import StageError
from python_backends.listening.ear import WINDOW, Ear
from python_backends.listening.tape import Floats

STATE, CONTEXT = (2, 128), 64
"""Shape of what the model keeps of a caller, and samples before a window that it looks at; zeros at
the beginning of a call."""

MAX_BATCH = 64
MOST_WINDOWS = 4
"""Of one caller in a pass: a chunk of 100 ms; those of whoever sends more wait for another."""

OUTPUTS = ("SPEECH_PROBABILITY", "STATE_OUT")


@dataclass(frozen=True)
class Judged:
    """The next windows of each have these probabilities of speech."""

    found: Sequence[tuple[Ear, Sequence[float]]]


@dataclass(frozen=True)
class Deaf:
    """These ears can't go on."""

    ears: Sequence[Ear]
    error: StageError


@dataclass(frozen=True)
class Left:
    """Nothing of it is under way any more."""

    ear: Ear


@dataclass(eq=False)
class _Listener:
    windows: deque[Floats]
    state: Floats
    context: Floats


class Vad:
    """`tell` is called on its thread. An ear that has been put must leave, and its request must
    stay open until it has: a model may be called only while a request of the caller's is open."""

    def __init__(
        self, model: str, tell: Callable[[Judged | Deaf | Left | Exception], None]
    ) -> None:
        self._model = model
        self._tell = tell
        self._orders: queue.SimpleQueue[tuple[Ear, Floats | None] | None] = queue.SimpleQueue()
        self._known: OrderedDict[Ear, _Listener] = OrderedDict()
        self._thread = threading.Thread(target=self._run, name="vad")
        self._thread.start()

    def put(self, ear: Ear, windows: Floats) -> None:
        """Judge windows [n, WINDOW] of an ear, after those that were put before."""
        self._orders.put((ear, windows))

    def leave(self, ear: Ear) -> None:
        """Judge no more of it; `Left` is told when that is so."""
        self._orders.put((ear, None))

    def close(self) -> None:
        """End the thread."""
        self._orders.put(None)
        self._thread.join()

    def _run(self) -> None:
        try:
            while self._take():
                self._judge()
        except Exception as fault:
            self._tell(fault)

    def _take(self) -> bool:
        """Take the orders that are there, or wait for one; False: to end."""
        idle = not any(one.windows for one in self._known.values())
        try:
            while (order := self._orders.get(block=idle)) is not None:
                self._obey(*order)
                idle = False
            return False
        except queue.Empty:
            return True

    def _obey(self, ear: Ear, windows: Floats | None) -> None:
        if windows is None:
            self._known.pop(ear, None)
            self._tell(Left(ear))
            return
        if ear not in self._known:
            self._known[ear] = _Listener(
                deque(), np.zeros(STATE, np.float32), np.zeros(CONTEXT, np.float32)
            )
        self._known[ear].windows.extend(windows)

    def _judge(self) -> None:
        """Some windows of each that has any, those first that have waited longest."""
        ears = [ear for ear, one in self._known.items() if one.windows][:MAX_BATCH]
        if not ears:
            return
        members = [self._known[ear] for ear in ears]
        counts = [min(len(one.windows), MOST_WINDOWS) for one in members]
        sound = np.zeros((len(ears), max(counts), WINDOW), np.float32)
        for row, (one, count) in enumerate(zip(members, counts, strict=True)):
            sound[row, :count] = [one.windows.popleft() for _ in range(count)]
        inputs: dict[str, NDArray[Any]] = {
            "AUDIO": sound,
            "WINDOWS": np.array(counts, np.int64)[:, None],
            "STATE_IN": np.stack([one.state for one in members]),
            "CONTEXT_IN": np.stack([one.context for one in members]),
        }
        try:
            found = call(self._model, inputs, OUTPUTS)
        except StageError as error:
            for ear in ears:
                self._known[ear].windows.clear()
            self._tell(Deaf(ears, error))
            return
        judged = []
        for row, (ear, count) in enumerate(zip(ears, counts, strict=True)):
            one = self._known[ear]
            one.state, one.context = found["STATE_OUT"][row], sound[row, count - 1, -CONTEXT:]
            self._known.move_to_end(ear)
            judged.append((ear, found["SPEECH_PROBABILITY"][row, :count].tolist()))
        self._tell(Judged(judged))

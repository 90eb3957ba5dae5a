"""Publishing what a stage has tallied, every now and then, on a thread of its own."""

import random
import threading
from collections.abc import Callable, Iterable

from python_backends.bridge.figures import FIGURES, Figures
from python_backends.bridge.log import log_fault
from python_backends.bridge.meters import Entry, Labels, Name, Tally

PERIOD_S = 0.5
PAUSE_S = 0.0002
"""Between two figures, so that a loop never waits for more than one of them."""

MOST_DURATIONS = 10
"""Of each kind at a time. A decoder may make a thousand steps a second, a histogram takes them one
by one, and each of them stops the decoder; counters take any number at once."""


class Publisher:
    """Carries a tally to /metrics until it is closed. `also` is called as often."""

    def __init__(
        self,
        stage: str,
        tally: Tally,
        figures: Figures,
        also: Callable[[], None] = lambda: None,
    ) -> None:
        self._tally = tally
        self._figures = figures
        self._also = also
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"{stage}-meters")
        self._thread.start()

    def close(self) -> None:
        """End the thread; what is not published yet goes with the stage."""
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._closing.wait(PERIOD_S):
                self._figures.tell("heartbeats_total", (), 1)
                self._publish()
                self._also()
        except Exception as fault:
            log_fault("publishing figures ended", fault, quote=True)

    def _publish(self) -> None:
        for name, labels, value in summed(self._tally.take()):
            self._figures.tell(name, labels, value)
            if self._closing.wait(PAUSE_S):
                return


def summed(entries: Iterable[Entry]) -> list[Entry]:
    """The same news in few entries: the sum of each counter, the last value of each gauge, and a
    random sample of the durations where they are too many."""
    durations: dict[tuple[Name, Labels], list[float]] = {}
    others: dict[tuple[Name, Labels], float] = {}
    for name, labels, value in entries:
        match FIGURES[name].kind:
            case "HISTOGRAM":
                durations.setdefault((name, labels), []).append(value)
            case "COUNTER":
                others[name, labels] = others.get((name, labels), 0.0) + value
            case "GAUGE":
                others[name, labels] = value
    published = [(*key, value) for key, value in others.items()]
    for key, values in durations.items():
        published += [(*key, value) for value in _sample(values)]
    return published


def _sample(values: list[float]) -> list[float]:
    return values if len(values) <= MOST_DURATIONS else random.sample(values, MOST_DURATIONS)

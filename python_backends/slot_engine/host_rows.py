"""Rows on a CPU: ONNX Runtime on NumPy's memory, tokens drawn by NumPy."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from python_backends.errors import StageFailed
from python_backends.slot_engine import sampling
from python_backends.slot_engine.bound import BoundGraph, open_session
from python_backends.slot_engine.candidates import Best, Ids, Values, best_of
from python_backends.slot_engine.command import (
    GREEDY_BELOW,
    MAX_CHUNK,
    Decode,
    Drawn,
    Prefill,
    Sampling,
)
from python_backends.slot_engine.rows import Drawing, First, Rules


class HostRows:
    """See Rows: `graph`, and sampler.onnx beside it where there is one."""

    longest_chunk = MAX_CHUNK

    def __init__(
        self,
        graph: Path,
        *,
        slots: int,
        capacity: int,
        threads: int,
        context: Sequence[str],
        rules: Rules,
    ) -> None:
        self.graph = BoundGraph(
            graph,
            slots=slots,
            capacity=capacity,
            threads=threads,
            context=context,
            context_widths=rules.context_widths,
        )
        self.width, self.pools = self.graph.width, self.graph.pools
        self.vocabulary = self.graph.logits.shape[1] if self.graph.next is None else None
        self._rules = rules
        self.best = _graph_of_best(graph.with_name("sampler.onnx"), threads)

    @contextmanager
    def command(self) -> Iterator[None]:
        """See Rows."""
        yield

    def prefill(self, part: Prefill) -> First:
        """See Rows."""
        count = len(part.tokens)
        tokens = part.tokens.reshape(count, self.width)
        self.graph.chunk_ids[: tokens.size] = tokens.reshape(-1)
        self.graph.chunk_start[0] = part.start
        self.pools.tokens[part.row, part.start : part.start + count] = tokens
        position = np.array([part.start + count])
        self.set_noise(self.graph.chunk_noise, (part.sampling,), position)
        no_speech = self._no_speech(part)
        self.graph.execute(part.row, 1, count, draws=part.is_last)
        drawn = None
        if part.is_last:
            rows = slice(part.row, part.row + 1)
            drawn = self._draw(rows, (part.sampling,), position, first=True)
        return lambda: (drawn, no_speech)

    def decode(self, part: Decode) -> Drawing:
        """See Rows."""
        count = len(part.tokens)
        tokens = part.tokens.reshape(count, self.width)
        self.graph.ids[: tokens.size] = tokens.reshape(-1)
        self.graph.starts[:count] = part.starts
        self.pools.tokens[np.arange(count), part.starts] = tokens
        self.set_noise(self.graph.noise, part.sampling, part.starts + 1)
        self.graph.execute(0, count, 0)
        drawn = self._draw(slice(0, count), part.sampling, part.starts + 1, first=False)
        return lambda: drawn

    def scrub(self, row: int) -> None:
        """See Rows."""
        self.pools.scrub(row)

    def logits(self, row: int) -> NDArray[np.float32]:
        """See Rows; a view."""
        if self.vocabulary is None:
            raise StageFailed("this graph draws inside: it shows no logits")
        found: NDArray[np.float32] = self.graph.logits[row]
        return found

    def set_noise(
        self, buffer: NDArray[np.float32], how: Sequence[Sampling], positions: NDArray[np.int64]
    ) -> None:
        """Gumbel noise for graphs that draw inside, times each row's temperature; 0 is greedy."""
        if not buffer.size:
            return
        drawing = [row for row, one in enumerate(how) if one.temperature >= GREEDY_BELOW]
        buffer[: len(how)] = 0
        if drawing:
            seeds = np.array([how[row].seed for row in drawing], np.int64)
            scale = np.array([[how[row].temperature] for row in drawing])
            places = np.arange(buffer.shape[1])
            buffer[drawing] = scale * sampling.gumbel(seeds, positions[drawing], places)

    def _draw(
        self, rows: slice, how: Sequence[Sampling], positions: NDArray[np.int64], *, first: bool
    ) -> Drawn:
        if self.graph.next is not None:
            return Drawn(self.graph.next[rows].copy(), np.zeros(len(how), np.float32))
        logits = self.graph.logits[rows]
        logits[:, list(self._rules.suppress)] = -np.inf
        if first:
            logits[:, list(self._rules.suppress_first)] = -np.inf
        held = self.pools.tokens[rows, :, 0]
        scored = self._rules.no_speech is not None
        return sampling.draw(logits, how, positions, held, self.best, scored=scored)

    def _no_speech(self, part: Prefill) -> float:
        """Whisper's probability of silence. It is said behind the first token, which is run alone
        for it; one position later Whisper has decided to speak (of noise: 0.001, not 0.96)."""
        token = self._rules.no_speech
        if token is None or part.start > 0:
            return 0.0
        self.graph.execute(part.row, 1, 1)
        return sampling.probability(self.graph.logits[part.row], token)


def _graph_of_best(path: Path, threads: int) -> Best:
    """The graph's top candidates: ten times as fast as numpy, which stands in where it is missing.

    `run` reads the logits where they lie; binding them by hand was measured to gain nothing.
    """
    if not path.exists():
        return best_of
    session = open_session(path, threads)

    def best(logits: Values) -> tuple[Values, Ids]:
        values, ids = session.run(["values", "ids"], {"logits": logits})
        return values, ids

    return best

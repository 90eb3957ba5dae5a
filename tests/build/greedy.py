"""Greedy decoding with a step graph, by plain session runs: pools go in, come out, go in again."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Context = Mapping[str, NDArray[np.generic]]
REPOSITORY = Path(__file__).parents[2] / "model_repository"


def open_graph(path: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


class Stepper:
    """A step graph with `rows` slots of `capacity` positions."""

    def __init__(self, path: Path, *, rows: int, capacity: int, context: Context) -> None:
        self.session = open_graph(path)
        self.context = dict(context)
        shapes = {node.name: node.shape for node in self.session.get_inputs()}
        self.pools: dict[str, Floats] = {
            name: np.zeros((rows, shape[1], capacity, shape[3]), np.float32)
            for name, shape in shapes.items()
            if name[0] in "kv"
        }

    def run(self, ids: Sequence[Sequence[int]], starts: Sequence[int], row: int = 0) -> Floats:
        """Logits [n, V] of the last of `ids` in rows row .. row + n - 1, whose pools grow."""
        rows = slice(row, row + len(ids))
        feeds = {name: pool[rows] for name, pool in self.pools.items()}
        feeds |= {name: value[rows] for name, value in self.context.items()}
        feeds |= {"ids": np.array(ids, np.int64), "start": np.array(starts, np.int64)}
        if any(node.name == "draws" for node in self.session.get_inputs()):
            feeds["draws"] = np.array([True])
        names = [node.name for node in self.session.get_outputs()]
        out = dict(zip(names, self.session.run(names, feeds), strict=True))
        for name, pool in self.pools.items():
            pool[rows] = out[f"{name[0]}o{name[1:]}"]
        return np.asarray(out["logits"])

    def greedy(
        self, prompts: Sequence[Sequence[int]], *, end: int, limit: int, chunk: int = 512
    ) -> list[list[int]]:
        """Each prompt prefilled into its own row in chunks, then all rows decoded together."""
        last = [self._prefill(row, prompt, chunk) for row, prompt in enumerate(prompts)]
        starts = [len(prompt) for prompt in prompts]
        said: list[list[int]] = [[] for _ in prompts]
        for _ in range(limit):
            for tokens, token in zip(said, last, strict=True):
                if end not in tokens:
                    tokens.append(token)
            if all(end in tokens for tokens in said):
                break
            logits = self.run([[token] for token in last], starts)
            last = [int(token) for token in logits.argmax(1)]
            starts = [start + 1 for start in starts]
        return [tokens[: tokens.index(end)] if end in tokens else tokens for tokens in said]

    def _prefill(self, row: int, prompt: Sequence[int], chunk: int) -> int:
        for at in range(0, len(prompt), chunk):
            logits = self.run([prompt[at : at + chunk]], [at], row)
        return int(logits[0].argmax())

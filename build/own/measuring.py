"""How far a graph is off PyTorch, and what it takes, measured in a process of its own."""

import subprocess
import sys
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from build.errors import BuildError
from build.lineage import ROOT

OPENED: Final = """
import psutil, sys
from pathlib import Path
from python_backends.slot_engine.engine import SlotPoolEngine
me = psutil.Process()
before = me.memory_info().rss
engine = SlotPoolEngine(Path(sys.argv[1]), slots=1, capacity=int(sys.argv[2]))
print(me.memory_info().rss - before)
"""


def deviation(found: NDArray[np.float32], expected: NDArray[np.float32]) -> float:
    """Root mean square of the difference of logits, in standard deviations of those expected; NaN
    where any found is."""
    return float(np.sqrt(np.mean(np.square(found - expected))) / expected.std())


def engine_bytes(folder: Path, capacity: int) -> int:
    """What a process takes to hold the step graph of `folder`, its pools not touched."""
    (opened,) = told_by(OPENED, folder, capacity)
    return opened


def told_by(script: str, graph: Path, *arguments: int) -> list[int]:
    """The numbers that a Python script prints, which is given `graph` and the arguments.

    BuildError when it fails, as it does where the graph does not run.
    """
    asked = [sys.executable, "-c", script, str(graph), *map(str, arguments)]
    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(f"{graph} does not run: {done.stderr.strip()[-500:]}")
    return list(map(int, done.stdout.split()))

"""What the encoder's window makes a lone caller wait, at the real server.

One request after another to `encode`, each with a sound of its own, so that nothing is shared. By
the stage's own spans: a window is released when its queue span ends, and its features are there
when its build span ends. The difference is all that the window adds: the way from the build worker
to the loop's thread, the loop's work for it, and the window's decision. `window_seconds` of
/metrics is the part behind the first, from the loop's knowing of the features on.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from json import loads
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rich.progress import Progress

from deploy.launcher import Server
from deploy.settings import Settings
from loadtest.engine.figures import Found
from loadtest.engine.serving import calling
from loadtest.load.punctuality import percentile
from loadtest.seed.figures import Target, at_least, at_most
from python_backends import wire
from python_backends.encoder_window.audio import SAMPLE_RATE_HZ
from python_backends.scheduling.window import Reason

REQUESTS = 200
"""In all rounds together, and 40 a round at least."""

FEWEST_A_ROUND = 40
WARM_UPS = 5
SOUND_S = 2.0
TIMEOUT_S = 60.0

TARGETS: dict[str, Target] = {
    "lone_no_companion_share": at_least(1.0),
    "lone_added_p50_ms": at_most(0.2),
}


@dataclass(frozen=True)
class Waited:
    """What became of one request."""

    reason: str
    added_ms: float
    build_ms: float

    @classmethod
    def of(cls, spans: Iterable[Mapping[str, Any]]) -> "Waited":
        """From the EVENTS of a clip of one window."""
        by_name = {span["what"]: span for span in spans}
        build, queue = by_name["build"], by_name["queue"]
        return cls(
            reason=queue["reason"],
            added_ms=(queue["end_ns"] - build["end_ns"]) / 1e6,
            build_ms=(build["end_ns"] - build["start_ns"]) / 1e6,
        )


def lone(folder: Path, rounds: int, progress: Progress) -> Found:
    """REQUESTS sequential requests, on a server of `encode` alone."""
    each = max(FEWEST_A_ROUND, REQUESTS // rounds)
    task = progress.add_task("lone", total=rounds * each, told="")
    rng = np.random.default_rng(0)
    found: list[Waited] = []
    with Server(Settings(models=["encode"])) as server, calling(server) as stub:
        for number in range(-WARM_UPS, rounds * each):
            sound = rng.normal(0, 0.1, (1, round(SOUND_S * SAMPLE_RATE_HZ))).astype(np.float32)
            request = wire.to_request(
                "encode", {"AUDIO": sound}, turn=f"lone-{number}", parameters={}
            )
            answer = wire.to_arrays(stub.ModelInfer(request, timeout=TIMEOUT_S))
            if number >= 0:
                found.append(Waited.of(map(loads, answer["EVENTS"].reshape(-1))))
                progress.advance(task)
    return Found(
        lone_figures(found),
        {
            "reasons": dict(Counter(one.reason for one in found)),
            "added_ms": [round(one.added_ms, 4) for one in found],
            "build_p50_ms": median(one.build_ms for one in found),
        },
    )


def lone_figures(found: list[Waited]) -> dict[str, float | None]:
    """The share released for want of a companion; ms from built to released."""
    added = [one.added_ms for one in found]
    alone = sum(one.reason == Reason.NO_COMPANION for one in found)
    return {
        "lone_requests": len(found),
        "lone_no_companion_share": alone / len(found),
        "lone_added_p50_ms": percentile(added, 0.5),
        "lone_added_p95_ms": percentile(added, 0.95),
    }

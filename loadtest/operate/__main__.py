"""`make bench-operate`: what operators do while people speak, and what they are told."""

import sys
from typing import Final

from loadtest.bench import Bench, Experiment
from loadtest.operate import alerts, files, scale, traces, upgrade
from loadtest.operate.plots import draw
from loadtest.seed.figures import Target

EXPERIMENTS: Final[dict[str, Experiment]] = {
    "files": files.files,
    "upgrade": upgrade.upgrade,
    "scale": scale.scale,
    "traces": traces.traces,
    "alerts": alerts.alerts,
}
TARGETS: Final[dict[str, Target]] = {
    **files.TARGETS,
    **upgrade.TARGETS,
    **scale.TARGETS,
    **traces.TARGETS,
    **alerts.TARGETS,
}

BENCH = Bench(
    name="operate",
    description=__doc__,
    note="on an emulated device, which takes the profile's time and computes nothing: what is "
    "shown is the server's, the launcher's and the schedulers' doing",
    experiments=EXPERIMENTS,
    targets=TARGETS,
    draw=draw,
)

if __name__ == "__main__":
    sys.exit(BENCH.main())

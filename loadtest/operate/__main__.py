"""`make bench-operate`: what operators do while people speak, and what they are told."""

import sys
from typing import Final

from loadtest.bench import Bench, Experiment
from loadtest.operate import upgrade
from loadtest.operate.plots import draw
from loadtest.seed.figures import Target

EXPERIMENTS: Final[dict[str, Experiment]] = {
    "upgrade": upgrade.upgrade,
}
TARGETS: Final[dict[str, Target]] = {
    **upgrade.TARGETS,
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

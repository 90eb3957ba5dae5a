"""`make bench-stages`: the encoder window, listening, the diffusion lock, the speaking half."""

import sys

from loadtest.bench import Bench
from loadtest.stages import bound, flow, hearing, lone, served_modes, speaking, window
from loadtest.stages.plots import draw

BENCH = Bench(
    name="stages",
    description=__doc__,
    note="window and flow_device figures are virtual time on the emulated device; all others are "
    "real weights on this machine; ratios are medians of each round's own ratio",
    experiments={
        "window": window.window,
        "lone": lone.lone,
        "flow": flow.flow,
        "served_modes": served_modes.served_modes,
        "hearing": hearing.hearing,
        "encoders": hearing.encoders,
        "speaking": speaking.speaking,
        "bound": bound.bound,
    },
    targets={
        **window.TARGETS,
        **lone.TARGETS,
        **flow.TARGETS,
        **served_modes.TARGETS,
        **hearing.TARGETS,
        **speaking.TARGETS,
        **bound.TARGETS,
    },
    draw=draw,
)

if __name__ == "__main__":
    sys.exit(BENCH.main())

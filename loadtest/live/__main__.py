"""`make bench-live`: live calls, paced, interrupted, on real weights, and when a turn is over."""

import sys

from loadtest.bench import Bench
from loadtest.live import barge, endpoints, paced
from loadtest.live.plots import draw

BENCH = Bench(
    name="live",
    description=__doc__,
    note="paced and barge_in are on an emulated device, which takes the profile's time and "
    "computes nothing, but for the voice activity model; real and endpoints are real weights on "
    "this machine, which callers and server share",
    experiments={
        "paced": paced.paced,
        "barge_in": barge.barge_in,
        "real": paced.on_real_weights,
        "endpoints": endpoints.endpoints,
    },
    targets={**paced.TARGETS, **barge.TARGETS, **endpoints.TARGETS},
    draw=draw,
)

if __name__ == "__main__":
    sys.exit(BENCH.main())

"""`make bench-engine`: the AR engine beside llama.cpp and CTranslate2, and behind the server."""

import sys

from loadtest.bench import Bench
from loadtest.engine.beside import beside, shipped_chunk
from loadtest.engine.plots import draw
from loadtest.engine.reuse import reuse
from loadtest.engine.served import SERVED_ROWS, gaps, served
from loadtest.engine.several import engines
from loadtest.engine.steps import steps
from loadtest.seed.figures import Target, at_least, at_most

TARGETS: dict[str, Target] = {
    "tokens_per_s_by_llama_cpp_n8_c64": at_least(1.2),
    "tokens_per_s_by_llama_cpp_n8_c256": at_least(1.4),
    "tokens_per_s_by_llama_cpp_n8_c500": at_least(1.4),
    **{f"served_by_bare_n{rows}": at_least(0.9) for rows in SERVED_ROWS},
    f"beside_{shipped_chunk()}_gap_p99_by_step": at_most(2.5),
    f"beside_{shipped_chunk()}_chunks_between_steps": at_most(1),
    f"beside_{shipped_chunk()}_commands_beyond_chunks": at_most(2),
    "two_single_by_one_double": at_least(1.0),
    "reuse_turn_2_ratio": at_most(0.7),
    "reuse_same_answers": at_least(1),
}


BENCH = Bench(
    name="engine",
    description=__doc__,
    note="one thread, greedy; ratios are medians of each round's own ratio",
    experiments={
        "steps": steps,
        "gap": gaps,
        "served": served,
        "beside": beside,
        "engines": engines,
        "reuse": reuse,
    },
    targets=TARGETS,
    draw=draw,
)

if __name__ == "__main__":
    sys.exit(BENCH.main())

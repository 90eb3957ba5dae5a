"""The encoder's window beside no window and a fixed one, in virtual time."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from statistics import fmean, median
from typing import Any

from rich.progress import Progress

from loadtest.device import Profile
from loadtest.engine.figures import Found, ratio
from loadtest.seed.figures import Target, at_least, at_most
from loadtest.sim.clock import Clock
from loadtest.sim.costs import Costs
from loadtest.stages.encoder import STAGE, Caller, Loneliness, Policy, Stage
from python_backends.scheduling.window import Reason

BURST, BURSTS = 8, 60
BUILDERS = 8
"""Workers that make features, so that a burst is built in parallel."""

BUILD_SPREAD = 0.5
"""Builds take the profile's time, this part more or less: clips differ in length."""

LOADS = (30, 60, 90)
"""Percent of what full batches can take."""

CALLERS = 3000
BUCKETS = 3
MIXED_LOAD = 30
"""Low, so that the encoder is often free and what a caller waits for is the window alone."""
LONE_CALLERS, LONE_PAUSE_S = 100, 0.05
FOREVER_S = 1e9

TARGETS: dict[str, Target] = {
    "window_burst_by_none_throughput": at_least(1.15),
    **{f"window_poisson_{load}_by_better_throughput": at_least(0.98) for load in LOADS},
    **{f"window_poisson_{load}_by_better_p50": at_most(1.02) for load in LOADS},
    "window_lone_no_companion_share": at_least(1.0),
    "window_lone_added_ms": at_most(0.2),
    "window_lone_fixed_added_ms": at_least(6.0),
    "window_mixed_other_bucket_wait_ms": at_most(0.0),
    "window_mixed_longest_added_ms": at_most(6.0),
}


@dataclass(frozen=True)
class Played:
    """What became of the callers of one run."""

    callers: Sequence[Caller]
    alone: Loneliness

    @property
    def per_s(self) -> float:
        """Callers answered per second, from the first arrival to the last answer."""
        began = min(caller.arrived_s for caller in self.callers)
        return len(self.callers) / (max(caller.answered_s for caller in self.callers) - began)

    @property
    def p50_ms(self) -> float:
        """Median time to an answer."""
        return 1e3 * median(caller.latency_s for caller in self.callers)

    @property
    def added_ms(self) -> list[float]:
        """What the window made each wait at a free encoder, to a microsecond."""
        return [round(1e3 * caller.added_s, 3) for caller in self.callers]

    @property
    def reasons(self) -> Counter[str]:
        """Callers by the reason why their batch left."""
        return Counter(str(caller.reason) for caller in self.callers)

    @property
    def summary(self) -> dict[str, Any]:
        """For readers."""
        return {
            "per_s": round(self.per_s, 2),
            "p50_ms": round(self.p50_ms, 2),
            "members": round(1 / fmean(1 / caller.members for caller in self.callers), 2),
            "reasons": dict(self.reasons),
        }


Rounds = dict[Policy, list[Played]]
"""Of each policy, one run a round, all with the same arrivals and build times."""

Scenario = Callable[[Policy, int], Played]
"""(policy, seed) -> what became of its callers."""


def window(folder: Path, rounds: int, progress: Progress) -> Found:
    """Every scenario under every policy; rounds differ by their seeds. Virtual time, no files."""
    task = progress.add_task("window", total=rounds * len(SCENARIOS), told="")
    found: dict[str, Rounds] = {}
    for name, scenario in SCENARIOS.items():
        found[name] = {policy: [] for policy in Policy}
        for seed in range(rounds):
            for policy in Policy:
                found[name][policy].append(scenario(policy, seed))
            progress.advance(task)
    figures: dict[str, float | None] = {**burst_figures(found["burst"])}
    for load in LOADS:
        figures |= poisson_figures(load, found[f"poisson_{load}"])
    figures |= lone_figures(found["lone"]) | mixed_figures(found["mixed"])
    detail = {
        name: {str(policy): each[0].summary for policy, each in runs.items()}
        for name, runs in found.items()
    }
    return Found(figures, {"first_round": detail})


def burst(policy: Policy, seed: int) -> Played:
    """Eight arrive at once, and the next eight when all of them are answered."""
    return _in_turn(policy, seed, at_once=BURST, turns=BURSTS, pause_s=0.0)


def lone(policy: Policy, seed: int) -> Played:
    """One at a time, with a pause between an answer and the next one."""
    return _in_turn(policy, seed, at_once=1, turns=LONE_CALLERS, pause_s=LONE_PAUSE_S)


def poisson(load: int, policy: Policy, seed: int, buckets: int = 1) -> Played:
    """Arrivals at random, at `load` percent of what full batches can take."""
    random, costs, clock = Random(seed), _costs(), Clock()
    most = costs.profile.stages[STAGE].max_batch
    per_s = load / 100 * most / costs.pass_s(STAGE, most)
    stage = Stage(clock, costs, policy, range(buckets), BUILDERS, lambda caller: None)
    callers, at = [], 0.0
    for _ in range(CALLERS):
        at += random.expovariate(per_s)
        caller = Caller(random.randrange(buckets), _build_s(costs, random))
        callers.append(caller)
        clock.at(at, _sending(stage, [caller]))
    clock.run(FOREVER_S)
    return Played(callers, stage.alone)


def _in_turn(policy: Policy, seed: int, *, at_once: int, turns: int, pause_s: float) -> Played:
    random, costs, clock = Random(seed), _costs(), Clock()
    waves = [[Caller(0, _build_s(costs, random)) for _ in range(at_once)] for _ in range(turns)]
    ahead = iter(waves)
    open_callers: Counter[str] = Counter()

    def next_wave() -> None:
        wave = next(ahead, [])
        open_callers["now"] = len(wave)
        _sending(stage, wave)()

    def answered(caller: Caller) -> None:
        open_callers["now"] -= 1
        if not open_callers["now"]:
            clock.at(clock.now + pause_s, next_wave)

    stage = Stage(clock, costs, policy, range(1), BUILDERS, answered)
    clock.at(0.0, next_wave)
    clock.run(FOREVER_S)
    return Played([caller for wave in waves for caller in wave], stage.alone)


def _sending(stage: Stage, callers: Iterable[Caller]) -> Callable[[], None]:
    def send() -> None:
        for caller in callers:
            stage.send(caller)

    return send


def _costs() -> Costs:
    return Costs(Profile.named("profile"))


def _build_s(costs: Costs, random: Random) -> float:
    spread = random.uniform(1 - BUILD_SPREAD, 1 + BUILD_SPREAD)
    return spread * costs.profile.stages[STAGE].build_ms / 1000


SCENARIOS: dict[str, Scenario] = {
    "burst": burst,
    **{f"poisson_{load}": partial(poisson, load) for load in LOADS},
    "lone": lone,
    "mixed": partial(poisson, MIXED_LOAD, buckets=BUCKETS),
}


def burst_figures(rounds: Rounds) -> dict[str, float | None]:
    """Throughput of the conditional window by that of none."""
    ours, none = (
        [one.per_s for one in rounds[policy]] for policy in (Policy.CONDITIONAL, Policy.NONE)
    )
    return {
        "window_burst_per_s": median(ours),
        "window_burst_none_per_s": median(none),
        "window_burst_by_none_throughput": ratio(ours, none),
    }


def poisson_figures(load: int, rounds: Rounds) -> dict[str, float | None]:
    """Throughput and median latency by those of whichever other policy was better in a round."""
    ours = rounds[Policy.CONDITIONAL]
    others = list(zip(rounds[Policy.NONE], rounds[Policy.FIXED], strict=True))
    most = [max(one.per_s for one in pair) for pair in others]
    least = [min(one.p50_ms for one in pair) for pair in others]
    name = f"window_poisson_{load}"
    return {
        f"{name}_p50_ms": median(one.p50_ms for one in ours),
        f"{name}_none_p50_ms": median(one.p50_ms for one in rounds[Policy.NONE]),
        f"{name}_fixed_p50_ms": median(one.p50_ms for one in rounds[Policy.FIXED]),
        f"{name}_by_better_throughput": ratio([one.per_s for one in ours], most),
        f"{name}_by_better_p50": ratio([one.p50_ms for one in ours], least),
    }


def lone_figures(rounds: Rounds) -> dict[str, float | None]:
    """The worst caller of all rounds under the conditional window, the best under a fixed one."""
    ours = rounds[Policy.CONDITIONAL]
    at_once = sum(one.reasons[Reason.NO_COMPANION] for one in ours)
    return {
        "window_lone_no_companion_share": at_once / sum(len(one.callers) for one in ours),
        "window_lone_added_ms": max(max(one.added_ms) for one in ours),
        "window_lone_fixed_added_ms": min(min(one.added_ms) for one in rounds[Policy.FIXED]),
    }


def mixed_figures(rounds: Rounds) -> dict[str, float | None]:
    """ms that all callers together waited for nobody of their own shape, to a microsecond; and the
    longest that the window made anybody wait at a free encoder."""
    ours = rounds[Policy.CONDITIONAL]
    return {
        "window_mixed_other_bucket_wait_ms": round(1e3 * max(one.alone.seconds for one in ours), 3),
        "window_mixed_longest_added_ms": max(max(one.added_ms) for one in ours),
    }

"""Every plan with the same turns: what it wastes, how often it runs out, how much it gets done."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, Final

from loadtest.device import Profile
from loadtest.engine.figures import Found
from loadtest.memory.memory import Memory, Sample
from loadtest.memory.plans import (
    WARM_UP,
    Plan,
    average_turns,
    by_budgets,
    counted,
    own_peak_turns,
    peak_turns,
)
from loadtest.memory.sizes import FUSED, SIZES, Lengths, Sizes
from loadtest.memory.world import CURVES, World
from loadtest.seed.figures import Target, at_least, at_most
from loadtest.sim.costs import Costs

TURNS: Final = 10_000
SEEDS: Final = 5
PEOPLE: Final = 256
"""More than fit under any plan, so that each has as many as it lets in."""

PEAK, OWN_PEAK, AVERAGE, BUDGETS = "peak", "own_peak", "average", "budgets"
AVERAGES: Final = {AVERAGE: 1.0, "average_95": 0.95, "average_90": 0.9, "average_80": 0.8}
"""Of the memory, what the average may take."""

PLANS: Final = (PEAK, OWN_PEAK, *AVERAGES, BUDGETS)
OTHERWISE: Final = {
    "half_memory": (SIZES, 0.5),
    "double_memory": (SIZES, 2.0),
    "fused": (FUSED, 1.0),
    "fused_half_memory": (FUSED, 0.5),
}
"""Other sizes, and how many times the memory: what hangs on those that were chosen."""

COMPARED: Final = (PEAK, OWN_PEAK, BUDGETS)
LONGER: Final = ("average_90", "average_80", BUDGETS)
SHOWN: Final = (PEAK, AVERAGE, BUDGETS)
SHOWN_TURNS: Final = 2000
RUNS: Final = len(PLANS) + len(COMPARED) * len(OTHERWISE) + len(LONGER)
"""Of every seed."""


NEVER: Final = at_most(0)
TARGETS: Final[Mapping[str, Target]] = {
    "turns_each": at_least(TURNS),
    "budgets_ooms_per_10000_turns": NEVER,
    "budgets_by_peak_turns_per_s": at_least(1.2),
    "average_ooms_per_10000_turns": Target("> 0", lambda figure: figure > 0),
    "longer_budgets_ooms_per_10000_turns": NEVER,
    **{f"{word}_budgets_ooms": NEVER for word in OTHERWISE},
}


@dataclass(frozen=True)
class Outcome:
    """Of one run."""

    turns: int
    """That ended, answered or not."""

    turns_per_s: float
    """Answered, in virtual seconds."""

    wasted_share: float
    """Of the memory, what nobody used, on average over time."""

    peak_share: float
    ooms: Mapping[str, int]
    """By the stage that asked."""

    failed: int
    """Turns; an encoder pass that finds no room fails all its members."""

    members: float
    """Of an encoder pass, on average."""

    samples: Sequence[Sample]
    oom_times_s: Sequence[float]

    def per_10000(self, count: int) -> float:
        """Of so many turns."""
        return 1e4 * count / self.turns


@dataclass(frozen=True)
class Setting:
    """What plans are made for, and what then comes."""

    costs: Costs
    sizes: Sizes
    planned: Lengths
    come: Lengths
    people: int = PEOPLE

    def play(self, plan: Plan, seed: int, turns: int, *, sampled: bool = False) -> Outcome:
        """One run."""
        memory = Memory(self.sizes.device, CURVES, samples=[] if sampled else None)
        world = World(self.costs, self.sizes, self.come, plan.gate(), memory, seed)
        world.run(self.people, WARM_UP, turns)
        return Outcome(
            turns=world.turns,
            turns_per_s=world.answered / memory.measured_s,
            wasted_share=1 - memory.mean / self.sizes.device,
            peak_share=memory.peak / self.sizes.device,
            ooms=Counter(stage for _, stage in world.ooms),
            failed=world.failed,
            members=world.listen.encoded / max(1, world.listen.passes),
            samples=memory.samples or [],
            oom_times_s=[when for when, _ in world.ooms],
        )

    def plans(self, names: Sequence[str]) -> dict[str, Plan]:
        """Those that are named."""
        return {name: self._plan(name) for name in names}

    def _plan(self, name: str) -> Plan:
        basis = (self.costs, self.sizes, self.planned)
        if name == BUDGETS:
            return by_budgets(*basis)
        if name == PEAK:
            return counted(name, peak_turns(*basis))
        if name == OWN_PEAK:
            return counted(name, own_peak_turns(*basis))
        return counted(name, average_turns(*basis, self.people, AVERAGES[name]))


def usual() -> Setting:
    """The profile's times, the sizes that were written down, the turns that were planned for."""
    profile = Profile.named("profile")
    lengths = Lengths.of(profile)
    return Setting(Costs(profile), SIZES, lengths, lengths)


def longer(setting: Setting) -> Setting:
    """Planned for the usual turns; then every turn is as long as is allowed."""
    usual = setting.planned
    long = replace(usual, prompt=(usual.prompt[1],) * 2, answer=(usual.answer[1],) * 2)
    return replace(setting, come=long)


Progress = Callable[[], None]
Runs = Mapping[str, Sequence[Outcome]]
"""Plan -> a run for every seed."""


def experiment(setting: Setting, seeds: Sequence[int], turns: int, advance: Progress) -> Found:
    """All plans; budgets and peaks with other sizes; the longest turns."""

    def runs(here: Setting, plans: Mapping[str, Plan]) -> Runs:
        played = {}
        for name, plan in plans.items():
            played[name] = [here.play(plan, seed, turns) for seed in seeds]
            advance()
        return played

    plans = setting.plans(PLANS)
    usually = runs(setting, plans)
    figures: dict[str, float | None] = {**usual_figures(usually)}
    for word, (sizes, factor) in OTHERWISE.items():
        other = replace(setting, sizes=replace(sizes, device=int(factor * sizes.device)))
        found = runs(other, other.plans(COMPARED))
        for name in (PEAK, OWN_PEAK):
            ratio = lowest_ratio(found[BUDGETS], found[name])
            figures[f"{word}_{BUDGETS}_by_{name}_turns_per_s"] = ratio
        figures[f"{word}_{BUDGETS}_ooms"] = sum(sum(one.ooms.values()) for one in found[BUDGETS])
    for name, each in runs(longer(setting), {name: plans[name] for name in LONGER}).items():
        figures |= {f"longer_{name}_{key}": value for key, value in summary(each).items()}
    return Found(figures, {name: details(plans[name], each) for name, each in usually.items()})


def usual_figures(runs: Runs) -> dict[str, float]:
    """Of every plan with the turns that it was made for, and budgets beside the others."""
    figures: dict[str, float] = {
        "turns_each": min(one.turns for each in runs.values() for one in each)
    }
    for name, each in runs.items():
        figures |= {f"{name}_{key}": value for key, value in summary(each).items()}
    for name in (PEAK, OWN_PEAK, "average_90"):
        ratio = lowest_ratio(runs[BUDGETS], runs[name])
        figures[f"{BUDGETS}_by_{name}_turns_per_s"] = ratio
    return figures


def summary(runs: Sequence[Outcome]) -> dict[str, float]:
    """Means of the seeds."""
    ooms = (one.per_10000(sum(one.ooms.values())) for one in runs)
    return {
        "wasted_share": fmean(one.wasted_share for one in runs),
        "ooms_per_10000_turns": fmean(ooms),
        "failed_per_10000_turns": fmean(one.per_10000(one.failed) for one in runs),
        "turns_per_s": fmean(one.turns_per_s for one in runs),
    }


def lowest_ratio(above: Sequence[Outcome], below: Sequence[Outcome]) -> float:
    """Throughput of one plan by another's, seed by seed; the worst seed's."""
    return min(a.turns_per_s / b.turns_per_s for a, b in zip(above, below, strict=True))


def details(plan: Plan, runs: Sequence[Outcome]) -> dict[str, Any]:
    """For readers: what was planned, and every seed."""
    return {
        "planned": plan.numbers,
        "turns_per_s": [round(one.turns_per_s, 2) for one in runs],
        "wasted_share": [round(one.wasted_share, 3) for one in runs],
        "peak_share": [round(one.peak_share, 3) for one in runs],
        "ooms": [dict(one.ooms) for one in runs],
        "failed": [one.failed for one in runs],
        "turns": [one.turns for one in runs],
        "members_of_a_pass": [round(one.members, 2) for one in runs],
    }

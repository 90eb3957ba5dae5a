"""What a run would become if a stage were placed or scaled otherwise, predicted from its record.

Costs are fitted to the passes that the run's devices recorded, the loops' wake-up time to the gaps
between them; the simulator, which runs the product's own policies, then plays the run as it was and
as it would be, and what was measured is multiplied by the ratio of the two.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

import numpy as np

from loadtest.device.profile import Profile, StageCost
from loadtest.device.strict import from_json
from loadtest.ledger import Explanation
from loadtest.ledger.run import NS_PER_MS, Pass, Run
from loadtest.sim.figures import Figures
from loadtest.sim.runs import Crowd, Staging, stages
from loadtest.sim.tables import GATHER

TOGETHER = Staging(consideration=GATHER)
"""All on one device, the encoder considerate, as the emulated repository is shipped."""

ENCODER_APART = Staging(encoder_apart=True)
CHANGES = {
    "the encoder on a device of its own": ENCODER_APART,
    "a second speak, on a device of its own": replace(TOGETHER, speak_replicas=2),
    "both": replace(ENCODER_APART, speak_replicas=2),
}
"""What can be predicted, from everything together on."""

WARM_UP_S, MEASURED_S = 10.0, 40.0


def with_second_speak(staging: Staging) -> Staging:
    """The same, with one more replica of speak on a device of its own."""
    return replace(staging, speak_replicas=staging.speak_replicas + 1)


@dataclass(frozen=True)
class Forecast:
    """What would be measured; first audio is the 95th percentile."""

    turns_per_s: float
    first_audio_p95_ms: float
    turns_gain: float
    """Times as many turns as were measured."""


def what_if(told: Explanation) -> dict[str, Forecast]:
    """Every change that can be foretold for a run, the one that gives most first; none for runs
    that are not of the emulated stages, all on one device, with people who never pause."""
    run = told.run
    known = run.emulated and {one.stage for one in run.passes} == {"listen", "think", "speak"}
    if not known or run.is_open_loop or len(told.devices) != 1 or not told.rulers.answered:
        return {}
    if run.facts.get("target") != "stages" or not run.facts.get("profile"):
        return {}
    if run.facts.get("knobs", {}).get("overrides"):
        return {}
    found = {words: forecast(told, after) for words, after in CHANGES.items()}
    return dict(sorted(found.items(), key=lambda change: -change[1].turns_gain))


def forecast(told: Explanation, after: Staging, before: Staging = TOGETHER) -> Forecast:
    """Predict a run whose stages were run as `before`, if they were run as `after`.

    ValueError for a run without a record of its devices, or without answers.
    """
    profile, wakeup_ms = fitted(told.run)
    crowd = Crowd(told.run.people, 0.0, WARM_UP_S, MEASURED_S)

    def played(staging: Staging) -> Figures:
        return stages(profile, crowd, replace(staging, wakeup_ms=wakeup_ms))

    was, would_be = played(before), played(after)
    gain = would_be.turns_per_s / was.turns_per_s
    slower = would_be.ttfa_p95_s / was.ttfa_p95_s
    measured_ms = told.rulers.first_audio.p95 or 0.0
    return Forecast(throughput(told) * gain, measured_ms * slower, gain)


def throughput(told: Explanation) -> float:
    """Turns a second of people who never pause: how many there are by how long a turn takes
    (Little's law). People answer in waves of some seconds; counting the turns that end in a window
    is wrong by up to one wave.

    ValueError where nobody was answered.
    """
    mean_ms = told.rulers.latency.mean
    if mean_ms is None:
        raise ValueError(f"in run {told.run.name!r} nobody was answered, so nothing is predicted")
    return 1000 * told.run.people / mean_ms


def fitted(run: Run) -> tuple[Profile, float]:
    """The run's profile with costs as its devices recorded them, and the loops' wake-up in ms."""
    if not run.passes:
        raise ValueError(f"run {run.name!r} has no record of its devices, so nothing is predicted")
    profile = from_json(Profile, dict(run.facts["profile"]), "run.json: profile")
    known = {stage: [p for p in run.passes if p.stage == stage] for stage in profile.stages}
    costs = {
        stage: replace(profile.stages[stage], cost_ms=_cost(passes, profile.stages[stage].cost_ms))
        for stage, passes in known.items()
    }
    return replace(profile, stages=costs), _wakeup_ms(run.passes)


def _cost(passes: Iterable[Pass], known: StageCost) -> StageCost:
    """Least squares; where all passes had as many members the profile's slope is kept."""
    members = np.array([one.members for one in passes], float)
    took_ms = np.array([one.end_ns - one.start_ns for one in passes], float) / NS_PER_MS
    if not members.size:
        return known
    if np.ptp(members) == 0:
        return StageCost(float(took_ms.mean() - known.per_item * members[0]), known.per_item)
    slope, base = np.polyfit(members, took_ms, 1)
    return StageCost(float(base), float(slope))


def _wakeup_ms(passes: tuple[Pass, ...]) -> float:
    """Between two passes of one stage in a row: what its loop takes to ask for the next."""
    gaps = [
        (later.submitted_ns - earlier.end_ns) / NS_PER_MS
        for earlier, later in pairwise(passes)
        if earlier.stage == later.stage and later.submitted_ns >= earlier.end_ns
    ]
    return median(gaps) if gaps else Staging.wakeup_ms

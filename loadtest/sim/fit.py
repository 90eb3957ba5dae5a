"""A profile whose monolith is as idle as the seed says: 40 % busy at 64 people.

The sketch's monolith is 81 % busy. What is missing is host work that grows with the number of
members; `fit` finds how much.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, replace

from loadtest.device.profile import Profile
from loadtest.sim.runs import Crowd, monolith

PEOPLE = 64
BUSY = 0.42
TIMEOUT_S = 12.0
LIMIT_MS = 5.0
"""Nobody's host needs more than this for a member's step."""

ASSUMPTIONS = (
    "device costs, steps, limits and the rule are those of profile.json",
    "host_gap_ms_total stays 4 ms a round, as the seed's 'a few ms'; what is missing to its idle "
    "device is put into work per running member (sampling, text, sockets in one Python thread)",
    "gap_per_member_ms is fitted by `python -m loadtest.sim fit`, which simulates the monolith at "
    "64 people until the device is busy for 0.42 of the time; the seed says 40 %",
    "a round works once for each member, whether it thinks or speaks; the stages pay the same for "
    "each of their steps, beside the next step",
    "the client waits 12 s instead of 6 s, because every turn takes twice as long: 5.3 s at 32 and "
    "10.6 s at 64 people, where profile.json has 2.7 s and 5.4 s",
)


def with_gap(profile: Profile, gap_per_member_ms: float) -> Profile:
    """`profile` with so much host work for each member."""
    own = replace(profile.monolith, gap_per_member_ms=gap_per_member_ms)
    return replace(profile, monolith=own)


def fitted(profile: Profile, crowd: Crowd | None = None, busy: float = BUSY) -> Profile:
    """`profile` with the host work per member, in steps of 0.01 ms, that makes it `busy`."""
    crowd = crowd or Crowd(PEOPLE)

    def too_busy(gap_ms: float) -> bool:
        return monolith(with_gap(profile, gap_ms), crowd).busy > busy

    gap_ms = round(bisect(too_busy, LIMIT_MS, 0.005), 2)
    client = replace(profile.client, timeout_s=TIMEOUT_S)
    return replace(with_gap(profile, gap_ms), client=client, assumptions=ASSUMPTIONS)


def bisect(too_little: Callable[[float], bool], limit: float, tolerance: float) -> float:
    """The smallest value in [0, limit], within `tolerance`, that is enough."""
    low, high = 0.0, limit
    while high - low > tolerance:
        middle = (low + high) / 2
        low, high = (middle, high) if too_little(middle) else (low, middle)
    return high


def as_json(profile: Profile) -> str:
    """As a file in profiles/."""
    return json.dumps(asdict(profile), indent=2) + "\n"

"""`python -m loadtest.sim`: what the experiment should show, in virtual time. No device, no server.

`python -m loadtest.sim fit` prints profile-seed40.json.
"""

import sys
from collections.abc import Iterable
from pathlib import Path

from loadtest.device.profile import Profile
from loadtest.sim import fit, tables
from loadtest.sim.runs import Crowd

SEED40 = Path(__file__).parents[1] / "profiles" / "profile-seed40.json"


def show(title: str, rows: Iterable[tables.Row]) -> None:
    """Print one table."""
    print(f"\n{title}\n{tables.HEAD}")
    for label, found, sketch in rows:
        print(tables.line(label, found, sketch), flush=True)


def main() -> None:
    """All tables."""
    own, spoken = Profile.named("profile"), Profile.named("profile-diffusion")
    print("Simulated, in virtual time: predictions, not measurements.")
    show("profile.json, everybody begins at once", tables.people(own, own.concurrency))
    show("the monolith's knobs at 64", tables.knobs(own, Crowd(64)))
    for stagger_s in (0.0, 1.0):
        title = f"smoothness at 64, beginning over {stagger_s:.0f} s"
        show(title, tables.smoothness(own, Crowd(64, stagger_s)))
    seed40 = Profile.read(SEED40)
    show("profile-seed40.json", tables.people(seed40, (1, 8, 32, 64)))
    show("profile-seed40.json, the three remedies at 64", tables.remedies(seed40, Crowd(64)))
    for count in (8, 32, 64):
        title = f"profile-diffusion.json at {count}, beginning over 1 s"
        show(title, tables.diffusion(spoken, Crowd(count, 1.0)))


if __name__ == "__main__":
    if sys.argv[1:] == ["fit"]:
        print(fit.as_json(fit.fitted(Profile.named("profile"))), end="")
    elif sys.argv[1:]:
        sys.exit("usage: python -m loadtest.sim [fit]")
    else:
        main()

"""What the simulator predicts, as tables beside what the seed's sketch says."""

from collections.abc import Iterator, Sequence

from loadtest.device.profile import Profile
from loadtest.sim.figures import Figures
from loadtest.sim.runs import AS_IS, TUNED, Crowd, Knobs, Staging, monolith, stages
from loadtest.sim.stages import Consideration

SKETCH_MONOLITH = {1: 0.84, 8: 5.2, 32: 11.5, 64: 11.5, 128: 11.5}
SKETCH_STAGES = {1: 1.31, 8: 9.4, 32: 25.4, 64: 34.7, 128: 44.3}
"""Turns per second in seed/README.md."""

SKETCH_KNOBS = (("running 64", 14.9), ("+ encoder batch 8", 28.4), ("+ gap hidden", 35.0))
GATHER = Consideration(cap=2, patience_s=0.1, gather=True)
LONG_S = 100.0
"""Longer than any turn."""

Row = tuple[str, Figures, float | None]
"""A label, what the simulator says, and the sketch's turns per second."""

HEAD = (
    f"{'':34s}{'turns/s':>8s}{'sketch':>8s}{'p50 s':>8s}{'TTFA95':>8s}{'busy':>6s}{'late':>6s}"
    f"{'gap50':>8s}{'gap99':>8s}{'longest':>8s}{'batch':>7s}"
)


def line(label: str, found: Figures, sketch: float | None) -> str:
    """One row: seconds, gaps in ms, members of an encoder pass."""
    known = "" if sketch is None else f"{sketch:.2f}"
    gaps = [1000 * gap for gap in (found.gap_p50_s, found.gap_p99_s, found.gap_max_s)]
    return (
        f"{label:34s}{found.turns_per_s:8.2f}{known:>8s}{found.p50_s:8.2f}{found.ttfa_p95_s:8.2f}"
        f"{found.busy:6.0%}{found.late:6.0%}"
        f"{gaps[0]:8.1f}{gaps[1]:8.1f}{gaps[2]:8.1f}{found.encoder_members:7.2f}"
    )


def people(profile: Profile, counts: Sequence[int]) -> Iterator[Row]:
    """The seed's table; its figures stand beside those of the profile that it sketched."""
    sketched = profile == Profile.named("profile")
    for count in counts:
        told = (SKETCH_MONOLITH.get(count), SKETCH_STAGES.get(count)) if sketched else (None, None)
        yield f"monolith, {count}", monolith(profile, Crowd(count)), told[0]
        yield f"stages, {count}", stages(profile, Crowd(count)), told[1]


def knobs(profile: Profile, crowd: Crowd) -> Iterator[Row]:
    """The monolith's three knobs, one after the other."""
    steps = (Knobs(64), Knobs(64, 8), TUNED)
    for (label, sketch), chosen in zip(SKETCH_KNOBS, steps, strict=True):
        yield label, monolith(profile, crowd, chosen), sketch


def smoothness(profile: Profile, crowd: Crowd) -> Iterator[Row]:
    """What the encoder does for the sake of running streams."""
    yield "monolith", monolith(profile, crowd), None
    for cap in (1, 2, 3, 4, 8):
        yield f"stages, cap {cap}", stages(profile, crowd, Staging(encoder_batch=cap)), None
    patient = Staging(consideration=Consideration(cap=2, patience_s=0.1))
    yield "cap 2, patience 100 ms", stages(profile, crowd, patient), None
    yield "cap 2, patience, gather", stages(profile, crowd, Staging(consideration=GATHER)), None
    yield "encoder apart", stages(profile, crowd, Staging(encoder_apart=True)), None
    yield "one newcomer a step", stages(profile, crowd, Staging(join_at_once=False)), None


def remedies(profile: Profile, crowd: Crowd) -> Iterator[Row]:
    """The seed's three remedies."""
    yield "monolith", monolith(profile, crowd), None
    yield "bigger batch: encoder 8", monolith(profile, crowd, Knobs(encoder_batch=8)), None
    yield "bigger batch: running 64", monolith(profile, crowd, Knobs(max_running=64)), None
    for speed in (2.0, 4.0):
        yield f"device {speed:.0f} x", monolith(profile, crowd, AS_IS, speed), None
    yield "stages", stages(profile, crowd), None
    yield "stages, speech on a second", stages(profile, crowd, Staging(speech_apart=True)), None
    yield "stages, device 2 x", stages(profile, crowd, speed=2.0), None


def diffusion(profile: Profile, crowd: Crowd) -> Iterator[Row]:
    """Where one rule cannot serve: the rule as it is and tuned, and the stages."""
    yield "one rule", monolith(profile, crowd), None
    yield "one rule, tuned", monolith(profile, crowd, TUNED), None
    yield "stages, patience 0.5 s", stages(profile, crowd), None
    yield "stages, first pieces first", stages(profile, crowd, Staging(patience_s=LONG_S)), None

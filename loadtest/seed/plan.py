"""Every run of the experiment. Times are chosen so that all of it takes less than 20 minutes."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from loadtest.seed.experiment import (
    MONOLITH,
    MONOLITH_DIFFUSION,
    STAGES,
    STAGES_DIFFUSION,
    Experiment,
    Setup,
)

PEOPLE = (1, 8, 32, 64, 128)
CROWD = 64
GROWTH = 10
"""People of the published comparison of first audio from 1 to 10."""

SMOOTH = (8, 32, 64)
CAPS = (1, 2, 4, 8)
NO_BUDGET = (("emu_listen", "max_stall_ms", "0"), ("emu_listen", "gather_ms", "0"))

SEED40 = "profile-seed40"
INJECTED_MS = 40.0
STEP_GAP_MS = 4.0
KILLS, KILL_EVERY_S = 3, 7.0
CROWD_S = 18.0
"""A crowd is answered in waves of two to four seconds: a window has to hold many."""

INJECTIONS = (
    "others_encoder_ms",
    "others_steps_ms",
    "build_ms",
    "window_ms",
    "admission_ms",
    "step_gap_ms",
    "transport_ms",
)

PATIENT: dict[str, Any] = {"timeout_s": 20.0, "warm_up_s": 12.0, "seconds": 12.0}
"""A turn by diffusion takes ten seconds at 64 people; callers who leave after six show nothing."""

Knob = tuple[str, str, str]
LIMIT_64: Knob = ("monolith", "max_running", "64")
LIMIT_128: Knob = ("monolith", "max_running", "128")
BATCH_8: Knob = ("monolith", "encoder_batch", "8")
NO_GAP: Knob = ("monolith", "gap_hidden", "true")


def seconds_for(people: int, *, slow: bool) -> tuple[float, float]:
    """(warm-up, measured) seconds: a few turns of everybody before and while it counts."""
    if slow:
        return (3.0, 10.0) if people <= 8 else (6.0, 12.0) if people <= 32 else (9.0, 14.0)
    return (2.0, 10.0) if people <= 10 else (4.0, 12.0)


def runs(setup: Setup, series: str, people: Sequence[int]) -> Iterator[Experiment]:
    """One setup with several crowds."""
    slow = setup.system in (MONOLITH, MONOLITH_DIFFUSION)
    for count in people:
        warm_up_s, seconds = seconds_for(count, slow=slow)
        yield Experiment(f"{series}-{count}", series, setup, count, seconds, warm_up_s)


def monolith(*knobs: Knob, **more: object) -> Setup:
    """The monolith with knobs turned."""
    return replace(Setup(MONOLITH, overrides=knobs), **more)  # type: ignore[arg-type]


def stages(*knobs: Knob, **more: object) -> Setup:
    """The stages with knobs turned."""
    return replace(Setup(STAGES, overrides=knobs), **more)  # type: ignore[arg-type]


def listen(parameter: str, value: object) -> Knob:
    """A knob of the emulated encoder window."""
    return "emu_listen", parameter, str(value)


def curve() -> Iterator[Experiment]:
    """Throughput and latency against people: the plateau, and the cure."""
    yield from runs(monolith(), "monolith", PEOPLE)
    for one in runs(stages(), "stages", sorted({*PEOPLE, GROWTH})):
        yield replace(one, seconds=CROWD_S) if one.people >= CROWD else one


def ablation() -> Iterator[Experiment]:
    """One knob of the monolith at a time, then all three."""
    yield from runs(monolith(LIMIT_64), "monolith-limit-64", [CROWD])
    yield from runs(monolith(LIMIT_128), "monolith-limit-128", [CROWD])
    yield from runs(monolith(BATCH_8), "monolith-encoder-batch-8", [CROWD])
    yield from runs(monolith(NO_GAP), "monolith-gap-0", [CROWD])
    yield from runs(monolith(LIMIT_64, BATCH_8, NO_GAP), "monolith-tuned", [CROWD])


def diffusion() -> Iterator[Experiment]:
    """Speaking by diffusion: one rule for all against a rule for each."""
    rule = Setup(MONOLITH_DIFFUSION)
    name = MONOLITH_DIFFUSION.model
    tuned = replace(
        rule, overrides=tuple((name, *knob[1:]) for knob in (LIMIT_64, BATCH_8, NO_GAP))
    )
    for setup, series, people in (
        (rule, "diffusion-monolith", (8, 32)),
        (tuned, "diffusion-monolith-tuned", (32, CROWD)),
        (Setup(STAGES_DIFFUSION), "diffusion-stages", SMOOTH),
    ):
        for one in runs(setup, series, people):
            yield replace(one, **PATIENT) if one.people == CROWD else one


def smoothness() -> Iterator[Experiment]:
    """What an encoder pass costs those who decode, and what can be done about it."""
    apart = stages(*NO_BUDGET, apart=("listen",))
    yield from runs(apart, "stages-encoder-apart", SMOOTH)
    yield from runs(stages(*NO_BUDGET), "stages-no-budget", SMOOTH)
    for cap in CAPS[:-1]:
        capped = stages(*NO_BUDGET, listen("max_batch", cap))
        yield from runs(capped, f"stages-no-budget-cap-{cap}", [CROWD])


def shapes() -> Iterator[Experiment]:
    """Three encoder shapes instead of one."""
    tuned = monolith(LIMIT_64, BATCH_8, NO_GAP)
    for setup, series in ((tuned, "shapes-monolith-tuned"), (stages(), "shapes-stages")):
        for one in runs(setup, series, [CROWD]):
            yield replace(one, buckets=(0, 1, 2))


def killed() -> Iterator[Experiment]:
    """A stage's process, or the monolith's, is killed, again and again: whom it hits is luck."""
    for setup, series, model in (
        (monolith(), "killed-monolith", "monolith"),
        (stages(), "killed-stage", "emu_listen"),
    ):
        for one in runs(setup, series, [32]):
            seconds = KILLS * KILL_EVERY_S
            yield replace(one, kill=model, kill_every_s=KILL_EVERY_S, seconds=seconds)


def seed40() -> Iterator[Experiment]:
    """The seed's 40 %, and its three remedies."""
    base = Setup(MONOLITH, profile=SEED40)
    yield from runs(base, "seed40", [CROWD])
    bigger = replace(base, overrides=(LIMIT_64, BATCH_8))
    yield from runs(bigger, "seed40-bigger-batch", [CROWD])
    for speed in (2, 4):
        yield from runs(replace(base, speed=float(speed)), f"seed40-device-{speed}x", [CROWD])
    yield from runs(replace(base, apart=("speak",)), "seed40-second-device", [CROWD])


def injections() -> Iterator[Experiment]:
    """A known delay in each cause, against none."""
    yield Experiment("injected-none", "injected", stages(), 1, 8.0, 2.0)
    for cause in INJECTIONS:
        ms = STEP_GAP_MS if cause == "step_gap_ms" else INJECTED_MS
        setup = stages(delays=((cause, ms),))
        yield Experiment(f"injected-{cause}", "injected", setup, 1, 8.0, 2.0)


def everything() -> list[Experiment]:
    """All of it, setups that are used twice in a row kept together."""
    parts = (curve, ablation, diffusion, smoothness, shapes, killed, seed40, injections)
    return [one for part in parts for one in part()]


def quick() -> list[Experiment]:
    """The claim itself, in less than four minutes."""
    wanted = {"monolith-32", "monolith-64", "stages-1", "stages-10", "stages-64"}
    chosen = [one for one in curve() if one.name in wanted]
    without = [one for one in smoothness() if one.name == f"stages-no-budget-{CROWD}"]
    return [*chosen, *without]

"""The summary of the experiment: one number a figure, what was asked, and whether it was met."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from loadtest.device import Profile
from loadtest.ledger import Explanation
from loadtest.ledger.verdict import Disease
from loadtest.seed.plan import CAPS, CROWD, INJECTED_MS, INJECTIONS, SMOOTH, STEP_GAP_MS

Runs = Mapping[str, Explanation]
FLAT = 1.15
"""Throughput that has grown by less than this has not grown."""

AR_STEPS = sum(Profile.named("profile").stages[stage].steps for stage in ("think", "speak"))
"""Steps of a turn, each of which an injected step gap delays."""

INJECTED: dict[str, tuple[str, float]] = {
    "others_encoder_ms": ("encoder", INJECTED_MS),
    "others_steps_ms": ("steps", INJECTED_MS),
    "build_ms": ("building", INJECTED_MS),
    "window_ms": ("window", INJECTED_MS),
    "admission_ms": ("admission", 2 * INJECTED_MS),
    "step_gap_ms": ("host gap", STEP_GAP_MS * AR_STEPS),
    "transport_ms": ("transport", INJECTED_MS),
}
"""Delay -> (the row of the request book it belongs in, ms a turn)."""


@dataclass(frozen=True)
class Target:
    """What is asked of a figure."""

    words: str
    met: Callable[[float], bool]


def at_least(value: float) -> Target:
    return Target(f">= {value:g}", lambda figure: figure >= value)


def at_most(value: float) -> Target:
    return Target(f"<= {value:g}", lambda figure: figure <= value)


def between(low: float, high: float) -> Target:
    return Target(f"{low:g} to {high:g}", lambda figure: low <= figure <= high)


TARGETS: dict[str, Target] = {
    "monolith_64_by_32_throughput": between(0.9, 1.1),
    "monolith_64_by_32_latency_p50": at_least(1.8),
    "monolith_64_timeouts": at_least(1),
    "stages_by_monolith_throughput_64": at_least(2.5),
    "stages_by_monolith_ttfa_p95_64": at_most(0.4),
    "stages_busy_64": at_least(0.90),
    "stages_timeouts_64": at_most(0),
    "diffusion_stages_by_tuned_ttfa_p95_32": at_most(0.6),
    "diffusion_stages_by_tuned_ttfa_p95_64": at_most(0.6),
    "stall_budget_p99_gap_by_monolith": at_most(1.0),
    "stall_budget_throughput_by_monolith": at_least(2.0),
    "seed40_monolith_busy": between(0.35, 0.50),
    "first_audio_growth_1_to_10": at_most(1.8),
    "monolith_64_is_schedule_bound": at_least(1),
    "stages_128_is_compute_bound": at_least(1),
    "unexplained_p50_share": at_most(0.02),
    "unexplained_p95_share": at_most(0.05),
    **{f"injected_{cause}_share_found": between(0.9, 1.1) for cause in INJECTIONS},
}


def summary(runs: Runs) -> dict[str, float]:
    """Every figure that the runs which are there can give."""
    parts = (plateau, cure, remedies, separation, smoothness, ledger)
    found = {name: value for part in parts for name, value in part(Book(runs)).items()}
    return found | _verdicts(runs)


def _verdicts(runs: Runs) -> dict[str, float]:
    """1 where the ledger's verdict names the right disease."""
    wanted = {"monolith-64": Disease.SCHEDULE, "stages-128": Disease.COMPUTE}
    keys = {
        "monolith-64": "monolith_64_is_schedule_bound",
        "stages-128": "stages_128_is_compute_bound",
    }
    return {
        keys[name]: float(runs[name].verdict.disease is disease)
        for name, disease in wanted.items()
        if name in runs
    }


def result(runs: Runs) -> dict[str, Any]:
    """What is written as JSON."""
    found = summary(runs)
    asked = {name: target for name, target in TARGETS.items() if name in found}
    return {
        "emulated": True,
        "note": "all of it on an emulated device: it takes the profile's time, computes nothing",
        "summary": {name: None if math.isnan(v) else v for name, v in found.items()},
        "targets": {name: target.words for name, target in asked.items()},
        "met": {name: target.met(found[name]) for name, target in asked.items()},
        "remedies": judged_remedies(Book(runs)),
        "verdicts": {name: told.verdict.headline for name, told in runs.items()},
        "invalid": {name: told.run.invalid for name, told in runs.items() if told.run.invalid},
        "runs": {name: told.figures() for name, told in runs.items()},
    }


class Book:
    """Figures of runs by name; parts that need a run which was not made are left out."""

    def __init__(self, runs: Runs) -> None:
        self._figures = {name: told.figures() for name, told in runs.items()}

    def has(self, *names: str) -> bool:
        return all(name in self._figures for name in names)

    def of(self, run: str, figure: str) -> float:
        """A figure, NaN where there is none, as first audio where nobody was answered."""
        value = self._figures[run].get(figure)
        return float(value) if isinstance(value, int | float) else math.nan

    def ratio(self, run: str, other: str, figure: str) -> float:
        """A figure of one run by that of another."""
        below = self.of(other, figure)
        return self.of(run, figure) / below if below else math.nan

    def timeouts(self, run: str) -> float:
        """Turns that their callers gave up on."""
        found = self._figures[run].items()
        return sum(float(v or 0) for k, v in found if k.startswith("failed/timeout"))

    def step_gap(self, run: str, key: str) -> float:
        """The longer of think's and speak's gaps."""
        return max(self.of(run, f"step_gap/{stage}_ms_{key}") for stage in ("think", "speak"))


def plateau(book: Book) -> dict[str, float]:
    """From 32 to 64 people the monolith gives no more, only later."""
    if not book.has("monolith-32", "monolith-64"):
        return {}
    pair = ("monolith-64", "monolith-32")
    return {
        "monolith_32_turns_per_s": book.of("monolith-32", "turns_per_s"),
        "monolith_64_turns_per_s": book.of("monolith-64", "turns_per_s"),
        "monolith_64_by_32_throughput": book.ratio(*pair, "turns_per_s"),
        "monolith_64_by_32_latency_p50": book.ratio(*pair, "latency_ms_p50"),
        "monolith_64_timeouts": book.timeouts("monolith-64"),
        "monolith_64_busy": book.of("monolith-64", "busy_share"),
    }


def cure(book: Book) -> dict[str, float]:
    """The same people, each stage under its own rule."""
    if not book.has("monolith-64", "stages-64"):
        return {}
    pair = ("stages-64", "monolith-64")
    found = {
        "stages_64_turns_per_s": book.of("stages-64", "turns_per_s"),
        "stages_by_monolith_throughput_64": book.ratio(*pair, "turns_per_s"),
        "stages_by_monolith_ttfa_p95_64": book.ratio(*pair, "first_audio_ms_p95"),
        "stages_busy_64": book.of("stages-64", "busy_share"),
        "stages_timeouts_64": book.timeouts("stages-64"),
    }
    if book.has("stages-1", "stages-10"):
        growth = book.ratio("stages-10", "stages-1", "first_audio_ms_p50")
        found["first_audio_growth_1_to_10"] = growth
    return found


def remedies(book: Book) -> dict[str, float]:
    """The seed's 40 %, and what the three usual remedies do to it."""
    if not book.has("seed40-64"):
        return {}
    found = {"seed40_monolith_busy": book.of("seed40-64", "busy_share")}
    for name in ("bigger-batch", "device-2x", "device-4x", "second-device"):
        run = f"seed40-{name}-64"
        if book.has(run):
            key = name.replace("-", "_")
            found[f"seed40_{key}_throughput_by_none"] = book.ratio(run, "seed40-64", "turns_per_s")
            found[f"seed40_{key}_busy"] = book.of(run, "busy_share")
            ttfa = book.ratio(run, "seed40-64", "first_audio_ms_p95")
            found[f"seed40_{key}_ttfa_p95_by_none"] = ttfa
    return found


def judged_remedies(book: Book) -> list[dict[str, Any]]:
    """Each remedy beside what the seed says of it; "flat" is within 15 % of none."""
    return [
        found for judge in (_bigger_batch, _faster_device, _second_device) for found in judge(book)
    ]


def _bigger_batch(book: Book) -> list[dict[str, Any]]:
    run, none = "seed40-bigger-batch-64", "seed40-64"
    if not book.has(run, none):
        return []
    gain = book.ratio(run, none, "turns_per_s")
    tail = book.step_gap(run, "p99") / max(1e-9, book.step_gap(none, "p99"))
    return [
        {
            "remedy": "a bigger batch (running limit 64, encoder batch 8)",
            "seed_says": "throughput stays flat, the tail breaks first",
            "found": f"{gain:.2f} x the turns, {tail:.2f} x the p99 gap between steps",
            "agrees": gain <= FLAT and tail > 1,
        }
    ]


def _faster_device(book: Book) -> list[dict[str, Any]]:
    found = []
    for speed in (2, 4):
        run, none = f"seed40-device-{speed}x-64", "seed40-64"
        if book.has(run, none):
            gain = book.ratio(run, none, "turns_per_s")
            busy, before = book.of(run, "busy_share"), book.of(none, "busy_share")
            found.append(
                {
                    "remedy": f"a device {speed} x as fast",
                    "seed_says": "40 % busy becomes 30 %: it idles more, and gives little",
                    "found": f"{before:.0%} busy becomes {busy:.0%}, {gain:.2f} x the turns",
                    "agrees": busy < before and gain < speed / 2 + 0.5,
                }
            )
    return found


def _second_device(book: Book) -> list[dict[str, Any]]:
    run, none = "seed40-second-device-64", "seed40-64"
    if not book.has(run, none):
        return []
    gain = book.ratio(run, none, "turns_per_s")
    return [
        {
            "remedy": "a device of its own for speech",
            "seed_says": "cannot be done: the three parts are tied into one process and one loop",
            "found": f"given to the monolith's one loop, it gives {gain:.2f} x the turns",
            "agrees": gain <= FLAT,
        }
    ]


def separation(book: Book) -> dict[str, float]:
    """One knob at a time, the tuned monolith, and what only separation gives."""
    found: dict[str, float] = {}
    for name in ("limit-64", "limit-128", "encoder-batch-8", "gap-0", "tuned"):
        run, key = f"monolith-{name}-64", name.replace("-", "_")
        if book.has(run, "monolith-64"):
            found[f"ablation_{key}_turns_per_s"] = book.of(run, "turns_per_s")
            gain = book.ratio(run, "monolith-64", "turns_per_s")
            found[f"ablation_{key}_by_monolith"] = gain
    for name, people in (("diffusion", 32), ("diffusion", 64), ("shapes", 64)):
        pair = f"{name}-stages-{people}", f"{name}-monolith-tuned-{people}"
        if book.has(*pair):
            for key, figure in (("throughput", "turns_per_s"), ("ttfa_p95", "first_audio_ms_p95")):
                ratio = book.ratio(*pair, figure)
                found[f"{name}_stages_by_tuned_{key}_{people}"] = ratio
    if book.has("stages-encoder-apart-64", "stages-64"):
        gain = book.ratio("stages-encoder-apart-64", "stages-64", "turns_per_s")
        found["encoder_apart_by_stages_throughput_64"] = gain
    for name in ("killed-monolith-32", "killed-stage-32"):
        if book.has(name):
            key = name.removesuffix("-32").replace("-", "_")
            failed = book.of(name, "failed") / max(1.0, book.of(name, "turns"))
            found[f"{key}_failed_share"] = failed
    return found


def smoothness(book: Book) -> dict[str, float]:
    """What encoder passes cost those who decode."""
    found: dict[str, float] = {}
    runs = [f"{series}-{people}" for series in SERIES for people in SMOOTH]
    runs += [f"stages-no-budget-cap-{cap}-{CROWD}" for cap in CAPS]
    for run in runs:
        if not book.has(run):
            continue
        key = run.replace("-", "_")
        found[f"{key}_step_gap_p99_ms"] = book.step_gap(run, "p99")
        found[f"{key}_step_gap_longest_ms"] = book.step_gap(run, "longest")
        found[f"{key}_underrun_share"] = book.of(run, "underrun_share")
        lost = book.of(run, "encoder_pass/person_ms_per_pass")
        found[f"{key}_person_ms_lost_per_encoder_pass"] = lost
    if book.has("stages-64", "monolith-64"):
        gap = book.step_gap("stages-64", "p99") / max(1e-9, book.step_gap("monolith-64", "p99"))
        found["stall_budget_p99_gap_by_monolith"] = gap
        gain = book.ratio("stages-64", "monolith-64", "turns_per_s")
        found["stall_budget_throughput_by_monolith"] = gain
    return found


SERIES = ("monolith", "stages", "stages-encoder-apart", "stages-no-budget")


def ledger(book: Book) -> dict[str, float]:
    """How honest the books are: the worst run counts."""
    names = [n for n in ("monolith-64", "stages-64", "stages-8", "monolith-8") if book.has(n)]
    found: dict[str, float] = {}
    for key in ("unexplained_p50_share", "unexplained_p95_share"):
        if names:
            shares = [abs(book.of(name, key)) for name in names]
            found[key] = math.nan if any(map(math.isnan, shares)) else max(shares)
    for cause, (row, expected_ms) in INJECTED.items():
        run = f"injected-{cause}"
        if book.has(run, "injected-none"):
            figure = f"request/{row}_ms"
            more = book.of(run, figure) - book.of("injected-none", figure)
            found[f"injected_{cause}_share_found"] = more / expected_ms
    return found

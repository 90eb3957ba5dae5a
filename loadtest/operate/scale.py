"""Replicas of think follow the load, by the autoscaler's own formula on what pods export.

There is no cluster: replicas are processes behind a DNS name, each on an emulated device of its
own, and this bench is Prometheus, the adapter and the control plane. Times are shortened: see
SHORTENED.
"""

import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from rich.progress import Progress

from deploy.errors import ServerFailed
from deploy.figures import read_metrics, rows
from deploy.kubernetes.around import BUSY, WAITED
from deploy.kubernetes.options import Options
from loadtest.engine.figures import Found
from loadtest.operate.autoscaler import Autoscaler, Rule
from loadtest.operate.callers import Asked, Callers, calling
from loadtest.operate.pod_figures import Look, PodFigures
from loadtest.operate.pods import FRONT, NAME, THINK, Pod, Pods, running
from loadtest.seed.figures import Target, at_least, at_most, between

PEOPLE: Final = ((2, 12.0), (9, 42.0), (2, 42.0))
"""(callers, seconds): 9 take 9 of the 12 places that three replicas have, and no fewer would do."""

SYNC_S: Final = 2.0
LOOK_S: Final = 0.5
WINDOW_S: Final = 5.0
STABLE_S: Final = 15.0
PERIOD_S: Final = 10.0
"""Longer than WINDOW_S and a start: a decision sees what the one before it has brought."""

MOST: Final = 4
SHORTENED: Final = {
    "metrics are asked for every (15 s)": SYNC_S,
    "window of rates (60 s)": WINDOW_S,
    "stabilisation of scaling down (300 s)": STABLE_S,
    "period of a change (15 s up, 60 s down)": PERIOD_S,
}
"""In s, beside what a cluster or our manifests have."""

TARGETS: Final[dict[str, Target]] = {
    "scale_peak_replicas": between(3, 3),
    "scale_final_replicas": between(1, 1),
    "scale_failed_turns": at_most(0),
    "scale_turns": at_least(1),
}


@dataclass
class Run:
    """What is known of it so far; `replicas`: (s since its beginning, count asked for)."""

    pods: Pods
    scaler: Autoscaler
    began_s: float
    taking: list[Pod] = field(default_factory=list)
    leaving: list[Pod] = field(default_factory=list)
    figures: dict[str, PodFigures] = field(default_factory=dict)
    replicas: list[tuple[float, int]] = field(default_factory=list)
    measured: list[dict[str, Any]] = field(default_factory=list)

    def at_s(self) -> float:
        return time.monotonic() - self.began_s

    def scrape(self) -> None:
        """As Prometheus does; a pod that has just gone tells nothing."""
        for pod in self.taking:
            try:
                told = rows(read_metrics(pod.metrics_address))
            except ServerFailed:
                continue
            figures = self.figures.setdefault(pod.host, PodFigures(WINDOW_S))
            figures.add(Look.of(time.monotonic(), told))

    def sync(self) -> None:
        """As the autoscaler and the deployment do: one decision, and what follows from it."""
        values = [self.figures.get(pod.host) for pod in self.taking]
        measured = {
            WAITED: [one.waited_s() if one else None for one in values],
            BUSY: [one.busy() if one else None for one in values],
        }
        wanted = self.scaler.desired(time.monotonic(), len(self.taking), measured)
        self.measured.append({"at_s": self.at_s(), "wanted": wanted, **measured})
        while len(self.taking) < wanted:
            self.taking.append(self.pods.start(THINK))
        while len(self.taking) > wanted:
            gone = self.taking.pop()
            self.pods.names.remove(NAME, gone.host)
            gone.terminate()
            self.leaving.append(gone)
        if not self.replicas or self.replicas[-1][1] != wanted:
            self.replicas.append((self.at_s(), wanted))

    def publish(self) -> None:
        """New pods that are ready by now get a place behind the name."""
        self.pods.publish()


def scale(folder: Path, rounds: int, progress: Progress) -> Found:
    """Few callers, many, few; once, however many rounds there are."""
    task = progress.add_task("scale", total=sum(seconds for _, seconds in PEOPLE), told="")
    with running() as pods:
        run = _begun(pods)
        front = pods.start(FRONT)
        front.wait_until_ready()
        with calling(front.grpc_address, max(people for people, _ in PEOPLE)) as callers:
            _warm_up(callers)
            run.began_s = time.monotonic()
            ends = [_phase(run, callers, people, s, progress, task) for people, s in PEOPLE]
            callers.people = 0
        codes = [pod.process.wait(60.0) for pod in run.leaving]
    progress.remove_task(task)
    return found(run, callers.asked, ends, codes)


def _begun(pods: Pods) -> Run:
    options = Options()
    targets = {
        WAITED: options.queue_target_ms / 1000,
        BUSY: options.busy_target_percent / 100,
    }
    rule = Rule(targets, least=1, most=MOST, stable_s=STABLE_S, period_s=PERIOD_S)
    run = Run(pods, Autoscaler(rule), time.monotonic())
    run.taking.append(pods.start(THINK))
    run.taking[0].wait_until_ready()
    run.publish()
    return run


def _warm_up(callers: Callers) -> None:
    """Until the proxy has asked DNS; these turns are nobody's."""
    callers.people = 1
    while not any(one.replica for one in callers.asked):
        time.sleep(LOOK_S)
    callers.people = 0
    time.sleep(1.0)
    callers.asked.clear()


def _phase(
    run: Run, callers: Callers, people: int, seconds: float, progress: Progress, task: Any
) -> float:
    """When it ended, in s since the beginning."""
    callers.people = people
    until_s, due_s = time.monotonic() + seconds, time.monotonic() + SYNC_S
    while time.monotonic() < until_s:
        run.scrape()
        run.publish()
        if time.monotonic() >= due_s:
            run.sync()
            due_s += SYNC_S
        progress.update(task, advance=LOOK_S, told=f"{people} callers, {len(run.taking)} replicas")
        time.sleep(LOOK_S)
    return run.at_s()


def found(run: Run, asked: list[Asked], ends: list[float], codes: list[int]) -> Found:
    """Figures, and what plots and readers want. `ends`: of the phases, s since the beginning;
    `codes`: of the replicas that were taken away."""
    failed = [one for one in asked if one.outcome != "ok"]
    peak = max(count for _, count in run.replicas)
    figures: dict[str, float | None] = {
        "scale_peak_replicas": peak,
        "scale_final_replicas": run.replicas[-1][1],
        "scale_failed_turns": len(failed),
        "scale_turns": len(asked),
        "scale_up_s": _reached(run, peak, ends[0]),
        "scale_down_s": _reached(run, 1, ends[1]),
        "scale_replicas_drained": sum(code == 0 for code in codes),
    }
    return Found(
        figures,
        {
            "shortened_s": SHORTENED,
            "targets": run.scaler.rule.targets,
            "replicas": run.replicas,
            "people": [people for people, _ in PEOPLE],
            "phases_end_s": ends,
            "measured": run.measured,
            "failed": [asdict(one) for one in failed[:10]],
        },
    )


def _reached(run: Run, count: int, after_s: float) -> float | None:
    """Seconds from the change of load until so many replicas were asked for; None: never."""
    return next((at - after_s for at, n in run.replicas if at > after_s and n == count), None)

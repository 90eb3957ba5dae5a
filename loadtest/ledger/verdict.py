"""Which of the two diseases a run has, in plain words, and what to change."""

from dataclasses import dataclass
from enum import StrEnum

from loadtest.ledger.device import SEVERAL, DeviceBook, Idle
from loadtest.ledger.request import Cause, RequestBook

BUSY_SHARE = 0.90
"""From here on a device counts as full."""


class Disease(StrEnum):
    """What limits a run."""

    COMPUTE = "compute-bound"
    SCHEDULE = "schedule-bound"
    NOT_LOADED = "not loaded"
    NO_RECORD = "no device record"


_IDLE_CURES = {
    Idle.HOST_GAP: "prepare the next step while the device computes this one (run ahead by a step)",
    Idle.WAKE_UP: "give the loop a thread, and the process a core, of its own; send off the loop",
    Idle.BUILDING: "build features in more workers, before the encoder is free",
    Idle.WINDOW: "wait for companions only while some are being built; shorten window_ms",
    Idle.ADMISSION: "raise the running limit, or admit between any two steps",
    Idle.TRANSPORT: "send fewer, larger messages; pass tensors by shared memory",
    Idle.ELSEWHERE: "the other device holds this one up: move a stage here, or add one there",
    Idle.UNEXPLAINED: "find out what the turns without a record were doing: look at the failures",
}
_WAIT_CURES = {
    Cause.ENCODER: "cap the encoder's batch by the stall that running streams can afford "
    "(StallBudget), or give the encoder a device of its own",
    Cause.STEPS: "put the stages that take turns on one device onto devices of their own",
    Cause.HOST_GAP: _IDLE_CURES[Idle.HOST_GAP],
    Cause.BUILDING: _IDLE_CURES[Idle.BUILDING],
    Cause.LOCK: "smaller or shorter batches, first pieces first, a second engine",
    Cause.WINDOW: _IDLE_CURES[Idle.WINDOW],
    Cause.ADMISSION: _IDLE_CURES[Idle.ADMISSION],
    Cause.TRANSPORT: _IDLE_CURES[Idle.TRANSPORT],
    Cause.SENDING: "the load generator is late: use fewer people or a machine of its own",
}


@dataclass(frozen=True)
class Verdict:
    """The judgement and its reasons."""

    disease: Disease
    mostly: str
    """The stage that fills the device, or the largest cause of its idleness."""

    words: tuple[str, ...]
    """What was found, one sentence each."""

    change: tuple[str, ...]
    """What to do about it, the most useful first."""

    @property
    def headline(self) -> str:
        """One line."""
        if self.disease in (Disease.SCHEDULE, Disease.COMPUTE):
            return f"{self.disease}, mostly by {self.mostly}"
        return str(self.disease)


def judge(books: tuple[DeviceBook, ...], requests: RequestBook, device_words: str) -> Verdict:
    """Judge by the busiest device: full from `BUSY_SHARE` on."""
    waits = _waits(requests)
    if not books:
        cure = _WAIT_CURES[requests.worst_wait]
        return Verdict(Disease.NO_RECORD, requests.worst_wait, waits, (cure,))
    book = books[0]
    busy = f"the {device_words} {book.device!r} is {book.busy_share:.0%} busy"
    if book.busy_share >= BUSY_SHARE:
        return _compute_bound(book, busy, waits)
    if book.idle[Idle.NOTHING] >= (book.wall_ns - book.busy_ns) / 2:
        words = (f"{busy}; most of the rest it had nothing to do", *waits)
        return Verdict(Disease.NOT_LOADED, Idle.NOTHING, words, ("load it more, then judge",))
    return _schedule_bound(book, busy, requests, waits)


def _compute_bound(book: DeviceBook, busy: str, waits: tuple[str, ...]) -> Verdict:
    stage, ns = next((row for row in book.busy.items() if row[0] != SEVERAL), ("", 0))
    words = (f"{busy}, {ns / book.wall_ns:.0%} with {stage!r}", *waits)
    change = (
        f"make {stage!r} cheaper: faster kernels, larger batches where the fixed part dominates",
        f"give {stage!r} a device of its own, or a faster one: here it would be used",
    )
    return Verdict(Disease.COMPUTE, stage, words, change)


def _schedule_bound(
    book: DeviceBook, busy: str, requests: RequestBook, waits: tuple[str, ...]
) -> Verdict:
    causes = [cause for cause in Idle if cause is not Idle.NOTHING]
    ranked = sorted(causes, key=lambda cause: -book.idle[cause])
    shares = book.idle_shares()
    parts = [f"{cause} {shares[cause]:.0%}" for cause in ranked[:3] if shares[cause] >= 0.005]
    words = (f"{busy}; idle: {', '.join(parts)}", *waits)
    cures = [_IDLE_CURES[ranked[0]], *(_WAIT_CURES[cause] for cause in _ranked(requests)[:3])]
    return Verdict(Disease.SCHEDULE, ranked[0], words, tuple(dict.fromkeys(cures)))


def _ranked(requests: RequestBook) -> list[Cause]:
    """Causes of waiting that take at least 5 % of the turns' time, the largest first."""
    shares = requests.shares()
    waits = [cause for cause in _WAIT_CURES if shares[cause] >= 0.05]
    return sorted(waits, key=lambda cause: -shares[cause])


def _waits(requests: RequestBook) -> tuple[str, ...]:
    shares = requests.shares()
    if not len(requests.table):
        return ("no turn was answered",)
    parts = [f"{cause} {shares[cause]:.0%}" for cause in _ranked(requests)[:4]]
    computing = f"a turn is computed {shares[Cause.COMPUTING]:.0%} of its time"
    return (f"{computing}; it spends {', '.join(parts)}" if parts else computing,)

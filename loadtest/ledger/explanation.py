"""Everything that can be said about one run, as data."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from loadtest.ledger.device import DeviceBook, Idle, device_books
from loadtest.ledger.phases import Lanes
from loadtest.ledger.request import Cause, RequestBook, row_name
from loadtest.ledger.run import Run
from loadtest.ledger.stall import Stalls, stalls
from loadtest.ledger.verdict import Verdict, judge
from loadtest.rulers import Rulers, Slo, Spread, rulers

Figure = float | int | str | bool | None


@dataclass(frozen=True)
class Explanation:
    """A run, its rulers, its two books and the verdict."""

    run: Run
    lanes: Lanes
    rulers: Rulers
    devices: tuple[DeviceBook, ...]
    """The busiest first."""

    requests: RequestBook
    stalls: Stalls

    @classmethod
    def of(cls, folder: Path, slo: Slo | None = None) -> "Explanation":
        """Read and account for a run folder; writes nothing."""
        run = Run.read(folder)
        lanes = Lanes(run)
        return cls(
            run=run,
            lanes=lanes,
            rulers=rulers(run, lanes, slo),
            devices=device_books(run, lanes),
            requests=RequestBook.of(run, lanes),
            stalls=stalls(run, lanes),
        )

    @cached_property
    def verdict(self) -> Verdict:
        """Compute-bound or schedule-bound, mostly by what."""
        return judge(self.devices, self.requests, self.run.device_words)

    @property
    def busy_share(self) -> float | None:
        """Of the busiest device, 0 to 1."""
        return self.devices[0].busy_share if self.devices else None

    def figures(self) -> dict[str, Figure]:
        """Everything as one flat table: name -> figure; names carry units, shares are 0 to 1."""
        return {
            **self._identity(),
            **_ruler_figures(self.rulers),
            **self._device_figures(),
            **self._request_figures(),
            **self._stall_figures(),
        }

    def _identity(self) -> dict[str, Figure]:
        run = self.run
        return {
            "name": run.name,
            "series": run.series,
            "emulated": run.emulated,
            "device": run.device_words,
            "people": run.people,
            "mode": str(run.facts["mode"]),
            "window_s": run.wall_ns * 1e-9,
            "valid": not run.invalid,
            "invalid_because": run.invalid,
            "verdict": self.verdict.headline,
            "disease": str(self.verdict.disease),
            "mostly": self.verdict.mostly,
        }

    def _device_figures(self) -> dict[str, Figure]:
        found: dict[str, Figure] = {"busy_share": self.busy_share}
        for cause in Idle if self.devices else ():
            found[f"idle/{row_name(cause)}_share"] = self.devices[0].idle_shares()[cause]
        for book in self.devices:
            found[f"device/{book.device}/busy_share"] = book.busy_share
            for stage, ns in book.busy.items():
                found[f"device/{book.device}/busy/{stage}_share"] = ns / max(1, book.wall_ns)
            for cause, share in book.idle_shares().items():
                found[f"device/{book.device}/idle/{row_name(cause)}_share"] = share
        return found

    def _request_figures(self) -> dict[str, Figure]:
        found: dict[str, Figure] = {
            "unexplained_p50_share": self.requests.unexplained(50),
            "unexplained_p95_share": self.requests.unexplained(95),
        }
        shares, first = self.requests.shares(), self.requests.mean_ms(first_audio=True)
        for cause, ms in self.requests.mean_ms().items():
            found[f"request/{row_name(cause)}_ms"] = ms
            found[f"request/{row_name(cause)}_share"] = shares[cause]
            found[f"first_audio/{row_name(cause)}_ms"] = first[cause]
        return found

    def _stall_figures(self) -> dict[str, Figure]:
        return {f"encoder_pass/{name}": value for name, value in vars(self.stalls).items()}


def seed_rows(requests: RequestBook) -> list[tuple[Cause, float, float]]:
    """The seed's three-row table from the request book: (cause, ms a turn, part of the turn)."""
    means, shares = requests.mean_ms(), requests.shares()
    rows = (Cause.ENCODER, Cause.HOST_GAP, Cause.ADMISSION)
    return [(cause, means[cause], shares[cause]) for cause in rows]


def _ruler_figures(found: Rulers) -> dict[str, Figure]:
    figures: dict[str, Figure] = {
        "turns": found.turns,
        "answered": found.answered,
        "failed": found.turns - found.answered,
        "turns_per_s": found.turns_per_s,
        "good_per_s": found.good_per_s,
        "slo_first_audio_ms": found.slo.first_audio_ms,
        "slo_stalled_ms": found.slo.stalled_ms,
        "underrun_share": found.underrun_share,
    }
    figures |= {f"failed/{reason}": count for reason, count in found.failures.items()}
    for name, spread in _spreads(found).items():
        for key in ("p50", "p95", "p99", "longest"):
            figures[f"{name}_{key}"] = getattr(spread, key)
    return figures


def _spreads(found: Rulers) -> dict[str, Spread]:
    spreads = {
        "latency_ms": found.latency,
        "latency_intended_ms": found.latency_intended,
        "first_audio_ms": found.first_audio,
        "first_audio_intended_ms": found.first_audio_intended,
        "whole_sentence_ms": found.whole_sentence,
        "rtf": found.rtf,
        "chunk_gap_ms": found.chunk_gaps,
        "longest_chunk_gap_ms": found.longest_chunk_gap,
        "stalled_ms": found.stalled,
    }
    for stage, gaps in found.step_gaps.items():
        spreads[f"step_gap/{stage}_ms"] = gaps.every
        spreads[f"longest_step_gap/{stage}_ms"] = gaps.longest
    return spreads

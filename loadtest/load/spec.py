"""What one run of the load is: who speaks to which model, how often, for how long."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).parent.parent.parent
RUNS = ROOT / "out" / "runs"
MODES = ("closed", "open")
_PATHS = ("trace", "emulation", "out")


@dataclass(frozen=True)
class RunSpec:
    """One run. ValueError when it makes no sense.

    `target` names what is measured in reports ("stages", "monolith", ...), `series` a finer name
    where runs of one target differ by `knobs`, `model` what is asked.
    Closed loop: `people` each speak again `think_time_ms` after their answer ended; their first
    turns are spread evenly over `ramp_s`. Open loop: turns start on their own, `rate` a second
    (Poisson, seeded) or when `trace` says, however long answers take.

    A turn counts when it was meant to start in the `seconds` that follow `warm_up_s`. Load goes on
    until all of these have ended, so that slow turns are not cut off; then open ones are cancelled.

    An emulated turn sends AUDIO [1, 16] whose first value is one of `buckets`, person by person;
    its SPEECH [1, 1] is the chunk's sound in ms. With `recordings` a turn sends one of these files
    and is answered with samples. `options` are request parameters of the model.

    In a live run people are on the line, one call each, and say one recording after the other. What
    counts as a turn is each of them, meant to start at its end; `timeout_s` is how long the first
    sound of an answer is waited for; `barge_in` is the share of answers that are interrupted.
    """

    name: str
    target: str
    model: str
    people: int = 1
    mode: str = "closed"
    rate: float | None = None
    trace: Path | None = None
    seconds: float = 10.0
    warm_up_s: float = 2.0
    ramp_s: float = 1.0
    timeout_s: float = 6.0
    think_time_ms: float = 0.0
    seed: int = 0
    live: bool = False
    barge_in: float = 0.2
    buckets: tuple[int, ...] = (0,)
    recordings: tuple[Path, ...] = ()
    options: Mapping[str, bool | int | str] = field(default_factory=dict)
    knobs: Mapping[str, Any] = field(default_factory=dict)
    series: str = ""
    emulation: Path | None = None
    out: Path = RUNS

    def __post_init__(self) -> None:
        if not self.name or Path(self.name).name != self.name:
            raise ValueError(f"a run's name is the name of a folder, not {self.name!r}")
        if self.mode not in MODES:
            raise ValueError(f"mode is one of {MODES}, not {self.mode!r}")
        if (self.mode == "open") != (self.rate is not None or self.trace is not None):
            raise ValueError("an open loop, and only that, has a rate or a trace")
        if self.rate is not None and self.trace is not None:
            raise ValueError("an open loop has a rate or a trace, not both")
        if self.people < 1 or not self.buckets:
            raise ValueError("a run needs at least one person and one bucket")
        if self.live and (self.mode != "closed" or not self.recordings):
            raise ValueError("a live run is a closed loop, and has recordings")
        if not 0 <= self.barge_in <= 1:
            raise ValueError(f"barge_in is {self.barge_in}; it is a share, 0 to 1")
        self._require_finite()

    def _require_finite(self) -> None:
        """ValueError unless times make sense; what may be 0 is 0 or more."""
        for name in ("warm_up_s", "ramp_s", "think_time_ms"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name} is {value}, which is not a time")
        for name in ("seconds", "timeout_s", "rate"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name} is {value}; it must be more than 0")

    @property
    def folder(self) -> Path:
        """Where the run is written."""
        return self.out / self.name

    @property
    def emulated(self) -> bool:
        """Answers come from an emulated device, not from weights."""
        return self.emulation is not None if self.live else not self.recordings

    def to_json(self) -> str:
        """As text, for `from_json`."""
        return json.dumps(asdict(self), default=lambda path: str(path.resolve()), indent=1)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The spec in `text`; ValueError for unknown keys."""
        known = {entry.name for entry in fields(cls)}
        values = json.loads(text)
        if unknown := values.keys() - known:
            raise ValueError(f"unknown keys {sorted(unknown)}; known are {sorted(known)}")
        for name in _PATHS:
            if values.get(name) is not None:
                values[name] = Path(values[name])
        values["recordings"] = tuple(Path(name) for name in values.get("recordings", ()))
        values["buckets"] = tuple(values.get("buckets", (0,)))
        return cls(**values)


def recordings(folder: Path) -> tuple[Path, ...]:
    """The sound files of a folder, in order; ValueError when it has none."""
    found = tuple(sorted(folder.glob("*.wav")))
    if not found:
        raise ValueError(f"{folder} has no .wav files")
    return found

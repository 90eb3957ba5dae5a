"""What a stage declares, uses and has used at most, part by part, on /metrics."""

from __future__ import annotations

from collections.abc import Mapping

from python_backends.bridge.figures import Figures
from python_backends.declared import Declared
from python_backends.scheduling.bytes import UNBOUNDED, Usage


class ByteFigures:
    """Tells what has changed; the parts that are bounded while the stage runs have usages."""

    def __init__(self, figures: Figures, declared: Declared) -> None:
        self._figures = figures
        self._parts = declared.parts
        self._told: dict[tuple[str, str], int] = {}
        for part, nbytes in declared.parts.items():
            if nbytes:
                self._tell(part, "declared", nbytes)

    def tell(self, usages: Mapping[str, Usage]) -> None:
        """Part -> what is used of it; one that the model's process alone does not take, as a batch
        with the graphs' share, has its bound told as what is declared."""
        for part, usage in usages.items():
            if part not in self._parts and usage.declared < UNBOUNDED:
                self._tell(part, "declared", usage.declared)
            self._tell(part, "used", usage.used)
            self._tell(part, "peak", usage.peak)

    def _tell(self, part: str, kind: str, nbytes: int) -> None:
        if self._told.get((part, kind)) != nbytes:
            self._told[part, kind] = nbytes
            self._figures.tell("stage_bytes", (("part", part), ("kind", kind)), nbytes)

"""What an evaluation finds: figures, and what stands behind them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from loadtest.stages.reheard import Heard, word_error_rate


@dataclass
class Report:
    """Figures by name, all numbers; and `detail`, for readers."""

    figures: dict[str, float] = field(default_factory=dict)
    detail: dict[str, Any] = field(default_factory=dict)

    def count_words(self, name: str, heard: Sequence[Heard]) -> float:
        """The word error rate as a figure, its errors and words in the detail under `words`."""
        rate = self.figures[name] = word_error_rate(heard)
        counts = {"errors": sum(one.errors for one in heard), "of": sum(map(_length, heard))}
        self.detail.setdefault("words", {})[name] = counts
        return rate


def _length(heard: Heard) -> int:
    return len(heard.expected)

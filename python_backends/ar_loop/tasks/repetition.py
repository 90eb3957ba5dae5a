"""Does a decoder go round in circles? Told from the tokens while it speaks, or from its text.

Whisper that has lost the sound repeats a phrase until its limit: 224 tokens, each a decode step in
which nobody else's are shortened.
"""

import zlib

COPIES = 4
"""So often in a row a phrase must have been said. People repeat a sentence two or three times
("Can you hear me?"), and refrains do."""

SPAN = 32
"""And so many tokens the copies must fill, which spares short phrases: "no, no, no, no" and
laughter stay below it, and so does a telephone number of equal digits, at most 15 (E.164) and, with
a comma after each, 30 tokens. In speech, 32 tokens last some ten seconds."""

LONGEST = 56
"""The longest phrase looked for, in tokens: 4 copies of it are Whisper's limit of 224."""

MAX_COMPRESSION = 2.4
"""Text that deflates better than this repeats itself (Whisper's own threshold)."""


class Said:
    """Tokens drawn so far, and whether they have ended in a loop."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self._runs: dict[int, int] = {}
        """For each distance d: how many of the last tokens in a row equal the one d before them."""

    def add(self, token: int) -> None:
        """One more token; costs a look at the last LONGEST ones."""
        earlier = enumerate(reversed(self.tokens[-LONGEST:]), 1)
        self._runs = {back: self._runs.get(back, 0) + 1 for back, one in earlier if one == token}
        self.tokens.append(token)

    @property
    def period(self) -> int:
        """Tokens of the phrase that the end is a loop of; 0 where it is none."""
        loops = (back for back, run in self._runs.items() if _is_loop(back, back + run))
        return min(loops, default=0)

    @property
    def once(self) -> list[int]:
        """All tokens, of a loop only the first round."""
        period = self.period
        return self.tokens[: len(self.tokens) - self._runs[period]] if period else self.tokens


def _is_loop(period: int, span: int) -> bool:
    return span >= max(COPIES * period, SPAN)


def repeats_itself(heard: str) -> bool:
    """The text deflates so well that it must be a loop."""
    raw = heard.encode()
    return len(raw) > 0 and len(raw) / len(zlib.compress(raw)) > MAX_COMPRESSION

"""What one call has shown. Pure; times are ns of CLOCK_MONOTONIC, as those of the server's spans.

A recording and a turn of speech belong together by position in the caller's sound: where the server
ends a turn too early, one recording makes several.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from client.live import LiveEvent
from client.responses import Event

NS_PER_MS = 1_000_000
NEAR_NS = 400 * NS_PER_MS
"""The end of speech that the server tells may be so far from that of the recording."""


@dataclass(frozen=True)
class Said:
    """A recording's first and last speech."""

    begin_ns: int
    end_ns: int


@dataclass(eq=False)
class Turn:
    """One turn of speech and the answer to it; 0 is what has not happened."""

    name: str
    spoken_ns: int = 0
    """When its last speech was, as the server heard it."""

    ended_ns: int = 0
    """When it was told that the speech is over."""

    words_ns: int = 0
    first_sound_ns: int = 0
    interrupted_ns: int = 0
    outcome: str = ""
    """What it ended in, "failed: <error>" for a failure; empty while nothing has been told."""

    spans: list[Event] = field(default_factory=list)
    """That came with its sound, on the way to its first piece."""

    sounds_behind: int = 0
    """Chunks of sound that came after its end."""


@dataclass(eq=False)
class Record:
    """Of one call; filled while it goes on."""

    planned: int
    """Recordings."""

    began_ns: int = 0
    said: Sequence[Said] = ()
    turns: dict[str, Turn] = field(default_factory=dict)
    paused_ns: list[int] = field(default_factory=list)
    stops_ns: dict[str, int] = field(default_factory=dict)
    """Turn -> when its caller had it stopped."""

    last_sounds_ns: Mapping[str, int] = field(default_factory=dict)
    """Turn -> when the loudspeaker played the last of its answer."""

    lags_ms: Sequence[float] = ()
    """What each chunk took to be listened to."""

    late_ms: Sequence[float] = ()
    """How late each was sent, which is the generator's fault."""

    underruns: int = 0
    error: str = ""
    """What the call itself failed of."""

    def follow(self, event: LiveEvent) -> None:
        """The next event."""
        now_ns = event.received_ns
        turn = self.turns.setdefault(event.turn, Turn(event.turn)) if event.turn else Turn("")
        match event.type:
            case "speech_ended":
                turn.ended_ns = now_ns
                turn.spoken_ns = self.began_ns + event.more["at_ms"] * NS_PER_MS
            case "transcript":
                turn.words_ns = now_ns
            case "audio":
                self._hear(turn, event)
            case "paused":
                self.paused_ns.append(now_ns)
            case "interrupted":
                turn.interrupted_ns, turn.outcome = now_ns, event.type
            case "answered" | "no_speech":
                turn.outcome = event.type
            case "failed":
                turn.outcome = f"failed: {type(event.error).__name__}"

    def _hear(self, turn: Turn, event: LiveEvent) -> None:
        turn.sounds_behind += bool(turn.outcome)
        if event.speech.size and not turn.first_sound_ns:
            turn.first_sound_ns = event.received_ns
        if event.more["piece"] == 0:
            turn.spans += event.spans

    def turns_of(self, said: Said) -> list[Turn]:
        """Those that a recording was heard as; all but the last were ended too early."""
        return [
            turn
            for turn in self.turns.values()
            if said.begin_ns <= turn.spoken_ns <= said.end_ns + NEAR_NS
        ]

    def pairs(self) -> list[tuple[Said, Turn]]:
        """Recordings with the turn that ends with them; those that were not heard are left out."""
        found = [(said, self.turns_of(said)[-1:]) for said in self.said]
        return [
            (said, turn)
            for said, turns in found
            for turn in turns
            if turn.spoken_ns >= said.end_ns - NEAR_NS
        ]

    @property
    def answered(self) -> int:
        """Recordings whose answer was played to its end."""
        return sum(turn.outcome == "answered" for _, turn in self.pairs())

    @property
    def false_ends(self) -> int:
        """Turns that ended inside a recording."""
        heard = sum(len(self.turns_of(said)) for said in self.said)
        return heard - len(self.pairs())

    def pauses_ms(self) -> list[float]:
        """From the first speech of a recording to the pause of the answer that it interrupts."""
        begins = [said.begin_ns for said in self.said]
        spans = [*pairwise(begins), (begins[-1], 2**63)] if begins else []
        found = [
            next((at for at in self.paused_ns if begin <= at < until), None)
            for begin, until in spans
        ]
        return [(at - begin) / NS_PER_MS for at, begin in zip(found, begins, strict=True) if at]

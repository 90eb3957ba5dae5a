"""Parameters of `listen`, and those that `live` has in common with it."""

from dataclasses import dataclass

from python_backends.scheduling.endpoint import EndpointSettings


@dataclass(frozen=True, kw_only=True)
class ListenSettings:
    """`server` is overridden by the environment variable TRISTAGE_GRPC, which the launcher sets."""

    server: str
    vad_model: str
    """A window each of many callers; their state comes along."""

    transcribe_model: str
    """AUDIO to HEARD: an ensemble, which is walked step by step, or one model."""

    stages: str
    """Those that a transcript goes through and that have a queue, parted by commas: they are told
    of one that is not wanted any more."""

    max_calls: int
    idle_s: int
    """A call of which no chunk has come for so long is ended: the server tells no model that it
    has forgotten a sequence."""

    gap_ms: int
    """So long without a chunk is silence, while a turn is under way."""

    max_turn_s: int
    closed_ms: int
    complete_ms: int
    unknown_ms: int
    hanging_ms: int
    """Silence that ends a turn whose words ask for an answer, are another sentence, are not known,
    or hang in the air."""

    partial_ms: int
    """How often those who want it are told what was said so far, beside every pause."""

    no_progress_ms: int
    """A stage that answers nothing of a transcript for so long has failed it."""

    max_transcripts: int = 16
    """Transcripts at once; further ones wait. Each takes some MB of features on their way."""

    hold_ms: int = 5000
    """So long a transcript is held for a stage that is being started again, or has no room."""

    @property
    def endpoint(self) -> EndpointSettings:
        """ValueError when they contradict each other."""
        return EndpointSettings(
            closed_s=self.closed_ms / 1000,
            complete_s=self.complete_ms / 1000,
            unknown_s=self.unknown_ms / 1000,
            hanging_s=self.hanging_ms / 1000,
            longest_s=self.max_turn_s,
        )

    @property
    def stage_names(self) -> tuple[str, ...]:
        """`stages`, split at commas."""
        return tuple(name.strip() for name in self.stages.split(",") if name.strip())

    def __post_init__(self) -> None:
        _ = self.endpoint
        counts = (self.max_calls, self.idle_s, self.gap_ms, self.partial_ms, self.max_transcripts)
        if min(counts) < 1:
            raise ValueError(
                "max_calls, idle_s, gap_ms, partial_ms and max_transcripts must be at least 1"
            )

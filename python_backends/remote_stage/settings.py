"""Parameters of a stage that is served elsewhere."""

from dataclasses import dataclass


@dataclass(frozen=True)
class RemoteSettings:
    """Where the replicas are is not said here but in the placement file, which may change."""

    controlled: bool
    """The stage has an input CONTROL: it can be told to drop a turn, and asked for its clock."""

    silence_ms: int = 15_000
    """A request that nothing has come for in so long has failed."""

    probe_ms: int = 500
    """How often every replica is asked whether it answers."""

    lost_ms: int = 2_000
    """A replica that has answered nothing for so long is lost, and all that is open there."""

    shared_memory_min_bytes: int = 65_536
    """Inputs of this size or more go to a replica on this host by shared memory, smaller ones in
    the message, which is as fast."""

    shared_memory_bytes: int = 64 * 2**20
    """Room for such inputs; 0: none are shared."""

    max_open: int = 1024
    """Open requests beyond which new ones are refused."""

    def __post_init__(self) -> None:
        if min(self.silence_ms, self.probe_ms, self.max_open) < 1 or self.lost_ms <= self.probe_ms:
            raise ValueError("times in ms and max_open must be positive, lost_ms above probe_ms")
        if self.shared_memory_bytes < 0 or self.shared_memory_min_bytes < 1:
            raise ValueError("shared_memory_bytes must be 0 or more, shared_memory_min_bytes 1")

"""Parameters of an ar_loop model."""

from dataclasses import dataclass

ENGINES = ("bls", "in_process")
TASKS = ("transcribe", "converse", "intone")


@dataclass(frozen=True)
class LoopSettings:
    """`task` names what the tokens mean; `engine` where `step_model` runs.

    Either may also be a class of one's own, "module:Class", made with (ModelConfig, settings).
    `slots` and `capacity` are those of `step_model`. `max_waiting` sequences may wait for a slot.
    """

    task: str
    step_model: str
    engine: str
    slots: int
    capacity: int
    prefill_chunk: int
    max_new_tokens: int
    max_waiting: int
    join_tokens: int = 0
    """Tokens of further short prompts that may join one step; not with engine bls."""

    lone_chunk: int = 0
    """Tokens of a prompt that one command computes while nobody decodes; 0: `prefill_chunk`."""

    engines: int = 1
    """Engines of `slots` rows each, behind one queue; more than one not with engine bls. Two of one
    thread compute more than one of two threads."""

    threads: int = 1
    """Of each engine in the loop's own process."""

    kv_bytes: int = 0
    """That sequences with a row may take of an engine's KV, each as many tokens as it may grow to;
    further ones wait. 0: as many as there are rows. Not with engine bls."""

    session_bytes: int = 0
    """Of KV that may be set aside for the next turns of sessions; 0: none. Not with engine bls."""

    def __post_init__(self) -> None:
        if self.engine not in ENGINES and ":" not in self.engine:
            raise ValueError(f"engine {self.engine!r}; {ENGINES} are known")
        if min(self.engines, self.threads) < 1 or min(self.kv_bytes, self.session_bytes) < 0:
            raise ValueError("engines and threads must be at least 1, bytes at least 0")
        held_here = self.join_tokens or self.kv_bytes or self.session_bytes or self.engines > 1
        if self.engine == "bls" and held_here:
            raise ValueError(
                "join_tokens, engines above 1, kv_bytes and session_bytes need an engine in the "
                "loop's own process"
            )
        if self.task not in TASKS and ":" not in self.task:
            raise ValueError(f"task {self.task!r}; {TASKS} are known")

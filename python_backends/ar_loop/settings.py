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

    def __post_init__(self) -> None:
        if self.engine not in ENGINES and ":" not in self.engine:
            raise ValueError(f"engine {self.engine!r}; {ENGINES} are known")
        if self.engine == "bls" and self.join_tokens:
            raise ValueError("join_tokens needs an engine in the loop's own process")
        if self.task not in TASKS and ":" not in self.task:
            raise ValueError(f"task {self.task!r}; {TASKS} are known")

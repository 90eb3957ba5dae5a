"""Parameters of an ar_loop model."""

from dataclasses import dataclass

from python_backends.slot_engine.command import MAX_CHUNK
from python_backends.slot_engine.settings import ONNXRUNTIME, check_runtime

ENGINES = ("bls", "in_process")
TASKS = ("transcribe", "converse", "intone")
PROMPTS = ("order", "chat")


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
    prompt: str = "order"
    """Of task converse: "order", with our menu, or "chat", by the template in chat.json."""

    encode_model: str = "encode"
    """Of task transcribe: the model that encodes a doubtful window again."""

    join_tokens: int = 0
    """Tokens of further short prompts that may join one step; not with engine bls."""

    lone_chunk: int = 0
    """Tokens of a prompt that one command computes while nobody decodes; 0: `prefill_chunk`."""

    engines: int = 1
    """Engines of `slots` rows each, behind one queue; more than one not with engine bls. Two of one
    thread compute more than one of two threads."""

    threads: int = 1
    """Of each engine in the loop's own process."""

    runtime: str = ONNXRUNTIME
    """Of an engine in the loop's own process: onnxruntime, or tensorrt on `device`."""

    device: str = "cuda"
    """Of runtime tensorrt: cuda, or cuda:1 and so on."""

    kv_bytes: int = 0
    """That sequences with a row may take of each engine's KV, each as many tokens as it may grow
    to; further ones wait. 0: as many as there are rows. Needs engine in_process."""

    session_bytes: int = 0
    """Of KV that may be set aside for the next turns of sessions; 0: none. Needs in_process."""

    def __post_init__(self) -> None:
        if self.engine not in ENGINES and ":" not in self.engine:
            raise ValueError(f"engine {self.engine!r}; {ENGINES} are known")
        if min(self.engines, self.threads, self.prefill_chunk) < 1:
            raise ValueError("engines, threads and prefill_chunk must be at least 1")
        if max(self.prefill_chunk, self.lone_chunk, self.join_tokens) > MAX_CHUNK:
            raise ValueError(f"a command takes {MAX_CHUNK} tokens of a prompt at most")
        if min(self.lone_chunk, self.join_tokens, self.kv_bytes, self.session_bytes) < 0:
            raise ValueError("lone_chunk, join_tokens, kv_bytes, session_bytes: 0 at least")
        if self.engine == "bls" and (self.join_tokens or max(self.engines, self.threads) > 1):
            raise ValueError(
                "join_tokens, and engines and threads above 1, need an engine in the loop's own "
                "process"
            )
        check_runtime(self.runtime)
        if self.engine != "in_process" and self.runtime != ONNXRUNTIME:
            raise ValueError(
                "runtime is of engine in_process; behind bls it is that of the step model"
            )
        if self.engine != "in_process" and (self.kv_bytes or self.session_bytes):
            raise ValueError("kv_bytes and session_bytes need engine in_process")
        if self.prompt not in PROMPTS:
            raise ValueError(f"prompt {self.prompt!r}; {PROMPTS} are known")
        if self.task not in TASKS and ":" not in self.task:
            raise ValueError(f"task {self.task!r}; {TASKS} are known")

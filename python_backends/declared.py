"""The bytes that a model declares in its config.pbtxt, part by part.

Parameters named bytes_..., with values like "90MiB", accepted of every model alike:

* bytes_process     the interpreter and the runtime of its process
* bytes_weights     the graphs and tables that it opens
* bytes_kv_token    one token of one row of its KV pool
* bytes_kv_row      what a row takes beside its tokens: the context of cross-attention
* bytes_activation  the largest batch that it is given
* bytes_requests    the inputs of its open requests, and what is made of them
* bytes_per_input   what an open request takes for each byte of its inputs; 1 where it is not told
* bytes_shm         its region of shared memory, where tensors lie on their way

The KV cache follows from the model's other parameters: engines * slots * (capacity * bytes_kv_token
+ bytes_kv_row) + session_bytes. Weights, KV and activation count once an engine; where the engine
is another model (`engine: bls`) they are that model's.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Self

from python_backends.sizes import byte_count

PREFIX = "bytes_"
PARAMETERS = (
    "bytes_process",
    "bytes_weights",
    "bytes_kv_token",
    "bytes_kv_row",
    "bytes_activation",
    "bytes_requests",
    "bytes_per_input",
    "bytes_shm",
)


@dataclass(frozen=True)
class Declared:
    """Bytes of each part; 0: that part is neither promised nor bounded."""

    process: int = 0
    weights: int = 0
    kv: int = 0
    activation: int = 0
    requests: int = 0
    shm: int = 0
    per_input: int = field(default=1, metadata={"is_no_part": True})
    """What an open request takes for each byte of its inputs."""

    @classmethod
    def of(cls, parameters: Mapping[str, str]) -> Self | None:
        """What a model with these parameters declares; None: nothing at all. ValueError names a
        parameter that is unknown or cannot be read."""
        given = {key: text for key, text in parameters.items() if key.startswith(PREFIX)}
        if not given:
            return None
        unknown = sorted(given.keys() - set(PARAMETERS))
        if unknown:
            raise ValueError(f"unknown parameters {unknown}; known: {', '.join(PARAMETERS)}")
        size = {key: _size(key, given.get(key, "0")) for key in PARAMETERS}
        row = _number(parameters, "capacity") * size["bytes_kv_token"] + size["bytes_kv_row"]
        engines = 0 if parameters.get("engine") == "bls" else _number(parameters, "engines", 1)
        return cls(
            process=size["bytes_process"],
            weights=engines * size["bytes_weights"],
            kv=engines * _number(parameters, "slots") * row + _number(parameters, "session_bytes"),
            activation=engines * size["bytes_activation"],
            requests=size["bytes_requests"],
            shm=size["bytes_shm"],
            per_input=size["bytes_per_input"] or 1,
        )

    def check_kv(self, nbytes: int) -> None:
        """ValueError when the pools of a model take more than it declares."""
        if 0 < self.kv < nbytes:
            raise ValueError(
                f"the KV cache takes {nbytes} bytes, and {self.kv} are declared by bytes_kv_token "
                "and bytes_kv_row"
            )

    @cached_property
    def total(self) -> int:
        """All parts."""
        return sum(self.parts.values())

    @property
    def parts(self) -> dict[str, int]:
        """By name."""
        return {one.name: getattr(self, one.name) for one in fields(self) if not one.metadata}


def _size(key: str, text: str) -> int:
    try:
        return byte_count(text)
    except ValueError as fault:
        raise ValueError(f"parameter {key!r} is {text!r}; {fault}") from fault


def _number(parameters: Mapping[str, str], key: str, default: int = 0) -> int:
    """A parameter that the model itself reads and checks; what is no number counts nothing."""
    text = parameters.get(key, "")
    return int(text) if text.isdecimal() else default

"""What an engine takes of a device, as the bytes_* parameters that its config declares."""

from collections.abc import Mapping

from python_backends.sizes import byte_count

_MIB = 2**20


def declares(engine: int, activation: int | None) -> dict[str, str]:
    """Parameters for an engine file of so many bytes (its weights) and its execution context's
    device memory; that is None where no GPU could tell."""
    found = {"bytes_weights": _mib(engine)}
    return found if activation is None else found | {"bytes_activation": _mib(activation)}


def short_of(declared: Mapping[str, str], needed: Mapping[str, str]) -> list[str]:
    """What a config declares too little of."""
    return [
        f"{key} is {declared.get(key, '0')}, {size} are needed"
        for key, size in needed.items()
        if byte_count(declared.get(key, "0")) < byte_count(size)
    ]


def as_parameters(needed: Mapping[str, str]) -> str:
    """Lines for a config.pbtxt."""
    return "\n".join(
        f'parameters {{ key: "{key}" value {{ string_value: "{size}" }} }}'
        for key, size in needed.items()
    )


def _mib(count: int) -> str:
    return f"{-(-count // _MIB)}MiB"

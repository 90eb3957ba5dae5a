"""A stage that is served elsewhere is stood in for by a proxy of the same name."""

from collections.abc import Mapping
from typing import Any

from tritonclient.grpc import model_config_pb2

from python_backends.sizes import byte_count

PROXY_BACKEND = "remote_stage"
DECLARED = {"bytes_process": "48MiB", "bytes_shm": "16MiB"}
"""Of a proxy; inputs on their way are bounded by its own `shared_memory_bytes`."""

PROXY_BYTES = sum(map(byte_count, DECLARED.values()))

SEEN_BY_CALLERS = {"name", "max_batch_size", "input", "output", "model_transaction_policy"}
"""What a proxy keeps of a config; how a stage is batched is its own affair, where it is served."""


def proxy_config(config: Any, parameters: Mapping[str, str]) -> Any:
    """The ModelConfig of the proxy that stands for a model with this one."""
    proxy = model_config_pb2.ModelConfig()
    proxy.CopyFrom(config)
    for field, _ in config.ListFields():
        if field.name not in SEEN_BY_CALLERS:
            proxy.ClearField(field.name)
    proxy.backend = PROXY_BACKEND
    proxy.instance_group.add(kind=model_config_pb2.ModelInstanceGroup.KIND_CPU, count=1)
    controlled = "true" if has_control(config) else "false"
    for key, value in {**DECLARED, **parameters, "controlled": controlled}.items():
        proxy.parameters[key].string_value = value
    return proxy


def has_control(config: Any) -> bool:
    """A stage with a queue of its own: it takes orders, and answers a probe at once."""
    return any(tensor.name == "CONTROL" for tensor in config.input)

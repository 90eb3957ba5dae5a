"""A stage that is served elsewhere is stood in for by a proxy of the same name."""

from collections.abc import Mapping
from typing import Any

from tritonclient.grpc import model_config_pb2

from python_backends.declared import PARAMETERS

PROCESS = "36MiB"
"""That a proxy's process takes before it has anything to pass on."""

PROXY_BACKEND = "remote_stage"
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
    declared = _declared(config) if _declares(config) else {}
    for key, value in {**declared, **parameters, "controlled": controlled}.items():
        proxy.parameters[key].string_value = value
    return proxy


def _declares(config: Any) -> bool:
    return any(key in PARAMETERS for key in config.parameters)


def _declared(config: Any) -> dict[str, str]:
    """A process, and what is on its way to the stage and back: as much as one replica may have of
    it. It is not bounded here, since there may be several."""
    stage = {key: config.parameters[key].string_value for key in config.parameters}
    return {
        "bytes_process": PROCESS,
        "bytes_activation": stage.get("bytes_requests", "0"),
        "bytes_shm": stage.get("bytes_shm", "0"),
    }


def has_control(config: Any) -> bool:
    """A stage with a queue of its own: it takes orders, and answers a probe at once."""
    return any(tensor.name == "CONTROL" for tensor in config.input)

"""A TensorRT module of a few lines: it parses nothing, and "builds" what it was told to."""

import json
from types import SimpleNamespace as Space
from typing import Any

from build.tensorrt.profiles import Shape

__version__ = "10.8.0.43"

GARBAGE = "Error Code 4: serialized engine has the wrong magic tag"


class ILogger:
    """What ours is derived from."""


class NetworkDefinitionCreationFlag:
    STRONGLY_TYPED = 1


class ComputeCapability:
    SM89 = "SM89"


class IAttentionInputLayer:
    type = "LayerType.ATTENTION_INPUT"
    attention: Any


class IKVCacheUpdateLayer:
    type = "LayerType.KV_CACHE_UPDATE"


class Cache:
    def __init__(self, held: bytes) -> None:
        self.held = held

    def serialize(self) -> bytes:
        return self.held + b"t"


class Config:
    def __init__(self) -> None:
        self.profiles: list[Any] = []
        self.capability: Any = None
        self.cache: Cache | None = None
        self.num_compute_capabilities = 0

    def set_compute_capability(self, target: Any, place: int) -> None:
        self.capability = (target, place)

    def add_optimization_profile(self, profile: Any) -> int:
        self.profiles.append(profile.shapes)
        return len(self.profiles) - 1

    def create_timing_cache(self, held: bytes) -> Cache | None:
        return None if held == b"broken" else Cache(held)

    def set_timing_cache(self, cache: Cache, *, ignore_mismatch: bool) -> bool:
        assert not ignore_mismatch
        self.cache = cache
        return True

    def get_timing_cache(self) -> Cache | None:
        return self.cache


class Profile:
    def __init__(self) -> None:
        self.shapes: dict[str, list[Shape]] = {}

    def set_shape(self, name: str, least: Shape, usual: Shape, most: Shape) -> None:
        self.shapes[name] = [least, usual, most]


class Builder:
    """Networks that parse to nothing; an engine is a JSON text of its profiles."""

    fails = False

    def __init__(self, logger: Any) -> None:
        self.logger = logger

    def create_network(self, flags: int) -> Any:
        assert flags == 1 << NetworkDefinitionCreationFlag.STRONGLY_TYPED
        return Space(name="net", num_layers=0, num_inputs=0, num_outputs=0)

    def create_builder_config(self) -> Config:
        return Config()

    def create_optimization_profile(self) -> Profile:
        return Profile()

    def build_serialized_network(self, network: Any, config: Config) -> bytes | None:
        if self.fails:
            self.logger.log("Severity.ERROR", "no kernel")
            return None
        return json.dumps([config.profiles, config.capability]).encode()


class OnnxParser:
    def __init__(self, network: Any, logger: Any) -> None:
        self.num_errors = 1

    def parse(self, model: bytes) -> bool:
        return bool(model)

    def get_error(self, number: int) -> Any:
        return Space(desc=lambda: "no importer for Nonsense")


class Runtime:
    def __init__(self, logger: Any) -> None:
        self.logger = logger

    def deserialize_cuda_engine(self, engine: bytes) -> Any:
        if not engine.startswith(b"["):
            self.logger.log("Severity.ERROR", GARBAGE)
            return None
        return Space(device_memory_size_v2=5 * 2**20 + 1)

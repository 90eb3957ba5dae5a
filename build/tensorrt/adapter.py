"""The TensorRT API, used as `tensorrt` and as the bindings of TensorRT-RTX have it alike.

The module is always a parameter (`trt`): nothing here imports it, so that the same code runs where
only one of the two is installed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from build.errors import EngineRefused
from build.fetch import replacing
from build.tensorrt.arrival import Attention, Network, Tensor, Update, complaints
from build.tensorrt.profiles import Profile
from python_backends.tensorrt.errors import EngineUnfit
from python_backends.tensorrt.runtime import Toolkit


@dataclass(frozen=True)
class Parsed:
    """A network in TensorRT, with the objects that must outlive it."""

    network: Any
    builder: Any
    parser: Any
    arrived: Network


def parse(kit: Toolkit, model: onnx.ModelProto) -> Parsed:
    """A strongly typed network of a graph. Raises EngineRefused with the parser's errors."""
    trt, before = kit.trt, len(kit.said)
    builder = trt.Builder(kit.logger)
    typed = 1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
    network = builder.create_network(typed)
    parser = trt.OnnxParser(network, kit.logger)
    if not parser.parse(model.SerializeToString()):
        errors = [parser.get_error(number).desc() for number in range(parser.num_errors)]
        raise EngineRefused(f"{model.graph.name}: not parsed: {'; '.join(errors)}")
    for attention in _attention_objects(trt, network):
        # In fp32 there is no fused kernel; without this the build fails instead of taking several.
        attention.decomposable = True
    return Parsed(network, builder, parser, _arrived(trt, network, kit.said[before:]))


def parsed_as_meant(kit: Toolkit, model: onnx.ModelProto) -> Parsed:
    """The same, refused where it lost anything. Raises EngineRefused with what it lost."""
    parsed = parse(kit, model)
    if lost := complaints(model, parsed.arrived):
        raise EngineRefused(f"{model.graph.name}: arrived otherwise in TensorRT: {'; '.join(lost)}")
    return parsed


def build(
    kit: Toolkit,
    parsed: Parsed,
    profiles: Sequence[Profile],
    *,
    capability: str | None = None,
    timing: Path | None = None,
) -> bytes:
    """The serialized engine. `capability` "8.9": for that GPU, where the library can build without
    one; None: for the one that is there. `timing`: file of the timing cache.

    Raises EngineRefused with what TensorRT said.
    """
    before = len(kit.said)
    config = parsed.builder.create_builder_config()
    if capability is not None:
        config.num_compute_capabilities = 1
        target = getattr(kit.trt.ComputeCapability, f"SM{capability.replace('.', '')}", None)
        if target is None:
            raise EngineRefused(f"this TensorRT cannot build for compute capability {capability}")
        config.set_compute_capability(target, 0)
    for profile in profiles:
        _add(kit, parsed, config, profile)
    cache = _timing(config, timing)
    made = parsed.builder.build_serialized_network(parsed.network, config)
    if made is None:
        told = "; ".join(kit.said[before:]) or "TensorRT gave no reason"
        raise EngineRefused(f"{parsed.network.name}: not built: {told}")
    if cache is not None and timing is not None:
        with replacing(timing) as partial:
            partial.write_bytes(bytes(config.get_timing_cache().serialize()))
    return bytes(made)


def activation_bytes(kit: Toolkit, engine: bytes) -> int:
    """Device memory of one execution context, at the largest shapes of all profiles.

    Needs the GPU that the engine is for. Raises EngineRefused for what is no engine of it.
    """
    try:
        return int(kit.deserialized(engine).device_memory_size_v2)
    except EngineUnfit as fault:
        raise EngineRefused(str(fault)) from fault


def _add(kit: Toolkit, parsed: Parsed, config: Any, profile: Profile) -> None:
    added = parsed.builder.create_optimization_profile()
    for name, bounds in profile.items():
        added.set_shape(name, bounds.least, bounds.usual, bounds.most)
    if config.add_optimization_profile(added) < 0:
        raise EngineRefused(f"{parsed.network.name}: a profile was refused: {kit.said[-1:]}")


def _timing(config: Any, path: Path | None) -> Any:
    """A cache of kernel timings that are known, or an empty one; what cannot be read is dropped."""
    if path is None:
        return None
    cache = config.create_timing_cache(path.read_bytes() if path.exists() else b"")
    if cache is None or not config.set_timing_cache(cache, ignore_mismatch=False):
        cache = config.create_timing_cache(b"")
        config.set_timing_cache(cache, ignore_mismatch=False)
    return cache


def _name(value: Any) -> str:
    """The last part of an enumerator's name."""
    return str(value).rpartition(".")[2]


def _layers(network: Any, kind: str, layer_class: Callable[[], Any]) -> list[Any]:
    """Layers of one type. The bindings give their base class, which lacks what is theirs."""
    layers = (network.get_layer(number) for number in range(network.num_layers))
    found = [layer for layer in layers if _name(layer.type) == kind]
    for layer in found:
        layer.__class__ = layer_class()
    return found


def _attention_objects(trt: Any, network: Any) -> list[Any]:
    layers = _layers(network, "ATTENTION_INPUT", lambda: trt.IAttentionInputLayer)
    return [layer.attention for layer in layers]


def _updates(trt: Any, network: Any) -> list[Update]:
    layers = _layers(network, "KV_CACHE_UPDATE", lambda: trt.IKVCacheUpdateLayer)
    return [
        Update(
            str(layer.get_input(0).name),
            str(layer.get_output(0).name),
            _name(layer.cache_mode) == "LINEAR",
        )
        for layer in layers
    ]


def _arrived(trt: Any, network: Any, said: Sequence[str]) -> Network:
    return Network(
        layers=[_name(network.get_layer(n).type) for n in range(network.num_layers)],
        attentions=[_attention(one) for one in _attention_objects(trt, network)],
        updates=_updates(trt, network),
        inputs=[_tensor(network.get_input(n)) for n in range(network.num_inputs)],
        outputs=[_tensor(network.get_output(n)) for n in range(network.num_outputs)],
        said=list(said),
    )


def _attention(found: Any) -> Attention:
    lengths = getattr(found, "key_value_lengths", None)
    return Attention(
        name=str(found.name),
        query=_tensor(found.get_input(0)),
        mask=None if found.mask is None else _tensor(found.mask),
        causal=bool(found.causal),
        lengths=lengths is not None,
    )


def _tensor(found: Any) -> Tensor:
    return Tensor(str(found.name), _name(found.dtype), tuple(found.shape))

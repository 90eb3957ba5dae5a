"""Inputs for a graph of a given shape: seeded noise where it takes floats, sense where numbers."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from build.tensorrt.profiles import Shape

LENGTHS = {"LENGTH": "X", "WINDOWS": "AUDIO"}
"""Inputs that say how much of another one's axis 1 is a row's own: all of it."""

TOKENS = 32
"""Every vocabulary has so many; of the prosody LM both halves of a token."""


def feeds(model: onnx.ModelProto, shapes: Mapping[str, Shape]) -> dict[str, NDArray[Any]]:
    """Inputs of these shapes: tokens at random, from place 0 of KV pools of zeros."""
    dice = np.random.default_rng(0)
    return {value.name: _input(value, shapes, dice) for value in model.graph.input}


def _input(
    value: onnx.ValueInfoProto, shapes: Mapping[str, Shape], dice: np.random.Generator
) -> NDArray[Any]:
    shape = shapes[value.name]
    kind = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
    if value.name in LENGTHS:
        return np.full(shape, shapes[LENGTHS[value.name]][1], kind)
    if value.name == "ids":
        return dice.integers(0, TOKENS, shape).astype(kind)
    if value.name == "clen":
        return np.full(shape, shapes["ck0"][2], kind)
    if np.issubdtype(kind, np.integer) or (value.name[0] in "kv" and value.name[1:].isdigit()):
        return np.zeros(shape, kind)
    return dice.standard_normal(shape).astype(kind)

"""PyTorch modules to ONNX graphs that the native Triton backends run."""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

OPSET = 17

Axes = Mapping[str, Mapping[int, str]]


def export_native(
    module: nn.Module,
    example: Sequence[Tensor],
    target: Path,
    *,
    inputs: Sequence[str],
    outputs: Sequence[str],
    dynamic: Axes,
) -> None:
    """Trace `module` on `example` and write it at opset 17; `dynamic` names dimensions that vary.

    The tracing exporter is used on purpose: it emits plain operators of an opset that the ONNX
    Runtime inside stock Triton images knows.
    """
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module.eval(),
            tuple(example),
            str(target),
            input_names=list(inputs),
            output_names=list(outputs),
            dynamic_axes={name: dict(axes) for name, axes in dynamic.items()},
            opset_version=OPSET,
            dynamo=False,
        )

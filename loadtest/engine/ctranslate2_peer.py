"""CTranslate2, int8: a generator of whole batches, timed token by token as it tells of them.

Its prompt is the same for all rows and cached (`static_prompt`), so that a step can be timed
without prefilling every row again; a step then holds what ours holds, the argmax included.
"""

import os
import shutil
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import ctranslate2
from ctranslate2 import specs
from ctranslate2.converters import utils

from loadtest.engine import weights
from loadtest.engine.bare import prompt


class CTranslate2:
    """One worker of one thread. See Contestant."""

    def __init__(self, folder: Path) -> None:
        self._tokens: list[str] = weights.value("tokenizer.ggml.tokens")
        self._generator = ctranslate2.Generator(
            str(_converted(folder, self._tokens)),
            device="cpu",
            compute_type="int8",
            inter_threads=1,
            intra_threads=1,
        )

    def fill(self, context: int) -> None:
        """Have the prompt's state cached."""
        self.steps(1, context, 1)

    def steps(self, rows: int, context: int, count: int) -> list[float]:
        """See Contestant; the first token is not timed, since the state is copied for it."""
        told: list[float] = []

        def tell(step: Any) -> bool:
            if step.batch_id == 0:
                told.append(time.perf_counter())
            return False

        *shared, last = self._prompt(context + 1)
        self._generate([[last]] * rows, count + 1, tell, static_prompt=shared)
        assert len(told) == count + 1, f"{len(told)} tokens of {count + 1}"
        return [1e3 * (later - earlier) for earlier, later in pairwise(told)]

    def prefill(self, tokens: int) -> float:
        """See Contestant."""
        told: list[float] = []

        def tell(step: Any) -> bool:
            told.append(time.perf_counter())
            return False

        words = self._prompt(tokens)
        began = time.perf_counter()
        self._generate([words], 1, tell)
        return 1e3 * (told[0] - began)

    def close(self) -> None:
        """See Contestant."""
        self._generator.unload_model()

    def _prompt(self, tokens: int) -> list[str]:
        return [self._tokens[index] for index in prompt(tokens)]

    def _generate(
        self, start: list[list[str]], count: int, tell: Callable[[Any], bool], **more: Any
    ) -> None:
        """Exactly `count` tokens behind `start`, whose tokens are computed at once."""
        self._generator.generate_batch(
            start,
            max_length=count,
            min_length=count,
            include_prompt_in_result=False,
            callback=tell,
            **more,
        )


def _converted(folder: Path, tokens: list[str]) -> Path:
    """The model in its own form, made once."""
    target = folder / f"{weights.gguf_path().name.split('.')[0]}.ct2-int8"
    if not target.exists():
        partial = target.with_name(f"{target.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        spec = _spec(tokens)
        spec.validate()
        spec.optimize(quantization="int8")
        spec.save(str(partial))
        os.replace(partial, target)
    return target


def _spec(tokens: list[str]) -> Any:
    """As the library's own loader of Llama models makes it."""
    spec = specs.TransformerDecoderModelSpec.from_config(
        weights.value("llama.block_count"),
        weights.value("llama.attention.head_count"),
        pre_norm=True,
        activation=specs.common_spec.Activation.SWISH,
        ffn_glu=True,
        rms_norm=True,
        rotary_dim=0,
        rotary_interleave=False,
        rotary_base=weights.value("llama.rope.freq_base"),
        num_heads_kv=weights.value("llama.attention.head_count_kv"),
    )
    decoder = spec.decoder
    decoder.scale_embeddings = False
    decoder.embeddings.weight = decoder.projection.weight = weights.array("token_embd")
    decoder.layer_norm.gamma = weights.array("output_norm")
    for number, layer in enumerate(decoder.layer):
        _fill(layer, f"blk.{number}")
    spec.register_vocabulary(tokens)
    spec.config.bos_token = spec.config.eos_token = spec.config.unk_token = tokens[0]
    spec.config.layer_norm_epsilon = weights.value("llama.attention.layer_norm_rms_epsilon")
    return spec


def _fill(layer: Any, name: str) -> None:
    layer.self_attention.layer_norm.gamma = weights.array(f"{name}.attn_norm")
    layer.ffn.layer_norm.gamma = weights.array(f"{name}.ffn_norm")
    heads = [specs.common_spec.LinearSpec() for _ in range(3)]
    for linear, kind in zip(heads, ("attn_q", "attn_k", "attn_v"), strict=True):
        linear.weight = weights.array(f"{name}.{kind}")
    utils.fuse_linear(layer.self_attention.linear[0], heads)
    layer.self_attention.linear[1].weight = weights.array(f"{name}.attn_output")
    layer.ffn.linear_0.weight = weights.array(f"{name}.ffn_gate")
    layer.ffn.linear_0_noact.weight = weights.array(f"{name}.ffn_up")
    layer.ffn.linear_1.weight = weights.array(f"{name}.ffn_down")

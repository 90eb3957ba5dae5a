"""`python -m build.voice`: trains the voice, or measures it.

python -m build.voice train      teacher data, both models, weights/voice
python -m build.voice evaluate   speaks unseen sentences, hears them, weights/voice/quality.json
"""

import argparse
import os
import sys
from collections.abc import Sequence

# A thread that spins for a core other people use makes each step ten times as long; read by OpenMP
# when torch is imported, hence before it.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def train(threads: int) -> None:
    """Trains both models, or what is left of it, and writes the weights."""
    import torch

    from build.voice.corpus import load_corpus
    from build.voice.train_flow import train_flow
    from build.voice.train_prosody import train_prosody
    from build.voice.weights import save_voice

    torch.set_num_threads(threads)
    corpus = load_corpus(workers=threads)
    save_voice(corpus, train_prosody(corpus), train_flow(corpus))


def evaluate(threads: int) -> None:
    """Measures the voice in git and writes what was found beside it."""
    import torch

    from build.voice.evaluate import write_quality

    torch.set_num_threads(threads)
    write_quality(threads)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m build.voice", description=__doc__)
    parser.add_argument("task", choices=("train", "evaluate"))
    parser.add_argument("--threads", type=int, default=2)
    chosen = parser.parse_args(arguments)
    {"train": train, "evaluate": evaluate}[chosen.task](chosen.threads)
    return 0


if __name__ == "__main__":
    sys.exit(main())

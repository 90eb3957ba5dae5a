"""`python -m build.voice`: trains the voices, or what is left of it, and writes `weights/voice`.

python -m build.voice train          from nothing
python -m build.voice train --on     from the weights in git
python -m build.voice makings        only what is made of the teacher without training
"""

import argparse
import os
import sys
from collections.abc import Sequence

# A thread that spins for a core other people use makes each step ten times as long; read by OpenMP
# when torch is imported, hence before it.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def train(threads: int, *, on: bool = False) -> None:
    """Teacher data, prosody LM, flow decoder, shortcuts; each goes on from its checkpoint."""
    import torch

    from build.voice import weights
    from build.voice.corpus import load_corpus
    from build.voice.curves import write_curves
    from build.voice.makings import save_makings
    from build.voice.train_flow import train_flow
    from build.voice.train_prosody import train_prosody
    from build.voice.train_shortcut import train_shortcut

    torch.set_num_threads(threads)
    corpus = load_corpus(workers=threads)
    prosody, of_prosody = train_prosody(corpus, weights.load_prosody() if on else None)
    flow, of_flow = train_flow(corpus, weights.load_flow() if on else None)
    shortcut, of_shortcut = train_shortcut(corpus, flow)
    weights.save(prosody, weights.PROSODY)
    weights.save(shortcut, weights.FLOW)
    save_makings()
    write_curves({"prosody_lm": of_prosody, "flow_decoder": of_flow, "shortcut": of_shortcut})


def makings() -> None:
    """Heads of the vocoder and scales of F0."""
    from build.voice.makings import save_makings

    save_makings()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m build.voice",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("task", choices=("train", "makings"))
    parser.add_argument("--on", action="store_true", help="train the weights in git on")
    parser.add_argument("--threads", type=int, default=2)
    chosen = parser.parse_args(arguments)
    if chosen.task == "train":
        train(chosen.threads, on=chosen.on)
    else:
        makings()
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The listening half through the server beside CTranslate2: speed, and whether the words are right.

`hearing`: eight callers, each of whom sends the next order when the last one is answered.
`encoders`: every corpus heard once by the int8 encoder, the fp32 one, and CTranslate2.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Any

from rich.progress import Progress

from client.turns import TurnClient
from client.wer import words
from deploy.launcher import Server
from deploy.settings import Settings
from loadtest.downloads import DownloadFailed
from loadtest.engine.figures import Found, ratio, rotated
from loadtest.seed.figures import Target, at_least, at_most
from loadtest.stages import recordings
from loadtest.stages.listener import FRAMES, MAX_S, Listener, features_of
from loadtest.stages.recordings import Floats, Spoken
from loadtest.stages.reheard import Heard, word_error_rate

CALLERS, UTTERANCES = 8, 24
SHIPPED, FULL = "shipped", f"{FRAMES}_frames"
OURS: dict[str, int | None] = {SHIPPED: None, FULL: FRAMES}
"""Contestant -> the least frames of a window that it asks for."""

POOLS: dict[str, tuple[int, int]] = {
    "ctranslate2_1x2": (1, 2),
    "ctranslate2_2x1": (2, 1),
    "ctranslate2_4x1": (4, 1),
}
"""Contestant -> (workers, threads each); the best of them is the one that ours are held to."""

INT8, FP32, CTRANSLATE2 = "int8", "fp32", "ctranslate2"
CONFIGS: dict[str, str | None] = {INT8: None, FP32: "portable"}
"""Encoder -> the configuration that serves it."""

TARGETS: dict[str, Target] = {
    "hearing_3000_frames_by_ctranslate2": at_least(1.0),
    "hearing_shipped_by_ctranslate2": at_least(1.5),
    "wer_all_int8_minus_ctranslate2_points": at_most(1.0),
    "wer_all_int8_minus_fp32_points": at_most(0.5),
}

Hear = Callable[[Any], str]


def hearing(folder: Path, rounds: int, progress: Progress) -> Found:
    """Utterances per second of eight callers, every contestant once a round."""
    said = list(islice(cycle(recordings.orders(None)), UTTERANCES))
    sounds = [one.sound for one in said]
    features = [features_of(sound) for sound in sounds]
    per_s: dict[str, list[float]] = defaultdict(list)
    with ExitStack() as stack:
        client = _client(stack, None)
        contestants: dict[str, tuple[Hear, Sequence[Any]]] = {
            name: (_through(client, frames), sounds) for name, frames in OURS.items()
        }
        for name, (workers, threads) in POOLS.items():
            peer = Listener(workers=workers, threads=threads)
            stack.callback(peer.close)
            contestants[name] = peer.hear_features, features
        for hear, given in contestants.values():
            crowd(hear, given[:CALLERS])
        task = progress.add_task("hearing", total=rounds * len(contestants), told="")
        for number in range(rounds):
            for name in rotated(list(contestants), number):
                progress.update(task, told=f"{name}, round {number + 1}")
                began = monotonic()
                crowd(*contestants[name])
                per_s[name].append(UTTERANCES / (monotonic() - began))
                progress.advance(task)
    return Found(hearing_figures(per_s), {"utterances_per_s": dict(per_s)})


def encoders(folder: Path, rounds: int, progress: Progress) -> Found:
    """Word errors on every corpus. Once: greedy decoding says the same each time."""
    corpora, missing = _corpora()
    texts = {name: [one.text for one in said] for name, said in corpora.items()}
    task = progress.add_task("encoders", total=3 * len(corpora), told="")
    heard: dict[str, dict[str, list[str]]] = {}
    with ExitStack() as stack:
        peer = Listener(workers=2)
        stack.callback(peer.close)
        contestants: dict[str, Hear] = {
            name: _through(_client(stack, config), None) for name, config in CONFIGS.items()
        }
        contestants[CTRANSLATE2] = peer.hear
        for contestant, hear in contestants.items():
            heard[contestant] = {}
            for name, said in corpora.items():
                progress.update(task, told=f"{contestant}, {name}")
                heard[contestant][name] = crowd(hear, [one.sound for one in said])
                progress.advance(task)
    detail = {
        name: {
            "recordings": len(said),
            "seconds": round(recordings.seconds(said)),
            "words": sum(len(words(text)) for text in texts[name]),
            "wer": {who: 100 * error_rate(texts[name], each[name]) for who, each in heard.items()},
            "misheard": _misheard(texts[name], {who: each[name] for who, each in heard.items()}),
        }
        for name, said in corpora.items()
    }
    return Found(encoder_figures(texts, heard), detail, missing)


def crowd(hear: Hear, given: Sequence[Any]) -> list[str]:
    """What is heard of each, asked for by CALLERS at once."""
    with ThreadPoolExecutor(CALLERS) as callers:
        return list(callers.map(hear, given))


def hearing_figures(per_s: Mapping[str, Sequence[float]]) -> dict[str, float | None]:
    """Utterances/s of each, and of ours by CTranslate2's best."""
    found: dict[str, float | None] = {
        f"hearing_{name}_per_s": median(each) for name, each in per_s.items()
    }
    best = max(POOLS, key=lambda name: median(per_s[name]))
    for name in OURS:
        found[f"hearing_{name}_by_ctranslate2"] = ratio(per_s[name], per_s[best])
    return found


def encoder_figures(
    texts: Mapping[str, Sequence[str]], heard: Mapping[str, Mapping[str, Sequence[str]]]
) -> dict[str, float | None]:
    """Word error rates in percent, of each corpus and of all words together."""
    found: dict[str, float] = {}
    for who, corpora in heard.items():
        for name, said in texts.items():
            found[f"wer_{name}_{who}"] = 100 * error_rate(said, corpora[name])
        together = [text for name in texts for text in corpora[name]]
        found[f"wer_all_{who}"] = 100 * error_rate(
            [text for said in texts.values() for text in said], together
        )
    for other in (FP32, CTRANSLATE2):
        points = found[f"wer_all_{INT8}"] - found[f"wer_all_{other}"]
        found[f"wer_all_{INT8}_minus_{other}_points"] = points
    return dict(found)


def error_rate(texts: Sequence[str], heard: Sequence[str]) -> float:
    """Errors by words, over all recordings together."""
    return word_error_rate([Heard(*pair) for pair in zip(texts, heard, strict=True)])


def _corpora() -> tuple[dict[str, list[Spoken]], dict[str, str]]:
    """Corpora by name, and why some are missing."""
    found = {
        f"orders_{name}": recordings.orders(noise_db)
        for name, noise_db in recordings.NOISES_DB.items()
    }
    missing = {}
    for name, corpus in (("people", recordings.people), ("telephone", recordings.telephone)):
        try:
            found[name] = [one for one in corpus() if one.seconds <= MAX_S]
        except DownloadFailed as fault:
            missing[f"wer_{name}"] = str(fault)
    return found, missing


def _misheard(texts: Sequence[str], heard: Mapping[str, Sequence[str]]) -> list[dict[str, str]]:
    """Recordings that somebody heard otherwise than they were said."""
    return [
        {"said": text} | {who: each[number] for who, each in heard.items()}
        for number, text in enumerate(texts)
        if any(words(each[number]) != words(text) for each in heard.values())
    ]


def _client(stack: ExitStack, config: str | None) -> TurnClient:
    """Of a new server; equal sound is not shared, as people do not say the same twice."""
    settings = Settings(
        models=["transcribe"],
        config_name=config,
        overrides={"encode": {"share_identical": "false"}},
    )
    server = stack.enter_context(Server(settings))
    return stack.enter_context(TurnClient(server.grpc_address))


def _through(client: TurnClient, min_frames: int | None) -> Hear:
    def hear(sound: Floats) -> str:
        return client.transcribe(sound, min_frames=min_frames).text

    return hear

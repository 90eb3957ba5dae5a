"""What the voice's experiment makes of sounds, words and times: made up, so that each can fail."""

import json
from collections import Counter
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from client.turns import TurnClient
from loadtest.downloads import CACHE_VARIABLE
from loadtest.sources import source
from loadtest.stages import bound, hearing, served_modes
from loadtest.stages.__main__ import BENCH
from loadtest.stages.encoder import Policy
from loadtest.stages.flow import ARRIVALS
from loadtest.stages.flow_pieces import KEYS, MODES, REQUESTS
from loadtest.stages.onnx_cost import KINDS, Cost
from loadtest.stages.plots import PICTURES, draw, speaking, window
from loadtest.stages.reheard import Heard, distance_db, misheard, sentences, word_error_rate
from loadtest.stages.roofline import Ceilings, Point
from loadtest.stages.speaking import TARGETS, Readings, reading_figures, told
from loadtest.stages.speaking_paces import (
    CROWDS,
    EACH,
    SHIPPED,
    STEPS,
    TIMED,
    Crowds,
    Lone,
    Pace,
    Pass,
    Spoken,
    crowd_figures,
    lone_figures,
    pace_of,
    speak,
    turns,
)
from loadtest.stages.window import SCENARIOS
from tests.unit.fake_triton import Message, message, serving, texts

RATE_HZ = 24_000


def tone(gain: float, hz: float = 440.0) -> NDArray[np.float32]:
    return (gain * np.sin(2 * np.pi * hz * np.arange(RATE_HZ) / RATE_HZ)).astype(np.float32)


def spoken(first_audio_s: float, seconds: float, sound_s: float) -> Spoken:
    sound = np.zeros(round(sound_s * RATE_HZ), np.float32)
    return Spoken(first_audio_s, seconds, sound, RATE_HZ, passes=())


def lone(slow_rounds: tuple[float, ...] = (1.0,)) -> Lone:
    """A step costs 0.01 of the sound, and 10 ms before the first of it."""
    return {
        steps: [Pace([10.0 * steps * slow], 1.0, 0.01 * steps * slow) for slow in slow_rounds]
        for steps in STEPS
    }


def crowds() -> Crowds:
    return {n: [Pace([float(i) for i in range(1, 101)], 50.0, 2.0)] for n in CROWDS}


def readings() -> Readings:
    found = Readings(other_seed_db=[4.0, 6.0])
    for steps in STEPS:
        found.heard[steps] = [Heard("one two three four", "one two three four")] * steps
        found.heard[steps].append(Heard("five six", "five"))
        found.distances_db[steps] = [1.0 / steps, 3.0 / steps]
    return found


def test_numbers_and_money_are_compared_as_they_are_spoken() -> None:
    assert Heard("Fourteen dollars and fifty cents, okay?", "$14.50, ok").errors == 0
    assert Heard("At eleven.", "at 12").errors == 1


def test_words_left_out_put_in_and_taken_for_others_are_errors() -> None:
    assert Heard("a b c d", "a x c").errors == 2
    assert Heard("a b", "a b c").errors == 1
    assert Heard("a b", "").errors == 2


def test_a_long_sentence_weighs_more_than_a_short_one() -> None:
    heard = [Heard("yes", "no"), Heard("one two three", "one two three")]
    assert word_error_rate(heard) == 0.25
    assert misheard(heard) == [{"said": "yes", "heard": "no"}]


def test_the_sentences_are_there_and_some_of_both_kinds_are_timed() -> None:
    assert len(sentences()) == 40
    assert {sentences().index(one) < 20 for one in TIMED} == {True, False}


def test_a_sound_half_as_loud_is_six_decibels_away() -> None:
    noise = np.random.default_rng(0).normal(0, 0.1, RATE_HZ).astype(np.float32)
    assert distance_db(noise, noise / 2, RATE_HZ) == pytest.approx(6.02, abs=0.01)
    assert distance_db(noise, noise, RATE_HZ) == 0


def test_another_tone_is_farther_than_the_same_one_a_little_softer() -> None:
    softer = distance_db(tone(0.5), tone(0.45), RATE_HZ)
    assert 0 < softer < distance_db(tone(0.5), tone(0.5, 880.0), RATE_HZ)


def test_sounds_that_do_not_run_in_parallel_have_no_distance() -> None:
    with pytest.raises(ValueError, match="parallel"):
        distance_db(tone(0.5), tone(0.5)[:-1], RATE_HZ)


def said(request: Any, context: Any) -> Iterator[Message]:
    """One chunk, decoded in a batch of two."""
    span = {"stage": "acoustic", "turn": request.id, "piece": 0, "what": "compute"}
    told = texts(json.dumps({**span, "start_ns": 1, "end_ns": 2, "members": 2}))
    yield message(
        request,
        final=True,
        PIECE=np.array([[0, 0, 3]], np.int32),
        TEXT=texts("Hello."),
        HEARD=texts(""),
        STATUS=texts("stop"),
        EVENTS=told,
        SPEECH=np.zeros((1, 2400), np.float32),
        SAMPLE_RATE=np.array([[24_000]], np.int32),
    )


def test_steps_are_asked_for_and_the_solver_is_left_to_the_stage() -> None:
    with serving(said) as (fake, address), TurnClient(address) as client:
        found = speak(client, "Hello.", steps=8, seed=3)
    (request,) = fake.requests
    assert request.parameters["steps"].int64_param == 8
    assert request.parameters["seed"].int64_param == 3
    assert "solver" not in request.parameters
    assert found.passes == [Pass(1, 2, 2)]
    assert found.sound_s == 0.1


def test_a_pace_is_of_all_sentences_together() -> None:
    pace = pace_of([spoken(0.1, 0.2, 1.0), spoken(0.3, 0.6, 3.0)], 0.8)
    assert pace.first_audio_ms == pytest.approx([100, 300])
    assert (pace.rtf, pace.throughput) == pytest.approx((0.2, 5.0))


@pytest.mark.parametrize("callers", CROWDS)
def test_a_crowd_speaks_every_sentence_equally_often(callers: int) -> None:
    each = [turns(caller, callers, len(TIMED)) for caller in range(callers)]
    said = Counter(at for one in each for at in one)
    assert set(said.values()) == {callers * EACH // len(TIMED)}
    assert len(said) == len(TIMED)
    assert len({one[0] for one in each}) == callers


def test_figures_of_steps_are_medians_and_their_ratios_those_of_rounds() -> None:
    figures = lone_figures(lone((1.0, 1.0, 9.0)))
    assert figures["speaking_rtf_8_steps"] == pytest.approx(0.08)
    assert figures["speaking_first_audio_ms_8_steps"] == pytest.approx(80)
    assert figures["speaking_rtf_16_by_4_steps"] == pytest.approx(4)
    assert figures["speaking_first_audio_2_by_4_steps"] == pytest.approx(0.5)
    assert f"speaking_rtf_{SHIPPED}_by_{SHIPPED}_steps" not in figures


def test_figures_of_a_crowd_are_held_against_a_lone_caller() -> None:
    figures = crowd_figures(crowds(), lone())
    assert figures["speaking_sound_s_per_s_n8"] == 25
    assert figures["speaking_n8_by_n1_throughput"] == pytest.approx(25 * 0.01 * SHIPPED)
    assert figures["speaking_first_audio_p50_ms_n4"] == 50
    assert figures["speaking_first_audio_p95_ms_n4"] == 95


def test_figures_of_what_is_heard_are_of_each_number_of_steps() -> None:
    figures = reading_figures(readings())
    assert figures["speaking_wer_2_steps"] == pytest.approx(1 / 10)
    assert figures["speaking_wer_16_steps"] == pytest.approx(1 / 66)
    assert figures["speaking_distance_db_4_steps"] == pytest.approx(0.5)
    assert figures["speaking_distance_db_other_seed"] == 5
    assert "speaking_distance_db_16_steps" not in figures


def test_what_is_shipped_is_measured_and_every_target_is_a_figure() -> None:
    assert SHIPPED in STEPS
    figures = lone_figures(lone()) | crowd_figures(crowds(), lone()) | reading_figures(readings())
    assert figures.keys() >= TARGETS.keys()


def test_a_source_is_where_the_provenance_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, "/cache")
    graph = tmp_path / "model.onnx"
    written = {"sources": {"members/x/model.bin": "00", "members/x/config.json": "11"}}
    (tmp_path / "model.onnx.json").write_text(json.dumps(written))
    assert source(graph, "config.json") == Path("/cache/members/x/config.json")
    with pytest.raises(ValueError, match="gguf"):
        source(graph, ".gguf")


def flow_detail() -> dict[str, Any]:
    cell = {"p50_ms": 1.0, "p95_ms": 2.0, "pieces_per_s": 3.0}
    where = product(MODES, KEYS, ARRIVALS, REQUESTS)
    return {"cells": {f"{m}_{keys}_{arrivals}_n{n}": cell for m, keys, arrivals, n in where}}


def window_detail() -> dict[str, Any]:
    return {
        "first_round": {
            name: {str(policy): {"per_s": 50.0, "p50_ms": 70.0} for policy in Policy}
            for name in SCENARIOS
        }
    }


def served_modes_detail() -> dict[str, Any]:
    cell = {"p50_ms": 1.0, "p95_ms": 2.0, "sentences_per_s": 3.0}
    where = product(MODES, KEYS, served_modes.REQUESTS)
    return {"cells": {f"{mode}_{keys}_n{n}": cell for mode, keys, n in where}}


def hearing_detail() -> dict[str, Any]:
    return {"utterances_per_s": {name: [4.0, 5.0] for name in (*hearing.OURS, *hearing.POOLS)}}


def encoders_detail() -> dict[str, Any]:
    contestants = (*hearing.CONFIGS, hearing.CTRANSLATE2)
    return {"orders_5_db": {"words": 300, "wer": dict.fromkeys(contestants, 7.0)}}


def bound_detail() -> dict[str, Any]:
    ceilings = Ceilings(dict.fromkeys(KINDS, 1e11), 3e10, 8e10, 32_000_000)
    point = Point(Cost(Counter({KINDS[0]: 10**9}), 10**6), 0.02, ceilings)
    return {"graphs": {"vad": bound.told(point, {})}, "ceilings": bound.ceilings_told(ceilings)}


def test_pictures_are_drawn_of_what_was_run_alone(tmp_path: Path) -> None:
    all_of_them = {
        "bound": bound_detail(),
        "encoders": encoders_detail(),
        "flow": flow_detail(),
        "hearing": hearing_detail(),
        "served_modes": served_modes_detail(),
        "speaking": told(lone(), crowds(), readings()),
        "window": window_detail(),
    }
    assert all_of_them.keys() == PICTURES.keys()
    assert PICTURES.keys() < BENCH.experiments.keys()
    assert draw({"flow_device": {}}, tmp_path) == []
    assert draw({"flow": flow_detail(), "other": {}}, tmp_path) == [tmp_path / "flow.png"]
    drawn = draw(all_of_them, tmp_path)
    assert [path.read_bytes()[:4] for path in drawn] == [b"\x89PNG"] * len(PICTURES)


def test_words_misheard_are_drawn_in_percent() -> None:
    (errors,) = speaking(told(lone(), crowds(), readings())).axes[2].lines
    assert np.asarray(errors.get_ydata()) == pytest.approx([100 / 10, 100 / 18, 100 / 34, 100 / 66])


def test_crowds_are_drawn_from_small_to_large() -> None:
    axes = speaking(told(lone(), crowds(), readings())).axes[3]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1", "4", "8"]


def test_no_scenario_of_the_window_is_drawn_under_its_own_code_name() -> None:
    labels = {label.get_text() for label in window(window_detail()).axes[0].get_xticklabels()}
    assert len(labels) == len(SCENARIOS)
    assert not labels & set(SCENARIOS)

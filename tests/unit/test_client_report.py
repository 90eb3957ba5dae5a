"""Figures of a turn follow from its chunks alone."""

import json
from pathlib import Path

import numpy as np
import pytest

from client.record import PATH, TurnRecord, covered_s
from client.report import TurnReport, require
from client.responses import Event, TurnChunk
from client.wer import word_error_rate, words
from python_backends.errors import StageFailed

MS = 1_000_000
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def span(stage: str, start_ms: int, end_ms: int, *, piece: int = 0, what: str = "compute") -> Event:
    return Event(stage, "t", piece, what, start_ms * MS, end_ms * MS)


def chunk(
    piece: int, number: int, received_ms: int, events: tuple[Event, ...], *, samples: int = 2_400
) -> TurnChunk:
    return TurnChunk(
        turn_id="t",
        piece=piece,
        chunk=number,
        last_chunk=True,
        last_piece=False,
        text=f"piece {piece}.",
        heard="" if piece else " two burgers ",
        status="stop",
        events=events,
        speech=np.zeros(samples, np.float32),
        sample_rate_hz=24_000,
        received_ns=received_ms * MS,
    )


FIRST = (
    span("encode", 1_005, 1_015, what="queue"),
    span("encode", 1_015, 1_100),
    span("asr_decode", 1_100, 1_200),
    span("think", 1_210, 1_300),
    span("prosody", 1_300, 1_350),
    span("acoustic", 1_360, 1_400),
)
SECOND = (*FIRST[:3], span("think", 1_300, 1_380, piece=1), span("acoustic", 1_400, 1_500, piece=1))


def record(*chunks: TurnChunk) -> TurnRecord:
    made = TurnRecord("t", 1_000 * MS, f"00-{TRACE}-00f067aa0ba902b7-01")
    for each in chunks:
        made.add(each)
    return made


@pytest.fixture
def two_pieces() -> TurnRecord:
    return record(chunk(0, 0, 1_450, FIRST), chunk(1, 0, 1_600, SECOND))


def test_times_run_from_sending_to_the_chunks_that_count(two_pieces: TurnRecord) -> None:
    assert two_pieces.first_audio_s == pytest.approx(0.45)
    assert two_pieces.total_s == pytest.approx(0.6)
    assert two_pieces.rtf == pytest.approx(0.6 / 0.2)
    assert (two_pieces.heard, two_pieces.reply) == ("two burgers", "piece 0. piece 1.")


def test_a_piece_without_sound_is_not_first_audio() -> None:
    silent = chunk(0, 0, 1_100, (), samples=0)
    assert record(silent, chunk(1, 0, 1_300, ())).first_audio_s == pytest.approx(0.3)


def test_without_sound_there_is_neither_first_audio_nor_rtf() -> None:
    silent = record(chunk(0, 0, 1_100, (), samples=0))
    assert (silent.first_audio_s, silent.rtf, silent.first_audio_parts()) == (None, None, {})


def test_the_parts_of_first_audio_add_up_to_it(two_pieces: TurnRecord) -> None:
    parts = two_pieces.first_audio_parts()
    assert list(parts) == ["transport in", *PATH, "vocoder + transport"]
    assert parts["transport in"] == pytest.approx(0.005)
    assert parts["think"] == pytest.approx(0.1)
    assert sum(parts.values()) == pytest.approx(0.45)


def test_a_server_with_another_clock_gives_no_parts() -> None:
    elsewhere = record(chunk(0, 0, 1_450, (span("encode", 5, 10),)))
    assert not elsewhere.same_clock
    assert elsewhere.first_audio_parts() == {}
    assert elsewhere.stages() == {"encode": pytest.approx(0.005)}


def test_a_span_on_two_chunks_and_overlapping_spans_count_once(two_pieces: TurnRecord) -> None:
    stages = two_pieces.stages()
    assert list(stages) == list(PATH)
    assert stages["encode"] == pytest.approx(0.095)
    assert stages["think"] == pytest.approx(0.17)
    overlapping = [span("a", 0, 50), span("a", 10, 20), span("a", 40, 60)]
    assert covered_s(overlapping) == pytest.approx(0.06)


def test_what_wraps_a_stage_on_another_server_is_none_of_its_work(two_pieces: TurnRecord) -> None:
    """The ways there and back stay with the stage that comes next, as between any two stages."""
    wrapped = (*FIRST, span("think", 1_202, 1_308, what="remote"))
    apart = record(chunk(0, 0, 1_450, wrapped), chunk(1, 0, 1_600, SECOND))
    assert apart.stages() == two_pieces.stages()
    assert apart.first_audio_parts() == two_pieces.first_audio_parts()
    assert len(apart.events) == len(two_pieces.events) + 1


def test_a_turn_where_all_held_has_no_problems(two_pieces: TurnRecord) -> None:
    report = TurnReport.of(two_pieces).with_reply_heard("Piece zero, piece one")
    assert report.reply_wer == 0
    assert report.problems(said="Two burgers!") == []
    require(report.problems())


def test_every_problem_is_named() -> None:
    report = TurnReport.of(record(chunk(1, 0, 1_100, (), samples=0)))
    problems = report.with_reply_heard("something else").problems(said="two burgers")
    for reason in ("nothing was heard", "two burgers", "no sound", "something else", "think"):
        assert any(reason in problem for problem in problems)
    with pytest.raises(StageFailed, match="nothing was heard"):
        require(problems)


def test_run_json_holds_the_promised_keys(two_pieces: TurnRecord, tmp_path: Path) -> None:
    TurnReport.of(two_pieces).with_reply_heard("x").write(tmp_path / "out" / "run.json")
    written = json.loads((tmp_path / "out" / "run.json").read_text())
    promised = (
        "transcript reply first_audio_s total_s rtf stages reply_heard reply_wer turn_id trace_id"
    )
    assert set(promised.split()) <= set(written)
    assert written["trace_id"] == TRACE
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["run.json"]


def test_words_are_compared_as_they_are_spoken() -> None:
    assert words("That\u2019s 21 Cokes, ok?") == ["thats", "twenty", "one", "cokes", "okay"]
    assert words("30 of 105") == ["thirty", "of", "105"]


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("$14.50.", "fourteen dollars and fifty cents"),
        ("$1", "one dollar"),
        ("$2.01", "two dollars and one cent"),
        ("$5.00", "five dollars"),
        ("$0.50", "fifty cents"),
        ("$0", "zero dollars"),
        ("$1,200.00", "1200 dollars"),
        ("cost $ 5", "cost five"),
    ],
)
def test_money_is_compared_as_it_is_spoken(written: str, said: str) -> None:
    assert words(written) == said.split()


@pytest.mark.parametrize(
    ("reference", "heard", "rate"),
    [
        ("a b c d", "a b c d", 0),
        ("a b c d", "a x c", 0.5),
        ("a b", "a b c", 0.5),
        ("", "", 0),
        ("", "a", 1),
        ("a b", "", 1),
    ],
)
def test_word_error_rate_counts_edits_by_the_reference(
    reference: str, heard: str, rate: float
) -> None:
    assert word_error_rate(reference, heard) == rate

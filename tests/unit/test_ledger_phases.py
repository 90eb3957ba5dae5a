"""Where a turn was, from hand-written spans and passes; times in ms from sending it."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from loadtest.ledger.intervals import total
from loadtest.ledger.phases import Lanes
from loadtest.ledger.request import Cause, account
from loadtest.ledger.run import Pass, Run, Span, Turn, plain
from loadtest.rulers import step_gaps_ms
from tests.unit.ledger_world import MS


def span(stage: str, what: str, start: float, end: float, piece: int = 0) -> Span:
    return Span(plain(stage), what, round(start * MS), round(end * MS), piece)


def compute(stage: str, start: float, end: float, asked: float | None = None) -> Pass:
    asked = start if asked is None else asked
    return Pass("shared", stage, 1, round(asked * MS), round(start * MS), round(end * MS))


def rows(
    spans: Iterable[Span],
    passes: Iterable[Pass],
    end: float,
    chunks: Iterable[float] = (),
    others: Iterable[Span] = (),
) -> dict[Cause, float]:
    """The request book of one turn, ms; rows of nothing left out. `others`: another turn's."""
    chunks_ns = tuple(round(at * MS) for at in chunks) or (round(end * MS),)
    audio = (80.0,) * len(chunks_ns)
    turn = Turn("t", "0", 0, 0, "ok", "", chunks_ns, audio, round(end * MS), tuple(spans))
    ordered = tuple(sorted(passes, key=lambda one: one.start_ns))
    other = replace(turn, turn="other", spans=tuple(others))
    run = Run(Path(), {"name": "run"}, (turn, other), ordered, ())
    parts = account(turn, Lanes(run)).parts
    assert sum(map(total, parts.values())) == turn.end_ns
    return {cause: total(part) / MS for cause, part in parts.items() if part}


@pytest.mark.parametrize(
    ("name", "stage"),
    [
        ("think", "think"),
        ("emu_think", "think"),
        ("emu_think_pieces", "think"),
        ("asr_decode", "asr_decode"),
    ],
)
def test_an_emulated_model_is_called_by_the_stage_that_it_stands_for(name: str, stage: str) -> None:
    assert plain(name) == stage


def test_a_step_asked_for_late_is_a_gap_even_while_the_device_computes_for_others() -> None:
    """The loop asks at 25 although its step ended at 10; only from then on it waits for others."""
    passes = [compute("think", 0, 10), compute("speak", 10, 30), compute("think", 30, 40, asked=25)]
    found = rows([span("think", "compute", 0, 40)], passes, 40)
    assert found == {Cause.COMPUTING: 20.0, Cause.HOST_GAP: 15.0, Cause.STEPS: 5.0}


def test_a_serial_loop_waits_for_whatever_it_computes_itself() -> None:
    """It asks for one pass at a time, so its waiting cannot be seen from what it asked for."""
    passes = [compute("think", 2, 10), compute("listen", 10, 40), compute("think", 42, 50)]
    spans = [span("monolith", "queue", 0, 2), span("monolith", "think", 2, 50)]
    found = rows(spans, passes, 50)
    assert found == {
        Cause.COMPUTING: 16.0,
        Cause.ENCODER: 30.0,
        Cause.HOST_GAP: 2.0,
        Cause.ADMISSION: 2.0,
    }


def test_between_two_phases_a_serial_loop_is_computing_for_others_or_preparing() -> None:
    passes = [compute("listen", 2, 32), compute("speak", 33, 38), compute("think", 40, 50)]
    spans = [
        span("monolith", "queue", 0, 1),
        span("monolith", "listen", 2, 32),
        span("monolith", "think", 40, 50),
    ]
    found = rows(spans, passes, 50)
    assert found == {
        Cause.COMPUTING: 40.0,
        Cause.STEPS: 5.0,
        Cause.HOST_GAP: 4.0,
        Cause.ADMISSION: 1.0,
    }


def test_between_two_phases_of_a_locked_loop_a_batch_has_to_end() -> None:
    passes = [compute("listen", 0, 30), compute("acoustic", 30, 80), compute("think", 80, 90)]
    spans = [span("monolith", "listen", 0, 30), span("monolith", "think", 80, 90)]
    found = rows(spans, passes, 90)
    assert found == {Cause.COMPUTING: 40.0, Cause.LOCK: 50.0}


def test_a_diffusion_piece_waits_for_the_lock_and_is_then_computed() -> None:
    passes = [compute("acoustic", 5, 20), compute("acoustic", 20, 40)]
    spans = [span("emu_acoustic", "queue", 0, 20), span("emu_acoustic", "compute", 20, 40)]
    assert rows(spans, passes, 40) == {Cause.LOCK: 20.0, Cause.COMPUTING: 20.0}


def test_behind_an_encoder_pass_a_turn_waits_for_it_and_for_what_it_waits_for() -> None:
    """The pass of others is asked for at 0, runs from 10 to 40 behind a step, and 40 is release."""
    others = [compute("think", 0, 10), compute("listen", 10, 40, asked=0)]
    spans = [span("emu_listen", "queue", 0, 46), span("emu_listen", "compute", 46, 76)]
    found = rows(spans, [*others, compute("listen", 46, 76)], 76)
    assert found == {
        Cause.STEPS: 10.0,
        Cause.ENCODER: 30.0,
        Cause.WINDOW: 6.0,
        Cause.COMPUTING: 30.0,
    }


def test_without_a_device_log_other_turns_tell_when_the_encoder_was_taken() -> None:
    """Queued from 0 to 60, behind a pass for another from 10 to 50; the rest is the window."""
    spans = [span("encode", "queue", 0, 60), span("encode", "compute", 60, 100)]
    found = rows(spans, [], 100, others=[span("encode", "compute", 10, 50)])
    assert found == {Cause.COMPUTING: 40.0, Cause.ENCODER: 40.0, Cause.WINDOW: 20.0}


def test_a_device_log_is_believed_before_what_turns_tell() -> None:
    spans = [span("encode", "queue", 0, 60), span("encode", "compute", 60, 100)]
    passes = [compute("encode", 30, 50), compute("encode", 60, 100)]
    found = rows(spans, passes, 100, others=[span("encode", "compute", 10, 55)])
    assert found == {Cause.COMPUTING: 40.0, Cause.ENCODER: 20.0, Cause.WINDOW: 40.0}


def test_a_turn_at_a_replica_is_computed_by_that_ones_device_alone() -> None:
    """Both speak; ours computes from 0 to 10 and, asked for at 20, from 30 to 40."""
    here = [compute("speak", 0, 10), compute("speak", 30, 40, asked=20)]
    there = [replace(compute("speak", start, start + 10), device="spare") for start in (5, 15, 25)]
    phase = replace(span("speak", "compute", 0, 40), more={"device": "tristage-x-shared.dev"})
    found = rows([phase], [*here, *there], 40)
    assert found == {Cause.COMPUTING: 20.0, Cause.HOST_GAP: 20.0}
    phase = replace(phase, more={"device": "tristage-x-spare.dev"})
    assert rows([phase], [*here, *there], 40)[Cause.COMPUTING] == 30.0


def test_a_proxy_explains_its_way_there_and_back_however_long_it_took() -> None:
    """There from 10 to 130, back from 140 to 260; then 150 to the client, of which 100 count."""
    spans = [
        span("encode", "compute", 0, 10),
        span("think", "compute", 130, 140),
        span("think", "remote", 10, 260),
    ]
    found = rows(spans, [], 410)
    assert found == {Cause.COMPUTING: 20.0, Cause.TRANSPORT: 340.0, Cause.UNEXPLAINED: 50.0}


def test_an_encoder_that_does_not_answer_is_no_window() -> None:
    spans = [span("emu_listen", "queue", 0, 900), span("emu_listen", "compute", 900, 930)]
    found = rows(spans, [compute("listen", 900, 930)], 930)
    assert found == {Cause.WINDOW: 150.0, Cause.UNEXPLAINED: 750.0, Cause.COMPUTING: 30.0}


def test_while_one_piece_is_computed_another_ones_waiting_costs_nothing() -> None:
    passes = [compute("think", 0, 40), compute("acoustic", 40, 60)]
    spans = [
        span("think", "compute", 0, 40),
        span("acoustic", "queue", 10, 40),
        span("acoustic", "compute", 40, 60),
    ]
    assert rows(spans, passes, 60) == {Cause.COMPUTING: 60.0}


@pytest.mark.parametrize(("piece", "cause"), [(1, Cause.TRANSPORT), (0, Cause.UNEXPLAINED)])
def test_a_hole_before_another_piece_is_a_way_and_one_within_a_piece_is_none(
    piece: int, cause: Cause
) -> None:
    passes = [compute("acoustic", 0, 20), compute("acoustic", 25, 40)]
    spans = [span("acoustic", "compute", 0, 20), span("acoustic", "compute", 25, 40, piece)]
    assert rows(spans, passes, 40) == {Cause.COMPUTING: 35.0, cause: 5.0}


def test_a_native_vocoder_is_found_by_its_last_pass_before_the_chunk() -> None:
    passes = [
        compute("acoustic", 0, 20),
        compute("vocoder", 21, 24),
        compute("think", 24, 33),
        compute("vocoder", 34, 37),
    ]
    found = rows([span("acoustic", "compute", 0, 20)], passes, 40, chunks=(40,))
    assert found == {
        Cause.COMPUTING: 23.0,
        Cause.STEPS: 12.0,
        Cause.WINDOW: 2.0,
        Cause.TRANSPORT: 3.0,
    }


def test_a_span_that_came_with_several_chunks_counts_once(tmp_path: Path) -> None:
    twice = [span("think", "compute", 0, 20), span("think", "compute", 0, 20)]
    passes = (compute("think", 0, 10), compute("think", 10, 20))
    turn = Turn("t", "0", 0, 0, "ok", "", (20 * MS,), (80.0,), 20 * MS, tuple(twice))
    lanes = Lanes(Run(tmp_path, {}, (turn,), passes, ()))
    assert [gaps.tolist() for _, gaps in step_gaps_ms(turn, lanes)] == [[10.0]]


def test_a_span_that_only_wraps_others_explains_nothing() -> None:
    found = rows([span("turn", "relay", 0, 50), span("think", "compute", 5, 45)], [], 50)
    assert found == {Cause.COMPUTING: 40.0, Cause.TRANSPORT: 10.0}


def test_what_wraps_a_stage_on_another_server_takes_no_time_and_its_ways_are_transport() -> None:
    """Asked of the proxy at 10, there from 12 to 38, handed on at 40; the next stage from 41."""
    apart = [
        span("encode", "compute", 0, 9),
        span("emu_think", "remote", 10, 40),
        span("emu_think", "queue", 12, 15),
        span("emu_think", "compute", 15, 38),
        span("acoustic", "compute", 41, 50),
    ]
    passes = [compute("think", 15, 38)]
    found = rows(apart, passes, 50)
    assert found == {Cause.COMPUTING: 41.0, Cause.ADMISSION: 3.0, Cause.TRANSPORT: 6.0}
    assert rows([one for one in apart if one.what != "remote"], passes, 50) == found


def test_a_kind_of_span_that_nobody_knows_yet_explains_nothing() -> None:
    spans = [span("think", "compute", 0, 10), span("think", "daydream", 10, 40)]
    assert rows(spans, [], 40) == {Cause.COMPUTING: 10.0, Cause.TRANSPORT: 30.0}


def test_a_proxys_span_does_not_hide_a_native_vocoders_passes() -> None:
    passes = [compute("acoustic", 0, 20), compute("vocoder", 24, 27)]
    spans = [span("acoustic", "compute", 0, 20), span("vocoder", "remote", 21, 30)]
    assert rows(spans, passes, 31, chunks=(31,))[Cause.COMPUTING] == 23.0


def test_a_stage_without_passes_computes_for_as_long_as_it_says() -> None:
    """As on real weights, where nobody records a device."""
    spans = [span("encode", "queue", 0, 5), span("encode", "compute", 5, 30)]
    assert rows(spans, [], 30) == {Cause.WINDOW: 5.0, Cause.COMPUTING: 25.0}

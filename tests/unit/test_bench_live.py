"""What the bench of live calls makes of what it has seen: each of its figures can be wrong."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

from client.live import LiveEvent
from client.responses import Event
from deploy.figures import Row
from loadtest.device import DevicePass
from loadtest.live import barge, endpoints, paced
from loadtest.live.__main__ import BENCH
from loadtest.live.barge import Freed, freed, freed_figures, speech_figures, stop_figures
from loadtest.live.endpoint_orders import (
    BEFORE_S,
    BETWEEN_S,
    NOISE,
    ORDERS,
    PAUSES_S,
    Order,
    calls,
    pauses,
)
from loadtest.live.endpoint_score import End, Score, fixed, score
from loadtest.live.loudspeaker import Loudspeaker
from loadtest.live.parts import Parts, chunk_figures, figures, means, parts
from loadtest.live.people import CHUNK_S, Mouth, Script, Stop
from loadtest.live.plots import draw
from loadtest.live.record import NS_PER_MS, Record, Said, Turn
from loadtest.live.server_side import Chunks
from loadtest.live.sounds import FRAME, RATE_HZ, Floats, samples, silence, trimmed
from python_backends.errors import Overloaded

Found = dict[str, float | None]
CALL = "call"
STEPS_MS = {"think": 12.0, "speak": 8.0}


def ns(ms: float) -> int:
    return round(ms * NS_PER_MS)


def event(kind: str, now_ms: float, turn: int = 1, **more: object) -> LiveEvent:
    return LiveEvent(kind, f"{CALL}.{turn}", "", ns(now_ms), more)


def sound(
    now_ms: float, turn: int = 1, *, seconds: float = 0.1, piece: int = 0, last: bool = False
) -> LiveEvent:
    speech = np.ones(round(24_000 * seconds), np.float32)
    told = event("audio", now_ms, turn, piece=piece, last=last)
    return replace(told, speech=speech, sample_rate_hz=24_000)


def span(what: str, start_ms: float, end_ms: float) -> Event:
    return Event("think", CALL, 0, what, ns(start_ms), ns(end_ms))


def turn_of(spans: Sequence[Event] = (), **changed: float) -> Turn:
    """Speech up to 1000 ms, told at 1500, its words at 1510, its first sound at 2000."""
    times = {"spoken": 1050, "ended": 1500, "words": 1510, "first_sound": 2000} | changed
    return Turn(f"{CALL}.1", **{f"{k}_ns": ns(v) for k, v in times.items()}, spans=list(spans))


def record(*events: LiveEvent, said: Sequence[Said] = (), **more: object) -> Record:
    """A call that began at 0."""
    found = Record(planned=len(said), said=said, **more)  # type: ignore[arg-type]
    for one in events:
        found.follow(one)
    return found


SAID = Said(ns(100), ns(1000))
ANSWERED = (
    event("speech_ended", 1500, at_ms=1050),
    event("transcript", 1510),
    sound(2000),
    event("answered", 4000),
)


def unmet(found: Found) -> set[str]:
    judged = {name: BENCH.targets[name] for name in found.keys() & BENCH.targets.keys()}
    return {name for name, target in judged.items() if not target.met(found[name] or 0)}


def test_the_parts_are_all_of_the_time_to_the_first_sound() -> None:
    found = parts(SAID, turn_of([span("queue", 1520, 1600)]))
    assert found == Parts(endpoint=500, words=10, queue=80, stages=410)
    assert found.first_sound == 1000
    assert means([found, found])["stages"] == 410


def test_two_queues_at_once_are_waited_in_once_and_only_while_answering() -> None:
    spans = [
        span("queue", 1400, 1560),
        span("admission", 1550, 1610),
        span("compute", 1610, 1900),
        span("queue", 1990, 2500),
    ]
    found = parts(SAID, turn_of(spans))
    assert found is not None
    assert (found.queue, found.stages) == (110, 380)


def test_a_turn_that_was_not_heard_has_no_parts() -> None:
    for missing in ("ended", "words", "first_sound"):
        assert parts(SAID, turn_of(**{missing: 0})) is None


def test_a_recording_that_was_answered_meets_all_targets() -> None:
    found = record(*ANSWERED, said=[SAID], lags_ms=[4, 5], late_ms=[1, 0])
    told = figures("paced_64", [found]) | chunk_figures("paced_64", [[found]])
    assert (told["paced_64_first_sound_ms_p50"], told["paced_64_failed_turns"]) == (1000, 0)
    assert unmet(told) == set()
    slow = chunk_figures("paced_64", [[record(lags_ms=[4, 50])]])
    assert unmet(slow) == {"paced_64_chunk_ms_p95"}


def test_one_round_in_which_the_machine_was_away_does_not_decide() -> None:
    rounds = [[record(lags_ms=[lag] * 10)] for lag in (4.0, 90.0, 6.0)]
    assert chunk_figures("x", rounds) == {"x_chunk_ms_p50": 6.0, "x_chunk_ms_p95": 6.0}
    assert chunk_figures("x", [[record()]]) == {"x_chunk_ms_p50": None, "x_chunk_ms_p95": None}


def test_a_generator_that_is_late_is_found() -> None:
    found = figures("paced_64", [record(*ANSWERED, said=[SAID], late_ms=[0.0, 30.0])])
    assert unmet(found) == {"paced_64_sent_late_ms_p95"}


def test_what_was_refused_or_never_heard_has_failed() -> None:
    refused = replace(event("failed", 1600), error=Overloaded("no room"))
    found = record(*ANSWERED[:2], refused, said=[SAID])
    assert found.turns[f"{CALL}.1"].outcome == "failed: Overloaded"
    for one in (found, record(said=[SAID])):
        told = figures("real_4", [one])
        assert (told["real_4_failed_turns"], told["real_4_first_sound_ms_p50"]) == (1, None)
        assert unmet(told) == {"real_4_failed_turns"}


def test_a_turn_that_ends_inside_a_recording_is_false_and_the_last_one_counts() -> None:
    second = [
        event("speech_ended", 1500, 2, at_ms=990),
        event("transcript", 1510, 2),
        sound(2000, 2),
        event("answered", 4000, 2),
    ]
    early = [
        event("speech_ended", 700, at_ms=300),
        event("transcript", 710),
        event("interrupted", 900),
    ]
    found = record(*early, *second, said=[SAID])
    assert (found.false_ends, found.answered) == (1, 1)
    assert [turn.name for _, turn in found.pairs()] == [f"{CALL}.2"]


def test_sound_behind_an_interruption_is_counted() -> None:
    events = [*ANSWERED[:3], event("interrupted", 2100), sound(2150)]
    found = record(*events, said=[SAID], stops_ns={f"{CALL}.1": ns(2090)})
    found.last_sounds_ns = {f"{CALL}.1": ns(2110)}
    told = stop_figures([found])
    assert told["barge_in_silence_ms_p95"] == 20
    assert unmet(told) == {"barge_in_sounds_behind"}


def test_a_stop_that_nobody_obeys_and_a_late_silence_are_found() -> None:
    played = {f"{CALL}.1": ns(2400)}
    found = record(*ANSWERED, said=[SAID], stops_ns={f"{CALL}.1": ns(2090)}, last_sounds_ns=played)
    assert unmet(stop_figures([found])) == {"barge_in_stops_ignored", "barge_in_silence_ms_p95"}


def test_a_stop_before_any_sound_says_nothing_of_silence() -> None:
    events = [*ANSWERED[:2], event("interrupted", 1600)]
    found = record(*events, said=[SAID], stops_ns={f"{CALL}.1": ns(1590)})
    told = stop_figures([found])
    assert (told["barge_in_stops"], told["barge_in_stops_while_heard"]) == (1, 0)
    assert told["barge_in_silence_ms_p95"] is None


def device(*passes: tuple[str, float, float]) -> list[DevicePass]:
    return [DevicePass("d", stage, 1, ns(at), ns(at), ns(end)) for stage, at, end in passes]


def stopped_at(told_ms: float) -> Record:
    events = [*ANSWERED[:2], event("interrupted", told_ms)]
    return record(*events, said=[SAID], stops_ns={f"{CALL}.1": ns(told_ms - 5)})


def test_slots_are_back_when_no_pass_begins_beyond_a_step() -> None:
    steps = [("think", 1590.0, 1599.0), ("think", 1603.0, 1612.0)]
    found = freed([stopped_at(1600)], device(*steps), STEPS_MS)
    assert found == [Freed("think", 3, 0)]
    late = freed([stopped_at(1600)], device(*steps, ("think", 1616, 1625)), STEPS_MS)
    assert late == [Freed("think", 16, 1)]
    assert unmet(freed_figures(found)) == set()
    assert unmet(freed_figures(late)) == {"barge_in_passes_beyond_a_step"}


def test_a_stop_beside_which_no_stage_was_at_work_proves_nothing() -> None:
    for passes in (device(), device(("speak", 1580, 1585)), device(("listen", 1595, 1625))):
        assert freed([stopped_at(1600)], passes, STEPS_MS) == []
    assert unmet(freed_figures([])) == {"barge_in_stages_hit"}


def test_passes_of_the_next_answer_are_not_this_ones() -> None:
    found = stopped_at(1600)
    for one in (
        event("speech_ended", 3500, 2, at_ms=3050),
        event("transcript", 3510, 2),
        event("interrupted", 3600, 2),
    ):
        found.follow(one)
    found.stops_ns[f"{CALL}.2"] = ns(3590)
    passes = device(("think", 1595, 1604), ("think", 3520, 3529), ("think", 3590, 3599))
    assert freed([found], passes, STEPS_MS) == [Freed("think", 0, 0), Freed("think", 0, 0)]


def test_speech_pauses_the_answer_that_it_interrupts_and_no_other() -> None:
    said = [Said(ns(100), ns(1000)), Said(ns(2500), ns(3500)), Said(ns(5000), ns(6000))]
    found = record(event("paused", 2700), event("paused", 2900), said=said)
    assert found.pauses_ms() == [200]
    told = speech_figures([found])
    assert (told["barge_in_by_speech"], told["barge_in_speech_ignored"]) == (2, 1)
    assert unmet(told) == {"barge_in_speech_ignored"}


def test_scripts_are_the_same_again_and_nobody_is_in_step() -> None:
    sounds = [np.full(100, number, np.float32) for number in range(6)]
    crowd = paced.scripts(16, 3, sounds, Random("a"))
    again = paced.scripts(16, 3, sounds, Random("a"))
    begins = [one.dial_s + one.listen_s for one in crowd]
    assert begins == [one.dial_s + one.listen_s for one in again]
    assert len(set(begins)) == 16
    assert max(begins) - min(begins) > paced.SPREAD_S / 2
    assert [one.listen_s for one in paced.scripts(1, 3, sounds, Random("a"))] == [0]


def test_stops_come_while_thinking_and_while_speaking_and_the_last_recording_is_stopped() -> None:
    stops = [one for one in barge.stopping(6, Random(1), first=0).stops if one]
    assert [one.after for one in stops] == ["transcript", "audio"] * 3
    assert all(0 <= one.delay_s <= barge.WITHIN_S for one in stops)
    talked = barge.interrupting(3, Random(1))
    assert talked.stops == [None, None, Stop("audio", 0.5)]
    assert talked.barge_in_s is not None


def test_the_servers_own_figures_are_those_of_one_crowd() -> None:
    def told(count: float, within: float) -> Chunks:
        rows = [
            Row("tristage_chunk_seconds_count", "live", {}, count),
            Row("tristage_chunk_seconds_bucket", "live", {"le": "0.005"}, within - 1),
            Row("tristage_chunk_seconds_bucket", "live", {"le": "0.01"}, within),
            Row("tristage_chunk_seconds_bucket", "live", {"le": "+Inf"}, count),
            Row("tristage_chunk_seconds_count", "listen", {}, 1000),
            Row("tristage_open_requests", "live", {}, 7),
        ]
        return Chunks.of(rows, "live")

    assert (told(100, 90) - told(60, 60)).share == 0.75
    assert Chunks().share is None


class Clock:
    """Of a test; seconds."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_loudspeaker_that_nobody_wakes_plays_as_one_that_is_read_all_the_time() -> None:
    arrivals = {50: 0.1, 90: 0.05, 400: 0.1}
    clocks = [Clock(), Clock()]
    lazy, busy = (Loudspeaker(clock) for clock in clocks)
    for at_ms in range(0, 700):
        for clock in clocks:
            clock.now = at_ms / 1000
        busy.catch_up()
        if at_ms in arrivals:
            for one in (lazy, busy):
                one.take(sound(at_ms, seconds=arrivals[at_ms], last=at_ms == 400))
    lazy.catch_up()
    assert lazy.last_ns == busy.last_ns == {f"{CALL}.1": ns(520)}
    assert lazy.underruns == busy.underruns == 1
    assert lazy.report() == {"turn": f"{CALL}.1", "played_ms": 250}
    assert not lazy.is_playing


def test_a_loudspeaker_is_silent_behind_an_interruption() -> None:
    clock = Clock()
    loudspeaker = Loudspeaker(clock)
    loudspeaker.take(sound(0, seconds=1.0))
    clock.now = 0.205
    loudspeaker.take(event("interrupted", 205))
    clock.now = 0.5
    loudspeaker.catch_up()
    assert loudspeaker.last_ns == {f"{CALL}.1": ns(220)}


def test_samples_are_trimmed_to_speech() -> None:
    tone = np.full(10 * FRAME, 0.3, np.float32)
    found = trimmed(np.concatenate([silence(0.4), tone, silence(0.05), tone, silence(1)]))
    assert len(found) == 20 * FRAME + round(0.05 * RATE_HZ)
    with pytest.raises(ValueError, match="without sound"):
        trimmed(silence(1))
    assert all(1 < len(one) / RATE_HZ < 4.5 for one in samples())


def speak(clause: str) -> Floats:
    """So long as its text."""
    return np.full(len(clause) * FRAME, 0.5, np.float32)


def test_pauses_are_as_long_as_is_said_and_the_same_again() -> None:
    for number, clauses in enumerate(ORDERS):
        found = pauses(number, len(clauses))
        assert found == pauses(number, len(clauses))
        assert len(found) == len(clauses) - 1 >= 1
        assert all(PAUSES_S[0] <= one <= PAUSES_S[1] for one in found)
    assert len(ORDERS) == 20


def test_orders_are_where_the_call_says() -> None:
    found = calls(4, len(ORDERS), speak)
    assert [len(one.orders) for one in found] == [5] * 4
    assert {order.text for one in found for order in one.orders} == {" ".join(o) for o in ORDERS}
    for one in found:
        assert one.orders[0].begin_s == BEFORE_S
        for order, later in zip(one.orders, one.orders[1:], strict=False):
            assert later.begin_s - order.end_s == pytest.approx(BETWEEN_S)
        for order in one.orders:
            own = one.sound[round(order.begin_s * RATE_HZ) : round(order.end_s * RATE_HZ)]
            quiet_s = float(np.mean(np.abs(own) < 0.25)) * len(own) / RATE_HZ
            assert quiet_s == pytest.approx(sum(order.pauses_s), abs=1e-3)
        room = one.sound[: round(BEFORE_S * RATE_HZ)]
        assert float(np.sqrt(np.mean(room**2))) == pytest.approx(NOISE, rel=0.1)


def test_few_orders_are_dealt_out_evenly() -> None:
    assert [len(one.orders) for one in calls(4, 8, speak)] == [2] * 4


TWO = (Order("a b", 0.5, 3.0, (0.6,)), Order("c d", 5.5, 8.0, (1.0,)))


def test_ends_inside_orders_are_false_and_the_true_ones_have_a_delay() -> None:
    ends = [End(1.5, 0.5), End(3.1, 0.5, 3.7), End(8.0, 0.8, 8.9)]
    found = score([(TWO, ends)])
    assert (found.false_ends, found.lost, found.phantoms) == (1, 0, 0)
    assert found.delays_ms == pytest.approx([600, 800])
    assert found.told_ms == pytest.approx([700, 900])


def test_orders_without_an_end_and_turns_without_an_order_are_counted() -> None:
    found = score([(TWO, [End(0.2, 0.5), End(3.0, 0.5), End(4.0, 0.5), End(6.0, 0.5)])])
    assert (found.false_ends, found.lost, found.phantoms) == (1, 1, 2)


def windows(*parts_s: tuple[float, float]) -> list[float]:
    return [probability for seconds, probability in parts_s for _ in range(round(seconds / 0.032))]


def test_a_fixed_time_out_ends_at_every_longer_pause() -> None:
    heard = windows((0.5, 0), (1, 0.9), (0.6, 0), (1, 0.9), (2, 0))
    assert len(fixed(0.5, heard)) == 2
    (only,) = fixed(0.8, heard)
    assert only.waited_s == pytest.approx(0.8, abs=0.032)
    assert only.at_s == pytest.approx(0.032 * len(windows((0.5, 0), (1, 0), (0.6, 0), (1, 0))))


def scored(false_ends: int, delay_s: float, **more: int) -> Score:
    counts = {"lost": 0, "phantoms": 0} | more
    return Score(((TWO[0], End(3.0, delay_s, 3.0 + delay_s)),), false_ends, **counts)


def test_the_product_is_held_against_the_shortest_time_out_that_is_as_safe() -> None:
    by_timeout = {
        0.4: scored(9, 0.4),
        0.6: scored(9, 0.6),
        0.8: scored(4, 0.8),
        1.0: scored(2, 1.0),
        1.5: scored(0, 1.5),
    }
    found = endpoints.figures(scored(3, 0.7), by_timeout)
    assert found["endpoints_as_safe_fixed_ms"] == 1000
    assert found["endpoints_delay_by_as_safe_fixed"] == pytest.approx(0.7)
    assert unmet(found) == set()
    assert unmet(endpoints.figures(scored(4, 0.9), by_timeout)) == {
        "endpoints_delay_by_as_safe_fixed"
    }
    lost = endpoints.figures(scored(3, 0.7, lost=1, phantoms=1), by_timeout)
    assert unmet(lost) == {"endpoints_orders_lost", "endpoints_phantom_turns"}


def test_ends_that_are_not_found_here_as_well_are_noticed() -> None:
    told = [[End(1.0, 0.5), End(2.0005, 0.5)], [End(1.0, 0.5)]]
    assert endpoints.as_computed(told, [[End(1.0, 0.5), End(2.0, 0.5)], [End(3.0, 0.5)]]) == (
        pytest.approx(2 / 3)
    )
    assert endpoints.as_computed([[]], [[]]) is None


def everything() -> Found:
    crowds = {
        **{f"paced_{people}": people for people in paced.CROWDS},
        **{f"real_{people}": people for people in paced.REAL_CROWDS},
    }
    found: Found = {}
    for prefix in crowds:
        answered = record(*ANSWERED, said=[SAID])
        found |= figures(prefix, [answered]) | chunk_figures(prefix, [[answered]])
    by_timeout = {timeout_s: scored(0, timeout_s) for timeout_s in endpoints.TIMEOUTS_S}
    found |= stop_figures([]) | freed_figures([]) | speech_figures([])
    found |= endpoints.figures(scored(0, 0.3), by_timeout)
    return found | {"endpoints_ends_as_computed_share": 1.0}


def test_every_target_is_a_figure() -> None:
    assert BENCH.targets.keys() - everything().keys() == set()


def test_every_experiment_has_a_picture(tmp_path: Path) -> None:
    crowd = paced.detail([record(*ANSWERED, said=[SAID])])
    nobody = paced.detail([record(said=[SAID])])
    point = {"false_ends": 3, "delay_ms_mean": 600.0, "delays_ms": [600]}
    detail = {
        "paced": {"1": crowd, "64": nobody},
        "real": {"1": crowd},
        "barge_in": {
            "silence_ms": {"alone": [20.0, 30.0], "several": []},
            "speech_to_pause_ms": [200.0],
        },
        "endpoints": {"pauses": 33, "adaptive": point, "fixed": {"0.5": point}},
    }
    drawn = draw(detail, tmp_path)
    assert {path.stem for path in drawn} == set(BENCH.experiments)
    assert all(path.stat().st_size > 1000 for path in drawn)


def test_a_caller_whom_the_generator_kept_waiting_keeps_the_time_of_the_chunks() -> None:
    """Else all who were kept waiting are in step from then on."""

    async def late_ms() -> list[float]:
        began_s = time.monotonic() - 2.5 * CHUNK_S
        mouth = Mouth(Script([], listen_s=9.0), began_s, lambda: False, lambda: None)
        for _ in range(2):
            await anext(mouth)
        return mouth.late_ms

    first, second = asyncio.run(late_ms())
    assert first >= 1500 * CHUNK_S
    assert second >= 500 * CHUNK_S

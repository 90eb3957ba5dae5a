"""When somebody begins to speak and has finished."""

from random import Random

import pytest

from python_backends.scheduling.endpoint import (
    Began,
    Endpoint,
    EndpointSettings,
    Finished,
    Heard,
    Manner,
    Settled,
    WentOn,
)

WINDOW_S = 0.1
SETTINGS = EndpointSettings(
    window_s=WINDOW_S, begin_s=0.2, begin_within_s=0.4, settle_s=0.2, longest_s=10.0
)
MARKS = {"#": 0.9, "+": 0.4, ".": 0.1}
"""Speech, perhaps speech, silence: a window each."""


def heard(endpoint: Endpoint, sound: str) -> list[Heard]:
    """What follows from `sound`, a mark a window."""
    news = []
    for mark in sound:
        news += endpoint.hear(MARKS[mark])
        endpoint.check_integrity()
    return news


def rounded(news: list[Heard]) -> list[Heard]:
    """To compare positions that were added up."""
    return [
        type(one)(**{k: round(v, 6) if isinstance(v, float) else v for k, v in vars(one).items()})
        for one in news
    ]


def test_a_turn_begins_with_speech_and_ends_with_silence() -> None:
    news = rounded(heard(Endpoint(SETTINGS), "...####" + "." * 20))
    assert news == [Began(0.3), Settled(0.7), Finished(0.3, 0.7, 0.8, "silence")]


def test_a_click_begins_nothing() -> None:
    assert heard(Endpoint(SETTINGS), "..#....#....#...." * 5) == []


def test_speech_that_flickers_begins_where_it_first_was() -> None:
    assert rounded(heard(Endpoint(SETTINGS), "..#.#")) == [Began(0.2)]


def test_what_is_perhaps_speech_begins_nothing_and_ends_nothing() -> None:
    endpoint = Endpoint(SETTINGS)
    assert heard(endpoint, "+" * 30) == []
    heard(endpoint, "##")
    assert heard(endpoint, "+" * 30) == []


def test_endless_silence_is_no_turn() -> None:
    endpoint = Endpoint(SETTINGS)
    assert heard(endpoint, "." * 1000) == []
    assert endpoint.finish("closed") == []


def test_endless_speech_is_cut_into_turns() -> None:
    ends = [one for one in heard(Endpoint(SETTINGS), "#" * 350) if isinstance(one, Finished)]
    assert [one.reason for one in ends] == ["length"] * 3
    assert all(one.ended_s - one.began_s == pytest.approx(10.0) for one in ends)


@pytest.mark.parametrize(
    ("manner", "waited_s"),
    [
        (Manner.CLOSED, 0.4),
        (Manner.COMPLETE, 0.6),
        (Manner.UNKNOWN, 0.8),
        (Manner.HANGING, 1.5),
    ],
)
def test_silence_is_waited_for_as_what_was_said_so_far_ends(
    manner: Manner, waited_s: float
) -> None:
    endpoint = Endpoint(SETTINGS)
    heard(endpoint, "###..")
    endpoint.judge(manner)
    (end,) = heard(endpoint, "." * 20)
    assert isinstance(end, Finished)
    assert end.waited_s == pytest.approx(waited_s)


def test_a_judgement_that_comes_late_counts_from_the_next_window_on() -> None:
    endpoint = Endpoint(SETTINGS)
    heard(endpoint, "###......")
    endpoint.judge(Manner.COMPLETE)
    (end,) = heard(endpoint, ".")
    assert isinstance(end, Finished)
    assert end.waited_s == pytest.approx(0.7)


def test_a_judgement_of_what_has_gone_on_is_forgotten() -> None:
    endpoint = Endpoint(SETTINGS)
    heard(endpoint, "###..")
    endpoint.judge(Manner.COMPLETE)
    assert rounded(heard(endpoint, "#")) == [WentOn(0.5)]
    endpoint.judge(Manner.COMPLETE)
    assert endpoint.patience_s == pytest.approx(0.8)


def test_a_pause_that_was_gone_on_after_is_waited_for_from_then_on() -> None:
    endpoint = Endpoint(SETTINGS)
    heard(endpoint, "###......###..")
    endpoint.judge(Manner.COMPLETE)
    assert endpoint.patience_s == pytest.approx(0.75)
    heard(endpoint, "." * 20)
    heard(endpoint, "###..")
    endpoint.judge(Manner.COMPLETE)
    assert endpoint.patience_s == pytest.approx(0.75)
    endpoint.judge(Manner.CLOSED)
    assert endpoint.patience_s == pytest.approx(0.4)


def test_a_pause_that_the_words_had_announced_teaches_nothing() -> None:
    endpoint = Endpoint(SETTINGS)
    heard(endpoint, "###..")
    endpoint.judge(Manner.HANGING)
    heard(endpoint, "." * 10 + "###..")
    endpoint.judge(Manner.COMPLETE)
    assert endpoint.patience_s == pytest.approx(0.6)


def test_a_turn_under_way_can_be_ended_from_outside_once() -> None:
    endpoint = Endpoint(SETTINGS)
    heard(endpoint, "..###.")
    assert endpoint.speaking
    assert endpoint.spoken_s == pytest.approx(0.3)
    assert rounded(endpoint.finish("gap")) == [Finished(0.2, 0.5, 0.1, "gap")]
    assert endpoint.finish("gap") == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"stay_at": 0.6},
        {"begin_s": 0.01},
        {"settle_s": 0.9},
        {"hanging_s": 0.7},
        {"closed_s": 0.7},
        {"longest_s": 1.0},
        {"habit": 0.5},
    ],
)
def test_settings_that_contradict_each_other_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"accepted|must"):
        EndpointSettings(**wrong)


@pytest.mark.parametrize("seed", range(20))
def test_at_random_turns_follow_each_other_and_each_is_told_in_order(seed: int) -> None:
    random, endpoint = Random(seed), Endpoint(SETTINGS)
    news: list[Heard] = []
    loud = 0.5
    for _ in range(3000):
        if random.random() < 0.05:
            loud = random.choice((0.0, 0.2, 0.7, 1.0))
        more = endpoint.hear(min(1.0, max(0.0, random.gauss(loud, 0.2))))
        if any(isinstance(one, Settled) for one in more):
            endpoint.judge(random.choice(list(Manner)))
        news += more
        endpoint.check_integrity()
    news += endpoint.finish("closed")
    at_s, state = 0.0, "quiet"
    allowed = {
        "quiet": {Began: "speaking"},
        "speaking": {Settled: "settled", Finished: "quiet"},
        "settled": {WentOn: "speaking", Finished: "quiet"},
    }
    for one in news:
        assert type(one) in allowed[state], (state, one)
        state = allowed[state][type(one)]
        if isinstance(one, Began):
            assert one.at_s >= at_s - 1e-9, "turns overlap"
        if isinstance(one, Finished):
            at_s = one.ended_s
    assert state == "quiet"

"""What the store of KV prefixes holds, and for whom."""

from random import Random

import pytest

from python_backends.scheduling.prefixes import EVERYBODY, Match, Prefix, Prefixes


@pytest.fixture
def prefixes() -> Prefixes:
    return Prefixes(byte_limit=100, token_bytes=1, least=4)


def stored(prefixes: Prefixes, session: str, tokens: range | list[int]) -> Prefix:
    prefix = prefixes.keep(session, list(tokens))
    assert prefix is not None
    prefix.is_stored = True
    return prefix


def test_the_next_turn_of_a_session_reuses_what_it_has_in_common(prefixes: Prefixes) -> None:
    prefix = stored(prefixes, "s", range(20))
    match = prefixes.match("s", [*range(15), 99, 98])
    assert match == Match(prefix, 15)
    assert prefixes.match("other", list(range(20))) is None


def test_the_last_two_tokens_of_a_prompt_are_always_computed(prefixes: Prefixes) -> None:
    stored(prefixes, "s", range(20))
    match = prefixes.match("s", list(range(12)))
    assert match is not None
    assert match.length == 10


def test_what_is_not_written_yet_is_not_reused(prefixes: Prefixes) -> None:
    assert prefixes.keep("s", list(range(20))) is not None
    assert prefixes.match("s", list(range(20))) is None


def test_too_little_in_common_is_computed_again(prefixes: Prefixes) -> None:
    stored(prefixes, "s", range(20))
    assert prefixes.match("s", [0, 1, 2, 77, 78, 79]) is None
    assert prefixes.keep("t", [1, 2, 3]) is None


def test_the_session_that_was_not_used_for_longest_is_given_up(prefixes: Prefixes) -> None:
    for name in ("a", "b", "c"):
        stored(prefixes, name, range(30))
    match = prefixes.match("a", list(range(30)))
    assert match is not None
    prefixes.release(match)
    stored(prefixes, "d", range(30))
    assert prefixes.match("b", list(range(30))) is None
    assert prefixes.match("a", list(range(30))) is not None


def test_what_is_being_used_is_not_forgotten_before_it_is_released(prefixes: Prefixes) -> None:
    prefix = stored(prefixes, "s", range(60))
    match = prefixes.match("s", list(range(60)))
    assert match is not None
    prefixes.forget("s")
    assert prefixes.dropped() == []
    assert prefixes.keep("t", list(range(60))) is None, "there is no room yet"
    prefixes.release(match)
    assert prefixes.dropped() == [prefix.key]
    assert prefixes.dropped() == []
    assert prefixes.keep("t", list(range(60))) is not None


def test_more_than_the_store_holds_is_not_kept(prefixes: Prefixes) -> None:
    stored(prefixes, "s", range(50))
    assert prefixes.keep("huge", list(range(101))) is None
    assert prefixes.match("s", list(range(50))) is not None


def test_what_everybody_begins_with_serves_those_without_a_longer_prefix_of_their_own(
    prefixes: Prefixes,
) -> None:
    common = stored(prefixes, EVERYBODY, range(10))
    assert prefixes.match("new", list(range(30))) == Match(common, 10)
    own = stored(prefixes, "known", range(20))
    assert prefixes.match("known", list(range(30))) == Match(own, 20)
    assert prefixes.match("known", [*range(10), 77, 78]) in (Match(common, 10), Match(own, 10))


def test_what_is_stored_already_is_not_stored_again(prefixes: Prefixes) -> None:
    stored(prefixes, EVERYBODY, range(10))
    assert prefixes.keep(EVERYBODY, list(range(10))) is None


def test_a_store_of_no_size_keeps_nothing() -> None:
    assert Prefixes(byte_limit=0, token_bytes=1).keep("s", list(range(50))) is None


def test_after_a_loss_nothing_is_reused_and_everything_is_dropped(prefixes: Prefixes) -> None:
    written = stored(prefixes, "a", range(20))
    unwritten = prefixes.keep("b", list(range(20)))
    assert unwritten is not None
    prefixes.lose([unwritten])
    assert prefixes.match("a", list(range(20))) is None
    assert sorted(prefixes.dropped()) == [written.key, unwritten.key]
    assert prefixes.held_bytes == 0


@pytest.mark.parametrize("seed", range(5))
def test_random_use_never_holds_more_than_it_may_and_drops_each_key_once(seed: int) -> None:
    random = Random(seed)
    prefixes = Prefixes(byte_limit=100, token_bytes=1, least=4)
    used: list[Match] = []
    kept, dropped = set(), []
    unwritten: list[Prefix] = []
    for _ in range(3000):
        session = random.choice("abcdef")
        tokens = list(range(random.randint(1, 60)))
        action = random.random()
        if action < 0.4:
            prefix = prefixes.keep(session, tokens)
            if prefix is not None:
                kept.add(prefix.key)
                prefix.is_stored = random.random() < 0.9
                unwritten += [] if prefix.is_stored else [prefix]
        elif action < 0.8:
            match = prefixes.match(session, tokens)
            if match is not None:
                assert list(match.prefix.tokens[: match.length]) == tokens[: match.length]
                used.append(match)
        elif used:
            prefixes.release(used.pop(random.randrange(len(used))))
        if action > 0.99:
            prefixes.lose(unwritten)
            unwritten = []
        dropped += prefixes.dropped()
        assert not {match.prefix.key for match in used} & set(dropped)
        prefixes.check_integrity()
    for match in used:
        prefixes.release(match)
    prefixes.lose(unwritten)
    dropped += prefixes.dropped()
    assert sorted(dropped) == sorted(kept)


def test_what_another_engine_has_still_to_write_is_dropped_after_it_is_written(
    prefixes: Prefixes,
) -> None:
    elsewhere = prefixes.keep("a", list(range(20)))
    assert elsewhere is not None
    prefixes.lose([])
    assert prefixes.dropped() == []
    elsewhere.is_stored = True
    assert prefixes.dropped() == [elsewhere.key]

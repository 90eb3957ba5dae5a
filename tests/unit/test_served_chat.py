"""What an OpenAI-compatible endpoint is sent, and how what comes back is read."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from random import Random

import pytest

from python_backends.bridge import Options
from python_backends.errors import InvalidInput, Overloaded, StageError, StageFailed
from python_backends.ordering.prompt import Utterance
from python_backends.served_llm.chat import (
    Delta,
    body,
    first_model,
    messages,
    read_delta,
    refusal,
    retry_after_ms,
    told,
)
from python_backends.served_llm.events import MOST_BYTES, EventStream, EventTooLong
from python_backends.served_llm.settings import ServedSettings

SETTINGS = ServedSettings(
    base_url="http://127.0.0.1:1/v1",
    model="m",
    api_key_env="",
    system="Be brief.",
    max_open=2,
    max_waiting=2,
    max_new_tokens=100,
)
STREAM = 'data: {"a": "ä€"}\n\n: still here\n\nevent: x\nid: 7\ndata:one\ndata: two\n\nretry: 1\n\n'


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_events_are_the_same_however_their_bytes_arrive(newline: str) -> None:
    sent = STREAM.replace("\n", newline).encode()
    expected = ['{"a": "ä€"}', "one\ntwo"]
    random = Random(7)
    for _ in range(50):
        stream, found, at = EventStream(), list[str](), 0
        while at < len(sent):
            size = random.randint(1, 9)
            found += stream.add(sent[at : at + size])
            at += size
        assert found == expected


def test_an_event_without_end_is_not_kept() -> None:
    stream = EventStream()
    assert stream.add(b"data: " + b"x" * (MOST_BYTES - 10)) == []
    with pytest.raises(EventTooLong):
        stream.add(b"x" * 10)


def test_many_small_lines_of_one_event_are_not_kept_either() -> None:
    stream, many = EventStream(), b"data: xxxxxxxxxx\n" * (MOST_BYTES // 20)
    assert stream.add(many) == []
    with pytest.raises(EventTooLong):
        stream.add(many + many)


def said(*roles_and_texts: str) -> list[Utterance]:
    pairs = (one.split(":", 1) for one in roles_and_texts)
    return [Utterance({"u": "user", "a": "assistant"}[role], text) for role, text in pairs]


def told_of(*roles_and_texts: str) -> list[dict[str, str]]:
    roles = {"s": "system", "u": "user", "a": "assistant"}
    pairs = (one.split(":", 1) for one in roles_and_texts)
    return [{"role": roles[role], "content": text} for role, text in pairs]


def test_a_conversation_is_system_history_and_what_was_heard() -> None:
    assert messages("S", said("u:1", "a:2"), "3", 10) == told_of("s:S", "u:1", "a:2", "u:3")
    assert messages("", [], "3", 10) == told_of("u:3")


def test_lines_of_one_speaker_become_one() -> None:
    found = messages("", said("u:1", "a:2", "a:3", "u:4"), "5", 10)
    assert found == told_of("u:1", "a:2\n3", "u:4\n5")


def test_whole_exchanges_are_left_out_from_the_oldest() -> None:
    history = said("a:hello", "u:11", "a:22", "u:33", "a:44")
    assert messages("", history, "x", 14) == told_of(
        "a:hello", "u:11", "a:22", "u:33", "a:44", "u:x"
    )
    assert messages("", history, "x", 13) == told_of("u:11", "a:22", "u:33", "a:44", "u:x")
    assert messages("", history, "x", 8) == told_of("u:33", "a:44", "u:x")
    assert messages("", history, "x", 3) == told_of("u:x")
    with pytest.raises(InvalidInput, match="at most 3 are accepted"):
        messages("", history, "xxxx", 3)


def test_a_greedy_request_says_so_and_needs_no_seed() -> None:
    assert body(SETTINGS, "m", told_of("u:x"), Options(seed=3)) == {
        "model": "m",
        "messages": told_of("u:x"),
        "stream": True,
        "max_tokens": 64,
        "temperature": 0.0,
    }


def test_options_become_fields_of_the_request() -> None:
    options = Options(
        temperature=0.7,
        top_p=0.9,
        top_k=5,
        seed=3,
        stop=("\n",),
        max_tokens=200,
        logit_bias=((7, -1.0),),
        repetition_penalty=1.1,
    )
    extra = replace(SETTINGS, extra_body='{"x": {"y": 1}}', penalty_field="repeat_penalty")
    found = body(extra, "m", [], options)
    assert (
        found.items()
        >= {
            "temperature": 0.7,
            "top_p": 0.9,
            "top_k": 5,
            "seed": 3,
            "stop": ["\n"],
            "max_tokens": 100,
            "logit_bias": {"7": -1.0},
            "repeat_penalty": 1.1,
            "x": {"y": 1},
        }.items()
    )


def test_without_extensions_what_needs_one_is_refused_and_nothing_of_it_sent() -> None:
    plain = replace(SETTINGS, extensions=False)
    assert "top_k" not in body(plain, "m", [], Options(temperature=1.0))
    with pytest.raises(InvalidInput, match="top_k"):
        body(plain, "m", [], Options(top_k=3))
    with pytest.raises(InvalidInput, match="repetition_penalty"):
        body(plain, "m", [], Options(repetition_penalty=1.2))


@pytest.mark.parametrize(
    ("event", "delta"),
    [
        ({"choices": [{"delta": {"role": "assistant", "content": None}}]}, Delta()),
        ({"choices": [{"delta": {"content": "Hi"}, "finish_reason": None}]}, Delta("Hi")),
        ({"choices": [{"delta": {"reasoning_content": "hm"}}]}, Delta()),
        ({"choices": [{"delta": {"content": "."}, "finish_reason": "stop"}]}, Delta(".", "stop")),
        ({"choices": [{"delta": {}, "finish_reason": "length"}]}, Delta("", "length")),
        ({"choices": [], "usage": {"total_tokens": 3}}, Delta()),
        ({"choices": [{"delta": {"content": "\ud83d"}}]}, Delta("?")),
        ({"choices": 7}, Delta()),
        ({}, Delta()),
    ],
)
def test_an_event_is_a_part_of_the_answer(event: object, delta: Delta) -> None:
    assert read_delta(json.dumps(event)) == delta


def test_the_end_of_the_stream_is_an_end() -> None:
    assert read_delta("[DONE]") == Delta("", "stop")


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        ("hello", StageFailed),
        ("[" * 100_000, StageFailed),
        ("[]", StageFailed),
        ('{"choices": [{"finish_reason": "content_filter"}]}', StageFailed),
        ('{"choices": [{"finish_reason": ["x"]}]}', StageFailed),
        ('{"error": {"message": "no", "code": 503}}', Overloaded),
        ('{"error": {"message": "too long", "code": 400}}', InvalidInput),
        ('{"error": {"message": "boom", "code": "x"}}', StageFailed),
        ('{"error": "boom"}', StageFailed),
    ],
)
def test_an_error_in_the_stream_is_typed(data: str, kind: type[StageError]) -> None:
    with pytest.raises(kind):
        read_delta(data)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, InvalidInput),
        (413, InvalidInput),
        (422, InvalidInput),
        (429, Overloaded),
        (503, Overloaded),
        (301, StageFailed),
        (401, StageFailed),
        (403, StageFailed),
        (404, StageFailed),
        (500, StageFailed),
        (502, StageFailed),
    ],
)
def test_a_status_is_an_error_of_our_kinds(status: int, kind: type[StageError]) -> None:
    error = refusal(status, "because")
    assert type(error) is kind
    assert ("because" in error.message) == (kind is InvalidInput)
    assert error.retry_after_ms == (500 if kind is Overloaded else None)


@pytest.mark.parametrize(
    ("header", "wait_ms"),
    [
        ("2", 2000),
        ("0.25", 250),
        ("-1", 0),
        ("nan", None),
        ("-inf", 0),
        ("inf", 60_000),
        ("86400", 60_000),
        ("Mon, 30 Nov 2026 12:00:03 GMT", 3000),
        ("Mon, 30 Nov 2026 11:00:03 GMT", 0),
        ("Mon, 30 Nov 2026 12:00:03", None),
        ("soon", None),
    ],
)
def test_when_to_come_back_is_seconds_or_a_date(header: str, wait_ms: int | None) -> None:
    assert retry_after_ms(header, datetime(2026, 11, 30, 12, tzinfo=UTC)) == wait_ms


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ({"error": {"message": "a"}}, "a"),
        ({"error": "a"}, "a"),
        ({"message": "a", "object": "error"}, "a"),
        ({"detail": "a"}, "a"),
        ({"detail": [{"msg": "a"}]}, ""),
        ([], ""),
        (None, ""),
    ],
)
def test_the_message_of_an_error_is_found(found: object, message: str) -> None:
    assert told(found) == message


def test_the_first_model_that_is_listed_is_taken() -> None:
    assert first_model(b'{"data": [{"id": "a"}, {"id": "b"}]}') == "a"
    for text in (b"", b"\xff", b"{}", b'{"data": []}', b'{"data": [{"id": 3}]}', b"[" * 100_000):
        with pytest.raises(StageFailed, match="lists no model"):
            first_model(text)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:8000",
        "ftp://host/v1",
        "http://",
        "http://[::1/v1",
        "http://user:secret@host/v1",
        "http://host/v1?key=secret",
        "http://host/v1#secret",
        "http://host:secret/v1",
    ],
)
def test_a_url_that_cannot_be_used_is_refused_and_not_quoted(url: str) -> None:
    with pytest.raises(ValueError, match="base_url, or TRISTAGE_LLM_URL, is not") as refused:
        replace(SETTINGS, base_url=url)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"max_open": 0}, "max_open"),
        ({"silence_ms": 0}, "silence_ms"),
        ({"system_file": "a.txt"}, "one of them"),
        ({"extra_body": "{"}, "not a JSON object"),
        ({"extra_body": "[]"}, "not a JSON object"),
        ({"extra_body": '{"messages": []}'}, "messages"),
    ],
)
def test_settings_that_cannot_work_are_refused(wrong: dict[str, object], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        replace(SETTINGS, **wrong)

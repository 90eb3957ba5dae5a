"""A turn as a request to an OpenAI-compatible API, and what comes back, read. Pure."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

from python_backends.bridge.options import Options
from python_backends.errors import InvalidInput, Overloaded, StageError, StageFailed
from python_backends.ordering.prompt import Utterance
from python_backends.served_llm.settings import ServedSettings

GREEDY_BELOW: Final = 0.001
RETRY_AFTER_MS: Final = 500
"""When to come back to an endpoint that does not say so."""

MOST_RETRY_S: Final = 60.0
DONE: Final = "[DONE]"
"""What an event stream ends with."""

STATUSES: Final = {"stop": "stop", "length": "length"}
"""Why a model may have ended its answer: as the API has it, and as STATUS has it."""

Message = dict[str, str]


def messages(
    system: str, history: Sequence[Utterance], heard: str, most_chars: int
) -> list[Message]:
    """The conversation: of the history as many whole exchanges as fit, the newest.

    InvalidInput when what was heard does not fit. Lines of one role that follow each other become
    one, since templates of some models take nothing but turn and turn about.
    """
    if len(heard) > most_chars:
        raise InvalidInput(f"HEARD has {len(heard)} characters; at most {most_chars} are accepted")
    found: list[Message] = [{"role": "system", "content": system}] if system else []
    for line in [*_newest(history, most_chars - len(heard)), Utterance("user", heard)]:
        if found and found[-1]["role"] == line.role:
            found[-1]["content"] += f"\n{line.text}"
        else:
            found.append({"role": line.role, "content": line.text})
    return found


def _newest(history: Sequence[Utterance], room: int) -> Sequence[Utterance]:
    start = len(history)
    for at in range(len(history) - 1, -1, -1):
        room -= len(history[at].text)
        if room < 0:
            break
        if at == 0 or history[at].role == "user":
            start = at
    return history[start:]


def body(
    settings: ServedSettings, model: str, said: Sequence[Message], options: Options
) -> dict[str, Any]:
    """The request for an answer. InvalidInput for what the endpoint does not know."""
    return {
        **settings.body,
        "model": model,
        "messages": list(said),
        "stream": True,
        "max_tokens": min(options.max_tokens, settings.max_new_tokens),
        **_sampling(options),
        **_extensions(settings, options),
    }


def _sampling(options: Options) -> dict[str, Any]:
    found: dict[str, Any] = {"temperature": options.temperature, "top_p": options.top_p}
    if options.temperature < GREEDY_BELOW:
        found = {"temperature": 0.0}
    else:
        found["seed"] = options.seed
    if options.stop:
        found["stop"] = list(options.stop)
    if options.logit_bias:
        found["logit_bias"] = {str(token): bias for token, bias in options.logit_bias}
    return found


def _extensions(settings: ServedSettings, options: Options) -> dict[str, Any]:
    if not settings.extensions:
        for name in ("top_k", "repetition_penalty"):
            if name in options.given():
                raise InvalidInput(f"{name} is not known to the LLM that is served here")
        return {}
    found: dict[str, Any] = {}
    if options.temperature >= GREEDY_BELOW:
        found["top_k"] = options.top_k
    if options.repetition_penalty != 1:
        found[settings.penalty_field] = options.repetition_penalty
    return found


@dataclass(frozen=True)
class Delta:
    """A part of an answer; `ended` says why nothing follows, empty while more does."""

    text: str = ""
    ended: str = ""


def read_delta(data: str) -> Delta:
    """One event of the stream. What a model reasons is no answer. StageError for an error that
    comes in the stream, or what is none of ours."""
    if data == DONE:
        return Delta(ended="stop")
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as fault:
        raise StageFailed("the LLM's endpoint sent an event that is not JSON") from fault
    if not isinstance(found, dict):
        raise StageFailed("the LLM's endpoint sent an event that is not an object")
    if found.get("error"):
        code = _at(found, "error", "code")
        raise refusal(code if isinstance(code, int) else 500, told(found))
    text = _at(found, "choices", 0, "delta", "content")
    ended = _status(_at(found, "choices", 0, "finish_reason"))
    return Delta(_whole(text) if isinstance(text, str) else "", ended)


def _status(reason: Any) -> str:
    """What finish_reason is to our caller; empty while there is none."""
    if reason is None or reason == "":
        return ""
    for known, status in STATUSES.items():
        if reason == known:
            return status
    raise StageFailed(f"the LLM's endpoint ended the answer because of {str(reason)[:40]!r}")


def first_model(text: bytes) -> str:
    """Of what GET /models answers; StageFailed when there is none."""
    try:
        found = _at(json.loads(text), "data", 0, "id")
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, str) or not found:
        raise StageFailed("the LLM's endpoint lists no model; name one by the parameter `model`")
    return found


def told(found: Any) -> str:
    """The message of an error, in the forms in which servers write it; empty for another one."""
    error = _at(found, "error")
    for one in (_at(error, "message"), error, _at(found, "message"), _at(found, "detail")):
        if isinstance(one, str):
            return _whole(one)
    return ""


def refusal(status: int, message: str, retry_after_ms: int | None = None) -> StageError:
    """What an HTTP status other than 200 means to our caller, who is told the `message` only where
    it is about what was sent."""
    match status:
        case 429 | 503:
            return Overloaded(
                "the LLM has no room now",
                reason="stage",
                retry_after_ms=RETRY_AFTER_MS if retry_after_ms is None else retry_after_ms,
            )
        case 400 | 413 | 422:
            return InvalidInput(f"the LLM refuses the request: {message or 'it does not say why'}")
        case 401 | 403:
            return StageFailed(f"the LLM's endpoint does not accept our key (HTTP {status})")
        case 404:
            return StageFailed("the LLM's endpoint knows no such model, or no such path (HTTP 404)")
    return StageFailed(f"the LLM's endpoint failed (HTTP {status})")


def retry_after_ms(header: str, now: datetime) -> int | None:
    """Of Retry-After (RFC 9110, 10.2.3): seconds, or a date. None when it says neither."""
    try:
        wait_s = float(header)
    except ValueError:
        try:
            wait_s = (parsedate_to_datetime(header) - now).total_seconds()
        except (ValueError, TypeError):
            return None
    return None if math.isnan(wait_s) else round(1000 * min(max(wait_s, 0.0), MOST_RETRY_S))


def _at(found: Any, *path: str | int) -> Any:
    """A value inside of what JSON held; None where there is none."""
    for key in path:
        try:
            found = found[key]
        except (LookupError, TypeError):
            return None
    return found


def _whole(text: str) -> str:
    """JSON can hold half a surrogate pair, which no UTF-8 has."""
    return text.encode(errors="replace").decode()

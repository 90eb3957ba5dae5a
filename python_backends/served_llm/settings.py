"""Parameters of a `think` whose LLM is served elsewhere."""

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

URL_VARIABLE = "TRISTAGE_LLM_URL"
"""The environment variable that wins over `base_url`."""

OURS = frozenset(
    {
        *("model", "messages", "stream", "max_tokens", "temperature", "top_p", "top_k", "seed"),
        *("stop", "logit_bias"),
    }
)
"""Fields of a request that follow from the turn."""


@dataclass(frozen=True)
class ServedSettings:
    """`base_url` is that of an OpenAI-compatible API, up to and with its version:
    http://10.0.0.3:8000/v1. It holds no secret, as errors of others may quote it."""

    base_url: str
    model: str
    """As the endpoint names it; empty: the first one that it lists."""

    api_key_env: str
    """The environment variable that holds the API key; empty: none is sent."""

    system: str
    """What every conversation begins with; empty: nothing."""

    max_open: int
    """Answers that the endpoint is asked for at once."""

    max_waiting: int
    """Requests in front of them."""

    max_new_tokens: int
    """Of an answer, whatever its caller asks for."""

    system_file: str = ""
    """A file of the version folder that holds it instead of `system`."""

    prompt_chars: int = 16_000
    """Of HEARD and HISTORY; older exchanges are left out."""

    connect_ms: int = 2_000
    keep_ms: int = 0
    """How long an unused connection is kept; 0: each answer has its own. Some servers close one
    that is kept just when it is used again, which costs a turn, as nothing is sent twice."""

    silence_ms: int = 10_000
    """An endpoint that sends no part of an answer for so long has failed."""

    extensions: bool = True
    """It knows `top_k` and the repetition penalty, which OpenAI's own API does not."""

    penalty_field: str = "repetition_penalty"
    """What it calls that; llama.cpp: repeat_penalty."""

    extra_body: str = ""
    """A JSON object of more fields of every request:
    {"chat_template_kwargs": {"enable_thinking": false}}."""

    def __post_init__(self) -> None:
        _check_url(self.base_url)
        if min(self.max_open, self.max_new_tokens, self.prompt_chars, self.connect_ms) < 1:
            raise ValueError("max_open, max_new_tokens, prompt_chars and connect_ms: 1 at least")
        if self.silence_ms < 1 or min(self.max_waiting, self.keep_ms) < 0:
            raise ValueError("silence_ms must be at least 1, max_waiting and keep_ms at least 0")
        if self.system and self.system_file:
            raise ValueError("system and system_file: one of them says what is sent")
        if taken := sorted(self.more & (OURS | {self.penalty_field})):
            raise ValueError(f"extra_body has {taken}, which follow from the turn")

    @property
    def body(self) -> dict[str, Any]:
        """`extra_body`, read."""
        try:
            found = json.loads(self.extra_body or "{}")
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise ValueError("extra_body is not a JSON object")
        return found

    @property
    def more(self) -> set[str]:
        """Names in `extra_body`."""
        return set(self.body)


def _check_url(url: str) -> None:
    """ValueError that does not quote it: what is wrong with it may be that it holds a secret."""
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fits = False
    if not fits or "@" in parts.netloc or parts.query or parts.fragment:
        raise ValueError(
            f"base_url, or {URL_VARIABLE}, is not http(s)://host[:port]/path; a key belongs in the "
            "environment variable that api_key_env names"
        )

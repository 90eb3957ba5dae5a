"""Prompts of any chat model, by the Jinja template that comes with it."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from jinja2 import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from python_backends.errors import StageFailed
from python_backends.ordering.prompt import Utterance, newest_that_fit

Message = dict[str, str]


@dataclass(frozen=True)
class Chat:
    """What chat.json holds: the template, what it may name, and what every conversation begins
    with."""

    template: str
    system: str
    tokens: dict[str, str] = field(default_factory=dict)
    """Special tokens by the names that templates know them by: "bos_token"."""

    variables: dict[str, Any] = field(default_factory=dict)
    """Further ones: {"enable_thinking": false}."""

    @classmethod
    def read(cls, path: Path) -> "Chat":
        """ValueError when it is no such file."""
        try:
            return cls(**json.loads(path.read_text()))
        except (OSError, TypeError, ValueError) as fault:
            raise ValueError(f"{path} is no chat.json: {fault}") from fault


class ChatPrompt:
    """See Prompter. Special tokens that somebody says are broken up, so that they stay text."""

    def __init__(self, chat: Chat, tokenizer: Tokenizer, limit: int) -> None:
        """`limit`: tokens that a prompt may have. ValueError for a template that cannot be used."""
        self._chat = chat
        self._tokenizer = tokenizer
        self._limit = limit
        self._template = _compiled(chat.template)
        added = tokenizer.get_added_tokens_decoder().values()
        self._special = sorted((one.content for one in added), key=len, reverse=True)
        self._has_system = self._takes_a_system()
        one, other = (self._encode(self.text([], said)) for said in ("a", "zero"))
        same = (k for k, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
        self.shared = next(same, min(len(one), len(other)))
        if len(one) > limit:
            raise ValueError(
                f"the system text takes {len(one)} tokens of a prompt; at most {limit} fit"
            )

    def tokens(self, history: Sequence[Utterance], heard: str) -> list[int]:
        """See Prompter."""
        return newest_that_fit(
            history,
            heard,
            lambda start: self.text(history[start:], heard),
            self._encode,
            limit=self._limit,
        )

    def text(self, history: Sequence[Utterance], heard: str) -> str:
        """The whole prompt, up to where the answer begins."""
        said = [*history, Utterance("user", heard)]
        messages = [{"role": one.role, "content": self._plain(one.text)} for one in said]
        system = [{"role": "system", "content": self._chat.system}] if self._chat.system else []
        if not system or self._has_system:
            return self._rendered([*system, *messages])
        first = next(k for k, one in enumerate(messages) if one["role"] == "user")
        merged = f"{self._chat.system}\n\n{messages[first]['content']}"
        return self._rendered([{"role": "user", "content": merged}, *messages[first + 1 :]])

    def _takes_a_system(self) -> bool:
        """Some templates refuse the role: the first user says it then."""
        hello = {"role": "user", "content": "hello"}
        try:
            self._rendered([{"role": "system", "content": self._chat.system}, hello])
        except StageFailed:
            try:
                self._rendered([hello])
            except StageFailed as fault:
                raise ValueError(str(fault)) from fault
            return False
        return True

    def _rendered(self, messages: Sequence[Message]) -> str:
        known = {**self._chat.tokens, **self._chat.variables}
        try:
            return self._template(messages=messages, add_generation_prompt=True, **known)
        except TemplateError as fault:
            raise StageFailed(f"the chat template refuses this conversation: {fault}") from fault

    def _encode(self, prompt: str) -> list[int]:
        return list(self._tokenizer.encode(prompt, add_special_tokens=False).ids)

    def _plain(self, said: str) -> str:
        for token in self._special:
            if len(token) > 1 and token in said:
                said = said.replace(token, f"{token[0]} {token[1:]}")
        return said


def _compiled(template: str) -> Callable[..., str]:
    """With what templates of Hugging Face may use: their tojson, raise_exception, strftime_now."""
    jinja = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
    )
    jinja.filters["tojson"] = _to_json
    jinja.globals["raise_exception"] = _refuse
    jinja.globals["strftime_now"] = lambda wanted: datetime.now().strftime(wanted)
    try:
        return jinja.from_string(template).render
    except TemplateError as fault:
        raise ValueError(f"the chat template cannot be read: {fault}") from fault


def _to_json(value: Any, indent: int | None = None) -> str:
    """As it is, without the escapes for HTML that Jinja's own makes."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(why: str) -> NoReturn:
    raise TemplateError(why)

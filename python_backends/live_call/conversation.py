"""A call that is answered: whose turn it is, and what to do when both speak."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Final

from python_backends.bridge import Request
from python_backends.bridge.tensors import text
from python_backends.errors import InvalidInput, StageError
from python_backends.listening.call import Call, Line
from python_backends.listening.news import (
    News,
    NoSpeech,
    NotHeard,
    SpeechStarted,
    Transcript,
    failed,
)
from python_backends.live_call.answer import Answer
from python_backends.live_call.backchannel import is_backchannel
from python_backends.live_call.settings import LiveSettings
from python_backends.ordering.exchange import history_json, keep_last
from python_backends.ordering.prompt import Utterance, parse_history
from python_backends.peer import Outputs
from python_backends.scheduling.pacing import Pace

OF_THE_CALL: Final = ("rate_hz", "partials", "lead_ms")
"""Options that a turn has no use for."""

TAIL_S: Final = 0.5
"""So near to its end an answer is not interrupted by "okay": that is said to it."""


class Conversation(Call):
    """Speech during an answer holds it, until it is known what it means: enough of it, or words,
    interrupt the answer; a cough, or "uh-huh", does not, and it goes on where it stopped.

    Of an interrupted answer the history has what was played. If that was nothing, the caller had
    not finished: what they had said comes before what they say now.
    """

    def __init__(self, request: Request, line: Line, settings: LiveSettings) -> None:
        """InvalidInput for a HISTORY that is none."""
        super().__init__(request, line, settings)
        self._settings = settings
        self._lead_s = (request.options.lead_ms or settings.lead_ms) / 1000
        given = request.text("HISTORY", "")
        self._history: list[Utterance] = parse_history(given) if given else []
        self._unanswered = ""
        """What was said in turns whose answers were never heard."""

        self._answer: Answer | None = None
        self._serving: asyncio.Task[None] | None = None
        self._held_for = ""
        """The turn of speech that the answer is held for."""

    def judged(self, probability: float) -> None:
        """See Call."""
        super().judged(probability)
        if self._held_for and self.ear.spoken_s >= self._settings.confirm_ms / 1000:
            self._interrupt()

    def news(self, news: News) -> None:
        """See Call."""
        super().news(news)
        match news:
            case SpeechStarted(turn) if self._answer is not None:
                self._hold(self._answer, turn)
            case Transcript(turn, words):
                self._heard(turn, words)
            case NoSpeech(turn) | NotHeard(turn):
                self._release(turn)

    def report(self, said: Mapping[str, Any]) -> None:
        """{"turn": id, "played_ms": ms}: so much of that answer has been played; {"stop": true}: be
        silent."""
        match said:
            case {"turn": str(turn), "played_ms": int() | float() as played_ms}:
                if self._answer is not None and self._answer.turn == turn:
                    self._answer.reported(played_ms / 1000)
            case {"stop": True}:
                self._interrupt()
            case _:
                raise InvalidInput(
                    'REPORT accepts {"turn": id, "played_ms": ms} and {"stop": true}'
                )

    async def until_quiet(self) -> None:
        """See Call: all that was said has been answered, and the answers have been played."""
        await super().until_quiet()
        while self._answer is not None and not self.over:
            await self._answer.over.wait()
            await super().until_quiet()

    def drop(self) -> None:
        """See Call."""
        super().drop()
        self._stop()

    def _heard(self, turn: str, words: str) -> None:
        answer = self._answer
        if answer is not None and is_backchannel(words) and not answer.is_nearly_over(TAIL_S):
            self._release(turn)
            return
        self._interrupt()
        words = f"{self._unanswered} {words}".strip()
        self._unanswered = ""
        self._answer = Answer(turn, words, Pace(self._lead_s), self._line.clock)
        self._serving = self._line.begin(self._serve(self._answer))
        if self.ear.speaking:  # on, before what was said last had been understood
            self._hold(self._answer, self.ear.turn)

    def _hold(self, answer: Answer, turn: str) -> None:
        self._held_for = turn
        answer.pause()
        if answer.pace.sent_s:
            self._tell("paused", answer)

    def _release(self, turn: str) -> None:
        """What it was held for meant nothing."""
        if self._answer is not None and turn and self._held_for == turn:
            self._held_for = ""
            self._answer.resume()
            if self._answer.pace.sent_s:
                self._tell("resumed", self._answer)

    def _interrupt(self) -> None:
        """No chunk of the answer is told any more."""
        answer = self._answer
        if answer is None:
            return
        self._stop()
        answer.pause()
        said = answer.said
        if answer.played_s > 0:
            self._remember(answer.heard, said)
        else:
            self._unanswered = answer.heard
        self._tell("interrupted", answer, said=said)

    def _stop(self) -> None:
        answer, self._answer, self._held_for = self._answer, None, ""
        if answer is None or self._serving is None:
            return
        self._serving.cancel()
        answer.over.set()
        self._line.begin(self._line.peer.cancel(answer.name, [self._settings.turn_model]))

    async def _serve(self, answer: Answer) -> None:
        inputs: Outputs = {"HEARD": text(answer.heard), "SESSION_ID": text(self.id)}
        if self._history:
            inputs["HISTORY"] = text(history_json(self._history))
        given = self.request.options.given()
        parameters = {key: value for key, value in given.items() if key not in OF_THE_CALL}
        try:
            await answer.serve(
                self._line.peer,
                self._settings.turn_model,
                inputs,
                parameters=parameters,
                silence_s=self._settings.no_progress_ms / 1000,
                tell=self.tell,
            )
            self._remember(answer.heard, answer.said)
            self._tell("answered", answer, said=answer.said)
        except StageError as error:
            self.tell(failed(answer.turn, error))
        finally:
            if self._answer is answer:
                self._answer, self._held_for = None, ""
                answer.over.set()

    def _remember(self, heard: str, said: str) -> None:
        self._history.append(Utterance("user", heard))
        if said:
            self._history.append(Utterance("assistant", said))
        keep_last(self._history, self._settings.history_chars)

    def _tell(self, what: str, answer: Answer, **more: Any) -> None:
        played_ms = round(1000 * answer.played_s)
        event = {"type": what, "turn": answer.turn, "played_ms": played_ms, **more}
        self.tell(json.dumps(event, ensure_ascii=False))

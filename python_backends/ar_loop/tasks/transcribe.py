"""`asr_decode`: encoder states to text, one sequence a window of at most 30 s."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from python_backends.ar_loop.sequence import Call, Sequence, Work
from python_backends.ar_loop.settings import LoopSettings
from python_backends.ar_loop.tasks.repetition import Said, repeats_itself
from python_backends.bridge import ModelConfig, Request
from python_backends.bridge.events import now_ns
from python_backends.bridge.tensors import text
from python_backends.errors import InvalidInput
from python_backends.slot_engine.command import Tokens

RATE_HZ = 16_000
NO_SPEECH_ABOVE = 0.6
NO_SPEECH_MEAN_SCORE_BELOW = -1.0
"""Whisper's rule: silence is believed only when the words themselves are improbable. Both are taken
where Whisper takes them: the first behind <|startoftranscript|>, the second over all tokens."""

NO_SPEECH_SURE_ABOVE = 0.9
"""Above it words must be confident ones, and a shortened window is not heard again. White, pink and
brown noise and hum measure 0.91 to 0.98, with a "you" that scores up to -0.89; of 400 snippets of
speech of a second, some noisy, none more than 0.88; whole sentences below 0.05."""

FULL_FRAMES = 3000
CONFIDENT_ABOVE = -0.3
"""Mean log-probability from which text of a shortened window is trusted. Clean speech measures
-0.02 to -0.2; below this a full-length encoding may hear words that a shortened one does not."""


class Transcribe:
    """Decodes each window of a request, re-encodes a looping one at full length, joins the text."""

    width = 1

    def __init__(
        self,
        tokenizer: Tokenizer,
        generation: Mapping[str, Any],
        settings: LoopSettings,
        call: Call,
    ) -> None:
        self._tokenizer = tokenizer
        self.prompt = np.array(generation["prompt"], np.int64)
        self.end = int(generation["end"])
        self.limit = settings.max_new_tokens
        _check_room(len(self.prompt), settings)
        self._encoder = settings.encode_model
        self._call = call

    @classmethod
    def load(cls, config: ModelConfig, settings: LoopSettings, call: Call) -> "Transcribe":
        """From the model's tokenizer.json and its step model's generation.json."""
        tokenizer = Tokenizer.from_file(str(config.artefact("tokenizer.json")))
        generation = config.artefact("generation.json", model=settings.step_model)
        return cls(tokenizer, json.loads(generation.read_text()), settings, call)

    def open(self, request: Request) -> list[Sequence]:
        """See Task. A window without speech (VALID 0) costs nothing."""
        hidden, valid = request.required("HIDDEN")[0], request.required("VALID")[0]
        _check(request, hidden, valid)
        transcript = Transcript(request, texts=[""] * len(valid))
        spoken = [index for index, states in enumerate(valid) if states > 0]
        transcript.open_windows = len(spoken)
        if not spoken:
            transcript.answer()
        return [Window(transcript, index, hidden[index, : valid[index]], self) for index in spoken]

    def abandon(self, turn: str) -> None:
        """See Task: nothing is held back here."""

    def after_step(self, members: int) -> None:
        """See Task."""

    def decode(self, tokens: list[int]) -> str:
        """Text of token ids, special tokens left out."""
        return str(self._tokenizer.decode(tokens, skip_special_tokens=True)).strip()

    def encode_again(self, request: Request, window: int) -> NDArray[np.float32]:
        """States [F, 384] of one window, encoded at full length."""
        audio, spans = request.required("AUDIO"), request.required("SPAN_MS")
        first, last = (int(ms) * RATE_HZ // 1000 for ms in spans[0, window])
        found = self._call(
            self._encoder,
            {"AUDIO": audio[:, first:last]},
            ["HIDDEN"],
            turn=request.turn,
            parameters={"min_frames": FULL_FRAMES},
        )
        states: NDArray[np.float32] = found["HIDDEN"][0, 0]
        return states


@dataclass
class Transcript:
    """The answer of one request, window by window."""

    request: Request
    texts: list[str]
    open_windows: int = 0
    looped: bool = False
    started_ns: int = field(default=0)

    def start(self) -> None:
        """The first token of any window has been drawn."""
        self.started_ns = self.started_ns or now_ns()

    def close_window(self, window: int, heard: str) -> None:
        """Text of a window; the last one answers the request."""
        self.texts[window] = heard
        self.open_windows -= 1
        if not self.open_windows:
            self.answer()

    def answer(self) -> None:
        """Join the windows and finish."""
        heard = " ".join(one for one in self.texts if one)
        status = "repetition" if self.looped else "stop" if heard else "no_speech"
        now, request = now_ns(), self.request
        began = self.started_ns or now
        spans = (
            request.span("first_token", request.arrived_ns, began),
            request.span("compute", began, now),
        )
        request.finish(
            {
                "HEARD": text(heard),
                "STATUS": text(status),
                "EVENTS": request.with_events(*spans),
            }
        )


class Window(Sequence):
    """One window being decoded, greedily."""

    def __init__(
        self,
        transcript: Transcript,
        index: int,
        states: NDArray[np.float32],
        task: Transcribe,
        *,
        is_retry: bool = False,
    ) -> None:
        super().__init__(
            transcript.request,
            task.prompt,
            task.limit,
            context={"HIDDEN": np.ascontiguousarray(states)},
        )
        self._transcript = transcript
        self._index = index
        self._states = len(states)
        self._task = task
        self._is_retry = is_retry
        self._said = Said()
        self._scores: list[float] = []
        before = transcript.request.optional("NO_SPEECH")
        self._no_speech = 0.0 if before is None else float(before[0, index])

    def advance(self, token: Tokens) -> bool:
        """See Sequence. A loop ends it at once: the rest of it would only be more of the same."""
        self.last = token[0]
        if int(token[0]) == self._task.end:
            return True
        self._said.add(int(token[0]))
        return self._said.period > 0

    def deliver(self, token: Tokens, score: float, no_speech: float) -> None:
        """See Sequence."""
        self._transcript.start()
        self._no_speech = max(self._no_speech, no_speech)
        self._scores.append(score)

    def close(self, reason: str) -> Work | None:
        """See Sequence. What is doubtful in a shortened window is decoded again at full length."""
        heard = self._task.decode(self._said.once)
        mean = float(np.mean(self._scores))
        looped = reason == "length" or self._said.period > 0 or repeats_itself(heard)
        final = not self._may_retry
        if is_silence(self._no_speech, mean, looped=looped, final=final):
            heard = ""
        elif not final and (looped or mean < CONFIDENT_ABOVE):
            return self._again
        elif looped:
            self._transcript.looped = True
        self._transcript.close_window(self._index, heard if _has_words(heard) else "")
        return None

    @property
    def _may_retry(self) -> bool:
        has_sound = self.request.array("AUDIO") is not None
        return has_sound and not self._is_retry and 2 * self._states < FULL_FRAMES

    def _again(self) -> Sequence:
        states = self._task.encode_again(self.request, self._index)
        return Window(self._transcript, self._index, states, self._task, is_retry=True)


def is_silence(no_speech: float, mean_score: float, *, looped: bool, final: bool) -> bool:
    """Nobody has spoken: Whisper finds words for noise too. A loop speaks against its words however
    confident they are, since each round makes the next one so.

    Whisper's rule is meant for full windows, so it is `final`, what cannot be heard again; every
    second short snippet that it calls silence is words at full length.
    """
    if no_speech > NO_SPEECH_SURE_ABOVE:
        return looped or mean_score < CONFIDENT_ABOVE
    doubtful = looped or mean_score < NO_SPEECH_MEAN_SCORE_BELOW
    return final and no_speech > NO_SPEECH_ABOVE and doubtful


def _has_words(heard: str) -> bool:
    """For noise Whisper likes to say "."."""
    return any(map(str.isalnum, heard))


def _check_room(prompt: int, settings: LoopSettings) -> None:
    """ValueError unless the longest text fits a row, whose last token is never written to it, and
    the prompt fits one chunk, whose first token tells of silence."""
    chunk = min(settings.prefill_chunk, settings.lone_chunk or settings.prefill_chunk)
    if not 0 < prompt <= chunk:
        raise ValueError(f"prefill_chunk or lone_chunk {chunk}; the prompt has {prompt} tokens")
    if settings.join_tokens:
        raise ValueError("join_tokens: windows are not to join, which would not tell of silence")
    room = settings.capacity - prompt + 1 if prompt < settings.capacity else 0
    if not 1 <= settings.max_new_tokens <= room:
        raise ValueError(
            f"max_new_tokens is {settings.max_new_tokens}; behind a prompt of {prompt} tokens a "
            f"row of {settings.capacity} has room for {room}"
        )


def _check(request: Request, hidden: NDArray[np.float32], valid: NDArray[np.int32]) -> None:
    """What one request gets wrong must not reach the engine, which others share."""
    if hidden.ndim != 3 or len(hidden) != len(valid):
        raise InvalidInput(
            f"HIDDEN {hidden.shape} and VALID {valid.shape} describe different windows"
        )
    most = min(hidden.shape[1], FULL_FRAMES // 2)
    if np.any(valid > most):
        raise InvalidInput(f"VALID is {valid.tolist()}; a window has at most {most} states here")
    if not np.isfinite(hidden).all():
        raise InvalidInput("HIDDEN has values that are NaN or infinite")
    if request.optional("AUDIO") is not None and request.required("SPAN_MS").shape[1] < len(valid):
        raise InvalidInput(f"SPAN_MS must have {len(valid)} spans, one a window")

"""Everything that a caller can send more and more of has a cap, and deploy/SAFETY.md says which."""

import re

import pytest

from python_backends import errors
from python_backends.ar_loop.tasks.intone import CHARACTERS_A_PHONEME
from python_backends.bridge import Options, backend, dead, options, request
from python_backends.declared import Declared
from python_backends.errors import InvalidInput
from python_backends.front_door import turn
from python_backends.front_door.settings import DoorSettings
from python_backends.listening import call
from python_backends.live_call.settings import LiveSettings
from python_backends.ordering import prompt
from python_backends.remote_stage.settings import RemoteSettings
from python_backends.scheduling import replicas
from python_backends.sizes import byte_count
from tests.repository.configs import ROOT, configs, own, parameters, parse

SAFETY = (ROOT / "deploy" / "SAFETY.md").read_text()
FOR_CALLERS = ("turn", "transcribe", "speak", "vad", "listen", "live")
ROW = re.compile(r"\| (.+) \| ([0-9]+) \| (.+) \|")
LIVE = ("listen", "live")
BOUNDED = ("turn", "encode", "asr_decode", "think", "prosody", "acoustic", *LIVE)
REMOTE = RemoteSettings(controlled=True)


def number(model: str, key: str) -> int:
    return int(parameters(model)[key])


def served() -> dict[str, str]:
    """Parameters of `think` where the LLM is served elsewhere."""
    found = parse(ROOT / "model_repository" / "think" / "configs" / "served.pbtxt").parameters
    return {key: value.string_value for key, value in found.items()}


def requests(model: str) -> int:
    found = Declared.of(parameters(model))
    assert found is not None
    return found.requests


def caps() -> dict[str, int]:
    """As the code and the configs have them."""
    vad = configs()["vad"]
    phonemes = min(number("prosody", "capacity"), number("prosody", "max_new_tokens"))
    return {
        "seconds of `AUDIO` of a request": number("encode", "max_audio_s"),
        "samples of `AUDIO` of `vad`": vad.input[0].dims[0],
        "streams of `vad`": vad.sequence_batching.oldest.max_candidate_sequences,
        "bytes of a request's inputs, at every stage with a queue": request.MAX_INPUT_BYTES,
        "characters of `TEXT` (to be spoken)": CHARACTERS_A_PHONEME * phonemes,
        "characters of `HEARD` of a turn in words": turn.MAX_HEARD_CHARS,
        "seconds of `PCM` that wait to be listened to": call.MOST_AHEAD_S,
        "characters of a call's id": call.MAX_CALL_CHARS,
        "characters of `REPORT`": call.MAX_REPORT_CHARS,
        "seconds of a turn of speech": number("live", "max_turn_s"),
        "seconds of a call without sound": number("live", "idle_s"),
        "milliseconds of an answer ahead of being heard": number("live", "lead_ms"),
        "characters of a call's history": LiveSettings.history_chars,
        **{f"calls at `{name}`": number(name, "max_calls") for name in LIVE},
        "characters of what was heard": prompt.LONGEST_TOKEN * prompt.MAX_PROMPT_TOKENS,
        "tokens of a prompt": prompt.MAX_PROMPT_TOKENS,
        "characters of `HISTORY`": prompt.LONGEST_HISTORY,
        "characters of `SESSION_ID`": options.MAX_SESSION_CHARS,
        "characters of a request id at `turn`": turn.MAX_TURN_CHARS,
        "characters of a request id at any stage": options.MAX_TURN_CHARS,
        "characters of `caller`": options.MAX_CALLER_CHARS,
        "characters of an option in JSON": options.MAX_JSON_CHARS,
        "characters of an order (`CONTROL`)": backend.MAX_ORDER_CHARS,
        "characters of an error's message": errors.LONGEST_TOLD,
        "tokens of an answer": most("max_tokens"),
        "frames of a piece of sound": number("acoustic", "max_frames"),
        "milliseconds of a deadline": most("deadline_ms"),
        "milliseconds without progress": number("turn", "no_progress_ms"),
        "turns at work": number("turn", "max_turns"),
        "turns that wait": number("turn", "max_waiting"),
        "requests that wait at `encode`": number("encode", "max_waiting"),
        "requests that wait at `asr_decode`": number("asr_decode", "max_waiting"),
        "requests that wait at `think`": number("think", "max_waiting"),
        "answers asked at once of an LLM that is served elsewhere": int(served()["max_open"]),
        "requests that wait for it": int(served()["max_waiting"]),
        "characters of a prompt for it": int(served()["prompt_chars"]),
        "milliseconds of its silence": int(served()["silence_ms"]),
        "bytes of open requests for it": byte_count(served()["bytes_requests"]),
        "requests that wait at `prosody`": number("prosody", "max_waiting"),
        "requests open at `acoustic`": number("acoustic", "max_waiting"),
        "requests open at a proxy": REMOTE.max_open,
        "sessions remembered": DoorSettings.max_sessions,
        "characters of a session": DoorSettings.session_chars,
        "seconds a session rests": DoorSettings.session_s,
        "bytes of sessions' KV": number("think", "session_bytes"),
        "bytes of a pass of the encoder": number("encode", "max_batch_bytes"),
        "bytes of pieces that are computed together": number("acoustic", "max_batch_bytes"),
        **{f"bytes of open requests at `{name}`": requests(name) for name in BOUNDED},
        "bytes of shared memory of a proxy": REMOTE.shared_memory_bytes,
        "cancelled turns remembered": dead.LIMIT,
        "sessions whose replica is remembered": replicas.SESSIONS,
    }


def most(option: str) -> int:
    """The largest value that is accepted, as its refusal says."""
    with pytest.raises(InvalidInput, match=r" to ([0-9]+) is accepted") as refused:
        Options.parse({option: 10**12})
    found = re.search(" to ([0-9]+) is accepted", refused.value.message)
    assert found is not None
    return int(found[1])


def test_the_table_of_caps_is_what_is_in_force() -> None:
    shown = [found.groups() for line in SAFETY.splitlines() if (found := ROW.fullmatch(line))]
    assert {what: int(cap) for what, cap, _ in shown} == caps()


def test_every_tensor_that_callers_may_send_has_a_row() -> None:
    for name in FOR_CALLERS:
        for tensor in configs()[name].input:
            assert any(f"`{tensor.name}`" in what for what in caps()), tensor.name


def test_every_stage_with_a_queue_has_a_row_for_its_length() -> None:
    for name in own():
        if any(tensor.name == "CONTROL" for tensor in configs()[name].input):
            limit = "max_calls" if name in LIVE else "max_waiting"
            assert int(parameters(name)[limit]) > 0
            at = "turns that wait" if name == "turn" else f"at `{name}`"
            assert any(at in what for what in caps()), name


def test_the_files_that_set_them_are_there() -> None:
    named = set(re.findall(r"`([\w/]+\.py)`", SAFETY))
    assert named
    for file in named:
        places = [ROOT / "python_backends" / file, ROOT / "python_backends" / "ar_loop" / file]
        assert any(place.exists() for place in places), file

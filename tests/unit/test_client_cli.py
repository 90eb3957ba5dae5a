"""Commands print what they got, write what they were told to, and fail with one line."""

import json
import re
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from client.__main__ import main
from client.commands import DEFAULT_SAMPLE, SAMPLES
from tests.unit.fake_triton import (
    Message,
    chunk,
    end,
    failure,
    message,
    serving,
    texts,
    two_pieces,
)


def heard(request: Any, context: Any) -> Iterator[Message]:
    yield message(request, HEARD=texts(" two [b]burgers[/b]"), STATUS=texts("stop"))


def test_transcribe_prints_the_text_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(heard) as (_, address):
        assert main(["transcribe", str(DEFAULT_SAMPLE), "--server", address]) == 0
    assert capsys.readouterr().out == "two [b]burgers[/b]\n"


def test_a_turn_is_shown_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    history = tmp_path / "history.json"
    history.write_text('[{"role": "user", "text": "Hi."}, {"role": "assistant", "text": "Hello."}]')
    reply, run = tmp_path / "reply.wav", tmp_path / "run.json"
    files = ["--history", str(history), "--out", str(reply), "--json", str(run)]
    with serving(two_pieces) as (fake, address):
        options = ["--temperature", "0", "--seed", "3", "--no-stream"]
        options += ["--top-k", "9", "--top-p", "0.5", "--repetition-penalty", "1.5"]
        options += ["--stop", "END", "--stop", "two words", "--logit-bias", "5=-2.5"]
        command = ["turn", str(DEFAULT_SAMPLE), "--server", address, *files, *options]
        assert main(command) == 0
    shown = capsys.readouterr().out
    assert re.search(r"heard +two burgers\n", shown)
    assert re.search(r"says +Piece 1\.\n", shown)
    assert "RTF" in shown
    with wave.open(str(reply)) as sound:
        assert (sound.getframerate(), sound.getnframes()) == (24_000, 90)
    assert json.loads(run.read_text())["reply"] == "Piece 0. Piece 1."
    (request,) = fake.requests
    assert "HISTORY" in [tensor.name for tensor in request.inputs]
    assert request.parameters["temperature"].string_param == "0.0"
    assert not request.parameters["stream"].bool_param
    assert request.parameters["top_k"].int64_param == 9
    assert request.parameters["top_p"].string_param == "0.5"
    assert request.parameters["repetition_penalty"].string_param == "1.5"
    assert json.loads(request.parameters["stop"].string_param) == ["END", "two words"]
    assert json.loads(request.parameters["logit_bias"].string_param) == {"5": -2.5}


@pytest.mark.parametrize("entry", ["5", "=1", "five=1", "5=much"])
def test_a_bias_that_is_no_token_and_number_is_refused_before_anything_is_sent(entry: str) -> None:
    with pytest.raises(SystemExit) as exit:
        main(["turn", str(DEFAULT_SAMPLE), "--server", "127.0.0.1:1", "--logit-bias", entry])
    assert exit.value.code == 2


def test_speak_writes_a_wav(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "speech.wav"
    with serving(two_pieces) as (fake, address):
        assert main(["speak", "Hello there.", "--server", address, "--out", str(out)]) == 0
    with wave.open(str(out)) as sound:
        assert sound.getnframes() == 90
    assert not {"voice", "steps", "solver"} & set(fake.requests[0].parameters)


def test_who_speaks_and_how_can_be_chosen(tmp_path: Path) -> None:
    options = ["--voice", "baritone", "--steps", "8", "--solver", "euler"]
    options += ["--speech-temperature", "0.5"]
    with serving(two_pieces) as (fake, address):
        out = ["--out", str(tmp_path / "speech.wav")]
        assert main(["speak", "Hello there.", "--server", address, *out, *options]) == 0
    asked = fake.requests[0].parameters
    assert asked["voice"].string_param == "baritone"
    assert asked["steps"].int64_param == 8
    assert asked["solver"].string_param == "euler"
    assert asked["speech_temperature"].string_param == "0.5"


@pytest.mark.parametrize("rate_hz", [8_000, 16_000, 22_050, 48_000])
def test_a_wav_has_the_rate_that_came_with_the_sound(tmp_path: Path, rate_hz: int) -> None:
    """Public case I7; a first part without sound says nothing about the rate."""

    def script(request: Any, context: Any) -> Iterator[Message]:
        silent = b"silent" in request.raw_input_contents[0]
        only = chunk(request, 0, 0, 7 if silent else 3)
        for place, output in enumerate(only.infer_response.outputs):
            if output.name == "SAMPLE_RATE":
                raw = np.array([[rate_hz]], np.int32).tobytes()
                only.infer_response.raw_output_contents[place] = raw
        yield only
        yield end(request)

    out = tmp_path / "speech.wav"
    with serving(script) as (_, address):
        text = f"This part is silent{' indeed' * 21}. {'Hello there. ' * 9}"
        assert main(["speak", text, "--server", address, "--out", str(out)]) == 0
    with wave.open(str(out)) as sound:
        assert (sound.getframerate(), sound.getnframes()) == (rate_hz, 30)


def test_a_long_text_is_spoken_in_parts_whose_sounds_follow_each_other(tmp_path: Path) -> None:
    """Public case H5."""
    out = tmp_path / "speech.wav"
    text = "This is one sentence of a long story. " * 20
    with serving(two_pieces) as (fake, address):
        assert main(["speak", text, "--server", address, "--out", str(out)]) == 0
    with wave.open(str(out)) as sound:
        assert sound.getnframes() == 90 * len(fake.requests) > 90


def refused(request: Any, context: Any) -> Iterator[Message]:
    yield failure(request, "[tristage code=OVERLOADED stage=turn] 64 turns [are] running")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["turn", str(DEFAULT_SAMPLE)], "64 turns [are] running"),
        (["turn", "nowhere.wav"], "nowhere.wav cannot be opened: No such file"),
        (["turn", str(SAMPLES / "README.md")], "not readable as audio"),
        (["turn", str(DEFAULT_SAMPLE), "--history", "nowhere.json"], "nowhere.json cannot be read"),
        (["turn", str(DEFAULT_SAMPLE), "--history", str(SAMPLES / "texts.json")], "HISTORY"),
    ],
)
def test_a_failure_is_one_line_and_status_one(
    arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(refused) as (_, address):
        assert main([*arguments, "--server", address]) == 1
    shown = capsys.readouterr()
    assert reason in shown.err
    assert shown.err.count("\n") == 1
    assert shown.out == ""


def test_no_server_is_a_plain_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["transcribe", str(DEFAULT_SAMPLE), "--server", "127.0.0.1:1"]) == 1
    assert "the server does not answer" in capsys.readouterr().err


def test_every_sample_is_a_small_mono_recording_with_its_text() -> None:
    texts_of = json.loads((SAMPLES / "texts.json").read_text())
    assert sorted(texts_of) == sorted(path.name for path in SAMPLES.glob("*.wav"))
    for name in texts_of:
        with wave.open(str(SAMPLES / name)) as sound:
            form = (sound.getnchannels(), sound.getsampwidth(), sound.getframerate())
            assert sound.getnframes() < 8 * 16_000
        assert form == (1, 2, 16_000)

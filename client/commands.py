"""What the command line does: each command speaks with one server and shows what came back."""

import json
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.text import Text

from client import audio
from client.record import TurnRecord
from client.report import TurnReport, figures, require
from client.turns import TurnChunk, TurnClient, TurnOptions, TurnStream, Utterance
from python_backends.access import credentials
from python_backends.ar_loop.text import parts
from python_backends.errors import InvalidInput, StageError
from python_backends.ordering.prompt import parse_history

SAMPLES = Path(__file__).resolve().parent.parent / "samples"
DEFAULT_SAMPLE = SAMPLES / "order-1.wav"

out = Console(soft_wrap=True)
progress = Console(stderr=True)


def transcribe(arguments: Namespace) -> None:
    """Print what is said in a recording."""
    sound = audio.read(arguments.file)
    with _client(arguments) as client, progress.status("listening"):
        heard = client.transcribe(sound).text.strip()
    out.print(Text(heard))


def speak(arguments: Namespace) -> None:
    """Have a text spoken into a file."""
    with _client(arguments) as client, progress.status("speaking"):
        records = [
            _spoken_part(client, *part, arguments) for part in enumerate(parts(arguments.text))
        ]
    spoken = [record for record in records if record.speech.size]
    if not spoken:
        raise InvalidInput(f"there is nothing to say in {arguments.text!r}")
    speech = np.concatenate([record.speech for record in spoken])
    audio.write(arguments.out, speech, spoken[0].sample_rate_hz)
    out.print(Text(f"written     {arguments.out}"))
    for record in records:
        out.print(figures(TurnReport.of(record), record))


def _spoken_part(client: TurnClient, number: int, part: str, arguments: Namespace) -> TurnRecord:
    """One request of `speak`, which takes one piece; later parts have trace files of their own."""
    stream = client.speak(part, traceparent=arguments.traceparent, options=_options(arguments))
    file = arguments.otlp_file
    if file and number:
        file = file.with_stem(f"{file.stem}-{number + 1}")
    return _received(stream, Namespace(**{**vars(arguments), "otlp_file": file}))


def turn(arguments: Namespace) -> None:
    """Speak one turn with a running server."""
    sound = audio.read(arguments.file)
    history = _history(arguments.history)
    with _client(arguments) as client:
        record = _spoken(client, sound, history, arguments)
    _tell(TurnReport.of(record), record, arguments)


def live(arguments: Namespace) -> None:
    """Speak with a running server, by recordings or by microphone."""
    from client.live import command

    command.run(arguments, _options(arguments), out)


def run(arguments: Namespace) -> None:
    """Start a server, speak one turn, hear the reply again; StageFailed unless all of it held."""
    sound = audio.read(arguments.file)
    with (
        _embedded_server(arguments.own) as address,
        TurnClient(address, timeout_s=arguments.timeout_s) as client,
    ):
        record = _spoken(client, sound, [], arguments)
        report = TurnReport.of(record)
        if record.speech_s:
            reply = audio.resample(record.speech, record.sample_rate_hz, audio.HEARD_RATE_HZ)
            with progress.status("hearing the reply again"):
                report = report.with_reply_heard(client.transcribe(reply).text)
        _tell(report, record, arguments)
    require(report.problems(said=_said(arguments.file)))


@contextmanager
def _embedded_server(own: Sequence[Path]) -> Iterator[str]:
    """The address of a server of our own, for the time of the block; models of the repositories
    `own` stand in for ours."""
    from deploy.launcher import Server
    from deploy.settings import Settings

    with ExitStack() as stack:
        with progress.status("starting the server") as status:
            server = Server(
                Settings(own=own), lambda line: status.update(f"starting: {escape(line)}")
            )
            stack.enter_context(server)
        try:
            yield server.grpc_address
        finally:
            with progress.status("stopping the server"):
                stack.close()


def _client(arguments: Namespace) -> TurnClient:
    named = (arguments.tls_ca, arguments.tls_cert, arguments.tls_key)
    over_tls = arguments.tls or any(named)
    return TurnClient(
        arguments.server,
        timeout_s=arguments.timeout_s,
        credentials=credentials(*(path or "" for path in named)) if over_tls else None,
    )


def _spoken(
    client: TurnClient, sound: audio.Floats, history: Sequence[Utterance], arguments: Namespace
) -> TurnRecord:
    """One turn, shown as it arrives."""
    with progress.status("waiting for the answer"):
        stream = client.turn(
            sound, history, traceparent=arguments.traceparent, options=_options(arguments)
        )
        return _received(stream, arguments, show=True)


def _received(stream: TurnStream, arguments: Namespace, *, show: bool = False) -> TurnRecord:
    """The whole turn; its trace is kept however it ended."""
    record = TurnRecord(stream.turn_id, stream.sent_ns, stream.traceparent)
    try:
        with stream:
            for chunk in stream:
                record.add(chunk)
                if show:
                    _show(chunk)
    except StageError as fault:
        failure = f"{fault.code} at {fault.stage or 'server'}: {fault.message}"
        _keep_trace(record, arguments, failure)
        raise
    _keep_trace(record, arguments)
    return record


def _keep_trace(record: TurnRecord, arguments: Namespace, failure: str = "") -> None:
    """To the file and the collector that were named; a failure costs a line, not the turn."""
    file, endpoint = arguments.otlp_file, arguments.otlp_endpoint
    if not (file or endpoint):
        return
    from client import otlp, trace
    from python_backends.tracing.spans import unix_offset_ns

    spans = trace.to_spans(trace.TracedTurn.of(record, failure), unix_offset_ns())
    try:
        if file:
            otlp.write(file, spans)
        if endpoint:
            otlp.export(endpoint, spans)
    except OSError as fault:
        progress.print(Text(f"warning: {fault}", style="yellow"), soft_wrap=True)


def _show(chunk: TurnChunk) -> None:
    for label, text in (("heard", chunk.heard), ("says", chunk.text)):
        if text.strip():
            out.print(Text(f"{label:<12}{text.strip()}"))


def _tell(report: TurnReport, record: TurnRecord, arguments: Namespace) -> None:
    out.print(figures(report, record))
    if arguments.out and record.speech_s:
        _write_speech(record, arguments.out)
    if arguments.json:
        report.write(arguments.json)
        out.print(Text(f"written     {arguments.json}"))


def _write_speech(record: TurnRecord, path: Path) -> None:
    audio.write(path, record.speech, record.sample_rate_hz)
    out.print(Text(f"written     {path}"))


def _history(path: Path | None) -> list[Utterance]:
    try:
        return parse_history(path.read_text("utf-8")) if path else []
    except (OSError, UnicodeDecodeError) as fault:
        raise InvalidInput(f"{path} cannot be read as UTF-8 text: {fault}") from fault


def _options(arguments: Namespace) -> TurnOptions:
    return TurnOptions(
        max_tokens=arguments.max_tokens,
        temperature=arguments.temperature,
        top_k=arguments.top_k,
        top_p=arguments.top_p,
        repetition_penalty=arguments.repetition_penalty,
        logit_bias=dict(arguments.logit_bias) or None,
        stop=arguments.stop or None,
        seed=arguments.seed,
        speech_temperature=arguments.speech_temperature,
        steps=arguments.steps,
        solver=arguments.solver,
        voice=arguments.voice,
        stream=False if arguments.no_stream else None,
    )


def _said(path: Path) -> str | None:
    """What a recording of ours says; None for others."""
    if path.resolve().parent != SAMPLES:
        return None
    texts: dict[str, str] = json.loads((SAMPLES / "texts.json").read_text("utf-8"))
    return texts.get(path.name)

"""The command line: `python -m client run | turn | live | transcribe | speak`."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.text import Text

from client import commands
from client.calls import TIMEOUT_S
from client.traceparent import checked
from deploy.errors import DeployError
from python_backends.errors import InvalidInput, StageError

INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit status: 0 all held, 1 with one line on stderr, 130 by Ctrl-C."""
    arguments = parser().parse_args(argv)
    try:
        arguments.command(arguments)
    except (StageError, DeployError, OSError) as fault:
        commands.progress.print(Text(f"error: {fault}", style="red"), soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def parser() -> argparse.ArgumentParser:
    """The commands and their options."""
    top = argparse.ArgumentParser(prog="python -m client", description=__doc__)
    chosen = top.add_subparsers(required=True, metavar="COMMAND")
    run = _command(chosen, "run", commands.run, "start a server, speak one turn, check the reply")
    turn = _command(chosen, "turn", commands.turn, "speak one turn with a running server")
    transcribe = _command(chosen, "transcribe", commands.transcribe, "print what a recording says")
    speak = _command(chosen, "speak", commands.speak, "have a text spoken into a file")
    live = _command(chosen, "live", commands.live, "speak with a running server, and interrupt it")
    live.add_argument("files", type=Path, nargs="*", help="wav, flac or ogg: a turn each")
    live.add_argument("--mic", action="store_true", help="by microphone and loudspeaker instead")
    live.add_argument(
        "--barge-in-ms", type=int, help="begin the next recording so long after the first sound"
    )
    live.add_argument("--partials", action="store_true", help="show what was said so far")
    live.add_argument("--lead-ms", type=int, help="how far ahead of being heard answers are sent")
    live.add_argument("--out", type=Path, help="where what was heard goes (wav)")
    live.add_argument("--json", type=Path, help="where all events go")
    run.add_argument("file", type=Path, nargs="?", default=commands.DEFAULT_SAMPLE)
    run.add_argument(
        "--own",
        type=Path,
        action="append",
        default=[],
        metavar="REPOSITORY",
        help="its models replace ours: see README, Bring your own models",
    )
    run.add_argument("--out", type=Path, default=Path("out/reply.wav"), help="the reply's sound")
    run.add_argument("--json", type=Path, default=Path("out/run.json"), help="all figures")
    turn.add_argument("file", type=Path, help="wav, flac or ogg")
    turn.add_argument("--history", type=Path, help="JSON list of {role, text}, oldest first")
    turn.add_argument("--out", type=Path, help="where the reply's sound goes (wav)")
    turn.add_argument("--json", type=Path, help="where all figures go")
    transcribe.add_argument("file", type=Path, help="wav, flac or ogg")
    speak.add_argument("text")
    speak.add_argument("--out", type=Path, default=Path("out/speech.wav"), help="where it goes")
    for command in (turn, live, transcribe, speak):
        command.add_argument("--server", default="127.0.0.1:8001", metavar="HOST:PORT")
        command.add_argument("--tls", action="store_true", help="over TLS; implied by the others")
        command.add_argument("--tls-ca", type=Path, help="whose certificates are trusted (PEM)")
        command.add_argument("--tls-cert", type=Path, help="certificate that we show (PEM)")
        command.add_argument("--tls-key", type=Path, help="its key (PEM)")
    for command in (run, turn, live, speak):
        _add_options(command)
    for command in (run, turn, speak):
        _add_traces(command)
    for command in (run, turn, transcribe, speak):
        command.add_argument(
            "--timeout-s", type=float, default=TIMEOUT_S, help="for the whole answer"
        )
    return top


def _command(
    chosen: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    command: object,
    purpose: str,
) -> argparse.ArgumentParser:
    added = chosen.add_parser(name, help=purpose, description=purpose)
    added.set_defaults(command=command)
    return added


def _add_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--max-tokens", type=int, help="of the answer")
    command.add_argument("--temperature", type=float, help="of the answer's words; 0 is greedy")
    command.add_argument("--top-k", type=int, help="draw among so many of the likeliest tokens")
    command.add_argument("--top-p", type=float, help="of these, those that hold this share")
    command.add_argument("--repetition-penalty", type=float, help="of tokens seen before; 1 is off")
    command.add_argument(
        "--logit-bias",
        type=_token_bias,
        action="append",
        default=[],
        metavar="TOKEN=BIAS",
        help="added to the logit of a token id; may be repeated",
    )
    command.add_argument(
        "--stop", action="append", default=[], metavar="TEXT", help="ends the answer; repeatable"
    )
    command.add_argument("--voice", help="who speaks: alto or baritone")
    command.add_argument("--speech-temperature", type=float, help="of how it is said; 0 is greedy")
    command.add_argument("--steps", type=int, help="of the flow decoder")
    command.add_argument("--solver", help="that takes them: shortcut, euler or midpoint")
    command.add_argument("--seed", type=int, help="of every random draw")
    command.add_argument("--no-stream", action="store_true", help="one piece, one chunk")
    command.add_argument(
        "--traceparent",
        default=_ambient_traceparent(),
        metavar="00-TRACE-PARENT-FLAGS",
        help="W3C trace context that the turn belongs to (default: $TRACEPARENT, or a new one)",
    )


def _add_traces(command: argparse.ArgumentParser) -> None:
    command.add_argument("--otlp-file", type=Path, help="where the turn's trace goes (OTLP JSON)")
    command.add_argument("--otlp-endpoint", metavar="URL", help="collector: http://HOST/v1/traces")


def _token_bias(entry: str) -> tuple[int, float]:
    token, _, bias = entry.partition("=")
    return int(token), float(bias)


def _ambient_traceparent() -> str | None:
    """Of the environment; one that is malformed is as good as none, says W3C."""
    try:
        return checked(os.environ["TRACEPARENT"])
    except (KeyError, InvalidInput):
        return None


if __name__ == "__main__":
    sys.exit(main())

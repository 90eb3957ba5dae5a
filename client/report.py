"""What a person, and out/run.json, are told about one turn."""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from client.record import NS, PATH, TurnRecord, covered_s
from client.wer import word_error_rate
from python_backends.errors import StageFailed

MAX_WER = 0.10
"""Above this the reply was not understood, by the project's own ears or by its own mouth."""


@dataclass(frozen=True)
class TurnReport:
    """One turn in figures; seconds from sending the request. None: does not apply."""

    turn_id: str
    trace_id: str
    transcript: str
    reply: str
    status: str
    first_audio_s: float | None
    total_s: float
    speech_s: float
    rtf: float | None
    """`total_s` by seconds of returned sound."""

    stages: dict[str, float]
    """Stage -> seconds in which it worked on this turn or kept it waiting."""

    first_audio_parts: dict[str, float]
    """What `first_audio_s` was spent on."""

    reply_heard: str | None = None
    reply_wer: float | None = None

    @classmethod
    def of(cls, record: TurnRecord) -> Self:
        """The figures of a finished turn."""
        return cls(
            turn_id=record.turn_id,
            trace_id=record.trace_id,
            transcript=record.heard,
            reply=record.reply,
            status=record.status,
            first_audio_s=record.first_audio_s,
            total_s=record.total_s,
            speech_s=record.speech_s,
            rtf=record.rtf,
            stages=record.stages(),
            first_audio_parts=record.first_audio_parts(),
        )

    def with_reply_heard(self, heard: str) -> Self:
        """The same, with what the project's own ASR heard of the reply."""
        heard = heard.strip()
        return replace(self, reply_heard=heard, reply_wer=word_error_rate(self.reply, heard))

    def problems(self, *, said: str | None = None) -> list[str]:
        """What did not hold, one sentence each; `said` is what the recording says, where known."""
        doubts = [
            (not self.transcript, "nothing was heard in the recording"),
            (_unlike(said, self.transcript), f"the recording says {said!r}"),
            (not self.reply, "the reply has no text"),
            (not self.speech_s, "the reply has no sound"),
            (
                self.reply_wer is not None and self.reply_wer > MAX_WER,
                f"the reply was heard as {self.reply_heard!r}",
            ),
            *((name not in self.stages, f"stage {name} left no span") for name in PATH),
        ]
        return [sentence for holds, sentence in doubts if holds]

    def write(self, path: Path) -> None:
        """Write all figures as JSON, at once or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(path.name + ".partial")
        content = json.dumps(_rounded(asdict(self)), indent=2, ensure_ascii=False)
        partial.write_text(content + "\n", "utf-8")
        os.replace(partial, path)


def require(problems: Sequence[str]) -> None:
    """StageFailed naming every problem, if there is one."""
    if problems:
        raise StageFailed("; ".join(problems))


def figures(report: TurnReport, record: TurnRecord) -> RenderableType:
    """The table of stages, and what the time to first audio and the whole turn took."""
    lines: list[RenderableType] = [_stage_table(record)] if record.work else []
    if report.first_audio_s is not None:
        parts = report.first_audio_parts.items()
        split = " + ".join(f"{name} {seconds:.3f}" for name, seconds in parts)
        lines.append(
            Text(f"first audio {report.first_audio_s:.3f} s" + f" = {split}" * bool(split))
        )
    rtf = f", RTF {report.rtf:.2f}" if report.rtf is not None else ""
    lines.append(Text(f"whole turn  {report.total_s:.3f} s, {report.speech_s:.2f} s of sound{rtf}"))
    if report.trace_id:
        lines.append(Text(f"trace       {report.trace_id}"))
    if report.reply_wer is not None:
        heard = f"re-heard    {report.reply_heard!r}, WER {100 * report.reply_wer:.1f} %"
        lines.append(Text(heard))
    return Group(*lines)


def _stage_table(record: TurnRecord) -> Table:
    """Stages by start: when each began, how long it waited and worked, when it ended."""
    names = ("start", "wait", "work", "end")
    table = Table("stage", *(Column(name, justify="right") for name in names))
    events = record.work
    zero_ns = record.sent_ns if record.same_clock else events[0].start_ns
    for stage in dict.fromkeys(event.stage for event in events):
        spans = [event for event in events if event.stage == stage]
        waits = covered_s(event for event in spans if event.what == "queue")
        works = covered_s(event for event in spans if event.what != "queue")
        start_s = (spans[0].start_ns - zero_ns) * NS
        end_s = (max(event.end_ns for event in spans) - zero_ns) * NS
        table.add_row(stage, *(f"{seconds:.3f} s" for seconds in (start_s, waits, works, end_s)))
    return table


def _rounded(value: Any) -> Any:
    """The same figures to a tenth of a millisecond."""
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    return round(value, 4) if isinstance(value, float) else value


def _unlike(said: str | None, heard: str) -> bool:
    return said is not None and word_error_rate(said, heard) > MAX_WER

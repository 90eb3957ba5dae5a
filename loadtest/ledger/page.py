"""Self-contained HTML: pictures inside, nothing fetched."""

import base64
from collections.abc import Iterable, Sequence
from html import escape

from matplotlib.figure import Figure

from loadtest.ledger import device, request
from loadtest.ledger.bars import books_figure
from loadtest.ledger.curves import gaps_figure, idle_figure, people_figure
from loadtest.ledger.explanation import Explanation
from loadtest.ledger.palette import png, styled
from loadtest.ledger.sheets import Sheet, headline, sheets, warnings
from loadtest.ledger.timelines import devices_figure, waterfall_figure

_CSS = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 72rem; margin: 2rem auto;
  padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin: 2.2rem 0 .5rem; }
img { max-width: 100%; height: auto; display: block; margin: 1rem 0; }
table { border-collapse: collapse; margin: .3rem 0; }
th, td { padding: .2rem .8rem .2rem 0; text-align: right; border-bottom: 1px solid #ddd;
  vertical-align: top; }
th.text, td.text { text-align: left; }
.note { color: #555; } .wrap { overflow-x: auto; }
.warning { background: #FFF4D6; border-left: 4px solid #E69F00; padding: .4rem .8rem; }
.verdict { background: #EEF4F9; border-left: 4px solid #0072B2; padding: .6rem 1rem; }
dt { font-weight: 600; } dd { margin: 0 0 .4rem 1.2rem; }
"""


def explained(told: Explanation) -> str:
    """The report of one run."""
    with styled():
        pictures = [
            _picture(books_figure(told), "devices' and turns' time by cause"),
            _picture(devices_figure(told), "one second of the devices"),
            _picture(waterfall_figure(told), "a slow turn"),
            _picture(gaps_figure(told), "gaps between steps and chunks"),
        ]
    body = [f"<h1>{escape(headline(told))}</h1>", *_warnings(told), _verdict(told), *pictures]
    body += [_table(sheet) for sheet in sheets(told)]
    body.append(
        "<p class=note>trace.json beside this page opens in ui.perfetto.dev; otlp.json holds "
        "the slowest turns as OpenTelemetry traces; the raw events are turns.jsonl, device.jsonl "
        "and spans/.</p>"
    )
    return _document(told.run.name, [*body, _definitions()])


def compared(told: Sequence[Explanation]) -> str:
    """Many runs on one page, against the number of people."""
    with styled():
        pictures = [
            _picture(people_figure(told), "throughput and latency against people"),
            _picture(idle_figure(told), "idle time by cause"),
        ]
    noted = dict.fromkeys(warning for one in told for warning in _warnings(one))
    body = [f"<h1>{len(told)} runs compared</h1>", *noted, *pictures, _table(_overview(told))]
    return _document("runs compared", [*body, _definitions()])


def _overview(told: Sequence[Explanation]) -> Sheet:
    ordered = sorted(told, key=lambda one: (one.run.people, one.run.series))
    columns = ("run", "people", "turns/s", "failed", "first audio p95, ms", "whole turn p50, ms")
    return Sheet(
        "All runs",
        (*columns, "device busy", "verdict"),
        tuple(_overview_row(one) for one in ordered),
        text_columns=(0, 7),
    )


def _overview_row(one: Explanation) -> tuple[str, ...]:
    found = one.rulers
    speeds = (found.first_audio.p95, found.latency.p50)
    return (
        one.run.name + (" (INVALID)" if one.run.invalid else ""),
        str(one.run.people),
        f"{found.turns_per_s:.2f}",
        str(found.turns - found.answered),
        *("-" if value is None else f"{value:.0f}" for value in speeds),
        "-" if one.busy_share is None else f"{one.busy_share:.0%}",
        one.verdict.headline,
    )


def _document(title: str, body: Iterable[str]) -> str:
    head = f"<meta charset=utf-8><title>{escape(title)}</title><style>{_CSS}</style>"
    inside = "\n".join(body)
    return f"<!doctype html>\n{head}\n<body>\n{inside}\n</body>\n"


def _warnings(told: Explanation) -> list[str]:
    return [f"<p class=warning>{escape(warning)}</p>" for warning in warnings(told)]


def _verdict(told: Explanation) -> str:
    verdict = told.verdict
    words = "".join(f"<br>{escape(sentence)}." for sentence in verdict.words)
    change = "".join(f"<li>{escape(cure)}" for cure in verdict.change)
    title = escape(verdict.headline)
    cures = f"<br>What to change:<ul>{change}</ul>"
    return f"<div class=verdict><b>Verdict: {title}</b>{words}{cures}</div>"


def _picture(figure: Figure, about: str) -> str:
    data = base64.b64encode(png(figure)).decode()
    return f'<img alt="{escape(about)}" src="data:image/png;base64,{data}">'


def _table(sheet: Sheet) -> str:
    head = "".join(_cell("th", number, text, sheet) for number, text in enumerate(sheet.columns))
    rows = "".join(
        "<tr>" + "".join(_cell("td", number, text, sheet) for number, text in enumerate(row))
        for row in sheet.rows
    )
    note = f"<p class=note>{escape(sheet.note)}</p>" if sheet.note else ""
    table = f"<div class=wrap><table><tr>{head}{rows}</table></div>"
    return f"<h2>{escape(sheet.title)}</h2>{table}{note}"


def _cell(tag: str, number: int, text: str, sheet: Sheet) -> str:
    kind = " class=text" if number in sheet.text_columns else ""
    return f"<{tag}{kind}>{escape(text)}</{tag}>"


def _definitions() -> str:
    """What the rows mean; in the order in which causes claim time."""
    words = [(f"a turn: {cause}", text) for cause, text in request.MEANING.items()]
    words += [(f"idle: {cause}", text) for cause, text in device.MEANING.items()]
    listed = "".join(f"<dt>{escape(name)}<dd>{escape(text)}" for name, text in words)
    intro = "Where two causes hold at once, the one further up takes the time."
    return (
        f"<details><summary>What the rows mean</summary><p>{intro}</p><dl>{listed}</dl></details>"
    )

"""An explanation on the terminal."""

from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from loadtest.ledger.explanation import Explanation
from loadtest.ledger.sheets import Sheet, headline, sheets, warnings


def rendered(told: Explanation) -> RenderableType:
    """Headline, warnings, verdict, then every table."""
    verdict = told.verdict
    lines: list[RenderableType] = [Text(headline(told), style="bold")]
    lines += [Text(warning, style="yellow") for warning in warnings(told)]
    lines += [Text(""), Text(f"Verdict: {verdict.headline}", style="bold")]
    lines += [Text(f"  {sentence}") for sentence in verdict.words]
    lines += [Text(f"  change: {cure}") for cure in verdict.change]
    return Group(*lines, *(part for sheet in sheets(told) for part in _parts(sheet)))


def _parts(sheet: Sheet) -> list[RenderableType]:
    columns = [
        Column(name, justify="left" if number in sheet.text_columns else "right")
        for number, name in enumerate(sheet.columns)
    ]
    table = Table(*columns, title=sheet.title, title_justify="left", title_style="bold")
    for row in sheet.rows:
        table.add_row(*row)
    note: list[RenderableType] = [Text(sheet.note, style="dim")] if sheet.note else []
    return [Text(""), table, *note]

"""The building blocks of the report: sections, tables that turn into cards on a phone, figures with their intervals."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any


def section(title: str, inner: str) -> str:
    """A titled part of the page."""
    return f"<section><h2>{escape(title)}</h2>{inner}</section>"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table that turns into cards on a phone; cells are ready HTML."""
    head = "".join(f"<th scope='col'>{escape(name)}</th>" for name in heads)
    body = []
    for row in rows:
        cells = "".join(
            f"<td data-label='{escape(name, quote=True)}'><span>{cell}</span></td>" for name, cell in zip(heads[1:], row[1:])
        )
        body.append(f"<tr><th scope='row'>{row[0]}</th>{cells}</tr>")
    return f"<table class='wide'><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"


def figure_block(chart: str, caption: str) -> str:
    """A picture with its sentence."""
    return f"<figure>{chart}<figcaption>{escape(caption)}</figcaption></figure>"


def legend(items: Iterable[tuple[str, str]]) -> str:
    keys = "".join(f"<li><span class='key' style='background:{colour}'></span>{escape(name)}</li>" for name, colour in items)
    return f"<ul class='legend'>{keys}</ul>"


def figure_cell(figure: dict[str, Any], digits: int) -> str:
    interval = None if figure["ci_low"] is None else (figure["ci_low"], figure["ci_high"])
    return value_cell(figure["value"], interval, digits)


def value_cell(value: float | None, interval: Sequence[float] | None, digits: int) -> str:
    if value is None:
        return "–"
    span = f"<span class='ci'>{interval[0]:.{digits}f} to {interval[1]:.{digits}f}</span>" if interval else ""
    return f"{value:.{digits}f}{span}"


def figure_text(figure: dict[str, Any], digits: int) -> str:
    if figure["value"] is None:
        return "not measured"
    span = "" if figure["ci_low"] is None else f" ({figure['ci_low']:.{digits}f} to {figure['ci_high']:.{digits}f})"
    return f"{figure['value']:.{digits}f}{span}"

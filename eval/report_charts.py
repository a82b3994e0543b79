"""The report's pictures as inline SVG, each with a title and a description for readers who cannot see it. Colours are CSS
variables.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

WIDTH, HEIGHT = 460, 320
LEFT, RIGHT, TOP, BOTTOM = 64, 22, 14, 44


@dataclass(frozen=True, slots=True)
class Axes:
    """Maps values to pixels of one plot."""

    x_max: float = 1.0
    y_max: float = 1.0
    x_min: float = 0.0
    y_min: float = 0.0

    def x(self, value: float) -> float:
        share = (value - self.x_min) / (self.x_max - self.x_min or 1.0)
        return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)

    def y(self, value: float) -> float:
        share = (value - self.y_min) / (self.y_max - self.y_min or 1.0)
        return round(HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM), 1)

    def path(self, points: Sequence[tuple[float, float]]) -> str:
        return " ".join(f"{'M' if index == 0 else 'L'}{self.x(x)},{self.y(y)}" for index, (x, y) in enumerate(points))


def frame(axes: Axes, x_label: str, y_label: str, percent: bool = True) -> str:
    """Axes, ticks and labels."""
    parts = []
    for step in range(5):
        x = axes.x_min + (axes.x_max - axes.x_min) * step / 4
        y = axes.y_min + (axes.y_max - axes.y_min) * step / 4
        parts.append(f'<line x1="{axes.x(x)}" x2="{axes.x(x)}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" stroke="var(--line)"/>')
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{axes.y(y)}" y2="{axes.y(y)}" stroke="var(--line)"/>')
        parts.append(f'<text x="{axes.x(x)}" y="{HEIGHT - BOTTOM + 17}" text-anchor="middle">{_tick(x, percent)}</text>')
        parts.append(f'<text x="{LEFT - 6}" y="{axes.y(y) + 4}" text-anchor="end">{_tick(y, percent)}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 8}" text-anchor="middle">{escape(x_label)}</text>')
    centre = (TOP + HEIGHT - BOTTOM) / 2
    parts.append(f'<text x="13" y="{centre}" text-anchor="middle" transform="rotate(-90 13 {centre})">{escape(y_label)}</text>')
    return "".join(parts)


def svg(name: str, title: str, description: str, inner: str, height: int = HEIGHT) -> str:
    """A picture with its text alternative."""
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-labelledby="{name}-t {name}-d"><title id="{name}-t">{escape(title)}'
        f'</title><desc id="{name}-d">{escape(description)}</desc>{inner}</svg>'
    )


def reliability_chart(points: Sequence[dict[str, float]]) -> str:
    """Share that needed a reminder against the calibrated probability, with the consistency band."""
    axes = Axes()
    upper = [(p["prob"], p["band_high"]) for p in points]
    lower = [(p["prob"], p["band_low"]) for p in reversed(points)]
    inner = frame(axes, "calibrated probability", "share that needed a reminder")
    inner += f'<path d="{axes.path([*upper, *lower])} Z" fill="var(--band)"/>' if len(points) > 1 else ""
    inner += f'<path d="{axes.path([(0, 0), (1, 1)])}" stroke="var(--soft)" stroke-dasharray="4 4" fill="none"/>'
    inner += (
        f'<path d="{axes.path([(p["prob"], p["share"]) for p in points])}" stroke="var(--accent)" fill="none" stroke-width="2"/>'
    )
    for point in points:
        inner += f'<circle cx="{axes.x(point["prob"])}" cy="{axes.y(point["share"])}" r="4" fill="var(--accent)"/>'
    said = "; ".join(f"at {p['prob']:.2f}: {p['share']:.2f} of {p['n']:.0f}" for p in points)
    return svg("reliability", "Reliability diagram", f"Mean probability and observed share in each bin. {said}", inner)


def histogram_chart(bins: Sequence[dict[str, int]]) -> str:
    """How often which probability is given, needed and silence-is-right stacked."""
    top = max((b["need"] + b["quiet"] for b in bins), default=1) or 1
    axes = Axes(y_max=float(top))
    inner = frame_counts(axes, "calibrated probability", "snapshots")
    for index, each in enumerate(bins):
        x, width = axes.x(index / len(bins)), (WIDTH - LEFT - RIGHT) / len(bins) - 1
        for start, count, colour in ((0, each["quiet"], "var(--c1)"), (each["quiet"], each["need"], "var(--c2)")):
            if count:
                y, height = axes.y(start + count), axes.y(start) - axes.y(start + count)
                inner += f'<rect x="{x}" y="{y}" width="{width:.1f}" height="{height:.1f}" fill="{colour}"/>'
    need, quiet = sum(b["need"] for b in bins), sum(b["quiet"] for b in bins)
    text = f"{quiet} snapshots where silence was right and {need} where a reminder was needed, by probability."
    return svg("histogram", "Histogram of probabilities", text, inner)


def frame_counts(axes: Axes, x_label: str, y_label: str) -> str:
    """Axes whose vertical one counts."""
    return frame(axes, x_label, y_label, percent=False)


def risk_chart(points: Sequence[dict[str, float]], augrc: float | None) -> str:
    """Share of wrong actions among the covered snapshots, most certain first."""
    top = max([0.05, *(p["risk"] for p in points[len(points) // 20 :])])
    axes = Axes(y_max=min(1.0, top * 1.15))
    shown = [(p["coverage"], min(p["risk"], axes.y_max)) for p in points]
    inner = frame(axes, "coverage (most certain first)", "wrong actions among the covered")
    inner += f'<path d="{axes.path(shown)}" stroke="var(--accent)" fill="none" stroke-width="2"/>' if shown else ""
    last = points[-1]["risk"] if points else 0.0
    area = f" Area under the generalised curve (AUGRC): {augrc:.4f}." if augrc is not None else ""
    return svg("risk", "Risk–coverage curve", f"At full coverage {last:.1%} of the actions are wrong.{area}", inner)


def benefit_chart(curves: dict[str, Sequence[dict[str, float]]], colours: dict[str, str]) -> str:
    """Net benefit a snapshot over cost ratios, one line an arm."""
    values = [p["net_benefit"] for points in curves.values() for p in points]
    low, high = min([0.0, *values]), max([0.01, *values])
    axes = Axes(x_min=-4.0, x_max=2.0, y_min=max(low, -high), y_max=high)
    inner = frame(axes, "cost of a false reminder / cost of a missed one (log2)", "net benefit", percent=False)
    for arm, points in curves.items():
        line = [(p["log_odds"], max(p["net_benefit"], axes.y_min)) for p in points]
        inner += f'<path d="{axes.path(line)}" stroke="{colours[arm]}" fill="none" stroke-width="2"/>'
    said = "; ".join(f"{arm} {points[len(points) // 2]['net_benefit']:.3f}" for arm, points in curves.items())
    return svg("benefit", "Net benefit over cost ratios", f"In the middle of the range: {said}", inner)


def bars_chart(rows: Sequence[tuple[str, Sequence[tuple[str, float]]]], colours: dict[str, str]) -> str:
    """Stacked shares, one bar an arm."""
    inner, height = "", 30 * len(rows) + 12
    for index, (arm, shares) in enumerate(rows):
        y, x = 8 + 30 * index, 110.0
        inner += f'<text x="104" y="{y + 15}" text-anchor="end">{escape(arm)}</text>'
        for name, share in shares:
            width = share * (WIDTH - 110 - RIGHT)
            inner += f'<rect x="{x:.1f}" y="{y}" width="{width:.2f}" height="20" fill="{colours[name]}"/>'
            x += width
    said = "; ".join(f"{arm}: " + ", ".join(f"{name} {share:.1%}" for name, share in shares if share) for arm, shares in rows)
    return svg("outcomes", "How steps end", said, inner, height)


def sweep_chart(points: Sequence[dict[str, Any]], arms: dict[str, str]) -> str:
    """Every point of the sweep: false-intervention rate against recall on the dev split."""
    known = [p for p in points if p["false_intervention_rate"] is not None and p["recall_needed"] is not None]
    axes = Axes(x_max=max([0.05, *(p["false_intervention_rate"] for p in known)]) * 1.05)
    inner = frame(axes, "false-intervention rate (dev)", "recall of needed reminders (dev)")
    for point in known:
        x, y = axes.x(point["false_intervention_rate"]), axes.y(point["recall_needed"])
        inner += f'<circle cx="{x}" cy="{y}" r="3" fill="{arms[point["arm"]]}" fill-opacity="0.6"/>'
    return svg("sweep", "Sweep", f"{len(known)} settings of arm, calibrator, alpha, cost and cadence on the dev split.", inner)


def _tick(value: float, percent: bool) -> str:
    if percent:
        return f"{value:.0%}" if abs(value * 100 - round(value * 100)) < 0.01 or value >= 0.2 else f"{value:.1%}"
    return f"{value:.0f}" if abs(value) >= 10 or value == int(value) else f"{value:.2f}"

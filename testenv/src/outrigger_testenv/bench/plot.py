"""Line plots with logarithmic axes, as SVG."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

# The size of a panel, in pixels.
WIDTH, HEIGHT = 330, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 12, 30, 40
_LEGEND = 26
# Distinct for readers who see few colours, on a white and on a black page.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9")


@dataclass(frozen=True)
class Line:
    """A named line through points in ascending order; all values are above 0."""

    name: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Panel:
    """A plot of several lines."""

    title: str
    x: str
    y: str
    lines: tuple[Line, ...]


def svg(rows: Sequence[Sequence[Panel]]) -> str:
    """Panels in rows, with one legend below: a name has the same colour everywhere."""
    names = list(dict.fromkeys(line.name for row in rows for panel in row for line in panel.lines))
    colours = {name: COLOURS[at % len(COLOURS)] for at, name in enumerate(names)}
    width, height = WIDTH * max(map(len, rows)), HEIGHT * len(rows) + _LEGEND
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
        ' font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for down, row in enumerate(rows):
        for right, panel in enumerate(row):
            parts.append(f'<g transform="translate({right * WIDTH} {down * HEIGHT})">')
            parts += [*_panel(panel, colours), "</g>"]
    parts += [*_legend(colours, height - _LEGEND / 2), "</svg>"]
    return "\n".join(parts) + "\n"


def _panel(panel: Panel, colours: dict[str, str]) -> Iterable[str]:
    points = [point for line in panel.lines for point in line.points if point[1] > 0]
    yield _text(WIDTH / 2, 13, panel.title, "middle", ' font-weight="bold"')
    if not points:
        return
    x = _Axis.over((point[0] for point in points), _LEFT, WIDTH - _RIGHT)
    y = _Axis.over((point[1] for point in points), HEIGHT - _BOTTOM, _TOP)
    for value in sorted({point[0] for point in points}):
        yield _rule(x.at(value), y.start, x.at(value), y.end)
        yield _text(x.at(value), y.start + 14, f"{value:,.0f}", "middle")
    for value in y.ticks():
        yield _rule(x.start, y.at(value), x.end, y.at(value))
        yield _text(x.start - 5, y.at(value) + 4, f"{value:,.0f}", "end")
    yield _text((x.start + x.end) / 2, HEIGHT - 10, panel.x, "middle")
    yield _text(8, _TOP - 4, panel.y, "start")
    for line in panel.lines:
        placed = [(x.at(at), y.at(value)) for at, value in line.points if value > 0]
        path = " ".join(f"{at:.1f},{value:.1f}" for at, value in placed)
        colour = colours[line.name]
        yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
        for at, value in placed:
            yield f'<circle cx="{at:.1f}" cy="{value:.1f}" r="3" fill="{colour}"/>'


@dataclass(frozen=True)
class _Axis:
    """A logarithmic axis between two pixels."""

    least: float
    most: float
    start: float
    end: float

    @classmethod
    def over(cls, values: Iterable[float], start: float, end: float) -> "_Axis":
        """An axis for values, with some room on both sides."""
        values = list(values)
        return cls(min(values) / 1.3, max(values) * 1.3, start, end)

    def at(self, value: float) -> float:
        """The pixel of a value."""
        part = math.log(value / self.least) / math.log(self.most / self.least)
        return self.start + part * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Round values: 1, 2 and 5 of each power of ten."""
        powers = range(math.floor(math.log10(self.least)), math.ceil(math.log10(self.most)) + 1)
        ticks = [step * 10**power for power in powers for step in (1, 2, 5)]
        return [tick for tick in ticks if self.least <= tick <= self.most]


def _legend(colours: dict[str, str], y: float) -> Iterable[str]:
    x = 20.0
    for name, colour in colours.items():
        yield f'<rect x="{x}" y="{y - 8}" width="18" height="4" fill="{colour}"/>'
        yield _text(x + 24, y, name, "start")
        x += 44 + 7 * len(name)


def _rule(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" stroke="#ddd"/>'


def _text(x: float, y: float, text: str, anchor: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{escape(text)}</text>'

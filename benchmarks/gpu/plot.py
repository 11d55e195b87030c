"""Draw the two pictures of the documentation from the data files: `python -m benchmarks.gpu.plot [FOLDER]`.

Plain SVG, written as text. Lines are in colours that can be told apart on white and on black, by colour-blind readers
too; text and axes follow the reader's colour scheme.
"""

from __future__ import annotations

import html
import json
import math
import pathlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.gpu.break_even import find_largest_loop

HERE = pathlib.Path(__file__).parent
WIDTH, HEIGHT = 720, 400
LEFT, RIGHT, TOP, BOTTOM = 64, 170, 48, 48
BLUE, ORANGE, GREEN, PINK, SKY, RED = "#3b8fd0", "#e69f00", "#12a37a", "#cc79a7", "#56b4e9", "#d55e00"

STYLE = """<style>
text { font: 13px system-ui, sans-serif; fill: #24292f }
.title { font-size: 15px; font-weight: 600 }
.axis { stroke: #57606a; stroke-width: 1 }
.grid { stroke: #8c959f; stroke-opacity: .25 }
.line { fill: none; stroke-width: 2.2; stroke-linejoin: round }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .axis { stroke: #9198a1 } }
</style>"""


@dataclass(frozen=True, slots=True)
class Line:
    """A line whose name stands beside its last point."""

    name: str
    color: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Axis:
    """A range of values with ticks, linear or logarithmic, laid over pixels."""

    title: str
    ticks: Sequence[float]
    low: float
    high: float
    log: bool = False

    def place(self, value: float, start: float, end: float) -> float:
        low, high, value = (math.log10(each) if self.log else each for each in (self.low, self.high, value))
        return start + (value - low) / (high - low) * (end - start)


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines over two axes; `marker` is a value on the horizontal one and what it says there."""

    title: str
    x: Axis
    y: Axis
    lines: Sequence[Line]
    marker: tuple[float, str] | None = None

    def draw(self) -> str:
        """The SVG file's text."""
        head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">'
        title = html.escape(self.title)
        caption = f'<title>{title}</title>\n{STYLE}\n<text class="title" x="{LEFT}" y="24">{title}</text>'
        return "\n".join([head, caption, *self._draw_axes(), *self._draw_marker(), *self._draw_lines(), "</svg>", ""])

    def _across(self, value: float) -> float:
        return round(self.x.place(value, LEFT, WIDTH - RIGHT), 1)

    def _up(self, value: float) -> float:
        return round(self.y.place(value, HEIGHT - BOTTOM, TOP), 1)

    def _draw_axes(self) -> Iterator[str]:
        right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
        for tick in self.y.ticks:
            y = self._up(tick)
            yield f'<path class="grid" d="M{LEFT} {y}H{right}"/>'
            yield f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{tick:g}</text>'
        for tick in self.x.ticks:
            yield f'<text x="{self._across(tick)}" y="{bottom + 18}" text-anchor="middle">{tick:g}</text>'
        yield f'<path class="axis" fill="none" d="M{LEFT} {TOP}V{bottom}H{right}"/>'
        middle = (LEFT + right) / 2
        yield f'<text x="{middle}" y="{HEIGHT - 10}" text-anchor="middle">{html.escape(self.x.title)}</text>'
        yield f'<text x="{LEFT}" y="{TOP - 6}" text-anchor="start">{html.escape(self.y.title)}</text>'

    def _draw_marker(self) -> Iterator[str]:
        if self.marker is None:
            return
        value, text = self.marker
        x = self._across(value)
        yield f'<path class="axis" stroke-dasharray="4 4" d="M{x} {TOP}V{HEIGHT - BOTTOM}"/>'
        yield f'<text x="{x + 6}" y="{TOP + 14}">{html.escape(text)}</text>'

    def _draw_lines(self) -> Iterator[str]:
        for line in self.lines:
            path = " ".join(f"{self._across(x)},{self._up(y)}" for x, y in line.points)
            yield f'<polyline class="line" stroke="{line.color}" points="{path}"/>'
            y = self._up(line.points[-1][1])
            name = html.escape(line.name)
            yield f'<text x="{WIDTH - RIGHT + 8}" y="{y + 4}" style="fill:{line.color}">{name}</text>'


def chart_serving_loop(data: dict[str, Any]) -> Chart:
    """Host time inside the copies, step by step."""
    lines = []
    for name, color in (("before", RED), ("after", BLUE)):
        host = data[name]["host_ms"]
        median = sorted(host)[len(host) // 2]
        lines.append(Line(f"{name}: {median:.2f} ms", color, list(enumerate(host, start=1))))
    steps = len(data["before"]["host_ms"])
    return Chart(
        f"Host time in two input copies, {data['step_ms']:g} ms of GPU work a step ({data['machine']['card']})",
        Axis("step", range(0, steps + 1, 10), 0, steps),
        Axis("ms", range(0, 26, 5), 0, 25),
        lines,
    )


def chart_fix_costs(data: dict[str, Any], row_bytes: int, largest_loop: int) -> Chart:
    """Host time of each way to upload the columns of a buffer, over its rows, with the stream idle."""
    table = [row for row in data["rows"] if row["row_bytes"] == row_bytes]
    colors = {
        "rows by index": RED, "rows by unbind": ORANGE, "fault": PINK,
        "staging": GREEN, "cudaMemcpy2DAsync": SKY, "whole buffer": BLUE,
    }  # fmt: skip
    names = {"fault": "fault, on an idle GPU"}
    lines = [
        Line(names.get(way, way), color, [(row["rows"], row["ways"][way]["host"]) for row in table])
        for way, color in colors.items()
    ]
    return Chart(
        f"Host time to upload rows of {row_bytes:,} bytes, padded, from pinned memory",
        Axis("rows", [1, 4, 16, 64, 256, 1024], 1, 1024, log=True),
        Axis("µs", [1, 10, 100, 1000, 10000], 1, 20000, log=True),
        lines,
        marker=(largest_loop, f"the fix loops up to {largest_loop} rows"),
    )


def main(argv: list[str]) -> int:
    folder = pathlib.Path(argv[0]) if argv else HERE
    serving = json.loads((HERE / "serving_loop_h200.json").read_text())
    costs = json.loads((HERE / "fix_costs_h200.json").read_text())
    charts = {
        "serving_loop": chart_serving_loop(serving),
        "fix_costs": chart_fix_costs(costs, 4096, find_largest_loop(costs["rows"])),
    }
    for name, chart in charts.items():
        (folder / f"{name}.svg").write_text(chart.draw(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

"""What a run found, as text for people and in the formats of other programs; one module a format."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass

from h2dlint.engine import Report

FORMATS = ("text", "concise", "json", "sarif", "github", "gitlab", "junit")


@dataclass(frozen=True, slots=True)
class View:
    """What a format may use: the run, the lines of a file (without newlines), and whether colours are wanted."""

    report: Report
    lines: Callable[[str], list[str]]
    color: bool = False

    def paint(self, style: str, text: str) -> str:
        return f"\033[{_STYLES[style]}m{text}\033[0m" if self.color else text


def render(view: View, name: str) -> str:
    """The report in the format of that name (one of FORMATS); empty or with a newline at its end."""
    text: str = importlib.import_module(f"h2dlint.report.{name}").render(view)
    return text


_STYLES = {"bold": "1", "code": "1;31", "place": "1;36", "frame": "1;34", "good": "32", "dim": "2"}

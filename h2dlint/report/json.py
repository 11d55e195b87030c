"""A JSON array, one object a finding, in the shape of ruff's so that its consumers can read it.

Rows and columns count from 1 and characters; ends are exclusive. `noqa_row` is where a noqa comment would go.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from h2dlint.model import Edit, Finding, Fix, Step
from h2dlint.report import View
from h2dlint.source import count_characters


def render(view: View) -> str:
    return json.dumps([describe(finding, view) for finding in view.report.findings], indent=2) + "\n"


def describe(finding: Finding, view: View) -> dict[str, Any]:
    """The object of one finding."""
    return {
        "code": finding.code,
        "name": finding.name,
        "message": finding.message,
        "filename": finding.filename,
        "location": {"row": finding.row, "column": finding.column},
        "end_location": {"row": finding.end_row, "column": finding.end_column},
        "noqa_row": finding.row,
        "fix": None if finding.fix is None else _describe_fix(finding.fix, view.lines(finding.filename)),
        "evidence": describe_steps(finding.steps),
        "url": None,
    }


def describe_steps(steps: Iterable[Step]) -> list[dict[str, Any]]:
    return [{"filename": step.filename, "row": step.row, "message": step.message} for step in steps]


def locate(edit: Edit, lines: list[str]) -> tuple[dict[str, int], dict[str, int]]:
    """Where an edit begins and ends, in characters from 1."""
    span = edit.span
    start = count_characters(lines[span.row - 1], span.column) + 1
    end = count_characters(lines[span.end_row - 1], span.end_column) + 1
    return {"row": span.row, "column": start}, {"row": span.end_row, "column": end}


def _describe_fix(fix: Fix, lines: list[str]) -> dict[str, Any]:
    edits = []
    for edit in fix.edits:
        start, end = locate(edit, lines)
        edits.append({"content": edit.content, "location": start, "end_location": end})
    return {"applicability": fix.safety, "message": fix.message, "edits": edits}

"""Workflow commands that GitHub Actions turns into annotations."""

from __future__ import annotations

from h2dlint.report import View


def render(view: View) -> str:
    lines = []
    for finding in view.report.findings:
        place = (
            f"file={_escape_property(finding.filename)},line={finding.row},endLine={finding.end_row},"
            f"col={finding.column},endColumn={finding.end_column}"
        )
        text = f"{finding.filename}:{finding.row}:{finding.column}: {finding.code} {finding.message}"
        title = _escape_property(f"h2dlint ({finding.code})")
        lines.append(f"::error title={title},{place}::{_escape(text)}\n")
    return "".join(lines)


def _escape(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape(text).replace(":", "%3A").replace(",", "%2C")

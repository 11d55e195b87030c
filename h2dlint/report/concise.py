"""One line a finding: `path:row:column: CODE message`."""

from __future__ import annotations

from h2dlint.report import View


def render(view: View) -> str:
    lines = []
    for finding in view.report.findings:
        place = view.paint("bold", f"{finding.filename}:{finding.row}:{finding.column}:")
        lines.append(f"{place} {view.paint('code', finding.code)} {finding.message}\n")
    return "".join(lines)

"""The format for people: the message, the code with the call marked, the evidence, and what a fix would do."""

from __future__ import annotations

from h2dlint.model import Finding
from h2dlint.report import View

CONTEXT = 2
LONGEST = 8


def render(view: View) -> str:
    return "".join(_render_finding(finding, view) + "\n" for finding in view.report.findings)


def _render_finding(finding: Finding, view: View) -> str:
    place = view.paint("bold", f"{finding.filename}:{finding.row}:{finding.column}:")
    parts = [f"{place} {view.paint('code', finding.code)} {finding.message}"]
    parts += _frame(finding, view)
    parts += [_note(view, f"{step.filename}:{step.row}: {step.message}") for step in finding.steps]
    match finding.fix:
        case None:
            parts += [_note(view, f"no fix: {finding.declined}")] if finding.declined else []
        case fix:
            safety = "safe" if fix.safety == "safe" else f"unsafe: {fix.why}" if fix.why else "unsafe"
            parts.append(_note(view, view.paint("good", f"fix ({safety}): {fix.message}")))
    return "\n".join(parts) + "\n"


def _note(view: View, text: str) -> str:
    return f"  {view.paint('frame', '=')} {text}"


def _frame(finding: Finding, view: View) -> list[str]:
    """The lines around the call, with its characters underlined; the middle of a long call is left out."""
    lines = view.lines(finding.filename)
    if finding.row > len(lines):
        return []
    first = max(1, finding.row - CONTEXT)
    last = min(len(lines), finding.end_row + CONTEXT)
    while first < finding.row and not lines[first - 1].strip():
        first += 1
    while last > finding.end_row and not lines[last - 1].strip():
        last -= 1
    width = len(str(last))
    bar = view.paint("frame", "|")
    out = [f"{'':{width}} {bar}"]
    for row in range(first, last + 1):
        if finding.row + LONGEST < row < finding.end_row:
            out += [f"{'.' * width} {bar}"] if row == finding.row + LONGEST + 1 else []
            continue
        line = lines[row - 1].replace("\f", " ")
        out.append(f"{view.paint('frame', f'{row:{width}}')} {bar} {_expand(line)}".rstrip())
        if finding.row <= row <= finding.end_row:
            out += _underline(finding, row, line, width, view)
    return [*out, f"{'':{width}} {bar}"]


def _underline(finding: Finding, row: int, line: str, width: int, view: View) -> list[str]:
    start = finding.column - 1 if row == finding.row else len(line) - len(line.lstrip())
    end = finding.end_column - 1 if row == finding.end_row else len(line.rstrip())
    if end <= start:
        return []
    before = len(_expand(line[:start]))
    marks = "^" * max(1, len(_expand(line[:end])) - before)
    return [f"{'':{width}} {view.paint('frame', '|')} {' ' * before}{view.paint('code', marks)}"]


def _expand(line: str) -> str:
    return line.expandtabs(4)

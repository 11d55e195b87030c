"""noqa comments: which findings they silence, which of them silence nothing, and how to add one.

The forms are flake8's, so that a comment means the same there and here. One on any line of the statement counts.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from h2dlint.config import UNUSED_NOQA, Config
from h2dlint.model import Edit, Finding, Fix, Span
from h2dlint.source import Source, count_bytes

# flake8.defaults.NOQA_INLINE_REGEX and NOQA_FILE.
_INLINE = re.compile(r"# noqa(?::[\s]?(?P<codes>([A-Z]+[0-9]+(?:[,\s]+)?)+))?", re.IGNORECASE)
_FILE = re.compile(r"\s*# flake8[:=]\s*noqa", re.IGNORECASE)
_OURS = re.compile(r"HTD[0-9]+")


@dataclass(frozen=True, slots=True)
class Noqa:
    """A noqa comment: its row, its character columns from 0, where its codes begin, and the codes (None: all)."""

    row: int
    start: int
    end: int
    codes_start: int
    codes: tuple[str, ...] | None

    def covers(self, code: str) -> bool:
        return self.codes is None or code.startswith(self.codes)


def find_noqa(lines: Sequence[str]) -> dict[int, Noqa]:
    """The noqa comment of each row that has one. As in flake8 the first on a line counts, also inside a string."""
    found = {}
    for row, line in enumerate(lines, start=1):
        if "noqa" in line.lower() and (match := _INLINE.search(line)):
            codes = None if match["codes"] is None else tuple(filter(None, re.split(r"[,\s]", match["codes"])))
            end = match.start() + len(match[0].rstrip(", \t"))
            found[row] = Noqa(row, match.start(), end, match.start("codes"), codes)
    return found


def is_file_ignored(lines: Iterable[str]) -> bool:
    """Whether a `# flake8: noqa` line switches the whole file off."""
    return any("noqa" in line.lower() and _FILE.match(line) for line in lines)


def silence(findings: Iterable[Finding], lines: Sequence[str]) -> tuple[list[Finding], set[tuple[int, str]]]:
    """The findings that no comment silences, and the (row, code) of those comments that silenced one."""
    comments = find_noqa(lines)
    left, used = [], set()
    for finding in findings:
        first, last = finding.statement
        rows = range(min(first, finding.row), max(last, finding.end_row) + 1)
        silencing = [comments[row] for row in rows if row in comments and comments[row].covers(finding.code)]
        for comment in silencing:
            used |= {(comment.row, code) for code in comment.codes or () if finding.code.startswith(code)}
        if not silencing:
            left.append(finding)
    return left, used


def find_unused(source: Source, used: set[tuple[int, str]], config: Config, known: Iterable[str]) -> list[Finding]:
    """A finding for each comment with a code of ours that is on and silences nothing; the fix takes it out."""
    lines = source.lines
    running = [code for code in known if config.is_selected(code)]
    starts = _find_comments(source.text)
    findings = []
    for row, comment in find_noqa(lines).items():
        if starts.get(row, len(lines[row - 1])) > comment.start:
            continue
        unused = [
            code
            for code in comment.codes or ()
            if _OURS.fullmatch(code) and (row, code) not in used and any(one.startswith(code) for one in running)
        ]
        if unused:
            findings.append(_report_unused(source.filename, lines[row - 1], comment, unused))
    return findings


def plan_comments(source: Source, findings: Iterable[Finding]) -> list[Edit]:
    """The edits that add a noqa comment for each finding, on its own line where a comment can stand there."""
    wanted: dict[int, set[str]] = {}
    open_rows = _find_open_rows(source.text)
    for finding in findings:
        row = finding.row if finding.row in open_rows else max(finding.statement[1], finding.end_row)
        wanted.setdefault(row, set()).add(finding.code)
    comments, lines = find_noqa(source.lines), source.lines
    edits = []
    for row, codes in sorted(wanted.items()):
        line, text, comment = lines[row - 1], ", ".join(sorted(codes)), comments.get(row)
        if comment is not None and comment.codes is not None:
            column, text = comment.codes_start, f"{text}, "
        else:
            column, text = len(line.rstrip()), f"  # noqa: {text}"
        place = count_bytes(line, column)
        edits.append(Edit(Span(source.filename, row, place, row, place), text))
    return edits


def _report_unused(filename: str, line: str, comment: Noqa, unused: Sequence[str]) -> Finding:
    kept = [code for code in comment.codes or () if code not in unused]
    start, end, content = comment.start, comment.end, f"# noqa: {', '.join(kept)}"
    if not kept:
        content = ""
        if not line[end:].strip():
            start, end = len(line[:start].rstrip()), len(line)
    row = comment.row
    span = Span(filename, row, count_bytes(line, start), row, count_bytes(line, end))
    return Finding(
        code=UNUSED_NOQA,
        name="unused-noqa",
        message=f"this noqa comment silences nothing: {', '.join(unused)}",
        filename=filename,
        row=row,
        column=comment.start + 1,
        end_row=row,
        end_column=comment.end + 1,
        statement=(row, row),
        fix=Fix("safe", "remove it", (Edit(span, content),)),
    )


def _find_comments(text: str) -> dict[int, int]:
    """The character column (from 0) of the comment of each row that has one."""
    tokens = _tokenize(text)
    return {token.start[0]: token.start[1] for token in tokens if token.type == tokenize.COMMENT}


def _find_open_rows(text: str) -> set[int]:
    """The rows whose end is neither inside a string nor behind a backslash."""
    return {token.start[0] for token in _tokenize(text) if token.type in (tokenize.NL, tokenize.NEWLINE)}


def _tokenize(text: str) -> list[tokenize.TokenInfo]:
    try:
        return list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, SyntaxError):
        return []

"""Fixes copies of whole packages and checks what a fix promises, file by file; prints a table.

    python -m scripts.fix_corpus FOLDER... [--record FILE] [--report FILE]

A folder holds one package or more. Of each it makes a copy, runs `h2dlint --fix --unsafe-fixes` over it, and checks:
every changed file compiles; a second run changes nothing; no line outside the touched statements and added imports is
another; no finding is left that was called fixed; nothing but the changed files is another. The exit status is 1 if any
of this fails. With `--record` each row is kept as soon as it stands, and a package that has one is passed over.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import filecmp
import json
import shutil
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from h2dlint import engine
from h2dlint.config import ConfigFinder
from h2dlint.engine import Change, Report
from h2dlint.model import Edit, Finding

COLUMNS = ("package", "files", "seconds", "findings", "fixed", "changed", "left", "taken back", "wrong")


@dataclass
class Row:
    """What happened to one package."""

    package: str
    files: int = 0
    seconds: float = 0.0
    findings: int = 0
    fixed: int = 0
    changed: int = 0
    left: int = 0
    taken_back: int = 0
    wrong: list[str] = field(default_factory=list)

    def cells(self) -> list[str]:
        numbers = [self.findings, self.fixed, self.changed, self.left, self.taken_back, len(self.wrong)]
        return [self.package, str(self.files), f"{self.seconds:.1f}", *map(str, numbers)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument("--record", type=Path, help="keep the rows in this JSON file, and begin with those in it")
    parser.add_argument("--report", type=Path, help="append each diff to this file")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    sys.setrecursionlimit(20_000)
    kept = json.loads(options.record.read_text("utf-8")) if options.record and options.record.exists() else []
    rows = {row["package"]: Row(**row) for row in kept}
    for folder in options.folders:
        if folder.name in rows:
            continue
        row, diff = fix_copy(folder, options.jobs)
        rows[row.package] = row
        print("  ".join(row.cells()), flush=True)
        for what in row.wrong:
            print(f"    {what}", flush=True)
        if options.report:
            with options.report.open("a", encoding="utf-8") as report:
                report.write(diff)
        if options.record:
            records = [asdict(row) for _, row in sorted(rows.items())]
            options.record.write_text(json.dumps(records, indent=1) + "\n", "utf-8")
    print(f"\n{format_table([row for _, row in sorted(rows.items())])}")
    return 1 if any(row.wrong for row in rows.values()) else 0


def fix_copy(folder: Path, jobs: int) -> tuple[Row, str]:
    """The row of a package and the diff that its fixes make."""
    row = Row(folder.name)
    with tempfile.TemporaryDirectory() as place:
        folder, copy = folder.resolve(), Path(place, folder.name).resolve()
        shutil.copytree(folder, copy, symlinks=True)
        start = time.monotonic()
        report = run([copy], jobs)
        row.seconds = round(time.monotonic() - start, 1)
        row.files, row.fixed, row.changed = report.files, report.fixed, len(report.changes)
        row.left = len(report.findings)
        row.findings = row.left + row.fixed
        row.taken_back = sum("taken back" in problem.message for problem in report.problems)
        row.wrong += [str(problem) for problem in report.problems if "internal error" in problem.message]
        planned = plan(folder, copy, report)
        for change in report.changes:
            row.wrong += [f"{change.filename}: {what}" for what in check_change(change, planned[change.filename])]
        row.wrong += [f"{name}: changed without a fix" for name in others_changed(folder, copy, report)]
        again = run([copy], jobs)
        row.wrong += [f"{change.filename}: changed again" for change in again.changes]
        if Counter(map(identify, again.findings)) != Counter(map(identify, report.findings)):
            row.wrong.append("a second run has other findings")
        row.wrong = [what.replace(f"{copy}/", "") for what in row.wrong]
        diff = "".join(line for change in report.changes for line in unified(change, copy))
    return row, diff


def plan(folder: Path, copy: Path, report: Report) -> dict[str, list[Edit]]:
    """The edits that are proposed for each changed file as it was."""
    names = {str(folder / Path(change.filename).relative_to(copy)): change.filename for change in report.changes}
    edits: dict[str, list[Edit]] = {name: [] for name in names.values()}
    for finding in run([Path(name) for name in names], 1, fix=False).findings if names else ():
        edits[names[finding.filename]] += finding.fix.edits if finding.fix else ()
    return edits


def identify(finding: Finding) -> tuple[str, str, int]:
    return finding.filename, finding.code, finding.row


def others_changed(folder: Path, copy: Path, report: Report) -> list[str]:
    """The files of the copy that no fix names and that are not what they were."""
    named = {change.filename for change in report.changes}
    return [
        str(path)
        for path in sorted(copy.rglob("*"))
        if path.is_file() and not path.is_symlink() and str(path) not in named
        if not (folder / path.relative_to(copy)).is_file()
        or not filecmp.cmp(folder / path.relative_to(copy), path, False)
    ]


def unified(change: Change, copy: Path) -> list[str]:
    name = str(Path(change.filename).relative_to(copy.parent))
    old, new = change.before.raw.splitlines(keepends=True), change.after.raw.splitlines(keepends=True)
    return list(difflib.unified_diff(old, new, f"a/{name}", f"b/{name}"))


def format_table(rows: list[Row]) -> str:
    """The rows as a Markdown table with a sum below."""
    total = Row("all together")
    for row in rows:
        for name in ("files", "seconds", "findings", "fixed", "changed", "left", "taken_back"):
            setattr(total, name, getattr(total, name) + getattr(row, name))
        total.wrong += row.wrong
    cells = [list(COLUMNS), ["---"] * len(COLUMNS), *(row.cells() for row in [*rows, total])]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def run(paths: list[Path], jobs: int, fix: bool = True) -> Report:
    finder = ConfigFinder({"unsafe_fixes": True, "include_small": True, "include_cold": True}, isolated=True)
    return engine.run_paths([str(path) for path in paths], finder, jobs=jobs, fix=fix)


def check_change(change: Change, planned: list[Edit]) -> Iterator[str]:
    """What is wrong with one fixed file."""
    before, after = change.before.raw, change.after.raw
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compile(after, change.filename, "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as error:
            yield f"does not compile: {error}"
            return
    allowed = touched_rows(change, planned)
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    for kind, start, end, first, last in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            continue
        if kind == "insert":
            # Put before the row `start + 1`: an import, or statements in front of a touched one.
            if not any(is_import(line) for line in new[first:last]) and not {start, start + 1} & allowed:
                yield f"lines were put in before row {start + 1}"
        elif not set(range(start + 1, end + 1)) <= allowed:
            yield f"rows {start + 1} to {end} are no part of a touched statement"


def touched_rows(change: Change, planned: list[Edit]) -> set[int]:
    """The rows of every statement that a proposed edit lies in."""
    statements = [node for node in ast.walk(ast.parse(change.before.raw)) if isinstance(node, ast.stmt)]
    rows: set[int] = set()
    for edit in planned:
        for row in range(edit.span.row, edit.span.end_row + 1):
            rows |= statement_of(statements, row)
    return rows


def statement_of(statements: list[ast.stmt], row: int) -> set[int]:
    """The rows of the smallest statement around a row."""
    around = [one for one in statements if one.lineno <= row <= (one.end_lineno or one.lineno)]
    if not around:
        return {row}
    inner = min(around, key=lambda one: (one.end_lineno or one.lineno) - one.lineno)
    return set(range(inner.lineno, (inner.end_lineno or inner.lineno) + 1))


def is_import(line: str) -> bool:
    return line.lstrip().startswith(("import ", "from "))


if __name__ == "__main__":
    sys.exit(main())

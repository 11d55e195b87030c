"""Fixes copies of whole packages and checks what a fix promises, file by file; prints a table.

    python scripts/fix_corpus.py FOLDER... [--report FILE]

A folder holds one package or more. Of each it makes a copy, runs `h2dlint --fix --unsafe-fixes` over it, and checks:
every changed file compiles; a second run changes nothing; no line outside the touched statements and added imports is
another; no finding is left that was called fixed; nothing but the changed files is another. The exit status is 1 if any
of this fails.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import filecmp
import shutil
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from h2dlint import engine
from h2dlint.config import Config, ConfigFinder
from h2dlint.engine import Change, Report

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
    codes: Counter[str] = field(default_factory=Counter)

    def cells(self) -> list[str]:
        numbers = [self.findings, self.fixed, self.changed, self.left, self.taken_back, len(self.wrong)]
        return [self.package, str(self.files), f"{self.seconds:.1f}", *map(str, numbers)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument("--report", type=Path, help="write the table and all diffs to this file")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    sys.setrecursionlimit(20_000)
    rows, diffs = [], []
    for folder in options.folders:
        row, diff = fix_copy(folder, options.jobs)
        rows.append(row)
        diffs.append(diff)
        print("  ".join(row.cells()), flush=True)
        for what in row.wrong:
            print(f"    {what}", flush=True)
    table = format_table(rows)
    print(f"\n{table}")
    if options.report:
        options.report.write_text("\n".join([table, *diffs]), "utf-8")
    return 1 if any(row.wrong for row in rows) else 0


def fix_copy(folder: Path, jobs: int) -> tuple[Row, str]:
    """The row of a package and the diff that its fixes make."""
    row = Row(folder.name)
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place, folder.name)
        shutil.copytree(folder, copy, symlinks=True)
        start = time.monotonic()
        report = run(copy, jobs)
        row.seconds = time.monotonic() - start
        row.files, row.fixed, row.changed = report.files, report.fixed, len(report.changes)
        row.left = len(report.findings)
        row.findings = row.left + row.fixed
        row.codes = Counter(one.code for change in report.changes for one in change.mended)
        row.taken_back = sum("taken back" in problem.message for problem in report.problems)
        row.wrong += [str(problem) for problem in report.problems if "internal error" in problem.message]
        for change in report.changes:
            row.wrong += [f"{change.filename}: {what}" for what in check_change(change)]
        row.wrong += [f"{name}: changed, but not by a fix" for name in compare(folder, copy, report)]
        again = run(copy, jobs)
        row.wrong += [f"{change.filename}: changed again" for change in again.changes]
        row.wrong += [f"{one.filename}:{one.row}: {one.code} is new" for one in added(report, again)]
        diff = "".join(line for change in report.changes for line in unified(change, copy))
    return row, diff


def run(folder: Path, jobs: int) -> Report:
    finder = ConfigFinder(isolated=True, override=lambda config: _ask_for_all(config))
    return engine.run_paths([str(folder)], finder, jobs=jobs, fix=True)

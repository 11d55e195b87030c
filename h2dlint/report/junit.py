"""JUnit XML: a test suite for each file, a failed test for each finding, an error for each file that failed."""

from __future__ import annotations

import re
from itertools import groupby

from h2dlint.report import View


def render(view: View) -> str:
    findings, problems = view.report.findings, [problem for problem in view.report.problems if problem.fatal]
    lines = ['<?xml version="1.0" encoding="utf-8"?>']
    total = len(findings) + len(problems)
    counts = f'tests="{total or 1}" failures="{len(findings)}" errors="{len(problems)}"'
    lines.append(f'<testsuites name="h2dlint" {counts}>')
    for filename, group in groupby(findings, key=lambda finding: finding.filename):
        found = list(group)
        counts = f'tests="{len(found)}" failures="{len(found)}" errors="0"'
        lines.append(f'  <testsuite name="{_escape(filename)}" {counts}>')
        for finding in found:
            text = f"{finding.filename}:{finding.row}:{finding.column}: {finding.code} {finding.message}"
            case = f'name="{finding.code}:{finding.row}:{finding.column}" classname="{_escape(filename)}"'
            lines.append(f'    <testcase {case} file="{_escape(filename)}" line="{finding.row}">')
            lines.append(f'      <failure message="{_escape(finding.message)}">{_escape(text)}</failure>')
            lines.append("    </testcase>")
        lines.append("  </testsuite>")
    for problem in problems:
        name = _escape(problem.filename)
        lines.append(f'  <testsuite name="{name}" tests="1" failures="0" errors="1">')
        lines.append(f'    <testcase name="readable" classname="{name}">')
        lines.append(f'      <error message="{_escape(problem.message)}"/>')
        lines += ["    </testcase>", "  </testsuite>"]
    if total == 0:
        lines.append('  <testsuite name="h2dlint" tests="1" failures="0" errors="0">')
        lines += ['    <testcase name="nothing found" classname="h2dlint"/>', "  </testsuite>"]
    return "\n".join([*lines, "</testsuites>"]) + "\n"


def _escape(text: str) -> str:
    text = re.sub(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "?", text)
    for character, name in (("&", "amp"), ("<", "lt"), (">", "gt"), ('"', "quot")):
        text = text.replace(character, f"&{name};")
    return text

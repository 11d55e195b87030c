"""SARIF 2.1.0, which code scanning services read."""

from __future__ import annotations

import json
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from h2dlint import __version__
from h2dlint.model import Finding, Step
from h2dlint.report import View
from h2dlint.report.json import locate

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def render(view: View) -> str:
    findings = view.report.findings
    names = {finding.code: finding.name for finding in findings}
    codes = sorted(names)
    run = {
        "tool": {
            "driver": {
                "name": "h2dlint",
                "version": __version__,
                "rules": [{"id": code, "name": names[code]} for code in codes],
            }
        },
        "columnKind": "unicodeCodePoints",
        "invocations": [
            {
                "executionSuccessful": not view.report.failed,
                "toolExecutionNotifications": [
                    {"level": "error" if problem.fatal else "warning", "message": {"text": str(problem)}}
                    for problem in view.report.problems
                ],
            }
        ],
        "results": [_describe(finding, codes, view) for finding in findings],
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _describe(finding: Finding, codes: list[str], view: View) -> dict[str, Any]:
    region = {
        "startLine": finding.row,
        "startColumn": finding.column,
        "endLine": finding.end_row,
        "endColumn": finding.end_column,
    }
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": codes.index(finding.code),
        "level": "warning",
        "message": {"text": finding.message},
        "locations": [{"physicalLocation": {"artifactLocation": _artifact(finding.filename), "region": region}}],
        "relatedLocations": [_relate(step) for step in finding.steps],
    }
    if finding.fix is not None:
        lines = view.lines(finding.filename)
        replacements = []
        for edit in finding.fix.edits:
            start, end = locate(edit, lines)
            place = {
                "startLine": start["row"],
                "startColumn": start["column"],
                "endLine": end["row"],
                "endColumn": end["column"],
            }
            replacements.append({"deletedRegion": place, "insertedContent": {"text": edit.content}})
        change = {"artifactLocation": _artifact(finding.filename), "replacements": replacements}
        result["fixes"] = [{"description": {"text": finding.fix.message}, "artifactChanges": [change]}]
    return result


def _relate(step: Step) -> dict[str, Any]:
    place = {"artifactLocation": _artifact(step.filename), "region": {"startLine": step.row}}
    return {"physicalLocation": place, "message": {"text": step.message}}


def _artifact(filename: str) -> dict[str, str]:
    path = PurePath(filename)
    return {"uri": path.as_uri() if path.is_absolute() else quote(path.as_posix())}

"""GitLab's code quality report (a subset of the Code Climate format)."""

from __future__ import annotations

import hashlib
import json
from collections import Counter

from h2dlint.report import View


def render(view: View) -> str:
    seen: Counter[str] = Counter()
    issues = []
    for finding in view.report.findings:
        # Without the row, so that an issue stays the same one when code above it moves.
        key = f"{finding.filename}:{finding.code}:{finding.message}"
        seen[key] += 1
        issues.append(
            {
                "description": finding.message,
                "check_name": finding.code,
                "fingerprint": hashlib.sha256(f"{key}:{seen[key]}".encode(errors="surrogateescape")).hexdigest(),
                "severity": "major",
                "location": {
                    "path": finding.filename,
                    "lines": {"begin": finding.row, "end": finding.end_row},
                    "positions": {
                        "begin": {"line": finding.row, "column": finding.column},
                        "end": {"line": finding.end_row, "column": finding.end_column},
                    },
                },
            }
        )
    return json.dumps(issues, indent=2) + "\n"

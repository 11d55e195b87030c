"""The formats: each held against its reader's rules rather than against a copy of itself."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from typing import Any

import pytest

from h2dlint.engine import Problem, Report
from h2dlint.model import Edit, Finding, Fix, Span, Step
from h2dlint.report import FORMATS, View, render

LINES = ["import torch", "", "def f(é, d):", "\ty = é.to(", "        d, non_blocking=True)", "", "    return y"]
FIX = Fix("unsafe", "pin it", (Edit(Span("a b.py", 4, 8, 4, 8), ".pin_memory()"),), "the host may write it")


def finding(**changes: Any) -> Finding:
    one = Finding(
        code="HTD104", name="unpinned-source", message="this copy holds <the host>: 100%", filename="a b.py", row=4,
        column=6, end_row=5, end_column=30, statement=(4, 5), steps=(Step("c,d.py", 7, "made here"),), fix=FIX,
    )  # fmt: skip
    return replace(one, **changes)


def show(name: str, *findings: Finding, problems: tuple[Problem, ...] = (), color: bool = False) -> str:
    return render(View(Report(findings, problems), lambda _: LINES, color), name)


def test_json_has_the_keys_of_the_contract_and_counts_characters() -> None:
    (one,) = json.loads(show("json", finding()))
    assert one == {
        "code": "HTD104",
        "name": "unpinned-source",
        "message": "this copy holds <the host>: 100%",
        "filename": "a b.py",
        "location": {"row": 4, "column": 6},
        "end_location": {"row": 5, "column": 30},
        "noqa_row": 4,
        "fix": {
            "applicability": "unsafe",
            "message": "pin it",
            "edits": [
                {
                    "content": ".pin_memory()",
                    "location": {"row": 4, "column": 8},
                    "end_location": {"row": 4, "column": 8},
                }
            ],
        },
        "evidence": [{"filename": "c,d.py", "row": 7, "message": "made here"}],
        "url": None,
    }
    assert json.loads(show("json", finding(fix=None)))[0]["fix"] is None
    assert json.loads(show("json")) == []


def test_an_editor_can_apply_the_edits_of_the_json() -> None:
    (edit,) = json.loads(show("json", finding()))[0]["fix"]["edits"]
    line, column = LINES[edit["location"]["row"] - 1], edit["location"]["column"] - 1
    assert line[:column] + edit["content"] + line[column:] == "\ty = é..pin_memory()to("


def test_concise_is_one_line_a_finding() -> None:
    assert show("concise", finding(), finding(row=5, column=1)) == (
        "a b.py:4:6: HTD104 this copy holds <the host>: 100%\na b.py:5:1: HTD104 this copy holds <the host>: 100%\n"
    )


def test_text_marks_the_call_and_tells_the_evidence_and_the_fix() -> None:
    lines = show("text", finding()).splitlines()
    assert lines[0] == "a b.py:4:6: HTD104 this copy holds <the host>: 100%"
    at = next(number for number, line in enumerate(lines) if "é.to(" in line)
    assert lines[at].index("é") == lines[at + 1].index("^")
    assert lines[at + 1].rstrip().endswith("^^^^^") and lines[at + 1].count("^") == len("é.to(")
    assert lines[at + 3].count("^") == len("d, non_blocking=True)")
    assert "  = c,d.py:7: made here" in lines
    assert "  = fix (unsafe: the host may write it): pin it" in lines
    assert not any(line != line.rstrip() for line in lines)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"fix": Fix("safe", "pin it", ())}, "fix (safe): pin it"),
        ({"fix": None, "declined": "its size is unknown"}, "no fix: its size is unknown"),
    ],
)
def test_text_says_how_safe_a_fix_is_or_why_there_is_none(changes: dict[str, Any], words: str) -> None:
    assert words in show("text", finding(**changes))


def test_text_leaves_out_the_middle_of_a_long_call_and_survives_a_short_file() -> None:
    long = [f"line{number}" for number in range(1, 60)]
    view = View(Report((finding(row=2, column=1, end_row=50, end_column=7),)), lambda _: long)
    text = render(view, "text")
    assert "line3" in text and "line30" not in text and "line50" in text
    assert "HTD104" in render(View(Report((finding(row=99, end_row=99),)), lambda _: long), "text")


def test_colours_only_where_wanted() -> None:
    assert "\033[" not in show("text", finding())
    assert "\033[" in show("text", finding(), color=True)


def test_sarif_has_what_2_1_0_requires() -> None:
    log = json.loads(show("sarif", finding(), problems=(Problem("x.py", 1, "broken"),)))
    assert log["version"] == "2.1.0" and "sarif-2.1.0" in log["$schema"]
    (run,) = log["runs"]
    assert run["tool"]["driver"]["name"] == "h2dlint"
    (result,) = run["results"]
    assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"] == "HTD104"
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "a%20b.py"
    assert place["region"] == {"startLine": 4, "startColumn": 6, "endLine": 5, "endColumn": 30}
    assert result["relatedLocations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "c%2Cd.py"
    (change,) = result["fixes"][0]["artifactChanges"]
    assert change["replacements"][0]["deletedRegion"]["startColumn"] == 8
    assert run["invocations"][0]["executionSuccessful"] is False
    assert run["columnKind"] == "unicodeCodePoints"


def test_github_escapes_what_its_commands_need() -> None:
    (line,) = show("github", finding(filename="a,b:c.py", message="100%\nnext")).splitlines()
    head, _, message = line.removeprefix("::").partition("::")
    assert head.startswith("error title=h2dlint (HTD104),file=a%2Cb%3Ac.py,line=4,endLine=5,col=6,endColumn=30")
    assert message == "a,b:c.py:4:6: HTD104 100%25%0Anext"


def test_gitlab_issues_have_unique_fingerprints_that_survive_moved_lines() -> None:
    before = json.loads(show("gitlab", finding(), finding(row=9)))
    after = json.loads(show("gitlab", finding(row=14), finding(row=19)))
    assert len({one["fingerprint"] for one in before}) == 2
    assert [one["fingerprint"] for one in before] == [one["fingerprint"] for one in after]
    assert {"description", "check_name", "fingerprint", "severity", "location"} <= set(before[0])
    assert before[0]["severity"] in ("info", "minor", "major", "critical", "blocker")
    assert before[0]["location"]["path"] == "a b.py" and before[0]["location"]["lines"]["begin"] == 4


def test_junit_parses_and_counts() -> None:
    text = show(
        "junit", finding(message='<&"> \x01'), problems=(Problem("x.py", 1, "broken"), Problem("y", 1, "", False))
    )
    root = ElementTree.fromstring(text)
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("2", "1", "1")
    assert len(root.findall("testsuite/testcase")) == 2
    failure = root.find("testsuite/testcase/failure")
    assert failure is not None and failure.get("message") == '<&"> ?'
    empty = ElementTree.fromstring(show("junit"))
    assert (empty.get("tests"), empty.get("failures")) == ("1", "0")


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_takes_nothing_and_strange_names(name: str) -> None:
    assert isinstance(show(name), str)
    assert show(name, finding(filename="/abs/\udce9.py", fix=None)).endswith("\n")

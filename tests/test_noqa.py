"""noqa comments: the same meaning as in flake8, unused ones, and added ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from front_helpers import PRELUDE, write

from h2dlint.config import Config, Selection
from h2dlint.engine import fix_source, lint_source
from h2dlint.noqa import find_noqa, plan_comments
from h2dlint.source import read_source, splice, wrap_text

# A line, and whether it silences HTD101 on it; each is checked against flake8 itself where that is installed.
LINES = {
    "bad()  # noqa": True,
    "bad()  # NoQA": True,
    "bad()  # noqa: HTD101": True,
    "bad()  # noqa:HTD101": True,
    "bad()  # noqa: HTD1": True,
    "bad()  # noqa: E501, HTD101": True,
    "bad()  # noqa: E501 HTD101": True,
    "bad()  # noqa: E501,HTD101,W291": True,
    "bad()  # a reason  # noqa: HTD101": True,
    "bad()  # noqa : E501": True,
    "bad()  # noqa: a reason": True,
    "bad()  # noqa: HTD": True,
    "bad(' # noqa')": True,
    "bad()  # noqa: E501": False,
    "bad()  # noqa: htd101": False,
    "bad()  # noqa: HTD102": False,
    "bad()  # noqa: E501  # noqa: HTD101": False,
    "bad()  #noqa": False,
    "bad()  # no qa": False,
}


@pytest.mark.parametrize("line", LINES)
def test_a_line_is_silenced_as_in_flake8(line: str, fake_rules: None) -> None:
    assert (lint_source(f"{PRELUDE}{line}\n", config=Config()) == []) is LINES[line]


@pytest.mark.parametrize("line", LINES)
def test_flake8_reads_the_line_like_that(line: str) -> None:
    violation = pytest.importorskip("flake8.violation")
    one = violation.Violation("HTD101", "a.py", 1, 1, "", line)
    assert one.is_inline_ignored(disable_noqa=False) is LINES[line]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("x = [\n    bad(\n        1),\n]  # noqa: HTD101\n", 0),
        ("x = [  # noqa\n    bad(),\n]\n", 0),
        ("x = [\n    bad(),\n    1,  # noqa: HTD101\n]\n", 0),
        ("if bad():  # noqa\n    pass\n", 0),
        ("if bad():\n    pass  # noqa\n", 1),
        ("with x:  # noqa\n    bad()\n", 1),
        ("bad()\ny = 1  # noqa\n", 1),
        ("bad(), '''\n# noqa\n'''\n", 0),
        ("bad() + \\\n    1  # noqa\n", 0),
        ("@bad()\ndef f(x,\n      y):  # noqa\n    pass\n", 0),
    ],
)
def test_any_line_of_the_statement_counts(text: str, found: int, fake_rules: None) -> None:
    assert len(lint_source(PRELUDE + text, config=Config())) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("# flake8: noqa\nbad()\n", 0),
        ("bad()\n  # FLAKE8= NOQA\n", 0),
        ("x = 1  # flake8: noqa\nbad()\n", 1),
        ("# flake8:\n# noqa\nbad()\n", 1),
    ],
)
def test_the_file_level_form(text: str, found: int, fake_rules: None) -> None:
    assert len(lint_source(PRELUDE + text, config=Config())) == found


UNUSED = [
    ("bad()  # noqa: HTD101\n", "", None),
    ("bad()  # noqa\ngood()  # noqa\n", "", None),
    ("good()  # noqa: E501\n", "", None),
    ("good()  # noqa: HTD301\n", "", None),
    ("x = ' # noqa: HTD101'\n", "", None),
    ("good()  # noqa: HTD101\n", "HTD101", "good()\n"),
    ("good()  # why  # noqa: HTD101\n", "HTD101", "good()  # why\n"),
    ("é = good()  # noqa: HTD101\n", "HTD101", "é = good()\n"),
    ("good()  # noqa: E501, HTD101\n", "HTD101", "good()  # noqa: E501\n"),
    ("bad()  # noqa: HTD101,HTD102 because\n", "HTD102", "bad()  # noqa: HTD101 because\n"),
    ("good()  # noqa: HTD1,HTD2\n", "HTD1, HTD2", "good()\n"),
    ("# noqa: HTD101\n", "HTD101", "\n"),
]


@pytest.mark.parametrize(("text", "unused", "after"), UNUSED)
def test_unused_comments_are_reported_and_removed(
    text: str,
    unused: str,
    after: str | None,
    fake_rules: None,
) -> None:
    assert lint_source(PRELUDE + text, config=Config()) == []
    config = Config(report_unused_noqa=True)
    found = lint_source(PRELUDE + text, config=config)
    assert [finding.code for finding in found] == (["HTD001"] if unused else [])
    assert all(finding.message.endswith(f": {unused}") for finding in found)
    if after is not None:
        assert fix_source(PRELUDE + text, config=config).source == PRELUDE + after


def test_unused_comments_are_found_in_files_without_a_gate_word(fake_rules: None) -> None:
    assert len(lint_source("x = 1  # noqa: HTD101\n", config=Config(report_unused_noqa=True))) == 1


ADDED = [
    ("bad()\n", "bad()  # noqa: HTD101\n"),
    ("bad()  # why\n", "bad()  # why  # noqa: HTD101\n"),
    ("bad()  # noqa: E501\n", "bad()  # noqa: HTD101, E501\n"),
    ("bad(); risky()\n", "bad(); risky()  # noqa: HTD101, HTD102\n"),
    ("x = bad('''\n''',\n)\n", "x = bad('''\n''',\n)  # noqa: HTD101\n"),
    ("x = bad() + \\\n  1\n", "x = bad() + \\\n  1  # noqa: HTD101\n"),
    ("x = (\n  bad(),\n)\n", "x = (\n  bad(),  # noqa: HTD101\n)\n"),
    ("é = bad()\r\n", "é = bad()  # noqa: HTD101\r\n"),
    ("bad()", "bad()  # noqa: HTD101"),
]


@pytest.mark.parametrize(("text", "after"), ADDED)
def test_added_comments_silence(text: str, after: str, fake_rules: None) -> None:
    source = wrap_text("<stdin>", PRELUDE + text)
    result = splice(source, plan_comments(source, lint_source(PRELUDE + text, config=Config())))
    assert result.raw == PRELUDE + after
    assert lint_source(result.raw, config=Config()) == []


def test_rows_and_columns_of_comments(tmp_path: Path) -> None:
    path = write(tmp_path, {"a.py": "x\n\x0cy  # noqa: A1, B2 \n"}) / "a.py"
    comments = find_noqa(read_source("a.py", path.read_bytes()).lines)
    assert list(comments) == [2]
    assert comments[2].codes == ("A1", "B2")
    assert (comments[2].start, comments[2].end) == (4, 18)


def test_opt_in_codes_count_as_unused_once_they_run(fake_rules: None) -> None:
    config = Config(report_unused_noqa=True, selections=(Selection(("ALL",)),))
    assert len(lint_source("good()  # noqa: HTD301\n", config=config)) == 1

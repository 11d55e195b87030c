"""What the interpreter knows, line by line: every `# fact:` comment in fixtures/facts is held against two judges.

The interpreter must say what the comment says, or the smaller thing that the comment admits. And the comment must be
true: the fixtures are run, and each value that comes along on a marked line has to be one of those claimed.
"""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest
from fact_helpers import (
    FIXTURES,
    Claim,
    Mark,
    agrees,
    ask,
    describe,
    is_silence,
    marked_values,
    open_project,
    read_claims,
    read_facts,
)

from h2dlint.config import Config
from h2dlint.model import Fact, Shape
from h2dlint.project import Project

FACTS = FIXTURES / "facts"
FILES = sorted(FACTS.glob("*.py"))
FOLDERS = sorted(path for path in FACTS.iterdir() if path.is_dir() and path.name != "__pycache__")
MIN_MARKS = 300
MAX_MISSED = 0.10
"""The part of the marks that may be admitted misses."""


def files_of(case: Path) -> list[Path]:
    return [case] if case.is_file() else sorted(case.rglob("*.py"))


def marks_of(path: Path) -> list[Mark]:
    return read_facts(path.read_text(encoding="utf-8"))


def name_of(path: Path) -> str:
    return path.stem


@pytest.mark.parametrize("case", [*FILES, *FOLDERS], ids=name_of)
def test_interpreter_knows(case: Path) -> None:
    project = Project(None, Config()) if case.is_file() else open_project(case)
    wrong = []
    for path in files_of(case):
        module = project.load(path)
        values = marked_values(module.tree)
        for mark in marks_of(path):
            value = ask(project, module, mark.row, values[mark.row])
            expected = mark.claims if mark.missed is None else mark.missed
            if not agrees(value, expected):
                late = " (no longer missed: take the mark away)" if mark.missed and agrees(value, mark.claims) else ""
                said = " | ".join(map(str, expected))
                wrong.append(f"{path.name}:{mark.row}: expected {said}, found {describe(value)}{late}")
    assert not wrong, "\n" + "\n".join(wrong)


@pytest.mark.parametrize("case", [*FILES, *FOLDERS], ids=name_of)
def test_fixture_tells_the_truth(case: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("numpy")
    from fact_oracle import recorder

    folders = [case, case / "src"] if case.is_dir() else [case.parent]
    with recorder(folders) as seen:
        importlib.import_module("main" if case.is_dir() else case.stem)
    wrong = []
    for path in files_of(case):
        for mark in marks_of(path):
            observed = seen.get((path, mark.row), [])
            wrong += [f"{path.name}:{mark.row}: {fault}" for fault in faults_of(mark, observed)]
    assert not wrong, "\n" + "\n".join(wrong)


def faults_of(mark: Mark, observed: list[Claim]) -> list[str]:
    """Where a comment and what happened on its line differ."""
    if not observed:
        silent = all(not claim.words for claim in mark.claims)
        return [] if silent else ["nothing came along here"]
    wrong = [f"saw {one}" for one in observed if not any(holds(claim, one) for claim in mark.claims)]
    return wrong + [f"never saw {claim}" for claim in mark.claims if not any(holds(claim, one) for one in observed)]


def holds(claim: Claim, seen: Claim) -> bool:
    """Whether a claim is true of an observed value."""
    for word in claim.words:
        if word.startswith("size<="):
            if int(seen.option("size<=") or 0) > int(word[len("size<=") :]):
                return False
        elif word != "assumed" and word not in seen.words:
            return False
    return "none" not in seen.words or "none" in claim.words or not claim.words


@pytest.mark.parametrize("case", [*FILES, *FOLDERS], ids=name_of)
def test_misses_are_silence(case: Path) -> None:
    for path in files_of(case):
        for mark in marks_of(path):
            if mark.missed is not None:
                assert is_silence(mark.claims, mark.missed), f"{path.name}:{mark.row} admits a wrong claim"


def test_misses_are_few() -> None:
    marks = [mark for case in (*FILES, *FOLDERS) for path in files_of(case) for mark in marks_of(path)]
    missed = [mark for mark in marks if mark.missed is not None]
    assert len(marks) >= MIN_MARKS
    assert len(missed) <= MAX_MISSED * len(marks)


@pytest.mark.parametrize("case", [*FILES, *FOLDERS], ids=name_of)
def test_every_mark_has_an_expression(case: Path) -> None:
    for path in files_of(case):
        values = marked_values(ast.parse(path.read_text(encoding="utf-8")))
        assert [mark.row for mark in marks_of(path) if mark.row not in values] == []


# --- the language itself ---------------------------------------------------------------------------------------------


def test_words_left_out_are_unknown() -> None:
    fact = Fact("cpu", "pinned", Shape())
    assert agrees(fact, read_claims("cpu pinned contiguous"))
    assert not agrees(fact, read_claims("cpu pinned"))
    assert not agrees(fact, read_claims("unknown"))


def test_unknown_words_are_errors() -> None:
    with pytest.raises(AssertionError, match="no word of the language: pined"):
        read_claims("cpu pined")


def test_each_alternative_must_be_there() -> None:
    fact = Fact("cpu", "pinned", Shape())
    assert not agrees(fact, read_claims("cpu pinned contiguous | gpu contiguous"))


def test_a_wrong_claim_is_no_silence() -> None:
    truth = read_claims("cpu pinned gapped")
    assert not is_silence(read_claims("cpu pinned | cpu pageable"), read_claims("cpu pinned"))
    assert is_silence(truth, read_claims("cpu"))
    assert is_silence(truth, read_claims("unknown"))
    assert not is_silence(truth, read_claims("cpu pageable"))

"""Thousands of generated programs do the same before and after their fixes; a fix that is made wrong is caught.

`H2DLINT_PROGRAMS=100000` runs that many fresh ones instead of the usual ones.
"""

from __future__ import annotations

import multiprocessing
import os
import re
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("hypothesis")

from exploring import Tally, explore

from h2dlint.fixes import allocations, joins, rows, staging

ASKED = os.environ.get("H2DLINT_PROGRAMS")
PROGRAMS = int(ASKED or 5000)
PROCESSES = 2


def test_fixes_change_nothing_that_can_be_told() -> None:
    share = -(-PROGRAMS // PROCESSES)
    seeds = [None if ASKED else number for number in range(PROCESSES)]
    with ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("spawn")) as pool:
        tallies = list(pool.map(explore, seeds, [share] * PROCESSES))
    total = sum(tallies, Tally())
    assert not total.failures, f"{len(total.failures)} of {total.programs} programs\n\n{total.failures[0]}"
    assert total.programs >= PROGRAMS
    # The generator is worth its time only while most programs are found and fixed.
    assert total.changed >= 0.5 * total.programs


# --- fixes that are made wrong -----------------------------------------------------------------------------------


def _replaced(builder: Any, old: str, new: str) -> Any:
    """The builder with other words (a regular expression) in what it writes."""

    def build(*args: Any, **kwargs: Any) -> Any:
        built = builder(*args, **kwargs)
        if isinstance(built, str):
            return re.sub(old, new, built)
        return built

    return build


MUTATIONS = [
    pytest.param(rows, "_range", r"\.shape\[0\]\)", ".shape[0] - 1)", "row_copy", id="one row too few"),
    pytest.param(rows, "_range", r"\.shape\[0\]\)", ".shape[0] + 1)", "row_copy", id="one row too many"),
    pytest.param(rows, "_use_of_result", r"\[:, ", "[:1, ", "row_copy", id="a result of one row"),
    pytest.param(joins, "_joined", r"shape\[1:\]", "shape[:-1]", "join", id="other trailing sizes"),
    pytest.param(joins, "_joined", r"sum\(.*? in \w+\)", "1", "join", id="no sum"),
    pytest.param(joins, "add_keyword", "dim=-1", "dim=0", "join", id="another dimension"),
    pytest.param(staging, "flat", r"\[:, ", "[:1, ", "strided_to", id="another view"),
    pytest.param(staging, "fresh_name", "pinned", "n", "join", id="a name that is taken"),
    pytest.param(allocations, "add_keyword", r", dtype=[\w.]+", "", "new", id="the dtype dropped"),
]


@pytest.mark.parametrize(("module", "builder", "old", "new", "kind"), MUTATIONS)
def test_a_builder_that_writes_something_else_is_caught(
    monkeypatch: pytest.MonkeyPatch, module: Any, builder: str, old: str, new: str, kind: str
) -> None:
    monkeypatch.setattr(module, builder, _replaced(getattr(module, builder), old, new))
    assert explore(7, 250, (kind,), stop=True).failures


def test_the_same_programs_pass_with_the_builders_as_they_are() -> None:
    assert not explore(7, 50, ("row_copy", "join", "strided_to", "new"), stop=True).failures

"""Draws programs, fixes them, and runs both versions; a worker process of the test as well."""

from __future__ import annotations

import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path

import torch
from fix_programs import modules
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st
from running import differences, fix

A_MODULE = 25
_RIGHTLY_REFUSED = (
    # A read-back that nothing waits for may be pinned on request only where the host does not read it.
    "the fix of HTD105 was taken back: it would bring a new HTD201",
    # Where a size is not known the joined tensor may be repeated to fill the destination.
    "the fix of HTD102 was taken back: it would bring a new HTD101",
)


@dataclass(frozen=True)
class Tally:
    """How many programs were drawn, how many of them the fixes changed, and what went wrong."""

    programs: int = 0
    changed: int = 0
    failures: tuple[str, ...] = ()

    def __add__(self, other: Tally) -> Tally:
        failures = (*self.failures, *other.failures)
        return Tally(self.programs + other.programs, self.changed + other.changed, failures)


def explore(seed: int | None, programs: int, kinds: tuple[str, ...] = (), stop: bool = False) -> Tally:
    """Tries so many programs, fresh ones without a seed, of these kinds only; `stop` at the first failure."""
    torch.set_num_threads(1)
    total = Tally()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "pyproject.toml").touch()  # the folder's settings, so that none above it count

        @settings(
            max_examples=-(-programs // A_MODULE),
            phases=[Phase.generate],  # a failure shows one function, there is little to shrink
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(text=modules(A_MODULE, kinds), unsafe=st.booleans())
        def run(text: str, unsafe: bool) -> None:
            nonlocal total
            if not (stop and total.failures):
                total += _try(text, unsafe, f"{folder}/case.py")

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            (run if seed is None else seeded(seed)(run))()
    return total


def _try(text: str, unsafe: bool, filename: str) -> Tally:
    result = fix(text, unsafe, filename)
    assert isinstance(result.source, str)
    failures = [str(one) for one in result.problems if not any(known in str(one) for known in _RIGHTLY_REFUSED)]
    if not result.problems:
        left = [one for one in result.findings if one.fix and (unsafe or one.fix.safety == "safe")]
        failures += [f"{one.code} in row {one.row} was not fixed in\n{result.source}" for one in left]
    changed, found = differences(text, result.source, unsafe)
    return Tally(A_MODULE, changed, (*failures, *map(str, found)))

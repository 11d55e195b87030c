"""pytest plugin: `pytest --h2dlint-watch[=report|error]` watches the call of each test.

`report` lists the copies that held the host in the terminal summary; `error` makes the test fail at the copy.
`@pytest.mark.h2dlint_allow("reason")` lets a test's copies pass. Nothing is imported or patched without the option.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from h2dlint.runtime.observation import Observation

_MARKER = "h2dlint_allow"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("h2dlint").addoption(
        "--h2dlint-watch",
        nargs="?",
        const="report",
        choices=("report", "error"),
        help="watch host<->device copies in tests: report them, or fail at those that hold the host",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"{_MARKER}(reason): let this test's host<->device copies hold the host")
    mode = config.getoption("--h2dlint-watch")
    if not mode:
        return
    from importlib.util import find_spec

    if find_spec("torch") is None:
        from h2dlint.runtime.watching import MISSING_TORCH

        raise pytest.UsageError(MISSING_TORCH)
    config.pluginmanager.register(_Watcher(mode), "h2dlint-watcher")


class _Watcher:
    """Opens a watch around each test's call and keeps what it found."""

    def __init__(self, mode: str) -> None:
        self._mode = mode
        self._found: list[tuple[str, Observation]] = []

    @pytest.hookimpl(wrapper=True)  # type: ignore[untyped-decorator]
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        from contextlib import nullcontext

        from h2dlint.runtime.watching import Watch, allow

        marker = item.get_closest_marker(_MARKER)
        if marker and not (marker.args or marker.kwargs):
            raise pytest.UsageError(f"{item.nodeid}: {_MARKER} wants a reason")
        reason = str((*marker.args, *marker.kwargs.values())[0]) if marker else ""
        with Watch("error" if self._mode == "error" else "report") as watch:
            try:
                with allow(reason) if reason else nullcontext():
                    return (yield)
            finally:
                self._found += [(item.nodeid, row) for row in watch.found]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        from h2dlint.runtime.report import render_text

        if not self._found:
            return
        terminalreporter.section("host<->device copies that held the host")
        for test in dict.fromkeys(name for name, _ in self._found):
            terminalreporter.write_line(test)
            rows = [row for name, row in self._found if name == test]
            terminalreporter.write_line(render_text(rows).rstrip())

"""A small stand-in for the interpreter and the rules, so that the fronts are tested for what they do themselves.

In the linted sources a call of `bad`, `stays`, `breaks`, `brings`, `risky`, `race`, `cold`, `small`, `held` or `crash`
is a site. Its fix turns it into what the table below says, whatever that does.
"""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from h2dlint import engine, rules
from h2dlint.model import Edit, Finding, Fix, Site, Span, Step, Verdict

VERDICT = Verdict("blocks", "h2d", "the memory is pageable", "source", "pageable")
CODES = ("HTD101", "HTD102", "HTD202", "HTD301")
# name of the call -> (code, what its fix writes or None, safety)
CALLS: dict[str, tuple[str, str | None, str]] = {
    "bad": ("HTD101", "good(non_blocking)", "safe"),
    "lines": ("HTD101", "good(\n    non_blocking,\n)", "safe"),
    "stays": ("HTD102", "stays(non_blocking, 1)", "safe"),
    "breaks": ("HTD101", "good((", "safe"),
    "brings": ("HTD101", "race(non_blocking)", "safe"),
    "risky": ("HTD102", "good(non_blocking)", "unsafe"),
    "race": ("HTD202", None, "safe"),
    "cold": ("HTD101", None, "safe"),
    "small": ("HTD101", None, "safe"),
    "held": ("HTD301", None, "safe"),
    "cold_race": ("HTD202", None, "safe"),
    "crash": ("HTD101", None, "safe"),
}
PRELUDE = "non_blocking = True\n"


class FakeProject:
    def __init__(self, root: Path | None, config: Any) -> None:
        self.root = root

    def load(self, path: Any, source: bytes | None, tree: ast.Module | None, filename: str) -> Any:
        assert source is not None and tree is not None
        return types.SimpleNamespace(filename=str(path), tree=tree, text="", lines=[])


def find_sites(project: Any, module: Any, *, opt_in: bool, far: bool = True) -> list[Site]:
    sites = []
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CALLS:
            name = node.func.id
            code = CALLS[name][0]
            if code.startswith("HTD3") and not opt_in:
                continue
            assert node.end_lineno is not None and node.end_col_offset is not None
            sites.append(
                Site(
                    module.filename, node.lineno, node.col_offset + 1, node.end_lineno, node.end_col_offset + 1, "to",
                    VERDICT, "pageable", "contiguous", True, codes=(code,), cold=name.startswith("cold"),
                    small=name == "small", call=node, steps=(Step(module.filename, 1, "made here"),),
                )
            )  # fmt: skip
    return sites


class FakeRule:
    def __init__(self, code: str) -> None:
        self.code = code

    def check(self, site: Site, context: Any) -> Finding | None:
        call = site.call
        assert isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
        name = call.func.id
        if name == "crash":
            raise RuntimeError("two\nlines")
        _, content, safety = CALLS[name]
        assert call.end_lineno is not None and call.end_col_offset is not None
        span = Span(site.filename, call.lineno, call.col_offset, call.end_lineno, call.end_col_offset)
        why = "another thread may write it" if safety == "unsafe" else ""
        fix = None if content is None else Fix(safety, f"write {content}", (Edit(span, content),), why)  # type: ignore[arg-type]
        return Finding(
            self.code, f"rule-{self.code.lower()}", f"{name}() holds the host", site.filename, site.row, site.column,
            site.end_row, site.end_column, (site.row, site.end_row), site.steps, fix,
            "the row count is unknown" if fix is None else "",
        )  # fmt: skip


class FakeContext:
    def __init__(self, module: Any, config: Any) -> None:
        self.module = module


@pytest.fixture
def fake_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    # What else imports the two must have done so before they are replaced.
    importlib.import_module("h2dlint.races")
    project = types.ModuleType("h2dlint.project")
    project.Project = FakeProject  # type: ignore[attr-defined]
    sites = types.ModuleType("h2dlint.sites")
    sites.find_sites = find_sites  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "h2dlint.project", project)
    monkeypatch.setitem(sys.modules, "h2dlint.sites", sites)
    monkeypatch.setattr(rules, "load", lambda: {code: FakeRule(code) for code in CODES}, raising=False)
    monkeypatch.setattr(rules, "RuleContext", FakeContext, raising=False)
    monkeypatch.setattr(engine, "_CODES", list(CODES))


def run(*arguments: str, cwd: Path, data: bytes | None = None, **more: Any) -> subprocess.CompletedProcess[bytes]:
    """`python -m h2dlint ...` as a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "h2dlint", *arguments], cwd=cwd, input=data, capture_output=True, timeout=120, **more
    )


def write(folder: Path, files: dict[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder

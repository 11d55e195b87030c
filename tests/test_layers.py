"""The order of the modules: each imports only what stands above it, torch and LibCST only where they may be."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "h2dlint"

# From the top down. A row is one layer: what stands in it may import each other. A package stands for all its modules.
LAYERS = (
    ("h2dlint",),  # the version, and names that are looked up late
    ("h2dlint.model",),
    ("h2dlint.copies",),
    ("h2dlint.shapes",),
    ("h2dlint.apis",),
    ("h2dlint.source",),
    ("h2dlint.config",),
    ("h2dlint.discover",),
    ("h2dlint.atomic",),
    ("h2dlint.noqa",),
    ("h2dlint.flow",),
    ("h2dlint.values",),
    ("h2dlint.project",),
    # One recursion in several files: a call asks for its arguments, a test for its operands, a name for its calls.
    ("h2dlint.refine", "h2dlint.operators", "h2dlint.library", "h2dlint.facts"),
    ("h2dlint.sites",),
    ("h2dlint.races",),
    ("h2dlint.fixes",),
    ("h2dlint.rules",),
    ("h2dlint.engine",),
    ("h2dlint.report",),
    ("h2dlint.runtime",),
    ("h2dlint.listing",),
    ("h2dlint.cli",),
    ("h2dlint.flake8_plugin",),
    ("h2dlint.__main__",),
)
RANKS = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}


def find_imports(path: Path) -> Iterator[tuple[str, int]]:
    """The module and the row of each import, in functions too, but not for type checkers."""
    return _find_imports(ast.parse(path.read_text(encoding="utf-8")), path)


def _find_imports(node: ast.AST, path: Path) -> Iterator[tuple[str, int]]:
    match node:
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            for statement in node.orelse:
                yield from _find_imports(statement, path)
            return
        case ast.Import():
            yield from ((alias.name, node.lineno) for alias in node.names)
        case ast.ImportFrom(module=str() as module, level=0):
            below = [f"{module}.{alias.name}" for alias in node.names]
            yield from ((name if name in MODULES else module, node.lineno) for name in below)
        case ast.ImportFrom():
            raise AssertionError(f"{path}:{node.lineno}: relative imports hide the layers")
    for child in ast.iter_child_nodes(node):
        yield from _find_imports(child, path)


def unit_of(module: str) -> str:
    """The layer's name for a module: the package below h2dlint that holds it."""
    return ".".join(module.split(".")[:2])


def is_below(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def test_each_module_has_its_layer_and_each_layer_its_module() -> None:
    assert {unit_of(module) for module in MODULES} == set(RANKS)


@pytest.mark.parametrize("module", sorted(MODULES))
def test_imports_lead_upwards(module: str) -> None:
    if module == "h2dlint":
        return  # its names are looked up in the engine when asked for, so as to be importable from anywhere
    wrong = []
    for imported, row in find_imports(MODULES[module]):
        if not is_below(imported, "h2dlint") or unit_of(imported) == unit_of(module):
            continue
        if RANKS[unit_of(imported)] > RANKS[unit_of(module)]:
            wrong.append(f"{MODULES[module]}:{row} imports {imported}, which stands below it")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("package", sorted({unit_of(name) for name in MODULES if name.count(".") > 1}))
def test_a_package_has_an_order_too(package: str) -> None:
    """Inside a package: no module imports itself by way of others. That of the package itself does not count."""
    graph = {
        module: {name for name, _ in find_imports(path) if is_below(name, package) and name != package}
        for module, path in MODULES.items()
        if is_below(module, package)
    }
    while ready := {module for module, needs in graph.items() if not needs & graph.keys()}:
        graph = {module: needs for module, needs in graph.items() if module not in ready}
    assert not graph, f"these import each other: {', '.join(sorted(graph))}"


@pytest.mark.parametrize("module", sorted(MODULES))
def test_only_the_runtime_imports_torch(module: str) -> None:
    names = {imported.split(".")[0] for imported, _ in find_imports(MODULES[module])}
    assert "numpy" not in names
    assert "torch" not in names or is_below(module, "h2dlint.runtime")
    assert "libcst" not in names or is_below(module, "h2dlint.fixes")


def test_the_reader_of_imports_sees_all_of_them(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text(
        "from typing import TYPE_CHECKING\nimport a.b\n"
        "if TYPE_CHECKING:\n    import hidden\nelse:\n    import c\n"
        "def f():\n    from h2dlint import model, no_module\n    class G:\n        from torch import nn\n"
    )
    assert [name for name, _ in find_imports(path)] == ["typing", "a.b", "c", "h2dlint.model", "h2dlint", "torch"]
    path.write_text("from . import b\n")
    with pytest.raises(AssertionError, match="relative"):
        list(find_imports(path))


def run(script: str) -> set[str]:
    """The modules that a new interpreter has loaded after a script."""
    done = subprocess.run(
        [sys.executable, "-c", f"{script}\nimport sys\nprint('loaded', *sys.modules)"],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return set(done.stdout.splitlines()[-1].split()[1:])


HEAVY = {"libcst", "torch", "numpy", "yaml", "tomllib", "tomli", "multiprocessing", "h2dlint.facts", "h2dlint.sites"}
CLI = "from h2dlint import cli\ntry:\n    cli.main([{}])\nexcept SystemExit:\n    pass"


@pytest.mark.parametrize(
    "script",
    ["import h2dlint", "import h2dlint.cli", "import h2dlint.flake8_plugin", CLI.format("'--version'"),
     CLI.format("'--help'"), "import h2dlint.runtime, h2dlint.runtime.pytest_plugin", CLI.format("'trace', '--help'")],
)  # fmt: skip
def test_nothing_heavy_is_imported_before_it_is_needed(script: str) -> None:
    assert not run(script) & (HEAVY - run("import site"))


def test_the_version_costs_few_imports() -> None:
    """Counted in modules, which is where its time goes: a clock would fail on a busy machine."""
    loaded = run(CLI.format("'--version'")) - run("import argparse, dataclasses, pathlib, difflib, tokenize, pkgutil")
    assert len(loaded) < 30, sorted(loaded)
    assert len(run("import h2dlint.flake8_plugin") - run("import ast, tokenize, dataclasses")) < 10


def test_linting_without_a_finding_needs_no_libcst(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import torch\n\n\ndef f(x, d):\n    return x.to(d, non_blocking=True)\n")
    loaded = run(CLI.format(f"'--isolated', {str(tmp_path)!r}"))
    assert "h2dlint.sites" in loaded
    assert not loaded & {"libcst", "torch", "numpy"}

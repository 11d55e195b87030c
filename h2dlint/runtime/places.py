"""From a stall's Python frame to a line of the source tree, and to what the linter says of it.

A trace names a function by its first line. Which of its calls was meant follows from the call's name and its turn;
where that leaves several, a single finding among them decides, and else all of them are told.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from h2dlint.model import Finding
from h2dlint.runtime.stalls import Frame, Place, Stall

_SKIPPED = frozenset((".git", ".venv", "node_modules", "__pycache__"))


@dataclass(frozen=True, slots=True)
class _Call:
    """A call in a function: its rows, and the bare name of what it calls."""

    name: str
    row: int
    end_row: int


class Places:
    """Looks stalls up in source trees; each file is read and linted once."""

    def __init__(self, roots: Sequence[Path], stalls: Iterable[Stall]) -> None:
        self._roots = roots
        names = {stall.frame.filename for stall in stalls if stall.frame}
        self._files = self._find_files(names)
        self._trees = {name: _parse(path) for name, path in self._files.items()}
        self._findings = _lint(sorted({str(path) for path in self._files.values()}))

    def find(self, stall: Stall) -> Place:
        """The place of a stall; without a frame an empty one, without the source the frame alone."""
        frame = stall.frame
        if frame is None:
            return Place()
        path = self._files.get(frame.filename)
        tree = self._trees.get(frame.filename)
        if path is None or tree is None:
            return Place(frame.filename, stall.line, (), frame.function)
        function = _find_function(tree, frame)
        here = [each for each in self._findings if os.path.realpath(each.filename) == os.path.realpath(path)]
        if stall.line:
            return _make_place(path, stall.line, (), frame, [each for each in here if _holds(each, stall.line)])
        if function is None:
            return Place(str(path), 0, (), frame.function)
        calls = [call for call in _list_calls(function) if call.name == stall.call]
        if stall.turns == len(calls):
            calls = calls[stall.turn - 1 : stall.turn]
        named = [each for each in here if any(call.row <= each.row <= call.end_row for call in calls)]
        if len(calls) > 1 and len(named) == 1:
            calls = [call for call in calls if call.row <= named[0].row <= call.end_row]
        if not calls and not stall.call:
            named = [each for each in here if _is_in(function, each.row)]
        rows = tuple(dict.fromkeys(call.row for call in calls)) or tuple(each.row for each in named)
        return _make_place(path, rows[0] if len(rows) == 1 else 0, rows, frame, named)

    def _find_files(self, names: set[str]) -> dict[str, Path]:
        """The file of each name that a trace uses: absolute, below a root, or cut at some folder of the search path."""
        files = {}
        for name in names:
            for path in (Path(name), *(root / name for root in self._roots)):
                if path.is_file():
                    files[name] = path
                    break
        missing = names - set(files)
        if missing:
            files.update(_search(self._roots, missing))
        return files


def _search(roots: Sequence[Path], names: set[str]) -> dict[str, Path]:
    """For each name the file below the roots that shares the most trailing parts with it, where just one does."""
    wanted: dict[str, list[str]] = {}
    for name in names:
        wanted.setdefault(Path(name).name, []).append(name)
    found: dict[str, list[tuple[int, Path]]] = {}
    for root in roots:
        for folder, folders, files in os.walk(root):
            folders[:] = [each for each in folders if each not in _SKIPPED]
            for file in wanted.keys() & set(files):
                path = Path(folder, file)
                for name in wanted[file]:
                    found.setdefault(name, []).append((_count_shared(path, Path(name)), path))
    best = {name: max(count for count, _ in each) for name, each in found.items()}
    matches = {name: [path for count, path in each if count == best[name]] for name, each in found.items()}
    return {name: paths[0] for name, paths in matches.items() if len(paths) == 1}


def _count_shared(one: Path, other: Path) -> int:
    """How many trailing parts two paths have in common."""
    pairs = zip(reversed(one.parts), reversed(other.parts), strict=False)
    return next((count for count, (mine, theirs) in enumerate(pairs) if mine != theirs), len(other.parts))


def _parse(path: Path) -> ast.Module | None:
    try:
        return ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None


def _lint(files: list[str]) -> list[Finding]:
    """Everything that the linter can say of the files, also what it would leave out as cold, small or opt-in."""
    if not files:
        return []
    from h2dlint.config import ConfigFinder
    from h2dlint.engine import run_paths

    options = {"extend_select": ("HTD3",), "include_cold": True, "include_small": True}
    return list(run_paths(files, ConfigFinder(options)).findings)


def _find_function(tree: ast.Module, frame: Frame) -> ast.AST | None:
    """The definition whose first line (of its first decorator, where it has one) is the frame's."""
    if frame.function == "<module>":
        return tree
    for node in ast.walk(tree):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or node.name != frame.function:
            continue
        first = min((each.lineno for each in node.decorator_list), default=node.lineno)
        if frame.line in (first, node.lineno):
            return node
    return None


def _list_calls(function: ast.AST) -> list[_Call]:
    """The calls of a function in the order in which straight code makes them; not those of functions inside it."""
    calls: list[_Call] = []

    def visit(node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
                visit(child)
        if not isinstance(node, ast.Call):
            return
        match node.func:
            case ast.Attribute(attr=name) | ast.Name(id=name):
                calls.append(_Call(name, node.lineno, node.end_lineno or node.lineno))

    visit(function)
    return calls


def _is_in(function: ast.AST, row: int) -> bool:
    match function:
        case ast.Module():
            return True
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return function.lineno <= row <= (function.end_lineno or row)
        case _:
            return False


def _holds(finding: Finding, row: int) -> bool:
    return finding.row <= row <= finding.end_row


def _make_place(path: Path, line: int, rows: tuple[int, ...], frame: Frame, findings: list[Finding]) -> Place:
    return Place(
        filename=str(path),
        line=line,
        lines=() if line else rows,
        function=frame.function,
        codes=tuple(dict.fromkeys(each.code for each in findings)),
        messages=tuple(dict.fromkeys(each.message for each in findings)),
    )

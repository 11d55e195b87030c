"""Names for new code: ones that collide with nothing, and the one under which this module knows torch."""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator
from weakref import WeakKeyDictionary

from h2dlint.fixes.context import FUNCTIONS, RuleContext
from h2dlint.model import Edit


def fresh_name(context: RuleContext, node: ast.AST, wanted: str) -> str:
    """`wanted`, numbered if need be, so that no name seen from `node` is hidden or changed.

    Inside a function: its own names and those of the functions in and around it count, and what it reads from the
    module. Elsewhere every name of the module counts.
    """
    scope: ast.AST = context.tree
    for up in context.ancestors(node):
        if isinstance(up, (ast.FunctionDef, ast.AsyncFunctionDef)):
            scope = up
        if isinstance(up, ast.ClassDef):
            break
    taken = names_in(scope)
    name, number = wanted, 2
    while name in taken:
        name, number = f"{wanted}_{number}", number + 1
    return name


_known: WeakKeyDictionary[ast.AST, frozenset[str]] = WeakKeyDictionary()


def names_in(scope: ast.AST) -> frozenset[str]:
    """Every name that is bound or read in a scope and in those inside it; one walk a scope."""
    if scope not in _known:
        _known[scope] = frozenset(_find_names(scope))
    return _known[scope]


def _find_names(scope: ast.AST) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(scope):
        match node:
            case ast.Name(id=name) | ast.arg(arg=name):
                found.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.alias(name=name, asname=asname):
                found.add(asname or name.split(".")[0])
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                found.update(names)
            case ast.ExceptHandler(name=str() as name) | ast.MatchAs(name=str() as name):
                found.add(name)
            case ast.MatchStar(name=str() as name) | ast.MatchMapping(rest=str() as name):
                found.add(name)
            case _:
                continue
    return found


def torch_name(context: RuleContext, node: ast.AST) -> tuple[str, tuple[Edit, ...]]:
    """How `node` may spell torch, and the import that this needs (none where the module has one)."""
    visible: list[ast.AST] = [context.tree, *(up for up in context.ancestors(node) if isinstance(up, FUNCTIONS))]
    for scope in visible:
        for inner in _own_statements(scope):
            match inner:
                case ast.Import(names=aliases):
                    for alias in aliases:
                        if alias.name == "torch" or (alias.name.startswith("torch.") and alias.asname is None):
                            return alias.asname or "torch", ()
    if _comes_with_star(context):
        return "torch", ()
    return "torch", (import_edit(context, "import torch"),)


def _comes_with_star(context: RuleContext) -> bool:
    """Whether the module uses `torch` and binds it nowhere, so that `from .base import *` must bring it."""
    stars = [one for one in context.tree.body if isinstance(one, ast.ImportFrom) and one.names[0].name == "*"]
    if not stars:
        return False
    read = False
    for node in context.parents:
        match node:
            case ast.alias(name=name, asname=asname) if (asname or name.split(".")[0]) == "torch":
                return False
            case ast.arg(arg="torch") | ast.Name(id="torch", ctx=ast.Store()):
                return False
            case ast.Name(id="torch", ctx=ast.Load()):
                read = True
            case _:
                continue
    return read


def _own_statements(scope: ast.AST) -> Iterator[ast.stmt]:
    """The statements that run in this scope, those inside if, try and with included, those for type checkers not."""
    waiting = deque[ast.stmt](getattr(scope, "body", []))
    while waiting:
        node = waiting.popleft()
        yield node
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            waiting.extend(node.orelse)
            continue
        for block in ("body", "orelse", "finalbody"):
            waiting.extend(getattr(node, block, []))
        for handler in getattr(node, "handlers", []):
            waiting.extend(handler.body)


def import_edit(context: RuleContext, line: str) -> Edit:
    """Adds an import after the last top-level one before the first definition, else after the docstring."""
    row = 1
    for node in context.tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            break
        docstring = node is context.tree.body[0] and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if docstring or isinstance(node, (ast.Import, ast.ImportFrom)):
            row = (node.end_lineno or node.lineno) + 1
    if row > len(context.lines):
        return context.insert(len(context.lines), len(context.lines[-1].encode()), f"\n{line}")
    if row == 1:
        while row <= len(context.lines) and context.lines[row - 1].startswith("#"):
            row += 1
    return context.insert(row, 0, f"{line}\n")

"""Where a site stands in its module: parents, statements, scopes and source text, worked out once a module."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property
from typing import Protocol

from h2dlint.config import Config
from h2dlint.model import Edit, Fact, Site, Span

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
Loop = ast.For | ast.AsyncFor | ast.While
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
LOOPS = (ast.For, ast.AsyncFor, ast.While)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class Module(Protocol):
    """What the rules need of a loaded module; `text` has newlines as \\n only."""

    @property
    def filename(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def tree(self) -> ast.Module: ...


class RuleContext:
    """One module as rules and fixes see it. Everything is worked out when first asked for."""

    def __init__(self, module: Module, config: Config) -> None:
        self.module = module
        self.config = config
        # What the guards found out about each buffer: whether the module only ever reads it.
        self.constant: dict[str, bool] = {}
        self._bound: dict[FunctionNode, set[str]] = {}

    @property
    def tree(self) -> ast.Module:
        return self.module.tree

    @cached_property
    def lines(self) -> list[str]:
        """The lines without their ends; split at \\n only, as ast counts rows."""
        return self.module.text.split("\n")

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        return {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}

    @cached_property
    def functions(self) -> list[FunctionNode]:
        return [node for node in self.parents if isinstance(node, FUNCTIONS)]

    @cached_property
    def calls(self) -> dict[str, list[ast.Call]]:
        """All calls of the module by the last part of the name that is called."""
        found: dict[str, list[ast.Call]] = {}
        for node in self.parents:
            match node:
                case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
                    found.setdefault(name, []).append(node)
                case _:
                    continue
        return found

    @cached_property
    def handed_out(self) -> set[str]:
        """The names and paths that an assignment, as they are or as a view, makes known beyond one function."""
        return {
            path
            for node in self.parents
            if isinstance(node, ast.Assign) and (path := dotted(root(node.value))) is not None and is_quiet(node.value)
            if not all(isinstance(t, ast.Name) and self.function(t) is not None for t in node.targets)
        }

    @cached_property
    def makers(self) -> dict[str, list[ast.Call]]:
        """The calls whose results the module assigns to each dotted name."""
        found: dict[str, list[ast.Call]] = {}
        for node in self.parents:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                for target in node.targets:
                    if (path := dotted(target)) is not None:
                        found.setdefault(path, []).append(node.value)
        return found

    @cached_property
    def pin_flags(self) -> dict[tuple[str, ast.ClassDef | None], list[ast.expr]]:
        """What the module gives as `pin_memory=`, by its text and the class around it."""
        found: dict[tuple[str, ast.ClassDef | None], list[ast.expr]] = {}
        for node in self.parents:
            if isinstance(node, ast.keyword) and node.arg == "pin_memory":
                found.setdefault((ast.unparse(node.value), self.owner(node)), []).append(node.value)
        return found

    @cached_property
    def bindings(self) -> dict[str, ast.expr | None]:
        """The names that the module's top level binds, with their value where it is an assignment."""
        found: dict[str, ast.expr | None] = {}
        for node in self.tree.body:
            match node:
                case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                    found.update({(alias.asname or alias.name).split(".")[0]: None for alias in aliases})
                case ast.Assign(targets=targets, value=value):
                    found.update({target.id: value for target in targets if isinstance(target, ast.Name)})
                case ast.AnnAssign(target=ast.Name(id=name), value=value):
                    found[name] = value
                case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                    found[name] = None
                case ast.Try(body=body):
                    for inner in body:
                        if isinstance(inner, (ast.Import, ast.ImportFrom)):
                            found.update({(alias.asname or alias.name).split(".")[0]: None for alias in inner.names})
                case _:
                    continue
        return found

    def bound_in(self, function: FunctionNode) -> set[str]:
        """The names that a function binds: parameters and what is assigned, in nested scopes too."""
        if function not in self._bound:
            self._bound[function] = {
                node.arg if isinstance(node, ast.arg) else node.id
                for node in ast.walk(function)
                if isinstance(node, ast.arg) or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
            }
        return self._bound[function]

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        while (parent := self.parents.get(node)) is not None:
            yield parent
            node = parent

    def statement(self, node: ast.AST) -> ast.stmt:
        """The innermost statement that holds `node`."""
        while not isinstance(node, ast.stmt):
            node = self.parents[node]
        return node

    def function(self, node: ast.AST) -> FunctionNode | None:
        return next((up for up in self.ancestors(node) if isinstance(up, FUNCTIONS)), None)

    def owner(self, node: ast.AST) -> ast.ClassDef | None:
        """The class whose method holds `node`."""
        return next((up for up in self.ancestors(node) if isinstance(up, ast.ClassDef)), None)

    def loops(self, node: ast.AST) -> list[Loop]:
        """The loops of the same function whose body runs `node` again and again, innermost first."""
        found: list[Loop] = []
        for up in self.ancestors(node):
            if isinstance(up, FUNCTIONS):
                break
            if isinstance(up, LOOPS) and (isinstance(up, ast.While) or not holds(up.iter, node)):
                found.append(up)
        return found

    def expression_at(self, span: Span) -> ast.expr | None:
        """The expression of exactly this span, None for another file's."""
        if span.filename != self.module.filename:
            return None
        return self._expressions.get((span.row, span.column, span.end_row, span.end_column))

    @cached_property
    def _expressions(self) -> dict[tuple[int, int, int, int], ast.expr]:
        """The expressions by position; the outermost of those that share one."""
        found: dict[tuple[int, int, int, int], ast.expr] = {}
        for node in self.parents:
            if isinstance(node, ast.expr):
                found.setdefault(position(node), node)
        return found

    def text(self, node: ast.expr | ast.stmt) -> str:
        """The source of `node`, as written."""
        row, column, end_row, end_column = position(node)
        return self.between(row, column, end_row, end_column)

    def between(self, row: int, column: int, end_row: int, end_column: int) -> str:
        """Source text; rows from 1, columns in UTF-8 bytes."""
        first = self.lines[row - 1].encode()
        if row == end_row:
            return first[column:end_column].decode()
        last = self.lines[end_row - 1].encode()
        return "\n".join([first[column:].decode(), *self.lines[row : end_row - 1], last[:end_column].decode()])

    def replace(self, node: ast.expr | ast.stmt, content: str) -> Edit:
        """The smallest edit that turns the source of `node` into `content`."""
        row, column, _, _ = position(node)
        return self.trim(row, column, self.text(node), content)

    def trim(self, row: int, column: int, old: str, new: str) -> Edit:
        """An edit of `old`, which starts at row and column, without what both texts share at their ends."""
        start = 0
        while start < min(len(old), len(new)) and old[start] == new[start]:
            start += 1
        tail = 0
        while tail < min(len(old), len(new)) - start and old[-1 - tail] == new[-1 - tail]:
            tail += 1
        begin = advance(row, column, old[:start])
        end = advance(*begin, old[start : len(old) - tail])
        return Edit(Span(self.module.filename, *begin, *end), new[start : len(new) - tail])

    def insert(self, row: int, column: int, content: str) -> Edit:
        return Edit(Span(self.module.filename, row, column, row, column), content)


def position(node: ast.expr | ast.stmt) -> tuple[int, int, int, int]:
    assert node.end_lineno is not None and node.end_col_offset is not None
    return node.lineno, node.col_offset, node.end_lineno, node.end_col_offset


def advance(row: int, column: int, text: str) -> tuple[int, int]:
    """Where `text` ends that starts at row and column (UTF-8 bytes)."""
    lines = text.split("\n")
    last = len(lines[-1].encode())
    return (row, column + last) if len(lines) == 1 else (row + len(lines) - 1, last)


def holds(outer: ast.AST, node: ast.AST) -> bool:
    return any(inner is node for inner in ast.walk(outer))


def call_of(site: Site) -> ast.Call | None:
    """The call of a site; None where the site is no call (a subscript)."""
    return site.call if isinstance(site.call, ast.Call) else None


def argument(call: ast.Call, index: int, name: str) -> ast.expr | None:
    """A positional or keyword argument; None where it is missing or hidden behind * or **."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    if index < len(call.args) and not any(isinstance(arg, ast.Starred) for arg in call.args[: index + 1]):
        return call.args[index]
    return None


def receiver(call: ast.Call) -> ast.expr | None:
    return call.func.value if isinstance(call.func, ast.Attribute) else None


def source_of(call: ast.Call) -> ast.expr | None:
    """The tensor that a copy reads: the argument of `copy_`, the receiver of `to`, `cuda`, `cpu`."""
    if isinstance(call.func, ast.Attribute) and call.func.attr == "copy_":
        return argument(call, 0, "src") or argument(call, 0, "other")
    return receiver(call)


def is_spread(source: Fact | None, destination: Fact | None) -> bool:
    """Whether the destination repeats the source to fill itself, as far as both shapes are known."""
    if source is None or destination is None or source.shape is None or destination.shape is None:
        return False
    if source.shape.tail or destination.shape.tail:
        return False
    extra = len(destination.shape.dims) - len(source.shape.dims)
    pairs = zip(source.shape.dims, destination.shape.dims[max(0, extra) :])
    outer = destination.shape.dims[: max(0, extra)]
    return any(one.single and not other.single for one, other in pairs) or not all(dim.single for dim in outer)


def dotted(node: ast.AST) -> str | None:
    """`a.b.c` of names and attributes, None of anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    return ".".join([node.id, *reversed(parts)])


# Methods that give a view or a plain fact of a tensor: to evaluate them twice, or earlier, changes nothing.
QUIET_METHODS = frozenset(
    "narrow select t transpose permute view view_as unsqueeze squeeze detach expand expand_as numpy size dim numel "
    "swapaxes swapdims movedim unflatten as_strided diagonal element_size is_contiguous stride contiguous "
    "flatten".split()
)


def is_quiet(node: ast.AST) -> bool:
    """Whether evaluating `node` has no effect and always gives the same as long as nothing is written in between."""
    for inner in ast.walk(node):
        match inner:
            case ast.Call() if is_quiet_call(inner):
                continue
            case ast.Call() | ast.Await() | ast.Yield() | ast.YieldFrom() | ast.NamedExpr():
                return False
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp() | ast.Lambda():
                return False
            case _:
                continue
    return True


def is_quiet_call(call: ast.Call) -> bool:
    """Whether the call itself is a view, a plain fact or a number; its arguments are another matter."""
    match call.func:
        case ast.Attribute(attr=attr):
            return attr in QUIET_METHODS
        case ast.Name(id="len" | "int" | "min" | "max"):
            return True
        case _:
            return False


def root(node: ast.expr) -> ast.expr:
    """What a chain of subscripts, views and in-place methods starts from: a name, or a dotted path from `self`."""
    while True:
        match node:
            case ast.Subscript(value=value) | ast.Starred(value=value):
                node = value
            case ast.Call(func=ast.Attribute(value=value, attr=attr)) if attr in QUIET_METHODS or attr.endswith("_"):
                node = value
            case ast.Attribute(value=value, attr="T" | "mT" | "data" | "H"):
                node = value
            case _:
                return node

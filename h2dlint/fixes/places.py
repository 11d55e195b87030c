"""Where new statements can go before the one that holds a copy, and when none can."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

from h2dlint import apis
from h2dlint.fixes.context import COMPREHENSIONS, FUNCTIONS, RuleContext, dotted, is_quiet_call, position, receiver
from h2dlint.fixes.wrap import line_limit, wrap
from h2dlint.model import Edit


@dataclass(frozen=True, slots=True)
class Place:
    """A statement before which others can be put. `alone` says that it starts its line and that nothing follows it."""

    statement: ast.stmt
    indent: str
    unit: str
    alone: bool
    limit: int

    def before(self, context: RuleContext, statements: list[str]) -> Edit:
        """Puts simple statements, each on one line, before the statement."""
        row, column, _, _ = position(self.statement)
        before = context.lines[row - 1].encode()[:column].decode()
        if not before.strip():
            return context.insert(row, 0, "".join(f"{text}\n" for text in self._rows(self.indent, statements)))
        if self._follows_header(context, before):
            inner = self.indent + self.unit
            content = "\n".join(["", *self._rows(inner, statements), inner])
            return context.trim(row, len(before.rstrip().encode()), before[len(before.rstrip()) :], content)
        return context.insert(row, column, "".join(f"{text}; " for text in statements))

    def _rows(self, indent: str, statements: list[str]) -> list[str]:
        return [wrap(indent + text, self.limit, self.unit) for text in statements]

    def _follows_header(self, context: RuleContext, before: str) -> bool:
        """Whether the statement is the first of a suite that stands behind its colon (`if x: y`)."""
        parent = context.parents.get(self.statement)
        blocks = [getattr(parent, name, None) for name in ("body", "orelse", "finalbody")]
        first = any(isinstance(block, list) and block[:1] == [self.statement] for block in blocks)
        return first and before.rstrip().endswith(":")


def find_place(context: RuleContext, node: ast.expr) -> Place | str:
    """The place before the statement that evaluates `node` exactly once and first; else the reason there is none."""
    child: ast.AST = node
    for up in context.ancestors(node):
        if isinstance(up, ast.stmt):
            break
        if reason := _conditional(up, child):
            return reason
        child = up
    statement = context.statement(node)
    if reason := _header(context, statement, node):
        return reason
    if not all(is_harmless(earlier) for earlier in evaluated_before(context, node)):
        return "something else in the statement has to run first"
    return place_of(context, statement)


def place_of(context: RuleContext, statement: ast.stmt) -> Place:
    row, column, end_row, end_column = position(statement)
    line = context.lines[row - 1]
    after = context.lines[end_row - 1].encode()[end_column:].decode().strip()
    indent = line[: len(line) - len(line.lstrip())]
    alone = not line.encode()[:column].strip() and (not after or after.startswith("#"))
    folder = Path(context.module.filename).absolute().parent
    return Place(statement, indent, _unit(context, statement, indent), alone, line_limit(folder))


# What torch and numpy do without any effect but their result, so that it may as well happen a little later.
_PURE = frozenset(("new", "like", "wrap", "join", "op", "view", "maybe_view", "cast", "query", "flag"))
_PREFIXES = {"np": "numpy", "F": "torch.nn.functional"}


def is_harmless(node: ast.AST) -> bool:
    """Whether `node` may be evaluated after what follows it: nothing in it but names, views and pure operations."""
    calls = [inner for inner in ast.walk(node) if isinstance(inner, ast.Call) and not is_quiet_call(inner)]
    others = (ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr)
    return all(_is_pure(call) for call in calls) and not any(isinstance(inner, others) for inner in ast.walk(node))


def _is_pure(call: ast.Call) -> bool:
    path = dotted(call.func) or ""
    first, _, rest = path.partition(".")
    row = apis.lookup(f"{_PREFIXES.get(first, first)}.{rest}") if first in ("torch", "numpy", *_PREFIXES) else None
    if row is None and isinstance(call.func, ast.Attribute):
        row = apis.lookup(f"torch.Tensor.{call.func.attr}")
    if row is None or "rand" in row.name or any(keyword.arg == "out" for keyword in call.keywords):
        return False
    return row.effect in _PURE or (row.effect == "move" and row.move != "copy_")


def evaluated_before(context: RuleContext, node: ast.expr) -> list[ast.AST]:
    """The parts of the statement that Python evaluates before `node`."""
    found: list[ast.AST] = []
    child: ast.AST = node
    for up in context.ancestors(node):
        for other in ast.iter_child_nodes(up):
            if other is child or not isinstance(other, (ast.expr, ast.keyword, ast.withitem)):
                continue
            if isinstance(up, (ast.Assign, ast.AnnAssign)) and child is up.value:
                continue
            if _end(other) <= (node.lineno, node.col_offset):
                found.append(other)
        if isinstance(up, ast.stmt):
            break
        child = up
    return found


def _end(node: ast.AST) -> tuple[int, int]:
    if isinstance(node, ast.withitem):
        node = node.optional_vars or node.context_expr
    return getattr(node, "end_lineno", 0), getattr(node, "end_col_offset", 0)


def _conditional(up: ast.AST, child: ast.AST) -> str:
    match up:
        case ast.Lambda():
            return "it stands in a lambda"
        case ast.IfExp(test=test) if child is not test:
            return "it stands in one branch of a conditional expression"
        case ast.BoolOp(values=[first, *_]) if child is not first:
            return "it is evaluated only if the operand before it allows it"
        case ast.Compare(comparators=[_, *later]) if child in later:
            return "it is evaluated only if the comparison before it holds"
        case ast.match_case():
            return "it stands in the guard of a case"
        case ast.ExceptHandler():
            return "it stands behind an except"
        case ast.comprehension():
            return "it stands in a comprehension"
        case _ if isinstance(up, COMPREHENSIONS):
            return "it stands in a comprehension"
        case _:
            return ""


def _header(context: RuleContext, statement: ast.stmt, node: ast.expr) -> str:
    parent = context.parents.get(statement)
    match statement:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return "it stands in a decorator, a default or a base class"
        case ast.While():
            return "it stands in the test of a while loop"
        case ast.If() if context.lines[statement.lineno - 1].encode()[statement.col_offset :].startswith(b"elif"):
            return "it stands in the test of an elif"
        case ast.Assert(msg=ast.expr() as text) if any(inner is node for inner in ast.walk(text)):
            return "it stands in the message of an assert"
        case _ if isinstance(parent, ast.ClassDef):
            return "it stands in a class body, where a new name would become an attribute"
        case _:
            return ""


def _unit(context: RuleContext, statement: ast.stmt, indent: str) -> str:
    """One level of indentation: what the statement has more than its block's header, else the file's first."""
    parent = context.parents.get(statement)
    if isinstance(parent, ast.stmt):
        line = context.lines[parent.lineno - 1]
        outer = line[: len(line) - len(line.lstrip())]
        if indent.startswith(outer) and indent != outer:
            return indent[len(outer) :]
    for node in ast.walk(context.tree):
        if isinstance(node, FUNCTIONS) and not context.lines[node.lineno - 1][: node.col_offset].strip():
            line = context.lines[node.body[0].lineno - 1]
            inner = line[: len(line) - len(line.lstrip())]
            outer = context.lines[node.lineno - 1][: node.col_offset]
            if inner.startswith(outer) and inner != outer:
                return inner[len(outer) :]
    return "    "


def replace_in_line(context: RuleContext, node: ast.expr, content: str) -> Edit:
    """Turns the source of `node` into `content`, and breaks the line if that makes a one-line statement too long."""
    row, column, end_row, end_column = position(node)
    place = place_of(context, context.statement(node))
    first, _, last, _ = position(place.statement)
    old = context.lines[row - 1]
    data = old.encode()
    new = data[:column].decode() + content + data[end_column:].decode() if row == end_row else ""
    if not place.alone or not first == row == last or "\n" in content or len(new.expandtabs(4)) <= place.limit:
        return context.replace(node, content)
    return context.trim(row, 0, old, wrap(new, place.limit, place.unit))


def flat(context: RuleContext, node: ast.expr) -> str:
    """The source of `node` on one line."""
    text = context.text(node)
    return text if "\n" not in text else ast.unparse(node)


def replace_source(context: RuleContext, call: ast.Call, source: ast.expr, content: str) -> tuple[Edit, ...]:
    """Puts `content` in the place of the source, with the parentheses around it where it is a receiver."""
    if source is not receiver(call):
        return (replace_in_line(context, source, content),)
    assert isinstance(call.func, ast.Attribute)
    row, column = dot_of(context, call.func)
    old = context.between(call.lineno, call.col_offset, row, column)
    return (context.trim(call.lineno, call.col_offset, old, content + _tail(old)),)


def _tail(text: str) -> str:
    """The line break before a dot that stands on its own line."""
    return text[len(text.rstrip()) :]


def dot_of(context: RuleContext, func: ast.Attribute) -> tuple[int, int]:
    """Where the dot of an attribute stands."""
    assert func.end_lineno is not None and func.end_col_offset is not None
    row, column = func.end_lineno, func.end_col_offset - len(func.attr.encode())
    line = context.lines[row - 1].encode()[:column]
    while not line.rstrip().endswith(b"."):
        row -= 1
        line = context.lines[row - 1].encode()
    return row, len(line.rstrip()) - 1

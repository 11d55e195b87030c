"""A strided copy as a loop of packed ones: few rows, each of them one stretch of pinned memory.

`check_rows` decides from facts whether a loop is right; `loop_over_rows` writes it with LibCST, which keeps comments
and moves continuation lines in with the statement.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from h2dlint.fixes.context import RuleContext, argument, dotted, is_quiet, is_spread, position, receiver, root
from h2dlint.fixes.names import fresh_name
from h2dlint.fixes.places import Place, flat, place_of
from h2dlint.fixes.wrap import read_toml, wrap
from h2dlint.model import Dim, Edit, Fact, Site

if TYPE_CHECKING:
    import libcst

LOOP_NAMES = ("row", "column", "depth", "level")


@dataclass(frozen=True, slots=True)
class Axis:
    """One loop: its place among the subscripts of the strided end and of the other one."""

    strided: int
    other: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The loops that make every single copy packed. `lengths` count the subscripts of both ends, `...` written out."""

    call: ast.Call
    strided: ast.Subscript
    other: ast.expr
    axes: tuple[Axis, ...]
    lengths: tuple[int, int]
    place: Place


@cache
def costs() -> dict[str, object]:
    """The measured costs (costs.toml)."""
    text = resources.files("h2dlint.fixes").joinpath("costs.toml").read_text("utf-8")
    table = read_toml(text)["row_loop"]
    assert isinstance(table, dict)
    return table


def check_rows(site: Site, context: RuleContext, call: ast.Call) -> Plan | str:
    """The loops that would do, or why a loop is not right."""
    strided, other = argument(call, 0, "src") or argument(call, 0, "other"), receiver(call)
    ends = (site.source, site.destination)
    if site.verdict.host == "destination":
        strided, other, ends = other, strided, (site.destination, site.source)
    if not isinstance(strided, ast.Subscript) or other is None or None in ends:
        return "the view is not written as a subscript here"
    if not (is_quiet(strided) and is_quiet(other)):
        return "an operand may not be evaluated more than once"
    place = place_of(context, context.statement(call))
    if reason := _position_reason(context, place, call):
        return reason
    if is_spread(site.source, site.destination):
        return "each row is repeated to fill the destination"
    found = _axes(context, ends[0], ends[1], strided, other)  # type: ignore[arg-type]
    return found if isinstance(found, str) else Plan(call, strided, other, *found, place)


def _position_reason(context: RuleContext, place: Place, call: ast.Call) -> str:
    match place.statement:
        case ast.Expr(value=value) | ast.Return(value=value) if value is call:
            pass
        case ast.Assign(value=value, targets=[ast.Name()]) if value is call:
            pass
        case _:
            return "the result of the copy is used in a larger expression"
    if not place.alone:
        return "it shares its line with other code"
    if isinstance(context.parents.get(place.statement), ast.ClassDef):
        return "it stands in a class body"
    return ""


def _axes(
    context: RuleContext, view: Fact, other: Fact, strided: ast.Subscript, against: ast.expr
) -> tuple[tuple[Axis, ...], tuple[int, int]] | str:
    if view.shape is None or other.shape is None or view.shape.tail or other.shape.tail:
        return "the number of rows is not known"
    if len(view.shape.dims) != len(other.shape.dims):
        return "the two ends have different numbers of dimensions"
    mine = _subscripts(strided, view)
    theirs = _subscripts(against, other) if isinstance(against, ast.Subscript) else [None] * len(other.shape.dims)
    if mine is None or theirs is None:
        return "the subscript is not a plain one"
    narrowed = [index for index, item in enumerate(mine) if not _is_full(item)]
    if not narrowed or not isinstance(mine[narrowed[-1]], ast.Slice) or _steps(mine[narrowed[-1]]):
        return "single rows of the view have gaps too"
    slices = [index for index, item in enumerate(mine) if isinstance(item, ast.Slice)]
    facing = [index for index, item in enumerate(theirs) if item is None or isinstance(item, ast.Slice)]
    spelled = _first_size(context, strided)
    axes: list[Axis] = []
    copies = 1
    for dimension, index in enumerate(i for i in slices if i < narrowed[-1]):
        rows, across = view.shape.dims[dimension], other.shape.dims[dimension]
        if rows.single and across.single:
            continue
        opposite = theirs[facing[dimension]]
        if not _is_full(mine[index]) or not (opposite is None or _is_full(opposite)):
            return "the rows are cut out of more"
        if (count := _few(rows, across, spelled if dimension == 0 else "")) is None:
            return "the number of rows is large or not known"
        copies *= count
        axes.append(Axis(index, facing[dimension]))
    if not axes or len(axes) > len(LOOP_NAMES):
        return "there are no rows to loop over"
    if copies > _most_copies():
        return "there are too many rows: each costs as much as the whole copy"
    return tuple(axes), (len(mine), len(theirs))


def _subscripts(node: ast.Subscript, fact: Fact) -> list[ast.expr] | None:
    """The subscripts with `...` written out, None where they are not slices and integers only."""
    items = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
    dots = [i for i, item in enumerate(items) if isinstance(item, ast.Constant) and item.value is ...]
    if any(isinstance(item, (ast.Starred, ast.List)) for item in items):
        return None
    if any(isinstance(item, ast.Constant) and (item.value is None or isinstance(item.value, bool)) for item in items):
        return None
    assert fact.rank is not None
    missing = fact.rank - sum(isinstance(item, ast.Slice) for item in items)
    if missing < 0 or len(dots) > 1:
        return None
    full: list[ast.expr] = [ast.Slice() for _ in range(missing)]
    return [*items[: dots[0]], *full, *items[dots[0] + 1 :]] if dots else [*items, *full]


def _is_full(item: ast.AST | None) -> bool:
    match item:
        case ast.Slice(lower=lower, upper=None, step=None):
            return lower is None or (isinstance(lower, ast.Constant) and lower.value == 0)
        case _:
            return False


def _steps(item: ast.AST) -> bool:
    return isinstance(item, ast.Slice) and item.step is not None


def _most_copies() -> int:
    most = costs()["most_copies"]
    assert isinstance(most, int)
    return most


def _few(rows: Dim, across: Dim, spelled: str) -> int | None:
    """How many rows, where both ends surely have as many and they are few; 1 where a name alone says few."""
    if rows.size is None or rows.size != across.size:
        return None
    if rows.size.number is not None:
        return rows.size.number if rows.size.number <= _most_copies() else None
    return 1 if _speaks_of_axes(rows.size.text or spelled) else None


def _speaks_of_axes(text: str) -> bool:
    """Whether a size is a name for a number of coordinates, as `self.position_dims` is."""
    few = costs()["few"]
    assert isinstance(few, dict)
    name = text.strip().split(".")[-1]
    return name.isidentifier() and name.lower().split("_")[-1] in few["words"]


def _first_size(context: RuleContext, buffer: ast.expr) -> str:
    """How the module spells the first dimension where it makes what holds the buffer; "" if that is not seen."""
    path = dotted(root(buffer)) or ""
    parts = path.split(".")
    owner = ".".join(parts[:2]) if parts[0] in ("self", "cls") else parts[0]
    spelled = {
        ast.unparse(argument.elts[0])
        for call in [*context.makers.get(owner, []), *context.makers.get(path, [])]
        for argument in [*call.args, *(keyword.value for keyword in call.keywords)]
        if isinstance(argument, (ast.Tuple, ast.List)) and argument.elts
    }
    return spelled.pop() if len(spelled) == 1 else ""


def loop_over_rows(plan: Plan, context: RuleContext) -> tuple[Edit, ...]:
    """The statement as a loop of copies."""
    import libcst as cst

    names = [fresh_name(context, plan.call, name) for name in LOOP_NAMES[: len(plan.axes)]]
    row, _, end_row, _ = position(plan.place.statement)
    old = "\n".join(context.lines[row - 1 : end_row])
    indent, unit = plan.place.indent, plan.place.unit
    module = cst.parse_module(f"if 1:\n{old}\n" if indent else f"{old}\n")
    block = cst.ensure_type(module.body[0], cst.If).body if indent else module
    line = cst.ensure_type(block.body[0], cst.SimpleStatementLine)
    strided = {axis.strided: name for axis, name in zip(plan.axes, names)}
    other = {axis.other: name for axis, name in zip(plan.axes, names)}
    ends = [(strided, plan.lengths[0]), (other, plan.lengths[1])]
    if plan.strided is not receiver(plan.call):
        ends.reverse()
    body: libcst.BaseStatement = line.with_changes(body=[cst.Expr(_with_ends(_call_in(line.body[0]), *ends))])
    for axis, name in reversed(list(zip(plan.axes, names))):
        heading = cst.ensure_type(cst.parse_statement(f"for {name} in {_range(plan, axis, context)}: pass"), cst.For)
        body = heading.with_changes(body=cst.IndentedBlock(body=[body], indent=unit))
    module = module.with_deep_changes(block, body=[body]) if indent else module.with_changes(body=[body])
    lines = module.code.rstrip("\n").split("\n")[1 if indent else 0 :]
    if row == end_row:
        lines = wrap_last(lines, plan.place)
    extra = _use_of_result(plan, context)
    return (context.trim(row, 0, old, "\n".join([*lines, *([indent + extra] if extra else [])])),)


def wrap_last(lines: list[str], place: Place) -> list[str]:
    """Breaks the copy itself if the loop moved it too far to the right."""
    return [*lines[:-1], wrap(lines[-1], place.limit, place.unit)]


def _use_of_result(plan: Plan, context: RuleContext) -> str:
    """The statement that still needs what `copy_` returned, the whole destination."""
    owner = receiver(plan.call)
    assert owner is not None
    match plan.place.statement:
        case ast.Return():
            return f"return {flat(context, owner)}"
        case ast.Assign(targets=[ast.Name(id=name)]):
            return f"{name} = {flat(context, owner)}"
        case _:
            return ""


def _range(plan: Plan, axis: Axis, context: RuleContext) -> str:
    owner = receiver(plan.call)
    assert owner is not None
    place = axis.other if owner is plan.other else axis.strided
    base = owner.value if isinstance(owner, ast.Subscript) else owner
    text = flat(context, base)
    if not isinstance(base, (ast.Name, ast.Attribute, ast.Subscript, ast.Call)):
        text = f"({text})"
    return f"range({text}.shape[{place}])"


def _call_in(statement: libcst.BaseSmallStatement) -> libcst.Call:
    import libcst as cst

    match statement:
        case cst.Expr(value=cst.Call() as call) | cst.Return(value=cst.Call() as call):
            return call
        case cst.Assign(value=cst.Call() as call):
            return call
        case _:
            raise ValueError("the statement holds no call")


def _with_ends(call: libcst.Call, owner: tuple[dict[int, str], int], source: tuple[dict[int, str], int]) -> libcst.Call:
    """The call of `copy_` with both operands indexed."""
    import libcst as cst

    func = cst.ensure_type(call.func, cst.Attribute)
    named = [i for i, arg in enumerate(call.args) if arg.keyword is not None and arg.keyword.value in ("src", "other")]
    place = named[0] if named else 0
    args = list(call.args)
    args[place] = args[place].with_changes(value=_indexed(args[place].value, *source))
    return call.with_changes(func=func.with_changes(value=_indexed(func.value, *owner)), args=args)


def _indexed(node: libcst.BaseExpression, names: dict[int, str], length: int) -> libcst.BaseExpression:
    """`node` with the subscripts at these places replaced by names, of `length` subscripts with `...` written out."""
    import libcst as cst

    full = cst.SubscriptElement(cst.Slice(lower=None, upper=None))
    subscripted = isinstance(node, cst.Subscript)
    items = list(node.slice) if isinstance(node, cst.Subscript) else []
    dots = next((i for i, item in enumerate(items) if _is_dots(item)), None)
    if dots is not None:
        items[dots : dots + 1] = [full] * (length - len(items) + 1)
    items += [full] * (max(names) + 1 - len(items))
    items = [
        item.with_changes(slice=cst.Index(cst.Name(names[place]))) if place in names else item
        for place, item in enumerate(items)
    ]
    blank = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
    items = [
        item if place == len(items) - 1 or isinstance(item.comma, cst.Comma) else item.with_changes(comma=blank)
        for place, item in enumerate(items)
    ]
    return node.with_changes(slice=items) if subscripted else cst.Subscript(node, items)


def _is_dots(item: libcst.SubscriptElement) -> bool:
    import libcst as cst

    return isinstance(item.slice, cst.Index) and isinstance(item.slice.value, cst.Ellipsis)

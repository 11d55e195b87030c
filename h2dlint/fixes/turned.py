"""A permuted source copied the other way round: both ends are turned, so that the host side lies packed.

`dst.copy_(src.t())` gathers on the host; `dst.t().copy_(src)` lets the GPU do the strided side, where it costs nothing.
"""

from __future__ import annotations

import ast

from h2dlint.fixes.context import RuleContext, argument, is_quiet, receiver
from h2dlint.fixes.places import flat
from h2dlint.model import Edit, Site

_SWAPS = ("transpose", "swapaxes", "swapdims")


def turn_ends(site: Site, context: RuleContext, call: ast.Call) -> tuple[Edit, ...] | str:
    """The edits, or why they would not do."""
    source, destination = argument(call, 0, "src") or argument(call, 0, "other"), receiver(call)
    if source is None or destination is None or site.source is None or site.destination is None:
        return "one end is not written here"
    statement = context.statement(call)
    if not (isinstance(statement, ast.Expr) and statement.value is call):
        return "the result of the copy is used"
    ranks = (site.source.rank, site.destination.rank)
    if ranks != (2, 2):
        return "both ends have to have two dimensions"
    if not is_quiet(destination):
        return "the destination may not be evaluated in another order"
    turn, plain = _untransposed(context, source)
    return (context.replace(source, plain), context.replace(destination, _primary(context, destination) + turn))


def _untransposed(context: RuleContext, source: ast.expr) -> tuple[str, str]:
    """(how to turn, the source turned back): the call that turned it is taken off where it is written here."""
    match source:
        case ast.Attribute(value=value, attr="T" | "mT"):
            return f".{source.attr}", flat(context, value)
        case ast.Call(func=ast.Attribute(value=value, attr="t"), args=[], keywords=[]):
            return ".t()", flat(context, value)
        case ast.Call(func=ast.Attribute(value=value, attr=attr), args=[first, second], keywords=[]) if attr in _SWAPS:
            return f".{attr}({flat(context, first)}, {flat(context, second)})", flat(context, value)
        case _:
            return ".t()", _primary(context, source) + ".t()"


def _primary(context: RuleContext, node: ast.expr) -> str:
    """Source text that an attribute can follow."""
    text = flat(context, node)
    return text if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript, ast.Call)) else f"({text})"

"""Pieces joined straight into pinned memory: `torch.cat(pieces, out=pinned)`, as one would write it by hand.

`out=` asks for pieces of one dtype and one trailing shape that need no gradient. That is taken as given where they all
come from one expression, a comprehension or one `append` in a loop; otherwise the joined tensor is pinned afterwards.
"""

from __future__ import annotations

import ast

from h2dlint.fixes.calls import add_keyword
from h2dlint.fixes.context import RuleContext, argument, dotted
from h2dlint.fixes.names import fresh_name, torch_name
from h2dlint.fixes.pinning import find_pin
from h2dlint.fixes.places import Place, find_place, flat, replace_in_line
from h2dlint.fixes.uses import uses_in
from h2dlint.model import Fact, Fix, Site

_CATS = frozenset(("torch.cat", "torch.concat", "torch.concatenate"))
# Ranks whose tensors may be channels_last, which a join keeps.
_IMAGES = (4, 5)
# Calls that take a list and leave it and its tensors alone.
_HARMLESS = frozenset(("len", "sum", "max", "min", "zip", "enumerate", "print", "list", "tuple", "any", "all"))


def join_pinned(site: Site, context: RuleContext) -> Fix | str:
    """Gives the join behind the site's source a pinned `out=`, or says why that would not be the same."""
    fact = site.source
    if fact is None or fact.origin is None or len(site.sources) != 1:
        return "the pieces come from more than one place"
    join = context.expression_at(fact.origin.span)
    if not isinstance(join, ast.Call):
        return "the pieces are joined in another file"
    if fact.origin.call not in _CATS | {"torch.stack"} or any(keyword.arg == "out" for keyword in join.keywords):
        return f"`{dotted(join.func)}` is not rewritten with `out=`"
    if site.captured:
        return "memory may not be pinned while a CUDA graph is captured"
    pieces, dim = argument(join, 0, "tensors"), _dimension(join)
    if pieces is None or dim is None:
        return "its list or dimension is not written out"
    reason = _difference(context, join, pieces, fact)
    if reason:
        return reason
    place = find_place(context, pieces)
    if not isinstance(place, Place):
        return f"the pinned tensor has to be made before the statement, but {place}"
    return _write(site, context, join, pieces, dim, fact, place)


def _write(
    site: Site, context: RuleContext, join: ast.Call, pieces: ast.expr, dim: int, fact: Fact, place: Place
) -> Fix:
    pin = find_pin(site, context, join)
    torch, imports = torch_name(context, join)
    lines: list[str] = []
    name = pieces.id if isinstance(pieces, ast.Name) else fresh_name(context, join, "pieces")
    if not isinstance(pieces, ast.Name):
        lines.append(f"{name} = {flat(context, pieces)}")
    out = fresh_name(context, join, "pinned")
    item = "t" if name != "t" else "piece"
    rank = fact.rank if fact.rank is not None else _written_rank(_maker(context, join, pieces))
    if rank is None or rank in _IMAGES:
        # Images keep the order of their strides only in a tensor that the join itself lays out. Without the rank the
        # sizes cannot be summed for sure either. An empty tensor grows to what the join needs, and stays pinned.
        shape = "0"
    elif fact.origin is not None and fact.origin.call == "torch.stack":
        shape = _stacked(name, dim)
    else:
        shape = _joined(name, item, dim, rank)
    empty = f"{torch}.empty({shape}, dtype={name}[0].dtype, pin_memory={pin.text})"
    # An empty list has to reach the join, which raises as it did before.
    lines.append(f"{out} = {empty} if {name} else None")
    text = context.text(join)
    if not isinstance(pieces, ast.Name):
        text = _with_pieces(context, join, pieces, name)
    new = add_keyword(text, "out", out)
    assert new is not None
    edits = (place.before(context, lines), replace_in_line(context, join, new), *imports, *pin.edits)
    return Fix("safe", "join the pieces straight into pinned memory", edits)


def _joined(name: str, item: str, dim: int, rank: int) -> str:
    """The shape of a cat: the first piece's, with the sum of all in dimension `dim`; "0" where it has no such one."""
    if not -rank <= dim < rank:
        return "0"
    total = f"sum({item}.shape[{dim}] for {item} in {name})"
    if rank == 1:
        return total
    if rank == 2:
        return f"({total}, {name}[0].shape[1])" if dim in (0, -2) else f"({name}[0].shape[0], {total})"
    before = [] if dim in (0, -rank) else [f"*{name}[0].shape[:{dim}]"]
    after = [] if dim in (-1, rank - 1) else [f"*{name}[0].shape[{dim + 1}:]"]
    return f"({', '.join([*before, total, *after])})"


def _stacked(name: str, dim: int) -> str:
    """The shape of a stack: the first piece's, with the number of pieces put in at `dim`."""
    if dim in (0, -1):
        first, second = f"len({name})", f"*{name}[0].shape"
        return f"({first}, {second})" if dim == 0 else f"({second}, {first})"
    cut = dim if dim > 0 else dim + 1
    return f"(*{name}[0].shape[:{cut}], len({name}), *{name}[0].shape[{cut}:])"


def _dimension(join: ast.Call) -> int | None:
    """The literal dimension of a join, 0 where none is given; None for one that is computed."""
    if any(isinstance(arg, ast.Starred) for arg in join.args) or any(keyword.arg is None for keyword in join.keywords):
        return None
    node = argument(join, 1, "dim") or argument(join, 1, "axis")
    match node:
        case None:
            return 0
        case ast.Constant(value=int() as number) if not isinstance(number, bool):
            return number
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as number)):
            return -number
        case _:
            return None


def _difference(context: RuleContext, join: ast.Call, pieces: ast.expr, fact: Fact) -> str:
    """Why the pieces may not be alike; empty where they surely are."""
    if fact.grad:
        return "`out=` refuses pieces that require grad"
    maker = _maker(context, join, pieces)
    if maker is None:
        return "the pieces may differ in dtype or shape"
    if any(isinstance(node, ast.keyword) and node.arg == "requires_grad" for node in ast.walk(maker)):
        return "`out=` refuses pieces that require grad"
    return ""


def _maker(context: RuleContext, join: ast.Call, pieces: ast.expr) -> ast.expr | None:
    """The one expression that makes all the pieces; None where there are several, or none is seen."""
    match pieces:
        case ast.ListComp(elt=elt):
            return _alike(context, join, elt)
        case ast.Name(id=name):
            return _maker_of(context, join, name)
        case _:
            return None


def _maker_of(context: RuleContext, join: ast.Call, name: str) -> ast.expr | None:
    function = context.function(join)
    makers: list[ast.expr] = []
    repeated = bool(context.loops(join))
    for node in uses_in(function or context.tree).about.get(name, ()):
        if getattr(node, "lineno", join.lineno) > join.lineno and not repeated:
            continue
        match node:
            case ast.arg(arg=found) if found == name:
                return None
            case ast.Assign(targets=targets, value=value) if _stores(targets, name):
                if any(inner is join for inner in ast.walk(value)):
                    continue
                match value:
                    case ast.List(elts=[]):
                        continue
                    case ast.ListComp(elt=elt) if isinstance(targets[0], ast.Name):
                        makers.append(elt)
                    case _:
                        return None
            case ast.AnnAssign(target=ast.Name(id=found), value=value) if found == name:
                match value:
                    case ast.List(elts=[]):
                        continue
                    case ast.ListComp(elt=elt):
                        makers.append(elt)
                    case _:
                        return None
            case ast.Call(func=ast.Attribute(value=ast.Name(id=found), attr=attr), args=args) if found == name:
                if attr != "append" or len(args) != 1:
                    return None
                makers.append(args[0])
            case ast.AugAssign(target=target) if _stores([target], name):
                return None
            case ast.For(target=target) | ast.comprehension(target=target) if _stores([target], name):
                return None
            case ast.NamedExpr(target=ast.Name(id=found)) if found == name:
                return None
            case ast.Call(func=func, args=args) if node is not join and dotted(func) not in _HARMLESS:
                if any(isinstance(arg, ast.Name) and arg.id == name for arg in args):
                    return None
            case _:
                continue
    return _alike(context, join, makers[0]) if len(makers) == 1 else None


def _alike(context: RuleContext, join: ast.Call, maker: ast.expr) -> ast.expr | None:
    """The expression if each evaluation of it gives the same dtype and trailing shape, as far as the source says."""
    match maker:
        case ast.IfExp(body=body, orelse=orelse):
            return maker if _made_by(body) is not None and _made_by(body) == _made_by(orelse) else None
        case ast.BoolOp():
            return None
        case ast.Name(id=name):
            function = context.function(join)
            bound = uses_in(function or context.tree).stores[name]
            return maker if bound <= 1 else None
        case _:
            return maker


def _written_rank(maker: ast.expr | None) -> int | None:
    """The number of dimensions that an expression says its result has, `.repeat(n, 1)` two; None where it says none."""
    match maker:
        case ast.IfExp(body=body, orelse=orelse):
            return _written_rank(body) or _written_rank(orelse)
        case ast.Call(func=ast.Attribute(attr="repeat" | "view" | "reshape"), args=[_, _, *_] as sizes):
            return None if any(isinstance(size, ast.Starred) for size in sizes) else len(sizes)
        case ast.Call(func=ast.Attribute(attr="ravel" | "flatten"), args=[]):
            return 1
        case ast.Call(func=ast.Attribute(attr="stack"), args=[ast.List(elts=[first, *_]), *_]):
            inner = _written_rank(first)
            return None if inner is None else inner + 1
        case _:
            return None


def _made_by(node: ast.expr) -> str | None:
    """The function that made a tensor, with repetitions along a dimension taken off."""
    match node:
        case ast.Call(func=ast.Attribute(value=value, attr="repeat" | "expand" | "contiguous" | "clone")):
            return _made_by(value)
        case ast.Call(func=func):
            return dotted(func)
        case _:
            return None


def _stores(targets: list[ast.expr], name: str) -> bool:
    """Whether an assignment to `targets` binds `name` or puts something into it."""
    return any(isinstance(node, ast.Name) and node.id == name for target in targets for node in ast.walk(target))


def _with_pieces(context: RuleContext, join: ast.Call, pieces: ast.expr, name: str) -> str:
    """The call with its list given by name."""
    row, column, end_row, end_column = join.lineno, join.col_offset, join.end_lineno, join.end_col_offset
    assert pieces.end_lineno is not None and pieces.end_col_offset is not None
    assert end_row is not None and end_column is not None
    before = context.between(row, column, pieces.lineno, pieces.col_offset)
    after = context.between(pieces.end_lineno, pieces.end_col_offset, end_row, end_column)
    return f"{before}{name}{after}"

"""Operators, builtins and the standard library: what Python itself does to abstract values."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from h2dlint.flow import dotted
from h2dlint.model import DeviceKind, Fact, Memory, Need, Origin, Size, Span
from h2dlint.project import MENTIONED
from h2dlint.values import (
    BOTTOM,
    Alts,
    Args,
    Bottom,
    Cls,
    Const,
    Dev,
    Inst,
    Leaves,
    Map,
    Num,
    OnGpu,
    Partial,
    Ref,
    Seq,
    Super,
    Unknown,
    Value,
    alternatives,
    as_size,
    each,
    join,
    symbol,
)  # fmt: skip

if TYPE_CHECKING:
    from h2dlint.facts import Frame, Interpreter

ARITHMETIC: dict[type[ast.operator], Callable[..., object]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv, ast.Mod:
    operator.mod,
}  # fmt: skip
COMPARISONS: dict[type[ast.cmpop], Callable[..., object]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}  # fmt: skip
MAX_NUMBER = 1 << 62


# --- operators -------------------------------------------------------------------------------------------------------


def binary(interp: Interpreter, left: Value, op: ast.operator, right: Value, node: ast.AST, frame: Frame) -> Value:
    """`left op right`: arithmetic of tensors makes a new tensor; of numbers a number; lists and tuples concatenate."""
    found: list[Value] = []
    for one in alternatives(left) or ():
        for other in alternatives(right) or ():
            found.append(_binary(interp, one, op, other, node, frame))
    return join(found)


def _binary(interp: Interpreter, left: Value, op: ast.operator, right: Value, node: ast.AST, frame: Frame) -> Value:
    from h2dlint.library import tensor_device

    sides = [side.fact if isinstance(side, Leaves) else side for side in (left, right)]
    if any(isinstance(side, Fact) for side in sides):
        device, assumed, facts = tensor_device([left, right])
        return computed(interp, device, assumed, facts, node, frame)
    match left, right:
        case Const(value=one), Const(value=other):
            action = ARITHMETIC.get(type(op))
            if (
                action is not None
                and isinstance(one, (int, float, str, tuple))
                and isinstance(other, (int, float, str, tuple))
            ):
                try:
                    result = action(one, other)
                except (ArithmeticError, TypeError, ValueError):
                    return Unknown("local")
                if (isinstance(result, (int, float)) and abs(result) > MAX_NUMBER) or (
                    isinstance(result, (str, tuple)) and len(result) > 1000
                ):
                    return Unknown("local")
                return Const(result)
        case Seq(), Seq() if isinstance(op, ast.Add):
            if left.items is not None and right.items is not None and len(left.items) + len(right.items) <= 64:
                return Seq(left.kind, left.items + right.items)
            return Seq(left.kind, None, join((left.element(), right.element())))
        case (Seq() as sequence, _) | (_, Seq() as sequence) if isinstance(
            op, (ast.Mult, ast.Add, ast.BitOr, ast.Sub, ast.BitAnd)
        ):
            return Seq(sequence.kind, None, sequence.element())
        case Map(), Map() if isinstance(op, ast.BitOr):
            return join((left, right))
    size, other_size = as_size(left, ""), as_size(right, "")
    if isinstance(op, (ast.Add, ast.Sub)) and size is not None and other_size is not None:
        sign = 1 if isinstance(op, ast.Add) else -1
        if other_size.number is not None:
            return Num(Size(size.symbol, size.offset + sign * other_size.number))
        if size.number is not None and sign == 1:
            return Num(Size(other_size.symbol, other_size.offset + size.number))
    if size is not None and other_size is not None:
        return Num(Size(symbol(type(op).__name__, size, other_size)))
    return Unknown("local")


def computed(
    interp: Interpreter, device: DeviceKind, assumed: bool, facts: list[Fact], node: ast.AST, frame: Frame
) -> Value:
    """The result of tensor arithmetic: new memory on the operands' device."""
    from h2dlint import shapes

    module = frame.scope.module
    row, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
    span = Span(
        module.filename,
        row,
        column,
        getattr(node, "end_lineno", row) or row,
        getattr(node, "end_col_offset", column) or column,
    )
    text = ast.unparse(node)
    ranks = [fact.rank for fact in facts]
    known = max((rank for rank in ranks if rank is not None), default=0)
    shape = shapes.packed([None] * known) if known and None not in ranks else shapes.PACKED
    first = facts[0].shape if facts else None
    if first is not None and first.layout == "permuted" and first.rank == known:
        shape = first  # TensorIterator gives the result the order of its first operand
    array = all(fact.array for fact in facts)
    memory: Memory = "unknown" if device == "gpu" else "pageable"
    step = interp.step(
        frame, node, f"the result of {text[:70]} is new {'memory on the GPU' if device == 'gpu' else 'pageable memory'}"
    )
    needs: Need = next((fact.needs for fact in facts if fact.device == "unknown"), "local")
    return Fact(
        device,
        memory,
        shape,
        assumed=assumed,
        array=array,
        origin=Origin("op", "operator", span, frame.scope.qualname),
        steps=(step,),
        needs=needs,
    )


def unary(interp: Interpreter, node: ast.UnaryOp, frame: Frame) -> Value:
    if isinstance(node.op, ast.Not):
        known = interp.truth(node, frame)
        return Unknown("local") if known is None else Const(known)
    value = interp.expr(node.operand, frame)

    def turn(one: Value) -> Value:
        match one:
            case Fact() | Leaves():
                fact = one.fact if isinstance(one, Leaves) else one
                return computed(interp, fact.device, fact.assumed, [fact], node, frame)
            case Const(value=int() | float() as number) if isinstance(node.op, ast.USub):
                return Const(-number)
        return Unknown("local")

    return each(value, turn)


def compare(interp: Interpreter, node: ast.Compare, frame: Frame) -> Value:
    """A comparison: of tensors a new bool tensor, of constants a bool."""
    from h2dlint import library

    if len(node.ops) != 1:
        return Unknown("local")
    op = node.ops[0]
    left = interp.expr(node.left, frame)
    if library.settled(left) and not isinstance(op, (ast.Is, ast.IsNot, ast.In, ast.NotIn)):
        right = left
    else:
        right = interp.expr(node.comparators[0], frame)
    if not isinstance(op, (ast.Is, ast.IsNot, ast.In, ast.NotIn)):
        if any(isinstance(one, (Fact, Leaves)) for value in (left, right) for one in alternatives(value)):
            result = binary(interp, left, ast.Add(), right, node, frame)
            return each(result, lambda one: replace(one, dtype="torch.bool") if isinstance(one, Fact) else one)
    outcomes = {
        _compare(one, op, other)
        for one in alternatives(left) or (BOTTOM,)
        for other in alternatives(right) or (BOTTOM,)
    }
    if len(outcomes) == 1:
        outcome = outcomes.pop()
        if outcome is not None:
            return Const(outcome)
    if isinstance(op, ast.Eq) and asks_for_gpu(node.left, right):
        return OnGpu()
    return Unknown("local")


def asks_for_gpu(asked: ast.expr, name: Value) -> bool:
    """`x.device.type == "cuda"`, `device == "cuda"`."""
    from h2dlint.refine import device_kind

    path = dotted(asked) or ""
    return device_kind(name) == "gpu" and any("device" in part for part in path.split(".")[-2:])


def _compare(left: Value, op: ast.cmpop, right: Value) -> bool | None:
    if isinstance(left, Bottom) or isinstance(right, Bottom):
        return None
    if isinstance(op, (ast.Is, ast.IsNot)):
        if not (isinstance(right, Const) and right.value is None):
            if isinstance(left, Const) and isinstance(right, Const) and isinstance(right.value, bool):
                return (left.value is right.value) == isinstance(op, ast.Is)
            return None
        if isinstance(left, Unknown):
            return None
        return (isinstance(left, Const) and left.value is None) == isinstance(op, ast.Is)
    match left, right:
        case Const(value=one), Const(value=other):
            action = COMPARISONS.get(type(op))
            if isinstance(op, (ast.In, ast.NotIn)):
                if isinstance(other, str) and isinstance(one, str):
                    return (one in other) == isinstance(op, ast.In)
                return None
            if action is None:
                return None
            try:
                return bool(action(one, other))
            except TypeError:
                return None
        case Const(value=one), Seq(items=items) if isinstance(op, (ast.In, ast.NotIn)) and items is not None:
            if all(isinstance(item, Const) for item in items):
                return any(isinstance(item, Const) and item.value == one for item in items) == isinstance(op, ast.In)
        case (Dev() as device, Const(value=str() as text)) | (Const(value=str() as text), Dev() as device) if (
            isinstance(op, (ast.Eq, ast.NotEq))
        ):
            from h2dlint.refine import DEVICE_NAMES

            kind = DEVICE_NAMES.get(text.partition(":")[0])
            if kind is None or device.assumed or device.kind == "unknown":
                return None
            return (kind == device.kind) == isinstance(op, ast.Eq)
        case Dev(), Dev() if isinstance(op, (ast.Eq, ast.NotEq)):
            if left.assumed or right.assumed or "unknown" in (left.kind, right.kind):
                return None
            return None if left.kind == right.kind == "gpu" else (left.kind == right.kind) == isinstance(op, ast.Eq)
        case Ref(name=one), Ref(name=other) if one.startswith("torch.") and isinstance(op, (ast.Eq, ast.NotEq)):
            return (one == other) == isinstance(op, ast.Eq)
    return None


# --- builtins --------------------------------------------------------------------------------------------------------


def call_builtin(interp: Interpreter, name: str, args: Args, node: ast.expr, frame: Frame) -> Value:
    from h2dlint.facts import says_pin

    given, _ = interp.expand(args)
    values = [one() for one in given]
    first: Value = values[0] if values else BOTTOM
    match name:
        case "super":
            scope = frame.scope
            while scope is not None and scope.owner is None:
                scope = scope.parent  # type: ignore[assignment]
            if scope is None or scope.owner is None:
                return Unknown("class")
            method = frame
            while method.scope is not scope and method.closure is not None:
                method = method.closure
            return Super(scope.owner, method.obj if method.obj is not None else Inst(scope.owner))
        case "len":
            if isinstance(first, Seq) and first.items is not None:
                return Const(len(first.items))
            if (
                isinstance(first, Fact)
                and first.rank
                and first.shape is not None
                and first.shape.dims[0].size is not None
            ):
                size = first.shape.dims[0].size
                return Const(size.number) if size.number is not None else Num(size)
            known = first.symbol if isinstance(first, Unknown) else None
            return Num(Size(symbol("len", known) if known is not None else symbol(node, frame)))
        case "int" | "abs" | "round" | "sum" | "max" | "min" | "id":
            return number_call(name, values, node, frame)
        case "float":
            return (
                Const(float(first.value))
                if isinstance(first, Const) and isinstance(first.value, (int, float))
                else Unknown("local")
            )
        case "bool":
            outcome = truth(first)
            return Unknown("local") if outcome is None else Const(outcome)
        case "range":
            return Seq("iterator", None, Num(Size(symbol(node, frame))))
        case "enumerate":
            return Seq("iterator", None, Seq("tuple", (Num(Size(symbol(node, frame))), interp.iterate(first))))
        case "zip":
            return Seq("iterator", None, Seq("tuple", tuple(interp.iterate(value) for value in values)))
        case "reversed" | "sorted" | "iter" | "filter" | "set" | "frozenset" | "deque":
            source = values[1] if name == "filter" and len(values) > 1 else first
            return Seq("list", () if isinstance(source, Bottom) else None, interp.iterate(source))
        case "list" | "tuple":
            if isinstance(first, Bottom):
                return Seq(name, ())
            return each(
                first,
                lambda one: replace(one, kind=name) if isinstance(one, Seq) else Seq(name, None, interp.iterate(one)),
            )
        case "map":
            from h2dlint.values import Arg

            drawn = [Arg(None, None, interp.iterate(value)) for value in values[1:]]
            return Seq("iterator", None, each(first, lambda one: interp.apply(one, Args(tuple(drawn)), node, frame)))
        case "next":
            return join([interp.iterate(first), *values[1:]])
        case "dict":
            items = tuple((key, interp.argument(arg)) for key, arg in args.keywords)
            if isinstance(first, Map):
                return join((first, Map(items))) if items else first
            if isinstance(first, Seq):
                return Map(items, interp.element(first.element(), 1, 2))
            return Map(items, Unknown("local") if values or args.open else BOTTOM)
        case "slice":
            return Seq("slice", None)
        case "isinstance" | "hasattr" | "callable" | "issubclass" | "any" | "all":
            if name == "hasattr" and len(values) == 2:
                return has_attribute(interp, first, values[1])
            return Unknown("local")
        case "getattr":
            if len(values) > 1 and isinstance(values[1], Const) and isinstance(values[1].value, str):
                return get_attribute(interp, first, values[1].value, values[2:], node, frame)
            return Unknown("local")
        case "type":
            return each(first, lambda one: Cls(one.scope) if isinstance(one, Inst) else Unknown("local"))
        case "property" | "staticmethod" | "classmethod":
            return first
    return Unknown("local", flaglike=says_pin(name))


def truth(value: Value) -> bool | None:
    from h2dlint.facts import truth_of

    return truth_of(value)


def number_call(name: str, values: list[Value], node: ast.expr, frame: Frame) -> Value:
    if values and all(isinstance(one, Const) and isinstance(one.value, (int, float)) for one in values):
        numbers = [one.value for one in values if isinstance(one, Const)]
        match name:
            case "int" if len(numbers) == 1:
                return Const(int(numbers[0]))  # type: ignore[call-overload]
            case "abs" if len(numbers) == 1:
                return Const(abs(numbers[0]))  # type: ignore[arg-type]
            case "max" if len(numbers) > 1:
                return Const(max(numbers))  # type: ignore[type-var]
            case "min" if len(numbers) > 1:
                return Const(min(numbers))  # type: ignore[type-var]
    if name == "int" and len(values) == 1:
        size = as_size(values[0], "")
        if size is not None:
            return Num(size)
    return Num(Size(symbol(node, frame)))


def has_attribute(interp: Interpreter, value: Value, name: Value) -> Value:
    if isinstance(value, Inst) and isinstance(name, Const) and isinstance(name.value, str):
        found = interp.instance_attribute(value, name.value)
        return Const(True) if not isinstance(found, (Unknown, Alts)) else Unknown("class")
    return Unknown("local")


def get_attribute(
    interp: Interpreter, value: Value, attr: str, default: list[Value], node: ast.expr, frame: Frame
) -> Value:
    """`getattr(x, "name", default)`: the default where the class surely has no such attribute."""

    def get(one: Value) -> Value:
        if isinstance(one, Inst) and default:
            found = interp.instance_attribute(one, attr)
            if isinstance(found, Unknown):
                external = any(isinstance(base, Ref) for base in interp.mro(one.scope))
                declared = interp.project.grep(attr, MENTIONED) if external else []
                if not external and declared is not None:
                    return default[0]
                return Unknown("class")
            return found
        found = interp.attribute(one, attr, node, frame)
        return join([found, *default]) if isinstance(found, Unknown) and default else found

    return each(value, get)


# --- containers and the standard library -----------------------------------------------------------------------------


def call_container(interp: Interpreter, base: Value, name: str, args: Args, node: ast.expr, frame: Frame) -> Value:
    """A method of a list, dict, string or batch."""
    given, _ = interp.expand(args)
    values = [one() for one in given]
    match base, name:
        case Leaves(), "items":
            return Seq("iterator", None, Seq("tuple", (Unknown("runtime"), base)))
        case Leaves(), _:
            return base
        case Map(), "items":
            keys = interp.iterate(base)
            return Seq("iterator", None, Seq("tuple", (keys, base.element())))
        case Map(), "values":
            return Seq("iterator", None, base.element())
        case Map(), "keys":
            return Seq("iterator", None, interp.iterate(base))
        case Map(), "get" | "pop" | "setdefault":
            found = interp.subscript_value(base, values[0]) if values else Unknown("local")
            return join([found, *(values[1:] or ([Const(None)] if name == "get" else []))])
        case Map(), "popitem":
            return Seq("tuple", (Unknown("local"), base.element()))
        case ((Map() | Seq()), "copy"):
            return base
        case Seq(), "pop" | "popleft" | "get" | "get_nowait" | "__getitem__":
            return base.element()
        case Const(value=str() as text), "lower" | "strip":
            return Const(text.lower() if name == "lower" else text.strip())
        case Const(value=str() as text), "startswith" if (
            values and isinstance(values[0], Const) and isinstance(values[0].value, str)
        ):
            return Const(text.startswith(values[0].value))
        case Const(value=str() as text), "split":
            if values and isinstance(values[0], Const) and isinstance(values[0].value, str) and values[0].value:
                return Seq("list", tuple(Const(part) for part in text.split(values[0].value)))
    return Unknown("local")


def call_standard(interp: Interpreter, name: str, args: Args, node: ast.expr, frame: Frame) -> Value | None:
    """Calls of the standard library that carry values; None for any other name."""
    last = name.rpartition(".")[2]
    root = name.partition(".")[0]
    if root in ("torch", "numpy") and last != "partial":
        return None
    match last:
        case "partial":
            given = args.positional
            if not given:
                return Unknown("local")
            func = interp.argument(given[0])
            return Partial(func, Args(given[1:], args.keywords, args.open))
        case "deque" | "Queue" | "SimpleQueue" | "LifoQueue":
            given_values, _ = interp.expand(args)
            if name.startswith(("queue.", "asyncio.")) or not given_values:
                return Seq("list", None)
            return Seq("list", None, interp.iterate(given_values[0]()))
        case "defaultdict":
            factory = interp.argument(args.positional[0]) if args.positional else Const(None)
            made = each(
                factory, lambda one: interp.apply(one, Args(), node, frame) if not isinstance(one, Const) else BOTTOM
            )
            return Map((), made if not isinstance(made, Unknown) else BOTTOM)
        case "OrderedDict" | "ChainMap":
            return call_builtin(interp, "dict", args, node, frame)
        case "SimpleNamespace":
            return Unknown("local")
        case "chain" | "islice" | "cycle" | "tee" | "from_iterable" if root == "itertools":
            given_values, _ = interp.expand(args)
            drawn = [interp.iterate(one()) for one in given_values[: 1 if last == "islice" else None]]
            if last == "from_iterable":
                drawn = [interp.iterate(one) for one in drawn]
            return Seq("iterator", None, join(drawn))
        case "cast" if root in ("typing", "t", "typing_extensions") and len(args.positional) > 1:
            return interp.argument(args.positional[1])
        case "copy" if name == "copy.copy" and args.positional:
            return interp.argument(args.positional[0])
        case "nullcontext" if args.positional:
            return interp.argument(args.positional[0])
        case "field" if root in ("dataclasses", "attr", "attrs", "pydantic"):
            return Unknown("class")
    return None

"""What a test tells of the value it speaks of: `x.is_cuda`, `x.device.type == "cpu"`, `isinstance(x, Tensor)`..."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING

from h2dlint.flow import dotted
from h2dlint.model import DeviceKind, Fact
from h2dlint.shapes import PACKED
from h2dlint.values import (
    BOTTOM,
    NONE,
    Alts,
    Bottom,
    Cls,
    Const,
    Dev,
    Inst,
    Leaves,
    Map,
    OnGpu,
    Ref,
    Seq,
    Unknown,
    Value,
    alternatives,
    each,
    join,
)  # fmt: skip

if TYPE_CHECKING:
    from h2dlint.facts import Frame, Interpreter

DEVICE_NAMES: dict[str, DeviceKind] = {
    "cpu": "cpu", "cuda": "gpu", "hip": "gpu", "xpu": "gpu", "mps": "other", "hpu": "other", "npu": "other", "xla":
    "other", "meta": "other", "mtia": "other", "tpu": "other", "privateuseone": "other", "vulkan": "other", "ipu":
    "other",
}  # fmt: skip


def refine(interp: Interpreter, value: Value, key: str, test: ast.expr, outcome: bool, frame: Frame) -> Value:
    """`value`, the one that the path `key` holds, after `test` came out as `outcome`."""
    match test:
        case ast.BoolOp(op=op, values=parts):
            return _by_rest(interp, value, key, parts, isinstance(op, ast.And), outcome, frame)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return refine(interp, value, key, operand, not outcome, frame)
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return _by_comparison(interp, value, key, left, op, right, outcome, frame)
        case ast.Call(func=ast.Name(id="isinstance"), args=[subject, kinds]) if dotted(subject) == key:
            return _by_type(interp, value, kinds, outcome, frame)
        case ast.Call(func=ast.Attribute(value=subject, attr="is_pinned")) if dotted(subject) == key:
            return each(value, lambda one: _pinned(one, outcome))
        case ast.Call(func=ast.Name(id="is_tensor")) | ast.Call(func=ast.Attribute(attr="is_tensor")):
            if test.args and dotted(test.args[0]) == key:
                return each(value, lambda one: _keep_tensor(one, outcome))
        case ast.Attribute(value=subject, attr="is_cuda") if dotted(subject) == key:
            return each(value, lambda one: _on(one, "gpu", outcome))
        case ast.Attribute(value=subject, attr="is_cpu") if dotted(subject) == key:
            return each(value, lambda one: _on(one, "cpu", outcome))
        case ast.Name() | ast.Attribute() if dotted(test) == key:
            return each(value, lambda one: _truthy(one, outcome))
        case ast.NamedExpr(target=target) if dotted(target) == key:
            return each(value, lambda one: _truthy(one, outcome))
        case ast.BoolOp(values=parts):
            # One part decides where all others came out the other way.
            open_parts = [part for part in parts if interp.truth(part, frame) is not (not outcome)]
            if len(open_parts) == 1:
                return refine(interp, value, key, open_parts[0], outcome, frame)
    return value


def _by_rest(
    interp: Interpreter, value: Value, key: str, parts: list[ast.expr], is_and: bool, outcome: bool, frame: Frame
) -> Value:
    """After `a and b` came out false (or `a or b` true): where all other parts are known, the last one decided."""
    if is_and == outcome:
        for part in parts:
            value = refine(interp, value, key, part, outcome, frame)
        return value
    left = [part for part in parts if interp.truth(part, frame) is not is_and]
    if len(left) > 1 and is_and:
        left = [part for part in left if not _asks(interp, part, frame)]
    return refine(interp, value, key, left[0], outcome, frame) if len(left) == 1 else value


def _asks(interp: Interpreter, part: ast.expr, frame: Frame) -> bool:
    """Whether a test asks for a GPU of a device that is not known: by convention it is one."""
    return isinstance(interp.near(part, frame), OnGpu)


def _by_comparison(
    interp: Interpreter,
    value: Value,
    key: str,
    left: ast.expr,
    op: ast.cmpop,
    right: ast.expr,
    outcome: bool,
    frame: Frame,
) -> Value:
    if isinstance(op, (ast.Is, ast.IsNot)):
        if isinstance(right, ast.Constant) and right.value is None and _path(left) == key:
            is_none = outcome == isinstance(op, ast.Is)
            if is_none:
                return join([one for one in alternatives(value) if isinstance(one, (Unknown, Const))] and [NONE])
            return join([one for one in alternatives(value) if not (isinstance(one, Const) and one.value is None)])
        return value
    if isinstance(op, (ast.NotEq, ast.NotIn)):
        outcome = not outcome
    elif not isinstance(op, (ast.Eq, ast.In)):
        return value
    if _told(right) == key and _told(left) != key:
        left, right = right, left
    if _told(left) != key:
        return value
    kinds = _kinds(interp, right, isinstance(op, (ast.In, ast.NotIn)), frame)
    if kinds is None:
        return value
    if len(kinds) == 1:
        kind = next(iter(kinds))
        if kind == "gpu" and not outcome and _is_device(left, key):
            return each(value, _elsewhere)
        return each(value, lambda one: _on(one, kind, outcome))
    if outcome:
        return each(
            value, lambda one: BOTTOM if _kind(one) in ("cpu", "gpu", "other") and _kind(one) not in kinds else one
        )
    return each(value, lambda one: BOTTOM if _kind(one) in kinds and _sure(one) else one)


def _path(node: ast.expr) -> str | None:
    return dotted(node.target) if isinstance(node, ast.NamedExpr) else dotted(node)


def _told(node: ast.expr) -> str | None:
    """The path whose device an expression reads: `x.device.type`, `x.device`, `device.type`, `str(x.device)`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "str" and node.args:
        node = node.args[0]
    if isinstance(node, ast.Attribute) and node.attr == "type":
        node = node.value
    if isinstance(node, ast.Attribute) and node.attr == "device":
        inner = dotted(node.value)
        # `self.device` is a device of its own; a tensor's comes last in a chain of plain names
        return inner if inner not in ("self", "cls") else dotted(node)
    return dotted(node)


def _is_device(node: ast.expr, key: str) -> bool:
    """Whether a comparison reads the device `key` itself, and not the device of a tensor `key`."""
    if isinstance(node, ast.Call) and node.args:
        node = node.args[0]
    path = dotted(node)
    return path == key or path == f"{key}.type"


def _elsewhere(value: Value) -> Value:
    """A device that is no GPU: which one is not said."""
    match value:
        case Unknown() | Dev(kind="unknown") | Dev(assumed=True):
            return Dev("other")
    return _on(value, "gpu", False)


def _kinds(interp: Interpreter, node: ast.expr, several: bool, frame: Frame) -> set[DeviceKind] | None:
    """The device kinds that the other side of a comparison names; None when it names none."""
    value = interp.near(node, frame)
    values = value.items if several and isinstance(value, Seq) and value.items is not None else (value,)
    found: set[DeviceKind] = set()
    for one in values:
        kind = device_kind(one)
        if kind is None:
            return None
        found.add(kind)
    return found or None


def device_kind(value: Value) -> DeviceKind | None:
    """The kind of device that a string or a torch.device surely names."""
    match value:
        case Const(value=str() as text):
            return DEVICE_NAMES.get(text.partition(":")[0])
        case Dev(kind=kind, assumed=False) if kind != "unknown":
            return kind
    return None


def _kind(value: Value) -> DeviceKind | None:
    match value:
        case Fact(device=device) | Leaves(fact=Fact(device=device)):
            return device
        case Dev(kind=kind):
            return kind
        case Const():
            return device_kind(value)
    return None


def _sure(value: Value) -> bool:
    return not (isinstance(value, (Fact, Dev)) and value.assumed)


def _on(value: Value, kind: DeviceKind, outcome: bool) -> Value:
    """The value where its device is (or is not) of that kind."""
    match value:
        case Fact():
            return _fact_on(value, kind, outcome)
        case Leaves(fact=fact):
            inner = _fact_on(fact, kind, outcome)
            return Leaves(inner) if isinstance(inner, Fact) else BOTTOM
        case Dev(kind=known, assumed=assumed):
            if known == kind and not assumed:
                return value if outcome else BOTTOM
            if outcome:
                return Dev(kind) if known == "unknown" or assumed else BOTTOM
            return value if known != kind else Dev("unknown")
        case Const(value=str()):
            known_kind = device_kind(value)
            return value if known_kind is None or (known_kind == kind) == outcome else BOTTOM
        case Unknown():
            # a tensor or a device, as yet unknown: the test says where it is
            return Fact(kind, shape=PACKED, needs="local") if outcome else value
    return value


def _fact_on(fact: Fact, kind: DeviceKind, outcome: bool) -> Value:
    if fact.device == kind and not fact.assumed:
        return fact if outcome else BOTTOM
    if outcome:
        if fact.device == "unknown" or fact.assumed:
            return replace(fact, device=kind, assumed=False)
        return BOTTOM
    if fact.device == kind:
        return replace(fact, device="unknown", assumed=False)
    if fact.device == "unknown" and kind == "gpu":
        # not on a GPU: in host memory, as far as this tool's two worlds go
        return replace(fact, device="cpu")
    if fact.device == "unknown" and kind == "cpu":
        return replace(fact, device="gpu", assumed=True)
    return fact


def _pinned(value: Value, outcome: bool) -> Value:
    match value:
        case Fact():
            if value.memory == "unknown":
                if outcome:
                    return replace(value, memory="pinned", device="cpu" if value.device == "unknown" else value.device)
                return replace(value, memory="pageable")
            return value if (value.memory == "pinned") == outcome or value.device == "gpu" else BOTTOM
        case Unknown():
            # of a tensor that nothing is known of, packed memory is taken for granted
            return (
                Fact("cpu", "pinned", PACKED, needs="local") if outcome else Fact(memory="pageable", needs=value.needs)
            )
    return value


def _truthy(value: Value, outcome: bool) -> Value:
    from h2dlint.facts import truth_of

    known = truth_of(value)
    if known is None or isinstance(value, Alts):
        return value
    return value if known == outcome else BOTTOM


def _keep_tensor(value: Value, outcome: bool) -> Value:
    if isinstance(value, Unknown):
        return Fact(shape=PACKED, needs=value.needs) if outcome else value
    return value if isinstance(value, Fact) == outcome or isinstance(value, Leaves) else BOTTOM


def is_instance(interp: Interpreter, value: Value, kinds: ast.expr, frame: Frame) -> bool | None:
    """Whether a value surely is, or surely is not, of the kinds that `isinstance` names."""
    outcomes = {_is_of(interp, one, kinds, frame) for one in alternatives(value)}
    return outcomes.pop() if len(outcomes) == 1 else None


def _by_type(interp: Interpreter, value: Value, kinds: ast.expr, outcome: bool, frame: Frame) -> Value:
    def keep(one: Value) -> Value:
        known = _is_of(interp, one, kinds, frame)
        if known is not None:
            return one if known == outcome else BOTTOM
        if not outcome or not isinstance(one, Unknown):
            return one
        named = interp.near(kinds, frame)
        match named:
            case Ref(name="torch.Tensor"):
                return Fact(shape=PACKED, needs=one.needs)
            case Ref(name="numpy.ndarray"):
                return Fact("cpu", shape=PACKED, array=True, needs=one.needs)
            case Cls(scope=scope):
                return Inst(scope)
            case Ref(name="builtins.list" | "builtins.tuple"):
                return Seq("list", None, Unknown(one.needs))
            case Ref(name="builtins.dict"):
                return Map((), Unknown(one.needs))
        return one

    return each(value, keep)


def _is_of(interp: Interpreter, value: Value, kinds: ast.expr, frame: Frame) -> bool | None:
    if isinstance(kinds, ast.BinOp):
        parts: list[ast.expr] = [kinds.left, kinds.right]
    else:
        parts = list(kinds.elts) if isinstance(kinds, ast.Tuple) else [kinds]
    outcomes = [_is_of_one(interp, value, interp.near(part, frame)) for part in parts]
    if True in outcomes:
        return True
    return None if None in outcomes else False


_BUILTIN_KINDS = {"list": "list", "tuple": "tuple"}


def _is_of_one(interp: Interpreter, value: Value, kind: Value) -> bool | None:
    if isinstance(value, (Unknown, Bottom, Leaves)) or isinstance(kind, (Unknown, Alts)):
        return None
    name = kind.name if isinstance(kind, Ref) else ""
    match value:
        case Fact(array=array):
            if name in ("torch.Tensor", "numpy.ndarray"):
                return (name == "numpy.ndarray") == array
            # a subclass of Tensor may be meant
            return False if name.startswith(("builtins.", "typing.")) else None
        case Seq(kind=sort):
            if name in ("builtins.list", "builtins.tuple") and sort in ("list", "tuple"):
                return name == f"builtins.{sort}"
            return (
                False
                if name in ("torch.Tensor", "numpy.ndarray", "builtins.str", "builtins.int", "builtins.dict")
                else None
            )
        case Map():
            return name == "builtins.dict" or (None if not name.startswith(("builtins.", "torch.Tensor")) else False)
        case Const(value=constant):
            if name.startswith("builtins."):
                return type(constant).__name__ == name.rpartition(".")[2] or (
                    None if isinstance(constant, bool) else False
                )
            return False if name in ("torch.Tensor", "numpy.ndarray") else None
        case Inst(scope=scope, made=made):
            if isinstance(kind, Cls):
                if kind.scope in interp.classes(scope):
                    return True
                return False if made is not None or scope not in interp.classes(kind.scope) else None
            return False if name.startswith("builtins.") or name == "numpy.ndarray" else None
    return None

"""What library calls give: the rows of h2dlint.apis applied to abstract values.

A function ("torch.narrow") and a method ("torch.Tensor.narrow") share one row form; `Operands` hands out their
arguments by name. Copies (`to`, `cuda`, `cpu`, `copy_`, `pin_memory`) are the only calls whose effect is code.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from h2dlint import operators, shapes
from h2dlint.apis import Row
from h2dlint.flow import Assign
from h2dlint.model import DeviceKind, Fact, Memory, Need, Origin, OriginKind, Shape, Size, Span
from h2dlint.project import MENTIONED
from h2dlint.refine import DEVICE_NAMES
from h2dlint.shapes import PACKED, Pick
from h2dlint.values import (
    BOTTOM,
    Arg,
    Args,
    Bottom,
    Const,
    Dev,
    Flag,
    Leaves,
    LibObject,
    Map,
    Method,
    Num,
    OnGpu,
    Ref,
    Seq,
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

ELEMENT_BYTES = {
    "torch.float64": 8, "torch.double": 8, "torch.int64": 8, "torch.long": 8, "torch.complex64": 8,
    "torch.complex128": 16, "torch.float32": 4, "torch.float": 4, "torch.int32": 4, "torch.int": 4, "torch.float16":
    2, "torch.half": 2, "torch.bfloat16": 2, "torch.int16": 2, "torch.short": 2, "torch.int8": 1, "torch.uint8": 1,
    "torch.bool": 1,
}  # fmt: skip
DTYPE_ALIASES = {
    "torch.float": "torch.float32", "torch.double": "torch.float64", "torch.half": "torch.float16", "torch.long":
    "torch.int64", "torch.int": "torch.int32", "torch.short": "torch.int16", "numpy.int64": "torch.int64",
    "numpy.int32": "torch.int32", "numpy.float32": "torch.float32", "numpy.float64": "torch.float64", "numpy.bool_":
    "torch.bool", "builtins.int": "torch.int64", "builtins.float": "torch.float64", "builtins.bool": "torch.bool",
    "numpy.uint8": "torch.uint8", "numpy.int16": "torch.int16", "numpy.int8": "torch.int8", "numpy.float16":
    "torch.float16",
}  # fmt: skip
REST = symbol("any number of arguments")
SAME_FACT_ATTRIBUTES = frozenset(("data", "real", "imag"))
QUERY_ATTRIBUTES = frozenset(
    ("shape", "dtype", "ndim", "is_cuda", "is_cpu", "requires_grad", "names", "layout", "itemsize", "nbytes", "size",
    "is_leaf", "is_sparse", "grad_fn", "is_quantized", "is_meta", "is_nested", "element_size")
)  # fmt: skip

# Methods whose result says something even when nothing is known of the receiver.
TELLING_METHODS = frozenset(("to", "cuda", "cpu", "pin_memory", "copy_"))
# Views that no other kind of object has a method for.
TELLING_VIEWS = frozenset(
    ("t", "T", "mT", "transpose", "swapaxes", "permute", "narrow", "unbind", "expand", "broadcast_to")
)
TELLING_CALLS = TELLING_VIEWS | {"pin_memory"}


@dataclass(frozen=True, slots=True)
class Operands:
    """The arguments of a library call by the names in its row. `first` is the tensor worked on, if any."""

    interp: Interpreter
    row: Row
    args: Args
    receiver: Value | None

    def get(self, name: str) -> Value | None:
        """The argument of that name, None when it is not given."""
        for keyword, arg in self.args.keywords:
            if keyword == name:
                return self.interp.argument(arg)
        names = [one.rstrip("*") for one in self.names]
        if name not in names:
            return None
        index = names.index(name)
        given, exact = self.interp.expand(self.args)
        if index < len(given):
            return given[index]() if exact else Unknown("caller")
        return None

    def node(self, name: str) -> Arg | None:
        """The argument of that name as it is written; None when it is not given by itself."""
        for keyword, arg in self.args.keywords:
            if keyword == name:
                return arg
        names = [one.rstrip("*") for one in self.names]
        index = names.index(name) if name in names else len(self.args.positional)
        given = self.args.positional[: index + 1]
        return given[index] if index < len(given) and not any(arg.starred for arg in given) else None

    def device(self) -> Value | None:
        """The `device=` argument. Near by is enough unless it is some tensor's own device: see `near_device`."""
        return near_device(self.interp, lambda: self.get("device"))

    def pin_flag(self) -> Value | None:
        """The `pin_memory=` argument. A local name that says so, and holds more than this tool can tell, is a flag of
        availability."""
        from h2dlint.facts import says_pin

        value, arg = self.get("pin_memory"), self.node("pin_memory")
        if arg is None or not isinstance(arg.node, ast.Name) or arg.frame is None or not says_pin(arg.node.id):
            return value
        if value is None or not isinstance(arg.frame.scope.flow.uses.get(arg.node), Assign):
            return value
        return each(value, lambda one: replace(one, flaglike=True) if isinstance(one, Unknown) else one)

    @property
    def names(self) -> tuple[str, ...]:
        row = self.row
        return (row.first, *row.params) if row.first and self.receiver is None else row.params

    @property
    def first(self) -> Value:
        if self.receiver is not None:
            return self.receiver
        name = self.row.first or (self.row.params[0].rstrip("*") if self.row.params else "")
        return self.get(name) or self.get("tensors") or self.get("self") or Unknown("local")

    def rest(self, name: str) -> list[Value]:
        """What a "name*" parameter takes: the arguments left, or the elements of the only one."""
        names = [one.rstrip("*") for one in self.names]
        for keyword, arg in self.args.keywords:
            if keyword == name:
                return list(spread(self.interp.argument(arg)))
        given, exact = self.interp.expand(self.args)
        left = [one() for one in given[names.index(name) :]] if name in names else []
        if not exact:
            return [Unknown("caller", REST)]
        return list(spread(left[0])) if len(left) == 1 else left

    def all(self) -> list[Value]:
        given, _ = self.interp.expand(self.args)
        found = [one() for one in given]
        found += [
            self.interp.argument(arg) for name, arg in self.args.keywords if name not in ("out", "dtype", "device")
        ]
        return found if self.receiver is None else [self.receiver, *found]


def near_device(interp: Interpreter, ask: Callable[[], Value | None]) -> Value | None:
    """A device that code asks for. What is not known near by is asked for by convention as a GPU, wherever in the
    project it comes from; only the device of a tensor is followed to where that tensor was made."""
    was, interp.shallow = interp.shallow, True
    try:
        value = ask()
    finally:
        interp.shallow = was
    if (
        value is not None
        and not was
        and any(isinstance(one, Dev) and one.kind == "unknown" for one in alternatives(value))
    ):
        return ask()
    return value


def spread(value: Value) -> tuple[Value, ...]:
    """A tuple of sizes as its elements; one number stands for itself; an unknown container for one unknown."""
    if isinstance(value, Seq):
        return value.items if value.items is not None else (Unknown("local", REST),)
    return (value,)


# --- calls -----------------------------------------------------------------------------------------------------------


def call(interp: Interpreter, func: Ref | Method, args: Args, node: ast.expr, frame: Frame) -> Value:
    """What calling a library function, or a method of a library object, gives."""
    if isinstance(func, Method):
        return call_method(interp, func, args, node, frame)
    if func.name.startswith("builtins."):
        return operators.call_builtin(interp, func.name[9:], args, node, frame)
    special = operators.call_standard(interp, func.name, args, node, frame)
    if special is not None:
        return special
    row = interp.table.lookup(func.name)
    if row is None:
        return Unknown("runtime")
    return apply(interp, row, args, None, node, frame)


def call_method(interp: Interpreter, func: Method, args: Args, node: ast.expr, frame: Frame) -> Value:
    base, name = func.base, func.name
    match base:
        case Fact(array=array):
            row = interp.table.lookup(f"{'numpy.ndarray' if array else 'torch.Tensor'}.{name}")
            if row is None:
                return Unknown("runtime")
            return apply(interp, row, args, base, node, frame)
        case Leaves(fact=fact):
            row = interp.table.lookup(f"torch.Tensor.{name}")
            if row is None or name in ("items", "values", "keys", "get", "pop", "copy"):
                return operators.call_container(interp, base, name, args, node, frame)
            return apply(interp, row, args, fact, node, frame)
        case Unknown():
            return call_unknown(interp, base, name, args, node, frame)
        case LibObject(name=owner):
            row = interp.table.lookup(f"{owner}.{name}")
            return Unknown("runtime") if row is None else apply(interp, row, args, None, node, frame)
    return operators.call_container(interp, base, name, args, node, frame)


def is_tensor_name(attr: str) -> bool:
    """Attributes of a tensor that must not be looked up by name in the project."""
    return (
        attr in QUERY_ATTRIBUTES
        or attr in SAME_FACT_ATTRIBUTES
        or attr in ("T", "mT", "H", "mH", "device", "grad", "numpy")
    )


def unknown_attribute(value: Unknown, attr: str) -> Value:
    if attr == "device":
        return Dev("unknown")
    if attr == "is_cuda":
        return OnGpu()
    if attr in TELLING_VIEWS or attr in ("H", "mH"):
        return Fact(needs=value.needs)
    return Unknown(value.needs, symbol(value.symbol, attr) if value.symbol is not None else None)


def call_unknown(interp: Interpreter, base: Unknown, name: str, args: Args, node: ast.expr, frame: Frame) -> Value:
    """A method of a value of which nothing is known; the name tells only where no other kind of object has it."""
    row = interp.table.lookup(f"torch.Tensor.{name}")
    if row is not None and name in TELLING_METHODS:
        # packed is taken for granted as long as nothing made a view of it
        return apply(interp, row, args, Fact(needs=base.needs, shape=PACKED), node, frame)
    if row is not None and row.view in TELLING_VIEWS:
        viewed = Fact(needs=base.needs)
        return Seq(row.returns, None, viewed) if row.returns in ("tuple", "list") else viewed
    if row is not None and row.effect == "like" and name.startswith("new_"):
        return apply(interp, row, args, Fact(needs=base.needs), node, frame)
    same = symbol(base.symbol, name) if base.symbol is not None and not args.positional and not args.keywords else None
    return Unknown(base.needs, same, "pin" in name.split("_"))


def apply(interp: Interpreter, row: Row, args: Args, receiver: Value | None, node: ast.expr, frame: Frame) -> Value:
    """One row on one set of operands."""
    ops = Operands(interp, row, args, receiver)
    if row.out:
        out = ops.get("out")
        if out is not None and not (isinstance(out, Const) and out.value is None):
            return out
    match row.effect:
        case "new":
            return packaged(row, make_new(ops, node, frame), ops)
        case "like":
            return each_tensor(ops.first, lambda one: make_like(ops, one, node, frame), unknown=True)
        case "wrap":
            return make_wrap(ops, node, frame)
        case "join":
            return make_join(ops, node, frame)
        case "op":
            return packaged(row, make_op(ops, node, frame), ops)
        case "self":
            return ops.first if not row.view else each_tensor(ops.first, lambda one: view_of(ops, one, node, frame))
        case "view" | "maybe_view":
            return make_view(ops, node, frame)
        case "cast":
            return each_tensor(ops.first, lambda one: cast(ops, one, node, frame))
        case "move":
            return each_tensor(ops.first, lambda one: move(ops, one, node, frame), unknown=True)
        case "flag":
            return Flag()
        case "loader":
            return make_loader(ops, node, frame)
        case "load":
            return make_load(ops, node, frame)
        case "query":
            return query(ops, node, frame)
        case "host":
            return Seq("list", None, Unknown("runtime")) if row.returns == "list" else Unknown("runtime")
        case "event" | "stream" | "module":
            return LibObject(row.name)
        case "sync" | "order":
            return Const(None)
    if row.device == "gpu":
        return Fact("gpu", shape=None, steps=(interp.step(frame, node, f"made on the GPU by {row.name}()"),))
    if row.device == "cpu" and row.memory != "unknown":
        return fresh(ops, node, frame, "cpu", memory(row.memory), None, "other")
    return Unknown("runtime")


def memory(word: str) -> Memory:
    return "pinned" if word == "pinned" else "pageable" if word == "pageable" else "unknown"


def each_tensor(value: Value, change: Callable[[Fact], Value], unknown: bool = False) -> Value:
    """Apply to every tensor among the alternatives; anything else gives an unknown value."""

    def turn(one: Value) -> Value:
        if isinstance(one, Fact):
            return change(one)
        if isinstance(one, Leaves):
            return change(one.fact)
        if isinstance(one, Const) and one.value is None:
            return BOTTOM
        if unknown and isinstance(one, Unknown):
            return change(Fact(needs=one.needs))
        return Unknown(one.needs if isinstance(one, Unknown) else "local")

    return each(value, turn)


def packaged(row: Row, result: Value, ops: Operands) -> Value:
    """The result in the form that the row returns: a tensor, or several alike."""
    kind = row.returns
    if kind in ("list", "tuple"):
        return Seq(kind, None, result)
    if kind == "dict":
        return Map((), result)
    if kind.startswith("namedtuple:"):
        names = kind.partition(":")[2].split(",")
        return Seq("tuple", tuple(result for _ in names))
    if kind.startswith("dim:") and ops.get("dim") is not None:
        return Seq("tuple", tuple(result for _ in kind.split(",")))
    if kind.startswith("if:") and any(truth(ops.get(name)) for name in kind[3:].split(",")):
        return Seq("tuple", None, result)
    if kind in ("tensor", "array") or kind.startswith(("if:", "dim:")):
        return result
    return Unknown("runtime")


# --- facts of new memory ---------------------------------------------------------------------------------------------


def origin(ops: Operands, node: ast.expr, frame: Frame, kind: OriginKind) -> Origin:
    module = frame.scope.module
    span = Span(module.filename, node.lineno, node.col_offset, node.end_lineno or node.lineno, node.end_col_offset or 0)
    return Origin(kind, ops.row.name, span, frame.scope.qualname)


def short_name(name: str) -> str:
    return name.replace("torch.Tensor.", ".").replace("numpy.ndarray.", ".")


def fresh(
    ops: Operands, node: ast.expr, frame: Frame, device: DeviceKind, mem: Memory, shape: Shape | None, kind: OriginKind,
    *, dtype: str | None = None, max_bytes: int | None = None, assumed: bool = False, why: str = "",
) -> Fact:  # fmt: skip
    """A tensor in memory of its own, with the step that says so."""
    where = "on the GPU" if device == "gpu" else f"{mem} memory" if device == "cpu" and mem != "unknown" else "memory"
    name = short_name(ops.row.name)
    step = ops.interp.step(frame, node, why or f"{where} made here by {name}()")
    made = origin(ops, node, frame, kind)
    array = ops.row.returns == "array"
    return Fact(
        device, mem, shape, dtype, max_bytes, assumed=assumed, array=array, origin=made, steps=(step,), needs="local"
    )


def dtype_of(value: Value | None) -> str | None:
    if isinstance(value, Ref) and (value.name.startswith(("torch.", "numpy.")) or value.name in DTYPE_ALIASES):
        return DTYPE_ALIASES.get(value.name, value.name if value.name.startswith("torch.") else None)
    return None


def device_of(value: Value | None, default: Dev) -> Dev:
    """The device that a `device=` argument names. One that cannot be told is taken for a GPU, and marked so."""
    match value:
        case None | Const(value=None):
            return default
        case Const(value=str() as text):
            return Dev(DEVICE_NAMES.get(text.partition(":")[0], "other"))
        case Const(value=int()) | Num():
            return Dev("gpu")
        case Dev():
            return value
        case Fact(device=device, assumed=assumed):
            return Dev(device, assumed)
    return Dev("gpu", assumed=True)


def devices_of(value: Value | None, default: Dev) -> list[Dev]:
    if value is None:
        return [default]
    found = [device_of(one, default) for one in alternatives(value) if not isinstance(one, Bottom)]
    if len(found) > 1 and any(isinstance(one, Unknown) for one in alternatives(value)):
        # one caller's device is known, another's is not: a GPU if all that are known are, else nothing is sure
        found = [Dev("gpu", True) if all(one.kind == "gpu" for one in found) else Dev("unknown")]
    return list(dict.fromkeys(found))


def pinned_by(value: Value | None) -> Memory:
    """The memory that `pin_memory=value` gives. A flag of availability counts as pinned."""
    if value is None:
        return "pageable"
    found: set[Memory] = set()
    for one in alternatives(value):
        match one:
            case Flag() | OnGpu():
                found.add("pinned")
            case Const(value=constant):
                found.add("pinned" if constant else "pageable")
            case Unknown(flaglike=True):
                found.add("pinned")
            case _:
                found.add("unknown")
    if "pinned" in found and len(found) == 2:
        # with "pageable": both outcomes of one question about the platform. With "unknown": true wherever it is known
        return "pinned"
    return found.pop() if len(found) == 1 else "unknown"


def sizes_of(values: list[Value], ops: Operands) -> list[Size | None] | None:
    """Sizes as given; None when their number is not known."""
    sizes: list[Size | None] = []
    for one in values:
        if isinstance(one, Unknown) and one.symbol == REST:
            return None
        if isinstance(one, Unknown) and len(values) == 1:
            # one unknown value may be a number or a whole shape
            return None
        sizes.append(as_size(one, ""))
    return sizes


def bytes_of(shape: Shape | None, dtype: str | None) -> int | None:
    if shape is None or shape.tail:
        return None
    total = ELEMENT_BYTES.get(dtype or "", 8)
    for dim in shape.dims:
        number = None if dim.size is None else dim.size.number
        if number is None or number < 0:
            return None
        total *= number
    return total


def shape_by_row(ops: Operands, node: ast.expr) -> Shape | None:
    """The shape that the call's sizes or data give; sizes are looked for near by only."""
    interp, was = ops.interp, ops.interp.shallow
    interp.shallow = True
    try:
        return _shape_by_row(ops, node)
    finally:
        interp.shallow = was


def _shape_by_row(ops: Operands, node: ast.expr) -> Shape | None:
    row = ops.row
    star = next((name.rstrip("*") for name in row.params if name.endswith("*")), None)
    match row.shape:
        case "size":
            values = (
                ops.rest(star) if star else list(spread(ops.get("size") or ops.get("shape") or Unknown("local", REST)))
            )
            sizes = sizes_of(values, ops)
            if row.params[1:] and row.params[1] in ("stride", "physical_layout"):
                return strided_like(ops)
            if sizes is None:
                return PACKED
            return shapes.packed(sizes)
        case "scalar":
            return Shape((), tail=False)
        case "range":
            return shapes.packed([range_length(ops)])
        case "data" | "size_or_data":
            return shape_of_data(ops, star)
    if row.rank.isdigit():
        return shapes.packed([None] * int(row.rank))
    return PACKED


def strided_like(ops: Operands) -> Shape | None:
    """`empty_strided(x.size(), x.stride())` is laid out as x; other strides are not looked at."""
    size, stride = ops.node("size"), ops.node("stride")
    if size is None or stride is None or size.node is None or stride.node is None or size.frame is None:
        return None
    like, same = measured(size.node, ("size", "shape")), measured(stride.node, ("stride",))
    if like is None or same is None or ast.dump(like) != ast.dump(same):
        return None
    found = [
        shapes.same_layout(one.shape)
        for one in alternatives(ops.interp.expr(like, size.frame))
        if isinstance(one, Fact)
    ]
    return found[0] if found and all(one == found[0] for one in found) and found[0] is not None else PACKED


def measured(node: ast.expr, names: tuple[str, ...]) -> ast.expr | None:
    """The tensor whose size or strides an expression reads, through `tuple(...)`."""
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("tuple", "list")
        and node.args
    ):
        node = node.args[0]
    if isinstance(node, ast.Call) and not node.args:
        node = node.func
    return node.value if isinstance(node, ast.Attribute) and node.attr in names else None


def range_length(ops: Operands) -> Size | None:
    given, exact = ops.interp.expand(ops.args)
    if exact and len(given) == 1:
        return as_size(given[0](), "")
    return None


def shape_of_data(ops: Operands, star: str | None) -> Shape | None:
    if star:
        values = ops.rest(star)
        if all(isinstance(one, (Num, Const)) for one in values) and values:
            return shapes.packed([None])
        return PACKED
    data = ops.get(ops.row.params[0].rstrip("*")) if ops.row.params else None
    return PACKED if data is None else shape_of_literal(data)


def shape_of_literal(data: Value) -> Shape:
    sizes: list[Size | None] = []
    value: Value = data
    while isinstance(value, Seq):
        sizes.append(Size(None, len(value.items)) if value.items is not None else None)
        value = value.items[0] if value.items else value.rest
        if isinstance(value, Bottom):
            return PACKED if len(sizes) > 1 else shapes.packed(sizes)
    if (isinstance(value, Const) and isinstance(value.value, (int, float, bool, complex))) or isinstance(value, Num):
        return shapes.packed(sizes)
    if isinstance(value, Fact) and value.rank is not None:
        return shapes.packed([*sizes, *[None] * value.rank])
    return PACKED


def fresh_on(
    ops: Operands, node: ast.expr, frame: Frame, device: Dev, mem: Memory, shape: Shape | None, dtype: str | None
) -> Fact:
    """What a maker gives on one of the devices that it may be asked for."""
    size = bytes_of(shape, dtype)
    return fresh(ops, node, frame, device.kind, mem, shape, "new", dtype=dtype, max_bytes=size, assumed=device.assumed)


def make_new(ops: Operands, node: ast.expr, frame: Frame) -> Value:
    row = ops.row
    shape = shape_by_row(ops, node)
    dtype = dtype_of(ops.get("dtype")) or (row.dtype if row.dtype and row.dtype.startswith("torch.") else None)
    if dtype is None and row.shape == "size" and row.pin and row.name != "torch.full" and ops.get("dtype") is None:
        dtype = default_dtype(ops.interp)
    pin = pinned_by(ops.pin_flag()) if row.pin else memory(row.memory)
    default = context_device(ops, node, frame) if row.device == "arg" else Dev("gpu" if row.device == "gpu" else "cpu")
    found: list[Value] = []
    for device in devices_of(ops.device() if row.device == "arg" else None, default):
        mem: Memory = pin if device.kind != "gpu" else "unknown"
        if device.kind == "unknown":
            mem = pin
        found.append(fresh_on(ops, node, frame, device, mem, shape, dtype))
    return join(found)


def default_dtype(interp: Interpreter) -> str | None:
    """What a maker without dtype= gives (torch.get_default_dtype), where the project never sets another."""
    return "torch.float32" if interp.project.grep("set_default_dtype", MENTIONED) == [] else None


def context_device(ops: Operands, node: ast.expr, frame: Frame) -> Dev:
    """The default device: `with torch.device(...)` around the call, else the CPU where the module sets no other."""
    for context in reversed(frame.scope.flow.contexts.get(node, ())):
        value = ops.interp.expr(context, frame)
        if isinstance(value, Dev):
            return value
    text = frame.scope.module.text
    return Dev("unknown" if "set_default_device(" in text or "set_default_tensor_type(" in text else "cpu")


def make_like(ops: Operands, like: Fact, node: ast.expr, frame: Frame) -> Value:
    row = ops.row
    shape = shapes.same_layout(like.shape) if row.shape == "like" else shape_by_row(ops, node)
    dtype = dtype_of(ops.get("dtype")) or (like.dtype if ops.get("dtype") is None else None)
    pin = pinned_by(ops.pin_flag()) if row.pin else memory(row.memory)
    found: list[Value] = []
    for device in devices_of(ops.device(), Dev(like.device, like.assumed)):
        mem: Memory = pin if device.kind in ("cpu", "unknown") else "unknown"
        fact = fresh_on(ops, node, frame, device, mem, shape, dtype)
        found.append(replace(fact, needs=like.needs if device.kind == "unknown" else "local"))
    return join(found)


def make_wrap(ops: Operands, node: ast.expr, frame: Frame) -> Value:
    """`from_numpy`, `as_tensor`, `.numpy()`: the memory stays what it was; a list is copied into new memory."""
    row = ops.row
    array = row.returns == "array"
    dtype = dtype_of(ops.get("dtype"))
    device = ops.device() if row.device == "arg" else None

    def wrap(one: Value) -> Value:
        inner = one.fact if isinstance(one, Leaves) else one
        match inner:
            case Fact():
                shared = replace(inner, array=array, steps=inner.steps)
                if dtype is not None and inner.dtype is not None and dtype != inner.dtype and row.copies == "dtype":
                    return fresh(
                        ops, node, frame, inner.device, "pageable", shapes.same_layout(inner.shape), "op", dtype=dtype
                    )
                if row.copies == "always":
                    return fresh(
                        ops, node, frame, "cpu", "pageable", shapes.same_layout(inner.shape), "new", dtype=dtype
                    )
                if row.copies == "maybe" and (inner.layout != "contiguous" or row.name != "numpy.ascontiguousarray"):
                    packed = PACKED if row.name == "numpy.ascontiguousarray" else None
                    mem: Memory = (
                        "pageable"
                        if inner.memory == "pageable" or (inner.layout != "unknown" and packed)
                        else "unknown"
                    )
                    return fresh(ops, node, frame, "cpu", mem, packed, "op", dtype=dtype or inner.dtype)
                if dtype is not None:
                    shared = replace(shared, dtype=dtype)
                if inner.array and not array and inner.origin is not None and inner.memory == "pageable":
                    # for the reader, the tensor starts here; the array behind it is the first step
                    step = ops.interp.step(frame, node, f"{short_name(row.name)}() shares that memory: pageable")
                    return replace(shared, origin=origin(ops, node, frame, "new"), steps=(*inner.steps, step))
                return shared
            case Seq() | Map() | Const() | Num():
                if isinstance(inner, Const) and inner.value is None:
                    return BOTTOM
                shape = shape_of_literal(inner)
                return fresh(
                    ops, node, frame, "cpu", "pageable", shape, "new", dtype=dtype, max_bytes=bytes_of(shape, dtype)
                )
        if row.name == "torch.frombuffer":
            return Fact("cpu", "unknown", PACKED, dtype, needs="runtime")
        needs = inner.needs if isinstance(inner, Unknown) else "local"
        return Fact("cpu", "unknown", PACKED, dtype, array=array, needs=needs)

    wrapped = each(ops.first, wrap)
    if row.name in ("torch.nn.Parameter", "torch.nn.Buffer") and frame.scope.owner is not None:
        # an attribute of a module, which goes where the module is moved
        return each_tensor(wrapped, lambda one: replace(one, device="unknown", memory="unknown"))
    if device is None:
        return wrapped
    found: list[Value] = []
    for dev in devices_of(device, Dev("cpu")):
        if dev.kind == "cpu":
            found.append(wrapped)
        else:
            found.append(
                Fact(
                    dev.kind,
                    shape=PACKED,
                    dtype=dtype,
                    assumed=dev.assumed,
                    steps=(ops.interp.step(frame, node, "made on the device here"),),
                )
            )
    return join(found)


def tensor_device(values: list[Value]) -> tuple[DeviceKind, bool, list[Fact]]:
    """The device of a result: a GPU operand takes it there; operands on the CPU keep it (mixing them would raise)."""
    facts: list[Fact] = []
    for value in values:
        for one in alternatives(value):
            inner = one.fact if isinstance(one, Leaves) else one
            if isinstance(inner, Fact):
                facts.append(inner)
            elif isinstance(inner, Seq):
                facts += [each_one for each_one in alternatives(inner.element()) if isinstance(each_one, Fact)]
    if not facts:
        return "unknown", False, facts
    kinds = {fact.device for fact in facts}
    if "gpu" in kinds:
        on_gpu = [fact for fact in facts if fact.device == "gpu"]
        long = [fact for fact in facts if fact.device == "cpu" and fact.rank != 0]
        if long and all(fact.assumed for fact in on_gpu) and any(fact.rank is None or fact.rank > 0 for fact in long):
            return "unknown", False, facts
        return "gpu", all(fact.assumed for fact in on_gpu), facts
    if "other" in kinds:
        return "other", False, facts
    if "cpu" in kinds:
        certain = any(fact.device == "cpu" and fact.rank != 0 for fact in facts)
        if certain or kinds == {"cpu"}:
            return "cpu", False, facts
    return "unknown", False, facts


def settled(value: Value) -> bool:
    """Whether the device of an operation's result follows from this operand alone: the others must be beside it."""
    ones = alternatives(value)
    return bool(ones) and all(
        isinstance(one, Fact) and (one.device == "gpu" or (one.device == "cpu" and one.rank != 0)) for one in ones
    )


def make_join(ops: Operands, node: ast.expr, frame: Frame) -> Value:
    pieces = ops.first
    values: list[Value] = []
    for one in alternatives(pieces):
        if isinstance(one, (Seq, Map)):
            values.append(one.element())
        elif isinstance(one, (Fact, Leaves)):
            values.append(one)
        else:
            values.append(Unknown("local"))
    if ops.names and ops.names[0].endswith("*"):
        values = ops.rest(ops.names[0].rstrip("*"))
        values = [one.element() if isinstance(one, Seq) else one for one in values]
    unsure = any(isinstance(one, (Unknown, Bottom)) for value in values for one in (alternatives(value) or (BOTTOM,)))
    device, assumed, facts = tensor_device(values)
    if device == "cpu" and unsure and len({fact.device for fact in facts}) == 1 and not facts:
        device = "unknown"
    shape = join_shape(ops, facts)
    dtypes = {fact.dtype for fact in facts}
    dtype = dtypes.pop() if len(dtypes) == 1 and not unsure else None
    fact = fresh(
        ops,
        node,
        frame,
        device,
        "pageable" if device != "gpu" else "unknown",
        shape,
        "join",
        dtype=dtype,
        assumed=assumed,
    )
    if device == "unknown":
        needs: Need = next(
            (one.needs for value in values for one in alternatives(value) if isinstance(one, (Unknown, Fact))), "local"
        )
        fact = replace(fact, needs=needs)
    return fact


def join_shape(ops: Operands, facts: list[Fact]) -> Shape:
    ranks = {fact.rank for fact in facts}
    rank = ranks.pop() if len(ranks) == 1 else None
    if rank is None:
        return PACKED
    if ops.row.rank == "plus1":
        rank += 1
    elif ops.row.rank != "same":
        return shapes.packed([None] * int(ops.row.rank)) if ops.row.rank.isdigit() else PACKED
    return shapes.packed([None] * rank)


def make_op(ops: Operands, node: ast.expr, frame: Frame) -> Value:
    first = ops.first
    values = [first] if settled(first) or ops.row.returns == "array" else ops.all()
    if ops.row.returns == "array":
        return fresh(
            ops,
            node,
            frame,
            "cpu",
            "pageable",
            op_shape(ops, [one for one in alternatives(first) if isinstance(one, Fact)]),
            "op",
            dtype=op_dtype(ops, first),
        )
    found: list[Value] = []
    for one in alternatives(first) or (Unknown("local"),):
        if isinstance(one, Const) and one.value is None:
            continue
        others = [value for value in values if value is not first]
        device, assumed, facts = tensor_device([one, *others])
        own = [one.fact if isinstance(one, Leaves) else one] if isinstance(one, (Fact, Leaves)) else []
        facts_first = [fact for fact in own if isinstance(fact, Fact)] or facts[:1]
        if not facts and isinstance(one, Unknown):
            found.append(Unknown(one.needs))
            continue
        fact = fresh(
            ops, node, frame, device, "pageable" if device != "gpu" else "unknown", op_shape(ops, facts_first), "op",
            dtype=op_dtype(ops, one), assumed=assumed,
        )  # fmt: skip
        if device == "unknown":
            needs: Need = next((fact_.needs for fact_ in facts if fact_.device == "unknown"), "local")
            fact = replace(fact, needs=needs)
        found.append(replace(fact, array=bool(facts_first and facts_first[0].array and all(f.array for f in facts))))
    return join(found)


def op_shape(ops: Operands, firsts: list[Fact]) -> Shape | None:
    """Results of operations are new memory; their rank where the row tells it, never a gap."""
    first = firsts[0] if firsts else None
    rank = None if first is None else first.rank
    if ops.row.layout == "unknown" or (first is not None and first.layout == "broadcast" and ops.row.layout == "keeps"):
        return None
    if first is not None and first.layout == "permuted" and ops.row.layout == "keeps":
        # TensorIterator gives the result the order of its first operand (TensorIterator.cpp)
        return first.shape if ops.row.rank in ("same", "broadcast") else None
    match ops.row.rank:
        case "same" if rank is not None and first is not None and first.shape is not None:
            sizes = [dim.size for dim in first.shape.dims] if ops.row.shape == "same" else [None] * rank
            return shapes.packed(sizes)
        case "broadcast" if rank is not None:
            return PACKED if rank == 0 else shapes.packed([None] * rank)
        case "plus1" if rank is not None:
            return shapes.packed([None] * (rank + 1))
        case "reduce" if ops.get("dim") is None and ops.get("axis") is None:
            return Shape((), tail=False)
        case digit if digit.isdigit():
            return shapes.packed([None] * int(digit))
    return PACKED


def op_dtype(ops: Operands, first: Value) -> str | None:
    given = ops.get("dtype")
    if given is not None:
        return dtype_of(given)
    known = first.dtype if isinstance(first, Fact) else None
    match ops.row.dtype:
        case "same":
            return known
        case str() as name if name.startswith("torch."):
            return name
    return None


# --- views -----------------------------------------------------------------------------------------------------------


def make_view(ops: Operands, node: ast.expr, frame: Frame) -> Value:
    row = ops.row
    if row.view in ("broadcast_tensors", "meshgrid", "atleast"):
        values = ops.rest(row.params[0].rstrip("*"))
        if row.view == "meshgrid":
            values = [one.element() if isinstance(one, Seq) else one for one in values]
        made = [each_tensor(value, lambda one: replace(one, shape=repeated(one, row.view))) for value in values]
        if row.view == "atleast" and len(made) == 1:
            return made[0]
        return Seq("tuple", tuple(made)) if len(made) > 1 else Seq("tuple", None, join(made))
    result = each_tensor(ops.first, lambda one: view_of(ops, one, node, frame))
    if row.returns in ("tuple", "list"):
        return Seq(row.returns, None, result)
    return result


def repeated(fact: Fact, view: str) -> Shape | None:
    """meshgrid and broadcast_tensors expand their inputs with stride 0."""
    if view == "atleast":
        return PACKED if fact.layout == "contiguous" else None
    return None


def number(value: Value | None) -> int | None:
    return (
        value.value
        if isinstance(value, Const) and isinstance(value.value, int) and not isinstance(value.value, bool)
        else None
    )


def view_of(ops: Operands, fact: Fact, node: ast.expr, frame: Frame) -> Value:
    """The same memory seen otherwise; where a `maybe_view` must copy, new pageable memory."""
    row = ops.row
    if fact.shape is None:
        changed = None
        if row.view in ("same", "shared"):
            return fact
        if row.view == "contiguous":
            return (
                replace(fact, shape=PACKED)
                if fact.memory == "pageable" or fact.device == "gpu"
                else replace(fact, shape=PACKED, memory="unknown" if fact.memory != "pinned" else "pinned")
            )
    else:
        changed = reshape_by(ops, fact.shape)
    if (
        row.effect == "maybe_view"
        and fact.shape is not None
        and fact.layout not in ("contiguous", "unknown")
        and row.view != "same"
    ):
        if fact.device == "gpu":
            return replace(fact, shape=PACKED)
        why = f"{short_name(row.name)}() of a view that is not contiguous copies it into new pageable memory"
        shape = copied_shape(fact.shape, row.view)
        return fresh(ops, node, frame, fact.device, "pageable", shape, "copy", dtype=fact.dtype, why=why)
    result = replace(fact, shape=changed)
    before, after = fact.layout, result.layout
    if after != before and after in ("gapped", "permuted", "broadcast") and fact.device != "gpu":
        result = result.then(ops.interp.step(frame, node, layout_note(after, ast.unparse(node))))
    return result


def layout_note(layout: str, text: str) -> str:
    text = text if len(text) <= 80 else text[:77] + "..."
    match layout:
        case "gapped":
            return f"this view leaves gaps between its rows: {text}"
        case "permuted":
            return f"this view has its dimensions in another order than memory: {text}"
    return f"this view repeats memory with stride 0: {text}"


def copied_shape(shape: Shape, view: str) -> Shape:
    if view == "contiguous" and not shape.tail:
        return shapes.packed([dim.size for dim in shape.dims])
    return PACKED


def reshape_by(ops: Operands, shape: Shape) -> Shape | None:
    """The shape after the view that the row names; None when it cannot be told."""
    interp, was = ops.interp, ops.interp.shallow
    interp.shallow = True
    try:
        return _reshape_by(ops, shape)
    finally:
        interp.shallow = was


def _reshape_by(ops: Operands, shape: Shape) -> Shape | None:
    match ops.row.view:
        case "same" | "shared":
            return shape
        case "contiguous":
            return shape if shape.layout == "contiguous" else copied_shape(shape, "contiguous")
        case "t" | "T":
            if shape.rank is not None and shape.rank < 2:
                return shape
            return shapes.reverse(shape)
        case "mT":
            return shapes.transpose(shape, -2, -1)
        case "transpose" | "swapaxes":
            first, second = number(ops.get("dim0")), number(ops.get("dim1"))
            return None if first is None or second is None else shapes.transpose(shape, first, second)
        case "permute":
            numbers = [
                number(one)
                for one in (
                    ops.rest("dims") if "dims*" in ops.row.params else spread(ops.get("dims") or Unknown("local"))
                )
            ]
            known = [one for one in numbers if one is not None]
            return shapes.permute(shape, known) if known and len(known) == len(numbers) else None
        case "narrow":
            dim = number(ops.get("dim"))
            return (
                None
                if dim is None
                else shapes.narrow(shape, dim, maybe_size(ops.get("start")), maybe_size(ops.get("length")))
            )
        case "select":
            dim = number(ops.get("dim"))
            return None if dim is None else shapes.select(shape, dim)
        case "unbind":
            dim = 0 if ops.get("dim") is None else number(ops.get("dim"))
            return None if dim is None else shapes.select(shape, dim)
        case "chunk" | "split" | "tensor_split":
            dim = 0 if ops.get("dim") is None else number(ops.get("dim"))
            return None if dim is None else shapes.narrow(shape, dim, None, None)
        case "unsqueeze":
            dim = number(ops.get("dim"))
            return None if dim is None else shapes.unsqueeze(shape, dim)
        case "squeeze":
            return shapes.squeeze(shape, number(ops.get("dim")))
        case "expand" | "broadcast_to":
            values = (
                ops.rest("size")
                if "size*" in ops.row.params
                else list(spread(ops.get("size") or Unknown("local", REST)))
            )
            sizes = sizes_of(values, ops)
            if sizes is None and len(values) == 1 and not (isinstance(values[0], Unknown) and values[0].symbol == REST):
                sizes = [None]
            return shapes.expand(shape, sizes)
        case "view" | "reshape":
            if shape.layout != "contiguous":
                return None
            star = next((one.rstrip("*") for one in ops.row.params if one.endswith("*")), None)
            values = ops.rest(star) if star else list(spread(ops.get("shape") or Unknown("local", REST)))
            if values and dtype_of(values[0]):
                return PACKED
            return shapes.reshaped(shape, sizes_of(values, ops))
        case "flatten" | "ravel":
            if shape.layout != "contiguous":
                return None
            return shapes.packed([None]) if ops.get("start_dim") is None and ops.get("end_dim") is None else PACKED
        case "unflatten" | "view_as" | "reshape_as":
            return PACKED if shape.layout == "contiguous" else None
    return None


def maybe_size(value: Value | None) -> Size | None:
    return None if value is None else as_size(value, "")


def select_first(fact: Fact) -> Value:
    """What iterating over a tensor gives: its rows."""
    return replace(fact, shape=None if fact.shape is None else shapes.select(fact.shape, 0), max_bytes=fact.max_bytes)


def reshaped(interp: Interpreter, value: Value, call_node: ast.Call, frame: Frame) -> Value:
    """A tensor after an in-place method that changes its own layout or memory."""
    name = call_node.func.attr if isinstance(call_node.func, ast.Attribute) else ""
    if name == "cudaHostRegister":
        step = interp.step(frame, call_node, "cudaHostRegister() page-locks it here")
        return each(
            value,
            lambda one: (
                replace(one.then(step), memory="pinned") if isinstance(one, Fact) and one.device != "gpu" else one
            ),
        )
    if name == "share_memory_":
        step = interp.step(frame, call_node, "share_memory_() moves it into shared memory, which is pageable")
        return each(
            value,
            lambda one: (
                replace(one.then(step), memory="pageable") if isinstance(one, Fact) and one.device != "gpu" else one
            ),
        )
    row = interp.table.lookup(f"torch.Tensor.{name.rstrip('_')}")
    if row is None or not row.view:
        return each(value, lambda one: replace(one, memory="unknown", shape=None) if isinstance(one, Fact) else one)
    from h2dlint.facts import make_args

    return each_tensor(value, lambda one: apply(interp, row, make_args(call_node, frame), one, call_node, frame))


# --- indexing --------------------------------------------------------------------------------------------------------


def index(interp: Interpreter, fact: Fact, node: ast.Subscript, frame: Frame) -> Value:
    """`x[...]`: a view by numbers, slices, None and an ellipsis; new pageable memory by tensors, lists and masks."""
    items = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
    picks: list[Pick] = []
    for item in items:
        pick = pick_of(interp, item, frame)
        if pick is None:
            return gathered(interp, fact, node, frame)
        picks.append(pick)
    shape = None if fact.shape is None else shapes.index(fact.shape, picks)
    result = replace(fact, shape=shape)
    if shape is not None and fact.max_bytes is None:
        result = replace(result, max_bytes=bytes_of(shape, fact.dtype))
    after = result.layout
    if after in ("gapped", "broadcast") and after != fact.layout and fact.device != "gpu":
        result = result.then(interp.step(frame, node, slice_note(shape, node)))
    return result


def slice_note(shape: Shape | None, node: ast.Subscript) -> str:
    return layout_note("gapped", ast.unparse(node)).replace("this view", "this slice")


def pick_of(interp: Interpreter, item: ast.expr, frame: Frame) -> Pick | None:
    """One item of a subscript; None when it gathers (a tensor, a list, a mask). An unknown name counts as a number."""
    if isinstance(item, ast.Slice):
        if item.lower is None and item.upper is None and item.step is None:
            return shapes.WHOLE
        start = None if item.lower is None else as_size(interp.near(item.lower, frame), "")
        stop = None if item.upper is None else as_size(interp.near(item.upper, frame), ast.unparse(item.upper))
        if item.lower is not None and start is None:
            return Pick("slice", Size(symbol("?", item, frame)), stop, step=steps(item))
        if item.upper is None:
            return Pick(
                "slice",
                start,
                None,
                step=steps(item),
                whole=start is not None and start.number == 0 and not steps(item),
            )
        return Pick(
            "slice", start, stop if stop is not None else Size(symbol("?", item.upper, frame)), step=steps(item)
        )
    if isinstance(item, ast.Constant):
        if item.value is None:
            return Pick("new")
        if item.value is Ellipsis:
            return Pick("ellipsis")
        return None if isinstance(item.value, bool) else Pick("int")
    if isinstance(item, (ast.List, ast.ListComp)):
        return None
    value = interp.expr(item, frame)
    kinds: list[Pick | None] = []
    for one in alternatives(value):
        match one:
            case Fact():
                kinds.append(Pick("int") if one.rank == 0 and not one.array and one.dtype != "torch.bool" else None)
            case Seq(kind="slice"):
                kinds.append(Pick("slice", Size(symbol("?", item, frame)), Size(symbol("?", item, frame, 1))))
            case Seq():
                kinds.append(None)
            case Const(value=None):
                kinds.append(Pick("new"))
            case _:
                kinds.append(Pick("int"))
    if not kinds:
        return Pick("int")
    return None if None in kinds else kinds[0]


def steps(item: ast.Slice) -> bool:
    return item.step is not None and not (isinstance(item.step, ast.Constant) and item.step.value in (1, None))


def gathered(interp: Interpreter, fact: Fact, node: ast.Subscript, frame: Frame) -> Value:
    """Indexing by a tensor, list or mask copies. A 0-dim tensor would be a view, but then pick_of knows it."""
    if fact.device == "gpu":
        return replace(fact, shape=PACKED, max_bytes=None)
    module = frame.scope.module
    span = Span(module.filename, node.lineno, node.col_offset, node.end_lineno or node.lineno, node.end_col_offset or 0)
    text = ast.unparse(node)
    step = interp.step(
        frame, node, f"indexing with a tensor, list or mask copies into new pageable memory: {text[:80]}"
    )
    made = Origin("index", "torch.Tensor.__getitem__", span, frame.scope.qualname)
    return Fact(
        fact.device,
        "pageable",
        PACKED,
        fact.dtype,
        array=fact.array,
        origin=made,
        steps=(step,),
        needs=fact.needs,
        assumed=fact.assumed,
    )


# --- casts and moves -------------------------------------------------------------------------------------------------


def cast(ops: Operands, fact: Fact, node: ast.expr, frame: Frame) -> Value:
    """`.float()`, `.type(dtype)`: the tensor itself where the dtype is right already, else new memory."""
    dtype = ops.row.dtype
    if dtype in ("arg", "other", None):
        dtype = dtype_of(ops.get("dtype"))
    return cast_to(ops, fact, dtype, node, frame)


def cast_to(ops: Operands, fact: Fact, dtype: str | None, node: ast.expr, frame: Frame) -> Value:
    dtype = DTYPE_ALIASES.get(dtype or "", dtype)
    if fact.device == "gpu":
        return replace(fact, dtype=dtype)
    if dtype is not None and fact.dtype == dtype:
        return fact
    if (dtype is not None and fact.dtype is not None) or fact.memory == "pageable":
        shape, why = shapes.same_layout(fact.shape), f"a cast makes new pageable memory: {short_name(ops.row.name)}()"
        return fresh(ops, node, frame, fact.device, "pageable", shape, "op", dtype=dtype, assumed=fact.assumed, why=why)
    # the same tensor if the dtype is right already, else a copy
    return replace(fact, memory="unknown", dtype=dtype, shape=shapes.same_layout(fact.shape))


def move(ops: Operands, fact: Fact, node: ast.expr, frame: Frame) -> Value:
    match ops.row.move:
        case "copy_":
            return ops.first if not isinstance(ops.first, Unknown) else fact
        case "pin_memory":
            return pin(ops, fact, node, frame)
        case "cuda" | "xpu" | "mtia":
            return Fact(
                "gpu",
                shape=shapes.same_layout(fact.shape),
                dtype=fact.dtype,
                steps=(ops.interp.step(frame, node, f"moved to the GPU by .{ops.row.move}()"),),
            )
        case "cpu":
            return to_cpu(ops, fact, node, frame, False)
        case "to":
            return move_to(ops, fact, node, frame)
    return Unknown("runtime")


def pin(ops: Operands, fact: Fact, node: ast.expr, frame: Frame) -> Value:
    step = ops.interp.step(frame, node, "pinned memory made here by .pin_memory()")
    if fact.device == "cpu" and fact.memory == "pinned":
        return fact
    return replace(
        fact,
        device="cpu",
        memory="pinned",
        assumed=False,
        named=False,
        origin=origin(ops, node, frame, "copy"),
        steps=(*fact.steps[-2:], step),
    )


def to_cpu(ops: Operands, fact: Fact, node: ast.expr, frame: Frame, non_blocking: bool | None) -> Value:
    """`.cpu()`, `.to("cpu")`: a tensor already there is returned as it is; from a GPU it is pageable, or pinned."""
    if fact.device == "cpu" and not fact.assumed:
        return fact
    mem: Memory = "pinned" if non_blocking else "pageable"
    shape = shapes.same_layout(fact.shape)
    how = (
        "non_blocking copy to the CPU, which PyTorch pins" if non_blocking else "copied to the CPU into pageable memory"
    )
    return fresh(ops, node, frame, "cpu", mem, shape, "copy", dtype=fact.dtype, why=how)


@dataclass(frozen=True, slots=True)
class Target:
    """What a `.to(...)` asks for. `devices` is None for a change of dtype alone, empty where no value gets there."""

    devices: tuple[Dev, ...] | None
    dtype: str | None
    non_blocking: Value | None
    changes_dtype: bool
    text: str = ""


def target_of(interp: Interpreter, args: Args) -> Target:
    """The arguments of `.to`: device, dtype, another tensor, in any of its three forms."""
    given, _ = interp.expand(args)
    values = [near_device(interp, one) or BOTTOM for one in given]
    keywords = {name: near_device(interp, partial(interp.argument, arg)) or BOTTOM for name, arg in args.keywords}
    devices: list[Dev] | None = None
    dtype: str | None = None
    changes = "dtype" in keywords and not is_none(keywords["dtype"])
    non_blocking = keywords.get("non_blocking")
    rest = values
    if values:
        first = values[0]
        node = args.positional[0].node
        if is_dtype(first, node):
            dtype, changes, rest = dtype_of(first), True, values[1:]
            if rest:
                non_blocking = rest[0]
        else:
            if isinstance(first, Fact):
                changes = True
            devices = devices_of(first, Dev("unknown"))
            rest = values[1:]
            if rest and is_dtype(rest[0], args.positional[1].node if len(args.positional) > 1 else None):
                dtype, changes, rest = dtype_of(rest[0]), True, rest[1:]
            elif rest and isinstance(rest[0], Const) and rest[0].value is None and len(rest) > 1:
                rest = rest[1:]
            elif rest and not isinstance(first, Fact) and not isinstance(rest[0], Const):
                changes, rest = True, rest[1:]
            if rest:
                non_blocking = rest[0]
    if "device" in keywords:
        devices = devices_of(keywords["device"], Dev("unknown")) if not is_none(keywords["device"]) else devices
    if "other" in keywords:
        devices, changes = devices_of(keywords["other"], Dev("unknown")), True
    if "dtype" in keywords:
        dtype = dtype_of(keywords["dtype"])
    return Target(None if devices is None else tuple(devices), dtype, non_blocking, changes)


def is_none(value: Value) -> bool:
    return isinstance(value, Const) and value.value is None


def is_dtype(value: Value, node: ast.expr | None) -> bool:
    """Whether an argument of `.to` is a dtype: by value, else by its plain name."""
    if isinstance(value, Ref):
        return True
    if isinstance(value, Unknown) and node is not None:
        text = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
        return "dtype" in text
    return False


def move_to(ops: Operands, fact: Fact, node: ast.expr, frame: Frame) -> Value:
    target = target_of(ops.interp, ops.args)
    if target.devices is None:
        return cast_to(ops, fact, target.dtype, node, frame)
    non_blocking = truth(target.non_blocking)
    found: list[Value] = []
    for device in target.devices:
        match device.kind:
            case "cpu":
                moved = to_cpu(ops, fact, node, frame, non_blocking)
                if target.changes_dtype and isinstance(moved, Fact) and moved is fact:
                    moved = cast_to(ops, fact, target.dtype, node, frame)
                found.append(moved)
            case "unknown" if non_blocking and fact.device == "cpu" and not fact.assumed:
                # by convention, what is sent off without a wait leaves the host
                step = ops.interp.step(frame, node, "sent to the device here")
                shape = shapes.same_layout(fact.shape)
                found.append(Fact("gpu", shape=shape, dtype=target.dtype or fact.dtype, assumed=True, steps=(step,)))
            case "unknown":
                # the device of a tensor of which nothing is known
                found.append(
                    replace(
                        fact, device="unknown", memory="unknown", assumed=False, shape=shapes.same_layout(fact.shape)
                    )
                )
            case kind:
                step = ops.interp.step(frame, node, "moved to the device here")
                found.append(
                    Fact(
                        kind,
                        shape=shapes.same_layout(fact.shape),
                        dtype=target.dtype or fact.dtype,
                        assumed=device.assumed,
                        steps=(step,),
                    )
                )
    return join(found)


def truth(value: Value | None) -> bool | None:
    from h2dlint.facts import truth_of

    return False if value is None else truth_of(value)


# --- files, loaders, questions ---------------------------------------------------------------------------------------


def make_loader(ops: Operands, node: ast.expr, frame: Frame) -> Value:
    """A DataLoader: its batches are pinned by its own thread when `pin_memory` is true."""
    mem = pinned_by(ops.pin_flag())
    leaf = fresh(ops, node, frame, "cpu", mem, PACKED, "other", why=f"batches of this loader are {mem} memory")
    return LibObject(ops.row.name, Leaves(leaf))


def saved_from(interp: Interpreter, frame: Frame) -> Dev:
    """The device that a file comes back to: the host where all that this module saves is there, else not known."""
    saved: list[Value] = []
    for scope, call in frame.scope.module.calls("save"):
        inner = interp.open_frame(scope)
        if call.args and interp.near(call.func, inner) == Ref("torch.save"):
            saved += alternatives(interp.near(call.args[0], inner))
    on_host = bool(saved) and all(isinstance(one, Fact) and one.device == "cpu" and not one.assumed for one in saved)
    return Dev("cpu" if on_host else "unknown")


def make_load(ops: Operands, node: ast.expr, frame: Frame) -> Value:
    """A file read into tensors: pageable host memory, or the device that they are mapped to or were saved from."""
    where = ops.get("map_location") or ops.get("device")
    found: list[Value] = []
    for device in devices_of(where, saved_from(ops.interp, frame) if ops.row.device == "unknown" else Dev("cpu")):
        mem: Memory = memory(ops.row.memory) if device.kind in ("cpu", "unknown") else "unknown"
        fact = fresh(
            ops,
            node,
            frame,
            device.kind,
            mem,
            PACKED,
            "other",
            assumed=device.assumed,
            why=f"read by {ops.row.name}() into {mem} memory",
        )
        found.append(
            Map((), fact)
            if ops.row.returns == "dict"
            else fact
            if ops.row.returns in ("tensor", "array")
            else Leaves(fact)
        )
    return join(found)


def query(ops: Operands, node: ast.expr, frame: Frame) -> Value:
    """Questions about a tensor that need no wait: sizes, dtype, pinned or not."""
    name = ops.row.name.rpartition(".")[2]
    fact = ops.first
    if isinstance(fact, Fact):
        match name:
            case "size":
                shape = shape_value(fact)
                dim = ops.get("dim")
                return shape if dim is None else ops.interp.subscript_value(shape, dim)
            case "dim" | "ndimension" if fact.rank is not None:
                return Const(fact.rank)
            case "is_pinned" if fact.memory != "unknown" and fact.device == "cpu":
                return Const(fact.memory == "pinned")
            case "is_contiguous" if fact.layout != "unknown" and fact.device == "cpu":
                return Const(fact.layout == "contiguous")
    if name == "device" or ops.row.name == "torch.device":
        return make_device(ops)
    if ops.row.returns == "device":
        return make_device(ops)
    return Unknown("runtime")


def make_device(ops: Operands) -> Value:
    given, _ = ops.interp.expand(ops.args)
    values = [one() for one in given] or [ops.interp.argument(arg) for _, arg in ops.args.keywords]
    if not values:
        return Dev("unknown")
    return join(
        [
            device_of(one, Dev("unknown")) if not isinstance(one, Unknown) else Unknown(one.needs, one.symbol)
            for one in alternatives(values[0])
        ]
    )


def shape_value(fact: Fact) -> Value:
    if fact.shape is None or fact.shape.tail:
        return (
            Unknown("runtime", symbol("shape", fact.origin.span, fact.shape))
            if fact.origin is not None
            else Unknown("runtime")
        )
    items: list[Value] = []
    for position, dim in enumerate(fact.shape.dims):
        if dim.size is None:
            items.append(
                Unknown("runtime", symbol("shape", fact.origin.span if fact.origin else None, fact.shape, position))
            )
        elif dim.size.number is not None:
            items.append(Const(dim.size.number))
        else:
            items.append(Num(dim.size))
    return Seq("tuple", tuple(items))


def tensor_attribute(interp: Interpreter, fact: Fact, attr: str, node: ast.expr, frame: Frame) -> Value | None:
    """An attribute of a tensor or array; None for one that PyTorch does not define."""
    match attr:
        case "data" | "detach_":
            return Method(fact, attr) if attr == "detach_" else fact
        case "device":
            return Dev(fact.device, fact.assumed) if fact.device != "unknown" else Dev("unknown")
        case "shape":
            return shape_value(fact)
        case "dtype":
            return Unknown("runtime") if fact.dtype is None else Ref(fact.dtype)
        case "is_cuda" | "is_cpu":
            if fact.device == "unknown" or fact.assumed:
                return OnGpu() if attr == "is_cuda" else Unknown("runtime")
            return Const((fact.device == "gpu") == (attr == "is_cuda"))
        case "grad":
            if fact.device == "gpu":
                return Fact("gpu", assumed=fact.assumed, shape=PACKED)
            return Fact(fact.device, "unknown", None, needs="runtime", assumed=fact.assumed)
        case "ndim":
            return Unknown("runtime") if fact.rank is None else Const(fact.rank)
    if attr in QUERY_ATTRIBUTES and not (attr in ("size", "element_size") and not fact.array):
        return Unknown("runtime")
    owner = "numpy.ndarray" if fact.array else "torch.Tensor"
    row = interp.table.lookup(f"{owner}.{attr}")
    if row is None:
        return None if not attr.startswith("__") else Unknown("runtime")
    if row.effect in ("view", "maybe_view") and attr in ("T", "mT", "H", "mH", "real", "imag", "flat"):
        return apply(interp, row, Args(), fact, node, frame)
    return Method(fact, attr)

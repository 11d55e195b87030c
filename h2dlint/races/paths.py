"""Which names mean the same host memory: views, numpy arrays of it, and attributes that keep either."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from h2dlint.facts import Interpreter
from h2dlint.flow import dotted
from h2dlint.model import Fact
from h2dlint.races.state import Kind
from h2dlint.values import Inst, Ref, alternatives

if TYPE_CHECKING:
    from h2dlint.facts import Frame
    from h2dlint.project import Scope

VIEWS = ("view", "maybe_view")
SAME = frozenset(("T", "mT", "H", "mH", "data", "real"))
WRAPS = frozenset(("torch.from_numpy", "torch.as_tensor", "torch.asarray", "numpy.asarray", "numpy.frombuffer"))


def path_of(node: ast.expr, frame: Frame, interp: Interpreter) -> tuple[str, Kind] | None:
    """The dotted path whose memory `node` is, through views; an element of a list keeps its subscript."""
    array = False
    while True:
        match node:
            case ast.Name() | ast.Attribute(attr=_) if dotted(node) is not None and not is_same(node):
                return dotted(node) or "", "array" if array else "tensor"
            case ast.Attribute(value=inner, attr=attr) if attr in SAME:
                node = inner
            case ast.Subscript(value=inner):
                if not is_tensor(inner, frame, interp) and not has_slice(node):
                    whole = path_of(inner, frame, interp)
                    return (
                        None
                        if whole is None
                        else (f"{whole[0]}[{ast.unparse(node.slice)}]", "array" if array else "tensor")
                    )
                node = inner
            case ast.Call(func=ast.Attribute(value=inner, attr="numpy")):
                node, array = inner, True
            case ast.Call(func=ast.Attribute(value=inner, attr="pin_memory")) if is_pinned(inner, frame, interp):
                node = inner
            case ast.Call(func=func, args=[inner, *_]) if (name := reference(func, frame, interp)) in WRAPS:
                node, array = inner, array or name.startswith("numpy")
            case ast.Call(func=ast.Attribute(value=inner, attr=attr)) if is_view_method(attr, interp):
                node = inner
            case _:
                return None


def is_same(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in SAME


def has_slice(node: ast.Subscript) -> bool:
    items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    return any(isinstance(item, ast.Slice) for item in items)


def is_view_method(attr: str, interp: Interpreter) -> bool:
    row = interp.table.lookup(f"torch.Tensor.{attr}")
    return row is not None and row.effect in VIEWS and row.returns == "tensor"


def is_tensor(node: ast.expr, frame: Frame, interp: Interpreter) -> bool:
    values = values_of(node, frame, interp)
    return bool(values) and all(isinstance(one, Fact) for one in values)


def is_pinned(node: ast.expr, frame: Frame, interp: Interpreter) -> bool:
    return any(
        isinstance(one, Fact) and one.device == "cpu" and one.memory == "pinned"
        for one in values_of(node, frame, interp)
    )


def reference(func: ast.expr, frame: Frame, interp: Interpreter) -> str:
    """The library name that a callee means, "" for any other."""
    if not isinstance(func, (ast.Name, ast.Attribute)):
        return ""
    return next((one.name for one in values_of(func, frame, interp) if isinstance(one, Ref)), "")


def values_of(node: ast.expr, frame: Frame, interp: Interpreter) -> tuple[object, ...]:
    interp.begin()
    return alternatives(interp.near(node, frame))


# --- all names of one memory ------------------------------------------------------------------------------------------


def names_of(path: str, frame: Frame, interp: Interpreter) -> dict[str, Kind]:
    """`path` and all other names of its memory that the function or the class bind once, with what they are."""
    found: dict[str, Kind] = {path: "tensor"}
    links = [*known_links(frame, interp), *held_links(path, frame, interp)]
    grown = True
    while grown:
        grown = False
        for name, whole, kind in links:
            for one, other in ((name, whole), (whole, name)):
                if other in found and one not in found:
                    found[one] = "tensor" if one == whole else "array" if kind == "array" else found[other]
                    grown = True
    return found


Link = tuple[str, str, Kind]


# Every copy of a function, and every copy of a class, asks for the same ones. A changed file brings a new interpreter.
_known: WeakKeyDictionary[Interpreter, dict[ast.AST, list[Link]]] = WeakKeyDictionary()


def known_links(frame: Frame, interp: Interpreter) -> list[Link]:
    """The links of a function and its class."""
    known = _known.setdefault(interp, {})
    if frame.scope.node not in known:
        known[frame.scope.node] = [*local_links(frame, interp), *class_links(frame.scope, "self", interp)]
    return known[frame.scope.node]


def local_links(frame: Frame, interp: Interpreter) -> Iterator[Link]:
    """`name = view of path` for names that the function binds once."""
    bound: dict[str, list[ast.expr | None]] = {}
    for node in walk_scope(frame.scope.node):
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    if isinstance(target, ast.Name):
                        bound.setdefault(target.id, []).append(value)
            case ast.Name(id=name, ctx=ast.Store()):
                bound.setdefault(name, [])
            case _:
                continue
    for name, values in bound.items():
        if len(values) == 1 and values[0] is not None and not isinstance(values[0], ast.Name):
            link = path_of(values[0], frame, interp)
            if link is not None and link[0] != name:
                yield name, *link
        elif len(values) == 1 and isinstance(values[0], ast.Name):
            yield name, values[0].id, "tensor"


def class_links(scope: Scope, prefix: str, interp: Interpreter) -> Iterator[Link]:
    """`self.a = view of self.b` in any method of the class, spelled with `prefix` for self."""
    owner = scope.owner if scope.is_function else scope
    if owner is None or not isinstance(owner.node, ast.ClassDef):
        return
    for cls in interp.mro(owner):
        if isinstance(cls, Ref):
            continue
        for node in cls.defs:
            if isinstance(node, ast.ClassDef):
                continue
            method = cls.child(node)
            local = {name: (whole, kind) for name, whole, kind in local_links(interp.open_frame(method), interp)}
            for store in method.flow.stores:
                value = getattr(store.node, "value", None)
                if store.fill or not isinstance(value, ast.expr) or not interp.is_self(store.base, method):
                    continue
                link = path_of(value, interp.open_frame(method), interp)
                if link is None:
                    continue
                whole, kind = link
                if whole in local:
                    whole, kind = local[whole][0], "array" if "array" in (kind, local[whole][1]) else "tensor"
                if whole.startswith("self.") and whole != f"self.{store.attr}":
                    yield f"{prefix}.{store.attr}", prefix + whole[4:], kind


def held_links(path: str, frame: Frame, interp: Interpreter) -> Iterator[Link]:
    """The links inside the object that holds the memory: `buf.np` beside `buf.cpu`."""
    parts = path.rsplit(".", 1)
    if len(parts) < 2 or parts[0] == "self" or "[" in parts[0]:
        return
    for node in walk_scope(frame.scope.node):
        if isinstance(node, (ast.Attribute, ast.Name)) and isinstance(node.ctx, ast.Load) and dotted(node) == parts[0]:
            for one in values_of(node, frame, interp):
                if isinstance(one, Inst):
                    yield from class_links(one.scope, parts[0], interp)
            return


def walk_scope(node: ast.AST) -> Iterator[ast.AST]:
    """Every node of one scope, without the functions and classes in it."""
    todo: list[ast.AST] = list(ast.iter_child_nodes(node))
    while todo:
        one = todo.pop()
        yield one
        if not isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            todo.extend(ast.iter_child_nodes(one))

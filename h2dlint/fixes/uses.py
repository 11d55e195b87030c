"""What a scope does with each of its names, found in one walk: a walk a finding would be quadratic in their number."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from weakref import WeakKeyDictionary

from h2dlint.fixes.context import FUNCTIONS, dotted, root

_READS = frozenset(
    "to cuda cpu pin_memory copy_ is_pinned size dim numel tolist item clone sum mean max min any all data_ptr".split()
)
_BUILTINS = frozenset(
    "len print int float bool list tuple range zip enumerate isinstance str repr sum max min id type".split()
)


class Uses:
    """The uses of names and dotted paths in a function, class or module, with the scopes nested in it.

    A path stands for what it names and for every view of that. The lists are in the order of `ast.walk`.
    """

    def __init__(self, scope: ast.AST) -> None:
        self.aliases: dict[str, set[str]] = {}
        """The names that a plain assignment gives to a path."""
        self.kept: set[str] = set()
        """Paths that an attribute or an entry of a container goes on holding."""
        self.returned: set[str] = set()
        self.yielded: set[str] = set()
        self.nested: set[str] = set()
        """Names that a function or a lambda inside the scope mentions."""
        self.outer: set[str] = set()
        """Names that are declared global or nonlocal."""
        self.stores: Counter[str] = Counter()
        """How often each name is bound by itself, parameters apart."""
        self.about: dict[str, list[ast.AST]] = {}
        """What binds a name, stores into it, calls its methods or hands it to a call; assignments, calls and loops."""
        self.methods: dict[str, list[ast.Call]] = {}
        """The calls of each method."""
        self._writes: dict[str, list[tuple[int, ast.AST]]] = {}
        for number, node in enumerate(ast.walk(scope)):
            for path in set(_written(node)):
                self._writes.setdefault(path, []).append((number, node))
            for name in set(_spoken_of(node)):
                self.about.setdefault(name, []).append(node)
            match node:
                case ast.Name(id=name, ctx=ast.Store()):
                    self.stores[name] += 1
                case ast.Global(names=names) | ast.Nonlocal(names=names):
                    self.outer.update(names)
                case ast.Assign():
                    self._note_assignment(node)
                case ast.Return(value=ast.expr() as value):
                    self.returned.update(_paths(_parts(value)))
                case ast.Yield(value=ast.expr() as value):
                    self.yielded.update(_paths(_parts(value)))
                case ast.Call(func=ast.Attribute(attr=attr)):
                    self.methods.setdefault(attr, []).append(node)
                case _:
                    continue
        self._note_nested(scope)

    def names_of(self, path: str) -> set[str]:
        """The path and the names that hold it or a view of it."""
        names, waiting = {path}, [path]
        while waiting:
            new = self.aliases.get(waiting.pop(), set()) - names
            names |= new
            waiting += new
        return names

    def writes_of(self, path: str) -> Iterator[ast.AST]:
        """What writes, or may write, into the memory behind the path, whatever name it goes by."""
        found = {number: node for name in self.names_of(path) for number, node in self._writes.get(name, ())}
        return (found[number] for number in sorted(found))

    def rebinds(self, name: str) -> Iterator[ast.Assign]:
        """The assignments that give the name another value."""
        for node in self.about.get(name, ()):
            if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets):
                yield node

    def _note_assignment(self, node: ast.Assign) -> None:
        path = dotted(root(node.value))
        if path is None:
            return
        names = {target.id for target in node.targets if isinstance(target, ast.Name)}
        self.aliases.setdefault(path, set()).update(names)
        if not all(isinstance(target, ast.Name) or _is_tensor_store(target) for target in node.targets):
            self.kept.add(path)

    def _note_nested(self, scope: ast.AST) -> None:
        waiting = [(child, False) for child in ast.iter_child_nodes(scope)]
        while waiting:
            node, inside = waiting.pop()
            inside = inside or isinstance(node, (ast.Lambda, *FUNCTIONS))
            if inside and isinstance(node, ast.Name):
                self.nested.add(node.id)
            waiting += ((child, inside) for child in ast.iter_child_nodes(node))


_known: WeakKeyDictionary[ast.AST, Uses] = WeakKeyDictionary()


def uses_in(scope: ast.AST) -> Uses:
    """The uses in a scope, worked out when first asked for."""
    if scope not in _known:
        _known[scope] = Uses(scope)
    return _known[scope]


def _paths(values: Iterable[ast.expr]) -> Iterator[str]:
    return (path for value in values if (path := dotted(root(value))) is not None)


def _parts(value: ast.expr) -> list[ast.expr]:
    """What a returned value hands out: itself, or what the container written there holds."""
    match value:
        case ast.Tuple(elts=items) | ast.List(elts=items):
            return [part for item in items for part in _parts(item)]
        case ast.Dict(values=items):
            return [part for item in items for part in _parts(item)]
        case _:
            return [value]


def _is_tensor_store(target: ast.expr) -> bool:
    """`x[:, 0] = value` copies a value, `box["key"] = value` keeps it."""
    if not isinstance(target, ast.Subscript):
        return False
    return any(isinstance(inner, ast.Slice) for inner in ast.walk(target.slice))


def _written(node: ast.AST) -> Iterator[str]:
    """The paths into whose memory a node writes, or may write."""
    match node:
        case ast.Assign(targets=targets):
            yield from _paths(target for target in targets if isinstance(target, ast.Subscript))
        case ast.AugAssign(target=target):
            yield from _paths([target])
        case ast.Call(func=ast.Attribute(value=owner, attr=attr)) if attr.endswith("_") and not attr.endswith("__"):
            if attr != "requires_grad_":
                yield from _paths([owner])
        case ast.Call():
            yield from _written_by(node)
        case _:
            return


def _written_by(call: ast.Call) -> Iterator[str]:
    """The arguments that a call may write: `out=`, and all of a function of which nothing is known."""
    yield from _paths(keyword.value for keyword in call.keywords if keyword.arg == "out")
    name = dotted(call.func) or ""
    if name.split(".")[0] in ("torch", "np", "numpy", "F") or name in _BUILTINS:
        return
    if isinstance(call.func, ast.Attribute) and call.func.attr in _READS:
        return
    yield from _paths([*call.args, *(keyword.value for keyword in call.keywords)])


def _spoken_of(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.arg(arg=name):
            yield name
        case ast.Assign(targets=targets):
            yield from _names(*targets)
        case ast.AnnAssign(target=target) | ast.AugAssign(target=target) | ast.NamedExpr(target=target):
            yield from _names(target)
        case ast.For(target=target) | ast.AsyncFor(target=target) | ast.comprehension(target=target):
            yield from _names(target)
        case ast.Call(func=func, args=args):
            owner = [func.value] if isinstance(func, ast.Attribute) else []
            yield from (value.id for value in [*owner, *args] if isinstance(value, ast.Name))
        case _:
            return


def _names(*targets: ast.expr) -> Iterator[str]:
    return (node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name))

"""What an expression does to the memory of a copy in flight: names it, hands it on, reads it, writes it."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NoReturn

from h2dlint.facts import call_name
from h2dlint.flow import FILLERS, dotted
from h2dlint.model import Fact
from h2dlint.races.paths import SAME, path_of, reference, values_of
from h2dlint.races.state import Box, Kind, Lane, Mark, State, Tup, element_of, holds_memory, is_memory, join, join_kinds
from h2dlint.values import LibObject, Map, Seq, Value, alternatives

if TYPE_CHECKING:
    from h2dlint.facts import Frame
    from h2dlint.project import Scope
    from h2dlint.races.walk import Tools

READING_BUILTINS = frozenset(
    "int float bool complex str repr print format sum max min any all abs round range sorted bytes bytearray divmod "
    "pow hash".split()
)
PASSING_BUILTINS = frozenset("list tuple zip enumerate reversed iter next dict memoryview set".split())
BOX_VIEWS = frozenset(("values", "items", "copy"))
BOX_ITEMS = frozenset(("pop", "popleft", "get", "get_nowait", "popitem"))
READING_CALLS = frozenset(
    "torch.save PIL.Image.fromarray json.dump json.dumps pickle.dump pickle.dumps struct.pack builtins.print "
    "torchvision.utils.save_image torchvision.transforms.functional.to_pil_image safetensors.torch.save_file "
    "cv2.imwrite".split()
)
LOGGING = frozenset(("debug", "info", "warning", "error", "log"))
UNTOUCHED = frozenset(("requires_grad_", "share_memory_", "pin_memory_", "__getitem__"))


@dataclass(frozen=True, slots=True)
class Use:
    """The first use of the memory that comes too early."""

    kind: Literal["read", "write"]
    node: ast.AST
    scope: Scope
    what: str


class FoundUse(Exception):
    """Ends the walk at the first use."""

    def __init__(self, use: Use) -> None:
        super().__init__(use.what)
        self.use = use


class Expressions:
    """Evaluates expressions in order, on the state `self.state`; walk.py adds the statements."""

    scope: Scope
    frame: Frame
    tools: Tools
    state: State
    stream: str

    def value(self, node: ast.expr | None) -> Kind | None:
        """What `node` is to the copy, None for anything else."""
        match node:
            case None | ast.Constant() | ast.Lambda():
                return None
            case ast.Name(id=name):
                return self.state.names.get(name)
            case ast.Attribute():
                return self.attribute(node)
            case ast.Subscript():
                return self.subscript(node)
            case ast.Call():
                return self.call(node)
            case ast.BinOp(left=left, right=right):
                return self.binary(node, left, right)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return self.test(operand)
            case ast.UnaryOp(operand=operand):
                self.operand(self.value(operand), node)
                return None
            case ast.BoolOp(values=values):
                kinds = [*(self.test(one) for one in values[:-1]), self.value(values[-1])]
                return kinds[-1]
            case ast.Compare(left=left, ops=ops, comparators=others):
                self.compare(node, left, ops, others)
                return None
            case ast.IfExp():
                return self.conditional(node)
            case ast.FormattedValue(value=inner):
                self.operand(self.value(inner), node, "formats")
                return None
            case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
                return pack([self.value(item) for item in items])
            case ast.Dict(keys=keys, values=items):
                for key in keys:
                    self.value(key)
                kinds = [self.value(item) for item in items]
                return (
                    Box(kinds[0])
                    if kinds and all(holds_memory(kind) for kind in kinds) and kinds[0] is not None
                    else None
                )
            case ast.NamedExpr(target=target, value=inner):
                kind = self.value(inner)
                self.bind(target, kind, inner)
                return kind
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                return self.comprehension(node)
            case ast.Yield(value=inner):
                self.value(inner)
                self.state.finish()
                return None
            case ast.Starred(value=inner) | ast.Await(value=inner):
                return self.value(inner)
            case _:
                for child in ast.iter_child_nodes(node):
                    if isinstance(child, ast.expr):
                        self.value(child)
                return None

    # --- names -------------------------------------------------------------------------------------------------

    def attribute(self, node: ast.Attribute) -> Kind | None:
        path = dotted(node)
        if path is not None and path in self.state.names:
            return self.state.names[path]
        kind = self.value(node.value)
        return kind if is_memory(kind) and node.attr in SAME else None

    def subscript(self, node: ast.Subscript) -> Kind | None:
        kind = self.value(node.value)
        index = self.value(node.slice)
        if is_memory(index) and self.state.live and self.is_on_host(node.value):
            self.read(node, "is used as an index")
        text = path_of(node, self.frame, self.tools.interp)
        if text is not None and text[0] in self.state.names:
            return self.state.names[text[0]]
        match kind, node.slice:
            case Tup(items=items), ast.Constant(value=int() as at) if -len(items) <= at < len(items):
                return items[at]
            case ((Box() | Tup()), ast.Slice()):
                return kind
        return element_of(kind)

    def is_on_host(self, node: ast.expr) -> bool:
        values = self.known(node)
        return bool(values) and all(
            isinstance(one, (Seq, Map)) or (isinstance(one, Fact) and one.device == "cpu") for one in values
        )

    def is_on_gpu(self, node: ast.expr) -> bool:
        return any(isinstance(one, Fact) and one.device == "gpu" for one in self.known(node))

    def known(self, node: ast.expr) -> tuple[Value, ...]:
        """The values of an expression that decides on a finding: callers and other objects are asked too."""
        self.tools.interp.begin()
        return alternatives(self.tools.interp.expr(node, self.frame))

    # --- uses --------------------------------------------------------------------------------------------------

    def read(self, node: ast.AST, what: str) -> None:
        if self.state.live and "read" in self.tools.wanted:
            self.use("read", node, what)

    def write(self, node: ast.AST) -> None:
        if self.state.live and "write" in self.tools.wanted and not self.is_elsewhere(node):
            self.use("write", node, "is written")

    def is_elsewhere(self, node: ast.AST) -> bool:
        """Whether a write misses what was copied: in the same turn behind its end, later by a name that moves on."""
        match node:
            case (
                ast.Call(func=ast.Attribute(value=target)) | ast.AugAssign(target=target) | (ast.Subscript() as target)
            ):
                parts = [one.slice for one in ast.walk(target) if isinstance(one, ast.Subscript)]
            case _:
                return False
        if self.state.turned:
            return any(picked_by(part) & self.tools.moving for part in parts)
        return any(
            isinstance(part, ast.Slice) and part.lower is not None and ast.unparse(part.lower) == self.tools.end
            for part in parts
        )

    def use(self, kind: Literal["read", "write"], node: ast.AST, what: str) -> NoReturn:
        raise FoundUse(Use(kind, node, self.scope, what))

    def operand(self, kind: Kind | None, node: ast.AST, what: str = "computes with") -> None:
        if is_memory(kind):
            self.read(node, what)

    def test(self, node: ast.expr) -> Kind | None:
        kind = self.value(node)
        if is_memory(kind) and not isinstance(node, ast.NamedExpr):
            self.read(node, "tests")
        return kind

    def binary(self, node: ast.BinOp, left: ast.expr, right: ast.expr) -> Kind | None:
        one, other = self.value(left), self.value(right)
        if isinstance(node.op, ast.Add) and any(isinstance(kind, (Box, Tup)) for kind in (one, other)):
            return boxed(join_kinds(one, other))
        if is_memory(one) and not self.is_on_gpu(right):
            self.read(node, "computes with")
        if is_memory(other) and not self.is_on_gpu(left):
            self.read(node, "computes with")
        return None

    def compare(self, node: ast.Compare, left: ast.expr, ops: list[ast.cmpop], others: list[ast.expr]) -> None:
        kinds = [self.value(one) for one in (left, *others)]
        if not any(isinstance(op, (ast.Is, ast.IsNot)) for op in ops) and any(is_memory(kind) for kind in kinds):
            self.read(node, "compares")

    def conditional(self, node: ast.IfExp) -> Kind | None:
        self.test(node.test)
        before = self.state.copy()
        one = self.value(node.body)
        after, self.state = self.state, before
        other = self.value(node.orelse)
        joined = join(after, self.state)
        assert joined is not None
        self.state = joined
        return join_kinds(one, other)

    def comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> Kind | None:
        for generator in node.generators:
            self.bind(generator.target, self.iterate(generator.iter), None)
            for condition in generator.ifs:
                self.test(condition)
        if isinstance(node, ast.DictComp):
            self.value(node.key)
        inner = self.value(node.value if isinstance(node, ast.DictComp) else node.elt)
        for generator in node.generators:
            self.bind(generator.target, None, None)
        return Box(inner) if inner is not None and holds_memory(inner) else None

    def iterate(self, node: ast.expr) -> Kind | None:
        kind = self.value(node)
        if kind == "array":
            self.read(node, "goes through")
        match node:
            case ast.Call(func=ast.Attribute(attr="items")) if isinstance(kind, Box):
                return Tup((None, kind.inner))
            case ast.Call(func=ast.Name(id="enumerate")) if isinstance(kind, Box):
                return Tup((None, kind.inner))
        return element_of(kind)

    # --- bindings ----------------------------------------------------------------------------------------------

    def bind(self, target: ast.expr, kind: Kind | None, value: ast.expr | None) -> None:
        match target:
            case ast.Name() | ast.Attribute() if (path := dotted(target)) is not None:
                self.state.forget(path)
                if kind is not None:
                    self.state.names[path] = kind
            case ast.Subscript():
                self.store(target, kind, value)
            case ast.Starred(value=inner):
                self.bind(inner, boxed(kind), None)
            case ast.Tuple(elts=items) | ast.List(elts=items):
                for at, item in enumerate(items):
                    match kind:
                        case Tup(items=kinds) if len(kinds) == len(items):
                            self.bind(item, kinds[at], None)
                        case _:
                            self.bind(item, element_of(kind), None)
            case _:
                return

    def store(self, target: ast.Subscript, kind: Kind | None, value: ast.expr | None) -> None:
        """`base[key] = value`: a write into the memory, a read of it, or a container that keeps it."""
        self.value(target.slice)
        base = path_of(target.value, self.frame, self.tools.interp)
        held = self.value(target.value)
        whole = path_of(target, self.frame, self.tools.interp)
        if is_memory(held) or (
            whole is not None
            and whole[0] != (base or ("",))[0]
            and is_memory(self.state.names.get(whole[0]))
            and has_tensor_store(target)
        ):
            if value is None or not self.is_on_gpu(value):
                self.write(target)
            return
        if not holds_memory(kind) or base is None:
            return
        values = values_of(target.value, self.frame, self.tools.interp)
        if any(isinstance(one, Fact) for one in values):
            if is_memory(kind) and all(isinstance(one, Fact) and one.device == "cpu" for one in values):
                self.read(target, "copies")
            return
        self.state.names[base[0]] = boxed(kind) or "tensor"

    # --- calls -------------------------------------------------------------------------------------------------

    def call(self, node: ast.Call) -> Kind | None:
        """The effects of a call, its operands first."""
        receiver = self.value(node.func.value) if isinstance(node.func, ast.Attribute) else self.value(node.func)
        kinds = [self.value(arg) for arg in node.args]
        keywords = {keyword.arg or "**": self.value(keyword.value) for keyword in node.keywords}
        if node is self.tools.start:
            return self.begin(node)
        ordered = self.order(node, receiver)
        if ordered is not None:
            return ordered
        if not self.state.live:
            return None
        touched = holds_memory(receiver) or any(holds_memory(kind) for kind in (*kinds, *keywords.values()))
        if not touched:
            return self.pass_by(node)
        if "out" in keywords and is_memory(keywords["out"]):
            self.write(node)
            return keywords["out"]
        is_filled = isinstance(node.func, ast.Attribute) and node.func.attr in FILLERS and not is_memory(receiver)
        if isinstance(node.func, ast.Attribute) and holds_memory(receiver) and not is_filled:
            return self.method(node, node.func.attr, node.func.value, receiver, kinds)
        return self.function(node, kinds, keywords)

    def begin(self, node: ast.Call) -> Kind | None:
        raise NotImplementedError

    def pass_by(self, node: ast.Call) -> Kind | None:
        raise NotImplementedError

    def enter(
        self, node: ast.Call, kinds: list[Kind | None], keywords: dict[str, Kind | None]
    ) -> tuple[bool, Kind | None]:
        raise NotImplementedError

    def order(self, node: ast.Call, receiver: Kind | None) -> Kind | None:
        """Streams and events: what is current, what is recorded, what is ordered behind what."""
        name = call_name(node.func)
        if name in ("Event", "ExternalEvent") and "Event" in reference(node.func, self.frame, self.tools.interp):
            return Mark("stale")
        if name in ("current_stream", "default_stream"):
            return Lane(self.stream)
        if not isinstance(node.func, ast.Attribute):
            return None
        on = node.func.value
        arg = (
            node.args[0]
            if node.args
            else next((keyword.value for keyword in node.keywords if keyword.arg == "stream"), None)
        )
        match name:
            case "record" if (
                isinstance(receiver, Mark) or self.is_lib(on, "Event") or "event" in ast.unparse(on).lower()
            ):
                mark = self.mark(self.stream if arg is None else self.lane(arg))
                if (path := self.key(on)) is not None:
                    self.state.names[path] = mark
                return mark
            case "record_event":
                mark = self.mark(self.lane(on))
                if arg is not None and (path := self.key(arg)) is not None:
                    self.state.names[path] = mark
                return mark
            case "wait_stream" if arg is not None and self.lane(arg) in self.state.lanes:
                self.state.lanes |= {self.lane(on)}
            case "wait_event" if arg is not None and self.value(arg) == Mark("good"):
                self.state.lanes |= {self.lane(on)}
            case "wait" if receiver == Mark("good"):
                self.state.lanes |= {self.stream if arg is None else self.lane(arg)}
        return None

    def mark(self, lane: str) -> Mark:
        if not self.state.live:
            return Mark("stale")
        return Mark("good") if self.is_behind(lane) else Mark("other")

    def is_behind(self, lane: str) -> bool:
        """Whether what runs on `lane` now runs behind the copy."""
        return "?" in self.state.lanes or lane in self.state.lanes

    def key(self, node: ast.expr) -> str | None:
        path = path_of(node, self.frame, self.tools.interp)
        return None if path is None else path[0]

    def lane(self, node: ast.expr) -> str:
        """The name of a stream."""
        kind = self.value(node)
        if isinstance(kind, Lane):
            return kind.name
        return self.key(node) or ast.unparse(node)

    def is_lib(self, node: ast.expr, word: str) -> bool:
        return any(
            isinstance(one, LibObject) and word in one.name for one in values_of(node, self.frame, self.tools.interp)
        )

    def method(
        self, node: ast.Call, name: str, owner: ast.expr, kind: Kind | None, kinds: list[Kind | None]
    ) -> Kind | None:
        """A method of the memory, or of what holds it."""
        if not is_memory(kind):
            return self.box_method(name, owner, kind, kinds)
        table = "numpy.ndarray" if kind == "array" else "torch.Tensor"
        row = self.tools.interp.table.lookup(f"{table}.{name}")
        if row is None:
            if name.endswith("_") and not name.endswith("__"):
                self.write(node)
            return None
        match row.effect:
            case "view" | "maybe_view":
                return Box(kind) if row.returns in ("tuple", "list") else kind  # type: ignore[arg-type]
            case "wrap":
                return "array"
            case "self":
                if name not in UNTOUCHED:
                    self.write(node)
                return kind
            case "cast":
                if self.is_converted(node, owner):
                    self.read(node, f"calls .{name}()")
                return kind
            case "op" | "host" | "join":
                self.read(node, f"calls .{name}()")
                return None
            case "move":
                return self.moved(node, name, owner, kind)
            case _:
                return None

    def is_converted(self, node: ast.Call, owner: ast.expr) -> bool:
        """Whether a cast surely makes a new tensor; where the dtype is right already, it gives the same one."""
        before = {one.dtype for one in self.known(owner) if isinstance(one, Fact)}
        after = {one.dtype for one in self.known(node) if isinstance(one, Fact)}
        return bool(before and after) and None not in before | after and not before & after

    def moved(self, node: ast.Call, name: str, owner: ast.expr, kind: Kind | None) -> Kind | None:
        """`.to`, `.cuda`, `.copy_`, `.cpu`: onto the GPU in the stream's order, or within the host."""
        interp = self.tools.interp
        match name:
            case "copy_":
                source = node.args[0] if node.args else None
                blocking = not any(keyword.arg == "non_blocking" for keyword in node.keywords)
                if source is not None and not self.is_on_gpu(source) and (blocking or self.is_on_host(source)):
                    self.write(node)
                return kind
            case "cpu":
                return kind
            case "pin_memory":
                pinned = any(
                    isinstance(one, Fact) and one.memory == "pinned" for one in values_of(owner, self.frame, interp)
                )
                return kind if pinned else None
            case "to":
                ends = values_of(node, self.frame, interp)
                return kind if ends and all(isinstance(one, Fact) and one.device == "cpu" for one in ends) else None
            case _:
                return None

    def box_method(self, name: str, owner: ast.expr, kind: Kind | None, kinds: list[Kind | None]) -> Kind | None:
        if name == "clear" and (path := self.key(owner)) is not None:
            self.state.forget(path)
        if name in BOX_VIEWS:
            return kind
        return element_of(kind) if name in BOX_ITEMS else None

    def function(self, node: ast.Call, kinds: list[Kind | None], keywords: dict[str, Kind | None]) -> Kind | None:
        """A call that is given the memory."""
        given = [kind for kind in (*kinds, *keywords.values()) if kind is not None and holds_memory(kind)]
        name = call_name(node.func)
        if not given:
            return None
        if isinstance(node.func, ast.Attribute) and name in FILLERS:
            path = self.key(node.func.value)
            if path is not None:
                kind = given[0] if name not in ("extend", "update") else element_of(given[0])
                self.state.names[path] = Box(kind) if kind is not None else Box("tensor")
            return None
        if isinstance(node.func, ast.Name) and (known := self.builtin(node, name, given[0])) is not False:
            return known
        library = reference(node.func, self.frame, self.tools.interp)
        if library:
            return self.library(node, library, kinds, given[0])
        entered, kind = self.enter(node, kinds, keywords)
        if entered:
            return kind
        if name in LOGGING and "log" in ast.unparse(node.func).lower():
            self.read(node, "logs")
        if name == "copy_" and isinstance(node.func, ast.Attribute) and self.is_on_host(node.func.value):
            self.read(node, "copies")
        return None

    def builtin(self, node: ast.Call, name: str, kind: Kind) -> Kind | Literal[False] | None:
        """What a builtin function does with the memory; False for any other function."""
        if name in READING_BUILTINS:
            if is_memory(kind) or name in ("print", "sum", "max", "min", "str", "repr", "sorted"):
                self.read(node, f"calls {name}()")
            return None
        if name in PASSING_BUILTINS:
            if kind == "array" and name in ("list", "tuple", "set"):
                self.read(node, f"calls {name}()")
            return kind if isinstance(kind, (Box, Tup)) else Box(kind)
        return None if name in ("len", "isinstance", "type", "id", "getattr", "hasattr") else False

    def library(self, node: ast.Call, name: str, kinds: list[Kind | None], kind: Kind) -> Kind | None:
        """A function of torch, numpy or another library."""
        row = self.tools.interp.table.lookup(name)
        if name in READING_CALLS or (row is None and name.startswith("numpy.")):
            self.read(node, f"calls {name}()")
            return None
        if row is None:
            return None
        match row.effect:
            case "self" if kinds and is_memory(kinds[0]):
                self.write(node)
            case "op" | "host" | "join" | "self":
                if not any(self.is_on_gpu(arg) for arg in node.args):
                    self.read(node, f"calls {name}()")
            case "new" if name in ("numpy.array", "torch.tensor"):
                self.read(node, f"calls {name}()")
            case "wrap":
                if any(keyword.arg == "device" for keyword in node.keywords):
                    return None
                return "array" if row.returns == "array" else "tensor"
            case "view" | "maybe_view":
                return kind
            case _:
                pass
        return None


def picked_by(index: ast.expr) -> set[str]:
    """The names that say where an indexed part begins; none where that comes round, as `i % 2` does."""
    items = index.elts if isinstance(index, ast.Tuple) else [index]
    starts = [item.lower if isinstance(item, ast.Slice) else item for item in items]
    names = [one for start in starts if start is not None and not comes_round(start) for one in ast.walk(start)]
    return {path for one in names if isinstance(one, (ast.Name, ast.Attribute)) and (path := dotted(one))}


def comes_round(node: ast.AST) -> bool:
    return any(isinstance(one, (ast.Mod, ast.BitAnd, ast.BitXor)) for one in ast.walk(node))


def has_tensor_store(target: ast.Subscript) -> bool:
    return any(isinstance(inner, ast.Slice) for inner in ast.walk(target.slice))


def boxed(kind: Kind | None) -> Kind | None:
    match kind:
        case None | Box():
            return kind
        case Tup(items=items):
            held = [item for item in items if item is not None]
            return Box(held[0]) if held else None
        case _:
            return Box(kind)


def pack(kinds: list[Kind | None]) -> Kind | None:
    """A list or tuple written out."""
    if all(kind is None for kind in kinds):
        return None
    first = kinds[0]
    if first is not None and all(kind == first for kind in kinds) and holds_memory(first):
        return Box(first) if len(kinds) != 1 else Tup((first,))
    return Tup(tuple(kinds))

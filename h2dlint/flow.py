"""Which definitions reach each name of one scope: a static single assignment form, built once a scope and on demand.

Nothing is evaluated here. A scope (module, class body, function, lambda) becomes a `Flow`: every load of a name, or of
a dotted path that the scope assigns (`self.x`), points to the `Def` that reaches it. Branches meet in a `Phi`, loops in
a `Loop`, tests leave a `Guard`, and methods that fill a container leave a `Fill`. facts.py evaluates the few
definitions that a site needs and never looks at the rest.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
ScopeNode = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Conditions = tuple[tuple[ast.expr, bool], ...]

# Methods of list, dict, set and deque that put their argument into the receiver.
FILLERS = frozenset(
    (
        "append",
        "appendleft",
        "extend",
        "extendleft",
        "insert",
        "add",
        "update",
        "setdefault",
        "put",
        "put_nowait",
        "__setitem__",
    )
)
# Tensor methods that change the receiver's own layout or memory; other in-place methods leave both alone.
RESHAPERS = frozenset(
    (
        "t_",
        "transpose_",
        "swapaxes_",
        "swapdims_",
        "squeeze_",
        "unsqueeze_",
        "as_strided_",
        "resize_",
        "resize_as_",
        "set_",
        "share_memory_",
    )
)
# Attributes that speak of the tensor before them, so that a test of them is a test of that tensor.
TELLING = frozenset(
    ("device", "type", "is_cuda", "is_cpu", "is_pinned", "is_contiguous", "index", "dtype", "ndim", "shape", "layout")
)


@dataclass(eq=False, slots=True)
class Def:
    """A definition; compared by identity."""


@dataclass(eq=False, slots=True)
class Param(Def):
    name: str
    node: FunctionNode


@dataclass(eq=False, slots=True)
class Free(Def):
    """A name that this scope does not bind before the load."""

    name: str


@dataclass(eq=False, slots=True)
class Path(Def):
    """A dotted path on entry: attribute `attr` of `base`."""

    base: Def
    attr: str
    node: ast.expr


@dataclass(eq=False, slots=True)
class Assign(Def):
    value: ast.expr
    node: ast.AST
    annotation: ast.expr | None = None


@dataclass(eq=False, slots=True)
class Unpack(Def):
    """Element `index` of the value of `source`, counted from the end when negative; None is any (a starred target)."""

    source: Def
    index: int | None
    total: int


@dataclass(eq=False, slots=True)
class Item(Def):
    """What a loop or a comprehension draws from `iterable`."""

    iterable: ast.expr


@dataclass(eq=False, slots=True)
class Entered(Def):
    """What `with context as name` binds."""

    context: ast.expr


@dataclass(eq=False, slots=True)
class Augmented(Def):
    before: Def
    node: ast.AugAssign


@dataclass(eq=False, slots=True)
class Phi(Def):
    """Two branches meet; `test` decides for the first when it is known."""

    options: tuple[Def, ...]
    test: ast.expr | None = None


@dataclass(eq=False, slots=True)
class Loop(Def):
    """What reaches the head of a loop: `options[0]` enters it, the others come back from its turns."""

    options: list[Def]
    node: ast.For | ast.AsyncFor | ast.While
    conditions: Conditions = ()


@dataclass(eq=False, slots=True)
class Guard(Def):
    """`before`, seen where the atomic `test` came out as `outcome`; `key` is the path that the test speaks of."""

    before: Def
    key: str
    test: ast.expr
    outcome: bool


@dataclass(eq=False, slots=True)
class Fill(Def):
    """`before` after a value was put in: by method `call`, or by `before[keys...] = value`."""

    before: Def
    call: ast.Call | None
    keys: tuple[ast.expr, ...] = ()
    value: Def | None = None


@dataclass(eq=False, slots=True)
class Reshaped(Def):
    before: Def
    call: ast.Call


@dataclass(eq=False, slots=True)
class Import(Def):
    """`import module` (name None), or `from module import name`."""

    module: str
    name: str | None
    level: int
    node: ast.AST
    whole: bool = False


@dataclass(eq=False, slots=True)
class Bound(Def):
    """A def or class statement."""

    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(eq=False, slots=True)
class Nested(Def):
    """`before`, a container that the nested function `node` may fill under its own `name`."""

    before: Def
    node: ast.FunctionDef | ast.AsyncFunctionDef
    name: str


@dataclass(eq=False, slots=True)
class Opaque(Def):
    reason: str


@dataclass(eq=False, slots=True)
class Store:
    """`base.attr = ...`, or a value put into what `base.attr` holds (then `fill` is set)."""

    base: ast.expr
    attr: str
    definition: Def
    conditions: Conditions
    fill: bool
    node: ast.AST


@dataclass(eq=False, slots=True)
class Return:
    value: ast.expr | None
    conditions: Conditions


@dataclass(slots=True)
class Flow:
    """All that the evaluator wants to know of one scope."""

    node: ScopeNode
    uses: dict[ast.AST, Def] = field(default_factory=dict)
    final: dict[str, Def] = field(default_factory=dict)
    bindings: dict[str, list[Def]] = field(default_factory=dict)
    stores: list[Store] = field(default_factory=list)
    returns: list[Return] = field(default_factory=list)
    yields: list[ast.expr] = field(default_factory=list)
    calls: list[ast.Call] = field(default_factory=list)
    subscripts: list[ast.Subscript] = field(default_factory=list)
    setitems: list[ast.Assign] = field(default_factory=list)
    reach: dict[ast.AST, Conditions] = field(default_factory=dict)
    statement: dict[ast.AST, ast.stmt] = field(default_factory=dict)
    contexts: dict[ast.AST, tuple[ast.expr, ...]] = field(default_factory=dict)
    loops: dict[ast.AST, int] = field(default_factory=dict)
    stars: list[Import] = field(default_factory=list)
    outer: set[str] = field(default_factory=set)
    ends: bool = True  # control can reach the end of the body


class Env:
    """Definitions that reach a point: an overlay over the enclosing block's, so that a branch costs what it changes."""

    __slots__ = ("changes", "parent")

    def __init__(self, parent: Env | None = None) -> None:
        self.parent = parent
        self.changes: dict[str, Def | None] = {}

    def get(self, key: str) -> Def | None:
        env: Env | None = self
        while env is not None:
            if key in env.changes:
                return env.changes[key]
            env = env.parent
        return None

    def __setitem__(self, key: str, definition: Def | None) -> None:
        self.changes[key] = definition


def dotted(node: ast.expr) -> str | None:
    """`a.b.c` of a chain of plain names and attributes, else None."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    parts.append(node.id)
    return ".".join(reversed(parts))


def split_test(test: ast.expr, outcome: bool) -> list[tuple[ast.expr, bool]]:
    """The atomic tests that must have come out so when `test` came out as `outcome`."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return split_test(operand, not outcome)
        case ast.BoolOp(op=ast.And(), values=values) if outcome:
            return [atom for value in values for atom in split_test(value, True)]
        case ast.BoolOp(op=ast.Or(), values=values) if not outcome:
            return [atom for value in values for atom in split_test(value, False)]
    return [(test, outcome)]


def subjects(test: ast.expr) -> set[str]:
    """The dotted paths that an atomic test speaks of."""
    found: set[str] = set()
    todo: list[ast.AST] = [test]
    while todo:
        node = todo.pop()
        if isinstance(node, (ast.Name, ast.Attribute)):
            inner: ast.expr = node
            while isinstance(inner, ast.Attribute) and inner.attr in TELLING:
                path = dotted(inner)
                if path is not None and inner.attr == "device":
                    found.add(path)
                inner = inner.value
            path = dotted(inner)
            if path is not None:
                found.add(path)
                continue
            todo.extend(ast.iter_child_nodes(inner))
            continue
        if isinstance(node, (ast.Lambda, ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)):
            continue
        todo.extend(ast.iter_child_nodes(node))
    return found


def build_flow(node: ScopeNode) -> Flow:
    """The flow of one scope; nested functions and classes are bound but not entered."""
    builder = Builder(node)
    builder.build()
    return builder.flow


class _Break:
    """The definitions that leave a loop by break or continue, for the keys which the loop assigns."""

    __slots__ = ("exits", "keys", "turns")

    def __init__(self, keys: set[str]) -> None:
        self.keys = keys
        self.exits: list[dict[str, Def | None]] = []
        self.turns: list[dict[str, Def | None]] = []


class Builder:
    """Walks one scope in the order of evaluation."""

    def __init__(self, node: ScopeNode) -> None:
        self.flow = Flow(node)
        self.conditions: Conditions = ()
        self.withs: tuple[ast.expr, ...] = ()
        self.depth = 0
        self.loops: list[_Break] = []
        self.paths: set[str] = set()
        self.frees: dict[str, Def] = {}
        self.current: ast.stmt | None = None

    def build(self) -> None:
        node, env = self.flow.node, Env()
        if isinstance(node, (ast.Module, ast.ClassDef)):
            rest = self.block(node.body, env)
        else:
            for arg in parameters(node.args):
                self.bind(env, arg.arg, Param(arg.arg, node))
            if isinstance(node, ast.Lambda):
                self.expr(node.body, env)
                self.flow.returns.append(Return(node.body, ()))
                rest = None
            else:
                rest = self.block(node.body, env)
        self.flow.ends = rest is not None
        end = env if rest is None else rest
        for key, definition in end.changes.items():
            if definition is not None:
                self.flow.final[key] = definition

    # --- names -------------------------------------------------------------------------------------------------

    def bind(self, env: Env, key: str, definition: Def) -> None:
        env[key] = definition
        if "." in key:
            self.paths.add(key)
        else:
            self.flow.bindings.setdefault(key, []).append(definition)
        prefix = key + "."
        for path in self.paths:
            if path.startswith(prefix):
                env[path] = None

    def read(self, key: str, env: Env) -> Def:
        """The definition of a plain name."""
        found = env.get(key)
        if found is None:
            found = self.frees.setdefault(key, Free(key))
        return found

    def read_path(self, node: ast.expr, env: Env) -> Def | None:
        """The definition of a dotted path, made on the spot when the scope has not assigned it; None if not a path."""
        path = dotted(node)
        if path is None:
            return None
        found = env.get(path)
        if found is not None:
            return found
        if isinstance(node, ast.Name):
            return self.read(node.id, env)
        assert isinstance(node, ast.Attribute)
        base = self.read_path(node.value, env)
        return None if base is None else Path(base, node.attr, node)

    # --- statements --------------------------------------------------------------------------------------------

    def block(self, body: list[ast.stmt], env: Env) -> Env | None:
        """Run the statements in `env`; None when control cannot reach the end."""
        conditions = self.conditions
        alive: Env | None = env
        for statement in body:
            self.current = statement
            alive = self.statement(statement, env)
            if alive is None:
                break
        self.conditions = conditions
        return alive

    def statement(self, node: ast.stmt, env: Env) -> Env | None:
        match node:
            case ast.Expr(value=value):
                self.expr(value, env)
            case ast.Assign():
                self.expr(node.value, env)
                for target in node.targets:
                    self.assign(target, Assign(node.value, node), env, node)
                if any(isinstance(target, ast.Subscript) for target in node.targets):
                    self.note(node)
                    self.flow.setitems.append(node)
            case ast.AnnAssign():
                self.annotated(node, env)
            case ast.AugAssign():
                self.augmented(node, env)
            case ast.If():
                return self.branch(node, env)
            case ast.For() | ast.AsyncFor() | ast.While():
                return self.loop(node, env)
            case ast.With() | ast.AsyncWith():
                return self.with_block(node, env)
            case ast.Return():
                if node.value is not None:
                    self.expr(node.value, env)
                self.flow.returns.append(Return(node.value, self.conditions))
                return None
            case ast.Raise():
                for part in (node.exc, node.cause):
                    if part is not None:
                        self.expr(part, env)
                return None
            case ast.Break() | ast.Continue():
                self.leave(node, env)
                return None
            case ast.Try():
                return self.try_block(node, env)
            case ast.Match():
                return self.match_block(node, env)
            case ast.Assert():
                self.expr(node.test, env)
                self.learn(node.test, True, env)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                self.definition(node, env)
            case ast.Import() | ast.ImportFrom():
                self.imports(node, env)
            case ast.Global() | ast.Nonlocal():
                self.flow.outer.update(node.names)
            case ast.Delete():
                for target in node.targets:
                    path = dotted(target)
                    if path is not None:
                        self.bind(env, path, Opaque("deleted"))
            case ast.Pass():
                pass
            case _:
                # TryStar, TypeAlias and what later Pythons bring
                if hasattr(node, "handlers"):
                    return self.try_block(node, env)  # type: ignore[arg-type]
        return env

    def definition(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, env: Env) -> None:
        for decorator in node.decorator_list:
            self.expr(decorator, env)
        if isinstance(node, ast.ClassDef):
            for base in node.bases:
                self.expr(base, env)
        else:
            for default in (*node.args.defaults, *node.args.kw_defaults):
                if default is not None:
                    self.expr(default, env)
            for arg in parameters(node.args):
                if arg.annotation is not None:
                    self.expr(arg.annotation, env)
            if not isinstance(self.flow.node, (ast.Module, ast.ClassDef)):
                self.share(node, env)
        self.bind(env, node.name, Bound(node))

    def share(self, node: ast.FunctionDef | ast.AsyncFunctionDef, env: Env) -> None:
        """From here on, a nested function may assign the names that it calls nonlocal, and fill containers."""
        own = {arg.arg for arg in parameters(node.args)}
        filled: dict[str, None] = {}
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                own.add(inner.id)
            elif isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and inner.func.attr in FILLERS:
                add_root(inner.func.value, filled)
            elif isinstance(inner, ast.Subscript) and isinstance(inner.ctx, ast.Store):
                add_root(inner, filled)
            if isinstance(inner, ast.Nonlocal):
                for name in inner.names:
                    before = env.get(name)
                    if before is not None:
                        env[name] = Phi((before, Opaque("a nested function assigns it")))
        for name in filled:
            before = env.get(name)
            if name not in own and before is not None and not isinstance(before, (Import, Bound)):
                env[name] = Nested(before, node, name)

    def imports(self, node: ast.Import | ast.ImportFrom, env: Env) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.asname:
                    self.bind(env, alias.asname, Import(alias.name, None, 0, node, whole=True))
                else:
                    self.bind(env, alias.name.partition(".")[0], Import(alias.name, None, 0, node))
            return
        for alias in node.names:
            if alias.name == "*":
                self.flow.stars.append(Import(node.module or "", "*", node.level, node))
            else:
                self.bind(env, alias.asname or alias.name, Import(node.module or "", alias.name, node.level, node))

    def annotated(self, node: ast.AnnAssign, env: Env) -> None:
        self.expr(node.annotation, env)
        if node.value is not None:
            self.expr(node.value, env)
            self.assign(node.target, Assign(node.value, node, node.annotation), env, node)

    def augmented(self, node: ast.AugAssign, env: Env) -> None:
        self.expr(node.value, env)
        self.expr(node.target, env)
        path = dotted(node.target)
        if path is None:
            return
        before = self.read_path(node.target, env)
        assert before is not None
        after = Augmented(before, node)
        self.bind(env, path, after)
        if isinstance(node.target, ast.Attribute):
            self.flow.stores.append(Store(node.target.value, node.target.attr, after, self.conditions, False, node))

    def assign(self, target: ast.expr, definition: Def, env: Env, node: ast.AST) -> None:
        match target:
            case ast.Name():
                self.bind(env, target.id, definition)
            case ast.Attribute():
                self.expr(target.value, env)
                path = dotted(target)
                if path is not None:
                    self.bind(env, path, definition)
                self.flow.stores.append(Store(target.value, target.attr, definition, self.conditions, False, node))
            case ast.Subscript():
                self.expr(target, env)
                self.put(target, definition, env, node)
            case ast.Starred():
                self.assign(target.value, definition, env, node)
            case ast.Tuple() | ast.List():
                total = len(target.elts)
                starred = next((i for i, one in enumerate(target.elts) if isinstance(one, ast.Starred)), None)
                for index, element in enumerate(target.elts):
                    where: int | None = index
                    if starred is not None and index >= starred:
                        where = None if index == starred else index - total
                    self.assign(element, Unpack(definition, where, -1 if starred is not None else total), env, node)

    def put(self, target: ast.Subscript, definition: Def, env: Env, node: ast.AST) -> None:
        """`base[k1][k2] = value` fills the path `base`."""
        keys: list[ast.expr] = []
        base: ast.expr = target
        while isinstance(base, ast.Subscript):
            keys.append(base.slice)
            base = base.value
        before = self.read_path(base, env)
        path = dotted(base)
        if before is None or path is None:
            return
        after = Fill(before, None, tuple(reversed(keys)), definition)
        self.fill(path, base, after, env, node)

    def reshape(self, base: ast.expr, node: ast.Call, env: Env) -> None:
        before, path = self.read_path(base, env), dotted(base)
        if before is None or path is None:
            return
        after = Reshaped(before, node)
        self.bind(env, path, after)
        if isinstance(base, ast.Attribute):
            self.flow.stores.append(Store(base.value, base.attr, after, self.conditions, False, node))

    def fill(self, path: str, base: ast.expr, after: Fill, env: Env, node: ast.AST) -> None:
        env[path] = after
        if "." in path:
            self.paths.add(path)
        else:
            self.flow.bindings.setdefault(path, []).append(after)
        if isinstance(base, ast.Attribute):
            self.flow.stores.append(Store(base.value, base.attr, after, self.conditions, True, node))

    # --- control -----------------------------------------------------------------------------------------------

    def learn(self, test: ast.expr, outcome: bool, env: Env) -> None:
        """Note in `env` what holds from here on because `test` came out as `outcome`."""
        self.conditions = (*self.conditions, (test, outcome))
        for atom, result in split_test(test, outcome):
            for key in sorted(subjects(atom)):
                before = env.get(key)
                if before is None and "." in key:
                    node = find_path(atom, key)
                    before = None if node is None else self.read_path(node, env)
                elif before is None:
                    before = self.read(key, env)
                if before is not None and not isinstance(before, (Import, Bound)):
                    env[key] = Guard(before, key, atom, result)
                    if "." in key:
                        self.paths.add(key)

    def branch(self, node: ast.If, env: Env) -> Env | None:
        self.expr(node.test, env)
        outside = self.conditions
        first, second = Env(env), Env(env)
        self.learn(node.test, True, first)
        then = self.block(node.body, first)
        self.conditions = outside
        self.learn(node.test, False, second)
        other = self.block(node.orelse, second)
        self.conditions = outside
        if then is None and other is None:
            return None
        if then is None or other is None:
            alive = second if then is None else first
            env.changes.update(alive.changes)
            self.conditions = (*outside, (node.test, then is not None))
            return env
        self.merge(env, (first, second), node.test)
        return env

    def merge(self, env: Env, ends: tuple[Env, ...], test: ast.expr | None = None) -> None:
        """Join the definitions of branches that start at `env` and end in `ends`."""
        keys: dict[str, None] = {}
        for end in ends:
            keys.update(dict.fromkeys(end.changes))
        for key in keys:
            options = [end.get(key) for end in ends]
            if "." in key and any(option is None for option in options):
                # a path assigned on one side only: elsewhere it is still the attribute of the object
                options = [self.on_entry(key, end) if option is None else option for option, end in zip(options, ends)]
            present = [option for option in options if option is not None]
            if not present:
                env[key] = None
                continue
            if len(present) < len(options):
                present = [self.frees.setdefault(key, Free(key)) if option is None else option for option in options]
            unguarded = {id(strip_guards(option)) for option in present}
            if len(unguarded) == 1:
                # only tests came between: forget them together
                base = strip_guards(present[0])
                env[key] = present[0] if all(option is present[0] for option in present) else base
                continue
            env[key] = Phi(tuple(present), test if len(present) == 2 else None)
            if "." not in key:
                self.flow.bindings.setdefault(key, [])

    def on_entry(self, path: str, env: Env) -> Def:
        node = ast.parse(path, mode="eval").body
        assert isinstance(node, ast.Attribute)
        base = self.read_path(node.value, env)
        assert base is not None
        return Path(base, node.attr, node)

    def loop(self, node: ast.For | ast.AsyncFor | ast.While, env: Env) -> Env | None:
        if not isinstance(node, ast.While):
            self.expr(node.iter, env)
        keys = assigned_keys(node)
        heads: dict[str, Loop] = {}
        for key in keys:
            before = env.get(key)
            if before is None:
                if "." in key:
                    root = self.on_entry(key, env) if key.partition(".")[0] not in keys else None
                    if root is None:
                        continue
                    before = root
                else:
                    before = self.frees.setdefault(key, Free(key))
            heads[key] = Loop([before], node, self.conditions)
            env[key] = heads[key]
        exits = _Break(set(heads))
        self.loops.append(exits)
        outside, self.depth = self.conditions, self.depth + 1
        body = Env(env)
        if isinstance(node, ast.While):
            self.expr(node.test, body)
            self.learn(node.test, True, body)
        else:
            self.assign(node.target, Item(node.iter), body, node)
        end = self.block(node.body, body)
        self.loops.pop()
        self.conditions, self.depth = outside, self.depth - 1
        if end is not None:
            exits.turns.append({key: end.get(key) for key in heads})
        for turn in exits.turns:
            for key, head in heads.items():
                back = turn.get(key)
                if back is not None and back is not head and back not in head.options:
                    head.options.append(back)
        endless = isinstance(node, ast.While) and isinstance(node.test, ast.Constant) and bool(node.test.value)
        after: Env | None = None if endless else Env(env)
        if after is not None:
            if isinstance(node, ast.While):
                self.learn(node.test, False, after)
                self.conditions = outside
            for key, target in body.changes.items():
                # a loop variable keeps its last value after the loop
                if key not in heads and target is not None and env.get(key) is None:
                    after[key] = target
            after = self.block(node.orelse, after) if node.orelse else after
        ends = [] if after is None else [after]
        for left in exits.exits:
            broken = Env(env)
            broken.changes.update({key: value for key, value in left.items() if value is not None})
            ends.append(broken)
        if not ends:
            return None
        if len(ends) == 1:
            env.changes.update(ends[0].changes)
        else:
            self.merge(env, tuple(ends))
        return env

    def leave(self, node: ast.Break | ast.Continue, env: Env) -> None:
        if not self.loops:
            return
        loop = self.loops[-1]
        state = {key: env.get(key) for key in loop.keys}
        (loop.exits if isinstance(node, ast.Break) else loop.turns).append(state)

    def with_block(self, node: ast.With | ast.AsyncWith, env: Env) -> Env | None:
        outside = self.withs
        for item in node.items:
            self.expr(item.context_expr, env)
            self.withs = (*self.withs, item.context_expr)
            if item.optional_vars is not None:
                self.assign(item.optional_vars, Entered(item.context_expr), env, node)
        conditions = self.conditions
        end = self.block(node.body, env)
        self.withs, self.conditions = outside, conditions
        return end

    def try_block(self, node: ast.Try, env: Env) -> Env | None:
        outside = self.conditions
        body = Env(env)
        end = self.block(node.body, body)
        ends = []
        if end is not None:
            end = self.block(node.orelse, body)
        if end is not None:
            ends.append(body)
        for handler in node.handlers:
            caught = Env(env)
            for key, after in body.changes.items():
                before = env.get(key)
                if before is None or after is None or strip_guards(before) is strip_guards(after):
                    continue
                caught[key] = Phi((before, after))
            if handler.type is not None:
                self.expr(handler.type, caught)
            if handler.name:
                self.bind(caught, handler.name, Opaque("an exception"))
            self.conditions = outside
            if self.block(handler.body, caught) is not None:
                ends.append(caught)
        self.conditions = outside
        if not ends:
            if node.finalbody:
                self.block(node.finalbody, Env(env))
            return None
        if len(ends) == 1:
            env.changes.update(ends[0].changes)
        else:
            self.merge(env, tuple(ends))
        return self.block(node.finalbody, env) if node.finalbody else env

    def match_block(self, node: ast.Match, env: Env) -> Env | None:
        self.expr(node.subject, env)
        outside, ends, exhaustive = self.conditions, [], False
        for case in node.cases:
            arm = Env(env)
            for pattern in ast.walk(case.pattern):
                name = getattr(pattern, "name", None) or getattr(pattern, "rest", None)
                if isinstance(name, str):
                    whole = pattern is case.pattern
                    self.bind(arm, name, Assign(node.subject, node) if whole else Opaque("a pattern"))
                if isinstance(pattern, ast.MatchValue):
                    self.expr(pattern.value, arm)
            if case.guard is not None:
                self.expr(case.guard, arm)
                self.learn(case.guard, True, arm)
            elif isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None:
                exhaustive = True
            if self.block(case.body, arm) is not None:
                ends.append(arm)
            self.conditions = outside
        if not exhaustive:
            ends.append(Env(env))
        if not ends:
            return None
        if len(ends) == 1:
            env.changes.update(ends[0].changes)
        else:
            self.merge(env, tuple(ends))
        return env

    # --- expressions -------------------------------------------------------------------------------------------

    def note(self, node: ast.AST) -> None:
        self.flow.reach[node] = self.conditions
        if self.current is not None:
            self.flow.statement[node] = self.current
        if self.withs:
            self.flow.contexts[node] = self.withs
        if self.depth:
            self.flow.loops[node] = self.depth

    def expr(self, node: ast.expr, env: Env) -> None:
        match node:
            case ast.Constant():
                return
            case ast.Name():
                if isinstance(node.ctx, ast.Load):
                    self.flow.uses[node] = self.read(node.id, env)
                return
            case ast.Attribute():
                self.expr(node.value, env)
                if self.paths:
                    path = dotted(node)
                    if path is not None and path in self.paths:
                        found = env.get(path)
                        if found is not None:
                            self.flow.uses[node] = found
                return
            case ast.Call():
                self.call(node, env)
                return
            case ast.Subscript():
                self.note(node)
                self.flow.subscripts.append(node)
            case ast.NamedExpr():
                self.expr(node.value, env)
                self.assign(node.target, Assign(node.value, node), env, node)
                return
            case ast.IfExp():
                self.conditional(node, env)
                return
            case ast.BoolOp():
                self.short_circuit(node, env)
                return
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                self.comprehension(node, env)
                return
            case ast.Lambda():
                for default in (*node.args.defaults, *node.args.kw_defaults):
                    if default is not None:
                        self.expr(default, env)
                return
            case ast.Yield(value=value) if value is not None:
                self.flow.yields.append(value)
            case ast.YieldFrom(value=value):
                self.flow.yields.append(ast.Starred(value=value, ctx=ast.Load()))
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.expr(child, env)

    def call(self, node: ast.Call, env: Env) -> None:
        self.expr(node.func, env)
        for arg in node.args:
            self.expr(arg, env)
        for keyword in node.keywords:
            self.expr(keyword.value, env)
        self.note(node)
        self.flow.calls.append(node)
        func = node.func
        if isinstance(func, ast.Name):
            if func.id == "setattr" and len(node.args) == 3 and isinstance(node.args[1], ast.Constant):
                definition = Assign(node.args[2], node)
                self.flow.stores.append(
                    Store(node.args[0], str(node.args[1].value), definition, self.conditions, False, node)
                )
            return
        if not isinstance(func, ast.Attribute):
            return
        base = func.value
        if func.attr in RESHAPERS:
            self.reshape(base, node, env)
            return
        registered = registered_tensor(node)
        if registered is not None:
            self.reshape(registered, node, env)
            return
        if func.attr not in FILLERS:
            return
        keys: list[ast.expr] = []
        while isinstance(base, ast.Subscript):
            keys.append(base.slice)
            base = base.value
        before, path = self.read_path(base, env), dotted(base)
        if before is not None and path is not None and not isinstance(before, Import):
            self.fill(path, base, Fill(before, node, tuple(reversed(keys))), env, node)

    def conditional(self, node: ast.IfExp, env: Env) -> None:
        self.expr(node.test, env)
        outside = self.conditions
        for part, outcome in ((node.body, True), (node.orelse, False)):
            arm = Env(env)
            self.learn(node.test, outcome, arm)
            self.expr(part, arm)
            self.conditions = outside

    def short_circuit(self, node: ast.BoolOp, env: Env) -> None:
        outside, arm = self.conditions, env
        for value in node.values:
            self.expr(value, arm)
            arm = Env(arm)
            self.learn(value, isinstance(node.op, ast.And), arm)
        self.conditions = outside

    def comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp, env: Env) -> None:
        outside, inner = self.conditions, Env(env)
        for generator in node.generators:
            self.expr(generator.iter, inner)
            self.assign(generator.target, Item(generator.iter), inner, node)
            for test in generator.ifs:
                self.expr(test, inner)
                self.learn(test, True, inner)
        self.depth += 1
        for part in (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,):
            self.expr(part, inner)
        self.depth -= 1
        self.conditions = outside


def strip_guards(definition: Def) -> Def:
    while isinstance(definition, Guard):
        definition = definition.before
    return definition


def find_path(test: ast.expr, path: str) -> ast.expr | None:
    for node in ast.walk(test):
        if isinstance(node, (ast.Name, ast.Attribute)) and dotted(node) == path:
            return node
    return None


def parameters(args: ast.arguments) -> list[ast.arg]:
    found = [*args.posonlyargs, *args.args]
    if args.vararg:
        found.append(args.vararg)
    found += args.kwonlyargs
    if args.kwarg:
        found.append(args.kwarg)
    return found


def assigned_keys(loop: ast.For | ast.AsyncFor | ast.While) -> list[str]:
    """Names and dotted paths that the loop assigns or fills, without those of nested scopes, in source order."""
    keys: dict[str, None] = {}
    todo: list[ast.AST] = [*reversed(loop.body)]
    if not isinstance(loop, ast.While):
        todo.append(loop.target)
    while todo:
        node = todo.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            keys[node.name] = None
            continue
        if isinstance(node, ast.Lambda):
            continue
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, (ast.Store, ast.Del)):
            path = dotted(node)
            if path is not None:
                keys[path] = None
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            add_root(node, keys)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in FILLERS or node.func.attr in RESHAPERS:
                add_root(node.func.value, keys)
            registered = registered_tensor(node)
            if registered is not None:
                add_root(registered, keys)
        todo.extend(reversed(list(ast.iter_child_nodes(node))))
    return list(keys)


def registered_tensor(node: ast.Call) -> ast.expr | None:
    """`x` of `cudart().cudaHostRegister(x.data_ptr(), ...)`, which page-locks memory that is there already."""
    match node:
        case ast.Call(
            func=ast.Attribute(attr="cudaHostRegister"),
            args=[ast.Call(func=ast.Attribute(value=tensor, attr="data_ptr")), *_],
        ):
            return tensor
    return None


def add_root(node: ast.expr, keys: dict[str, None]) -> None:
    while isinstance(node, ast.Subscript):
        node = node.value
    path = dotted(node)
    if path is not None:
        keys[path] = None

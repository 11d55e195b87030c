"""The interpreter: what an expression, a name, an attribute or a parameter may be worth.

It is lazy. Nothing runs from top to bottom; a question ("what is this source?") pulls in the definitions that reach it,
the attribute stores of its class, the return values of the functions that made it, and, where a parameter decides, the
callers inside the project. Every question is a `query`, remembered once it is complete. Questions that depend on
themselves (loops, recursion, cyclic imports) start from no value and are asked again until nothing changes.

Bounds: `MAX_STEPS` questions for one site, `MAX_DEPTH` open ones, `MAX_FRAMES` nested calls, `MAX_HOPS` steps from a
parameter to its callers. Past them a value is
unknown. What library calls do is in library.py, what tests tell in refine.py.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from h2dlint import library, operators, refine
from h2dlint.flow import (
    Assign,
    Augmented,
    Bound,
    Def,
    Entered,
    Fill,
    Free,
    Guard,
    Import,
    Item,
    Loop,
    Nested,
    Opaque,
    Param,
    Path,
    Phi,
    Reshaped,
    Unpack,
    dotted,
    parameters,
)  # fmt: skip
from h2dlint.model import Fact, Step
from h2dlint.project import DEFINED, in_tests
from h2dlint.shapes import PACKED
from h2dlint.values import (
    BOTTOM,
    NONE,
    Alts,
    Arg,
    Args,
    Bottom,
    Cls,
    Const,
    Dev,
    Flag,
    Func,
    Inst,
    Leaves,
    LibObject,
    Map,
    Method,
    Mod,
    Num,
    Partial,
    Ref,
    Seq,
    Super,
    Unknown,
    Value,
    alternatives,
    each,
    join,
    key_of,
    symbol,
)  # fmt: skip

if TYPE_CHECKING:
    from h2dlint.apis import Table
    from h2dlint.project import Module, Project, Scope

MAX_STEPS = 12_000
MAX_DEPTH = 150
MAX_FRAMES = 10
MAX_TURNS = 4
MAX_CALLERS = 24
MAX_HOPS = 3
MAX_CONDITIONS = 12
NOWHERE = 1 << 30

BUILTINS = frozenset(
    ("len", "int", "float", "bool", "str", "min", "max", "sum", "abs", "round", "range", "enumerate", "zip", "reversed",
     "sorted", "list", "tuple", "set", "frozenset", "dict", "iter", "next", "map", "filter", "isinstance", "issubclass",
     "hasattr", "getattr", "setattr", "super", "type", "id", "repr", "print", "any", "all", "slice", "vars", "callable",
     "object", "property", "staticmethod", "classmethod", "deque")
)  # fmt: skip
LIBRARIES = frozenset(("torch", "numpy", "typing", "functools", "collections", "dataclasses", "contextlib", "builtins"))


class Frame:
    """One way to enter a scope: with the arguments of a call, or open (`args` None), as any caller may."""

    __slots__ = ("args", "closure", "depth", "obj", "scope", "serial")

    def __init__(
        self, scope: Scope, obj: Value | None, args: Args | None, closure: Frame | None, depth: int, serial: int
    ) -> None:
        self.scope = scope
        self.obj = obj
        self.args = args
        self.closure = closure
        self.depth = depth
        self.serial = serial

    def __repr__(self) -> str:
        return f"<frame {self.serial} of {self.scope.qualname or self.scope.name}>"


class _Question:
    """A query under way. `value` is what it is taken for while it depends on itself."""

    __slots__ = ("asked", "index", "value")

    def __init__(self, index: int) -> None:
        self.index = index
        self.value: Value = BOTTOM
        self.asked = False


class Interpreter:
    """Answers questions about one project."""

    def __init__(self, project: Project, table: Table) -> None:
        self.project = project
        self.table = table
        self.memo: dict[Hashable, Value] = {}
        self.open_questions: dict[Hashable, _Question] = {}
        self.pending: dict[Hashable, tuple[Value, int]] = {}
        self.pending_order: list[Hashable] = []
        self.low = NOWHERE
        self.steps = 0
        self.exhausted = False
        self.shallow = False
        self.local = False  # every question of a site is asked near by
        self.reach = MAX_HOPS
        self.frames: dict[Hashable, Frame] = {}
        self._mros: dict[Scope, list[Scope | Ref]] = {}
        self._subclasses: dict[Scope, list[Scope]] = {}
        self._callers: dict[Scope, list[tuple[Scope, Args | None, Value | None]]] = {}

    # --- questions ---------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Before the questions of one site: a full measure of steps."""
        self.steps = 0
        self.exhausted = False
        self.shallow = self.local
        self.reach = MAX_HOPS
        self.low = NOWHERE
        self.open_questions.clear()
        self._forget(0)

    def near(self, node: ast.expr, frame: Frame) -> Value:
        """The value of an expression from near by: no callers, no other objects. Enough for sizes and conditions,
        which lead all over a project and seldom decide anything there."""
        was, self.shallow = self.shallow, True
        try:
            return self.expr(node, frame)
        finally:
            self.shallow = was

    def query(self, key: Hashable, compute: Callable[[], Value], seed: Value = BOTTOM) -> Value:
        """`compute()`, once for each key; a fixed point where it depends on itself, starting from `seed`."""
        key = ("near" if self.shallow else self.reach, key)
        known = self.memo.get(key)
        if known is not None:
            return known
        open_question = self.open_questions.get(key)
        if open_question is not None:
            open_question.asked = True
            self.low = min(self.low, open_question.index)
            return open_question.value
        held = self.pending.get(key)
        if held is not None:
            self.low = min(self.low, held[1])
            return held[0]
        self.steps += 1
        depth = len(self.open_questions)
        if self.steps > MAX_STEPS or depth > MAX_DEPTH:
            self.exhausted = True
            self.low = -1
            return Unknown("runtime")
        question = self.open_questions[key] = _Question(depth)
        question.value = seed
        outer, self.low = self.low, NOWHERE
        mark = len(self.pending_order)
        try:
            for _ in range(MAX_TURNS):
                question.asked = False
                value = compute()
                if not question.asked:
                    break
                grown = join((question.value, value))
                if grown == question.value:
                    value = grown
                    break
                question.value = value = grown
                self._forget(mark)
        finally:
            del self.open_questions[key]
        if self.low >= depth:
            for settled in self.pending_order[mark:]:
                self.memo[settled] = self.pending.pop(settled)[0]
            del self.pending_order[mark:]
            self.memo[key] = value
        else:
            self.pending[key] = (value, self.low)
            self.pending_order.append(key)
        self.low = min(outer, self.low) if self.low < depth else outer
        if depth == 0:
            self._forget(0)
            self.low = NOWHERE
        return value

    def _forget(self, mark: int) -> None:
        for key in self.pending_order[mark:]:
            self.pending.pop(key, None)
        del self.pending_order[mark:]

    # --- frames ------------------------------------------------------------------------------------------------

    def frame(
        self, key: Hashable, scope: Scope, obj: Value | None, args: Args | None, closure: Frame | None, depth: int
    ) -> Frame:
        found = self.frames.get(key)
        if found is None:
            found = self.frames[key] = Frame(scope, obj, args, closure, depth, len(self.frames))
        return found

    def open_frame(self, scope: Scope, obj: Value | None = None) -> Frame:
        """The scope as any caller may enter it; `obj` is what self or cls is bound to."""
        if obj is None and scope.owner is not None and scope.is_function:
            kind = method_kind(scope)
            if kind == "class":
                obj = Cls(scope.owner)
            elif kind == "instance":
                obj = Inst(scope.owner)
        closure = None if scope.parent is None else self.open_frame(scope.parent)
        return self.frame(("open", scope, obj), scope, obj, None, closure, 0)

    def module_frame(self, module: Module) -> Frame:
        return self.open_frame(module.scope)

    # --- definitions -------------------------------------------------------------------------------------------

    def define(self, definition: Def, frame: Frame) -> Value:
        """The value of a definition in a frame."""
        key = (definition, frame)
        if isinstance(definition, Loop) and ("near" if self.shallow else self.reach, key) not in self.memo:
            # what enters the loop is known before its turns are looked at
            return self.query(key, lambda: self._define(definition, frame), self.define(definition.options[0], frame))
        return self.query(key, lambda: self._define(definition, frame))

    def _define(self, definition: Def, frame: Frame) -> Value:
        match definition:
            case Assign(value=value, annotation=annotation):
                if annotation is not None and is_plain_type(annotation) and not isinstance(value, ast.Constant):
                    typed = self.annotated(annotation, frame)
                    return typed if isinstance(typed, (Seq, Map)) else Unknown("local", symbol(definition, frame))
                found = self.expr(value, frame)
                if annotation is not None and isinstance(found, Unknown):
                    typed = self.annotated(annotation, frame)
                    found = found if isinstance(typed, Unknown) else typed
                elif isinstance(annotation, ast.Subscript) and isinstance(found, Inst):
                    typed = self.annotated(annotation, frame)
                    found = replace(found, of=typed.of) if isinstance(typed, Inst) else found
                return named_unknown(found, definition, frame)
            case Param(name=name):
                return named_unknown(self.parameter(name, frame), definition, frame)
            case Free(name=name):
                return BOTTOM if is_unbound(frame.scope, name) else self.free(name, frame)
            case Path(base=base, attr=attr, node=node):
                return self.attribute(self.define(base, frame), attr, node, frame)
            case Unpack(source=source, index=index, total=total):
                return named_unknown(self.element(self.define(source, frame), index, total), definition, frame)
            case Item(iterable=iterable):
                return named_unknown(self.iterate(self.expr(iterable, frame)), definition, frame)
            case Entered(context=context):
                return self.entered(self.expr(context, frame))
            case Augmented(before=before, node=node):
                left = self.define(before, frame)
                if isinstance(left, Const) and left.value is None:
                    return BOTTOM  # it would raise: what is worked on was stored elsewhere
                if any(isinstance(one, (Fact, Leaves)) for one in alternatives(left)):
                    return each(left, lambda one: one if isinstance(one, (Fact, Leaves, Bottom)) else Unknown("local"))
                if any(isinstance(one, (Seq, Map)) for one in alternatives(left)):
                    return operators.binary(self, left, node.op, self.expr(node.value, frame), node, frame)
                return Unknown("local", symbol(definition, frame))
            case Phi(options=options, test=test):
                if test is not None:
                    known = self.truth(test, frame)
                    if known is not None:
                        return self.define(options[0 if known else 1], frame)
                return join([self.define(option, frame) for option in options])
            case Loop(options=options):
                return join([self.define(option, frame) for option in options])
            case Guard(before=before, key=key, test=test, outcome=outcome):
                return refine.refine(self, self.define(before, frame), key, test, outcome, frame)
            case Fill(before=before):
                return self.filled(self.define(before, frame), definition, frame)
            case Nested(before=before, node=node, name=name):
                return self.filled_within(self.define(before, frame), frame.scope.child(node), name)
            case Reshaped(before=before, call=call):
                return library.reshaped(self, self.define(before, frame), call, frame)
            case Import():
                return self.imported(definition, frame.scope.module)
            case Bound(node=node):
                scope = frame.scope.child(node)
                if isinstance(node, ast.ClassDef):
                    return Cls(scope, frame)
                return self.decorated(Func(scope, frame), node, frame)
            case Opaque():
                return Unknown("local", symbol(definition, frame))
        return Unknown("local")

    def decorated(self, func: Func, node: ast.FunctionDef | ast.AsyncFunctionDef, frame: Frame) -> Value:
        """A decorator is taken to keep the function, but for a project's own whose wrapper returns something else."""
        for decorator in reversed(node.decorator_list):
            maker = self.expr(decorator, frame)
            if not isinstance(maker, Func):
                continue
            made = self.call_function(maker, Args((Arg(None, None, func),)), node, frame)
            if isinstance(made, Func) and not hands_on(made.scope):
                func = made
        return func

    def filled(self, before: Value, fill: Fill, frame: Frame) -> Value:
        """A container after a value was put in."""
        if fill.call is None and any(isinstance(one, (Fact, Leaves)) for one in alternatives(before)):
            return before  # an element of a tensor was written: its memory stays
        if not any(isinstance(one, (Seq, Map, Unknown, Const)) for one in alternatives(before)) and before != BOTTOM:
            return before  # `torch.add(x, 1)`, `x.add(1)`: no container, and nothing is put in
        put = self.put_value(fill, frame)
        kept: list[Value] = [one for one in alternatives(before) if not isinstance(one, Const)]
        return self.deepen(kept, fill.keys, put, frame)

    def filled_within(self, before: Value, nested: Scope, name: str) -> Value:
        """A container and what a nested function puts into it."""
        if any(isinstance(one, (Fact, Leaves)) for one in alternatives(before)):
            return before
        inner = self.open_frame(nested)
        for fill in nested.flow.bindings.get(name, ()):
            if isinstance(fill, Fill):
                before = join((before, self.filled(before, fill, inner)))
        return before

    def put_value(self, fill: Fill, frame: Frame) -> Value:
        """What a fill puts in, as a container of its own: a Seq or Map of the new element."""
        call = fill.call
        if call is None:
            assert fill.value is not None
            return self.define(fill.value, frame)
        name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        args = [self.expr(arg, frame) for arg in call.args]
        match name:
            case "append" | "appendleft" | "add" | "put" | "put_nowait" if args:
                return Seq("list", None, args[0])
            case "extend" | "extendleft" if args:
                return Seq("list", None, self.iterate(args[0]))
            case "insert" if len(args) > 1:
                return Seq("list", None, args[1])
            case "setdefault" | "__setitem__" if len(args) > 1:
                key = args[0]
                if isinstance(key, Const) and hashable(key.value):
                    return Map(((key.value, args[1]),))
                return Map((), args[1])
            case "update":
                found = [one for arg in args for one in alternatives(arg) if isinstance(one, (Map, Seq))]
                found += (
                    [Map(tuple((k.arg, self.expr(k.value, frame)) for k in call.keywords if k.arg))]
                    if call.keywords
                    else []
                )
                return join(found)
        return BOTTOM

    def deepen(self, kept: list[Value], keys: tuple[ast.expr, ...], put: Value, frame: Frame) -> Value:
        """`kept` after `kept[key][...] = put`. A method's container merges with what was there."""
        if not keys:
            return join([*kept, put]) if isinstance(put, (Seq, Map, Alts)) else join(kept)
        key = self.near(keys[0], frame)
        inner = put
        if len(keys) > 1:
            old = [one for value in kept for one in alternatives(self.subscript_value(value, key))]
            inner = self.deepen([one for one in old if not isinstance(one, Unknown)], keys[1:], put, frame)
        if isinstance(key, Const) and isinstance(key.value, str):
            fresh: Value = Map(((key.value, inner),))
        else:
            fresh = Map((), inner)
        result: list[Value] = []
        merged = False
        for value in kept:
            if isinstance(value, Seq):
                result.append(Seq(value.kind, None, join((value.element(), inner))))
                merged = True
            elif isinstance(value, Map):
                result.append(join((value, fresh)))
                merged = True
            else:
                result.append(value)
        if not merged:
            result.append(fresh)
        return join(result)

    # --- names -------------------------------------------------------------------------------------------------

    def free(self, name: str, frame: Frame) -> Value:
        """A name that the scope does not bind: closures, then the module, then builtins."""
        scope, outer = frame.scope.parent, frame.closure
        if frame.scope.parent is None:
            return self.module_name(frame.scope.module, name, within=True)
        while scope is not None:
            if scope.is_function and name in scope.flow.bindings:
                closed = outer if outer is not None and outer.scope is scope else self.open_frame(scope)
                return join([self.define(one, closed) for one in scope.flow.bindings[name]])
            if scope.parent is None:
                break
            scope = scope.parent
            outer = outer.closure if outer is not None else None
        return self.module_name(frame.scope.module, name)

    def module_name(self, module: Module, name: str, within: bool = False) -> Value:
        return self.query(("global", module, name), lambda: self._module_name(module, name))

    def _module_name(self, module: Module, name: str) -> Value:
        flow, frame = module.scope.flow, self.module_frame(module)
        definition = flow.final.get(name)
        if definition is not None and not isinstance(definition, Free):
            found = self.define(definition, frame)
            if isinstance(found, Const) and found.value is None:
                found = join([found, *self.global_stores(module, name)])
            return found
        for star in reversed(flow.stars):
            path = self.project.locate(star.module, star.level, module)
            if path is None:
                if star.module.partition(".")[0] in LIBRARIES:
                    return Ref(f"{star.module}.{name}")
                continue
            source = self.project.peek(path) if self.project.may_export(path, name) else None
            if source is not None and source is not module and self.exports(source, name, {module}):
                return self.module_name(source, name)
        inner = self.project.submodule(module, name)
        if inner is not None:
            return Mod(inner)
        stored = self.global_stores(module, name)
        if stored:
            return join(stored)
        if name in BUILTINS:
            return Ref(f"builtins.{name}")
        return Unknown("module", symbol("global", module.filename, name), flaglike=says_pin(name))

    def exports(self, module: Module, name: str, seen: set[Module]) -> bool:
        """Whether a module binds the name, by itself or by its star imports; none of `seen` does."""
        if name in module.scope.flow.final:
            return True
        seen.add(module)
        for star in module.scope.flow.stars:
            path = self.project.locate(star.module, star.level, module)
            source = self.project.peek(path) if path is not None and self.project.may_export(path, name) else None
            if source is not None and source not in seen and self.exports(source, name, seen):
                return True
        return False

    def global_stores(self, module: Module, name: str) -> list[Value]:
        """What functions assign to a module's name through `global`."""
        if f"global {name}" not in module.text and not ("global " in module.text and name in module.text):
            return []
        found = []
        for scope in module.scopes():
            if scope.is_function and name in scope.flow.outer:
                frame = self.open_frame(scope)
                found += [self.define(one, frame) for one in scope.flow.bindings.get(name, ())]
        return found

    def imported(self, definition: Import, module: Module) -> Value:
        name = definition.module
        root = name.partition(".")[0]
        if definition.level == 0 and root in LIBRARIES:
            if definition.name is None:
                return Ref(name if definition.whole else root)
            return Ref(f"{name}.{definition.name}")
        if definition.name is None:
            target = self.project.resolve(name if definition.whole else root, 0, module)
            if target is not None:
                return Mod(target)
            return Ref(name if definition.whole else root)
        target = self.project.resolve(name, definition.level, module)
        if target is None:
            if definition.level:
                return Unknown("project")
            return Ref(f"{name}.{definition.name}")
        if target is module:
            inner = self.project.submodule(target, definition.name)
            return Mod(inner) if inner is not None else Unknown("module")
        return self.module_name(target, definition.name)

    # --- parameters --------------------------------------------------------------------------------------------

    def parameter(self, name: str, frame: Frame) -> Value:
        node = frame.scope.node
        assert not isinstance(node, (ast.Module, ast.ClassDef))
        positional = [arg.arg for arg in (*node.args.posonlyargs, *node.args.args)]
        if frame.obj is not None and positional and name == positional[0] and takes_object(frame.scope):
            return frame.obj
        if frame.args is None:
            if self.shallow or self.reach == 0:
                return self.known_type(name, frame)
            return self.query(("param", frame.scope, name, frame.obj), lambda: self.open_parameter(name, frame))
        return self.bind(name, frame.scope, frame.args, frame)

    def bind(self, name: str, scope: Scope, args: Args, frame: Frame) -> Value:
        """The argument that a call gives to a parameter."""
        node = scope.node
        assert not isinstance(node, (ast.Module, ast.ClassDef))
        spec = node.args
        positional = [arg.arg for arg in (*spec.posonlyargs, *spec.args)]
        if takes_object(scope) and frame.obj is not None:
            positional = positional[1:]
        given, exact = self.expand(args)
        if name in positional:
            index = positional.index(name)
            if index < len(given):
                return given[index]() if exact or index < exact_prefix(args) else self.any_of(given)
            for keyword, arg in args.keywords:
                if keyword == name:
                    return self.argument(arg)
            if not exact or args.open:
                return Unknown("caller")
            return self.default(name, scope, frame)
        if spec.vararg is not None and name == spec.vararg.arg:
            rest = [one() for one in given[len(positional) :]]
            return Seq("tuple", tuple(rest)) if exact else Seq("tuple", None, join(rest) if rest else Unknown("caller"))
        if spec.kwarg is not None and name == spec.kwarg.arg:
            known = {arg.arg for arg in parameters(spec)}
            extra = tuple((keyword, self.argument(arg)) for keyword, arg in args.keywords if keyword not in known)
            return Map(extra, Unknown("caller") if args.open else BOTTOM)
        for keyword, arg in args.keywords:
            if keyword == name:
                return self.argument(arg)
        if args.open:
            return Unknown("caller")
        return self.default(name, scope, frame)

    def any_of(self, given: list[Callable[[], Value]]) -> Value:
        return join([one() for one in given])

    def argument(self, arg: Arg) -> Value:
        if arg.value is not None:
            return arg.value
        assert arg.node is not None and arg.frame is not None
        return self.expr(arg.node, arg.frame)

    def expand(self, args: Args) -> tuple[list[Callable[[], Value]], bool]:
        """The positional arguments one by one, and whether a starred one of unknown length is among them."""
        found: list[Callable[[], Value]] = []
        exact = True
        for arg in args.positional:
            if not arg.starred:
                found.append(lambda arg=arg: self.argument(arg))  # type: ignore[misc]
                continue
            value = self.argument(arg)
            if isinstance(value, Seq) and value.items is not None:
                found += [lambda one=one: one for one in value.items]  # type: ignore[misc]
            else:
                exact = False
                element = self.iterate(value)
                found.append(lambda element=element: element)  # type: ignore[misc]
        return found, exact

    def default(self, name: str, scope: Scope, frame: Frame) -> Value:
        node = default_of(scope, name)
        if node is None:
            return Unknown("caller")
        outer = frame.closure if frame.closure is not None else self.open_frame(scope.parent) if scope.parent else frame
        return self.expr(node, outer)

    def known_type(self, name: str, frame: Frame) -> Value:
        """What the annotation alone says of a parameter."""
        assert not isinstance(frame.scope.node, (ast.Module, ast.ClassDef))
        arg = next((one for one in parameters(frame.scope.node.args) if one.arg == name), None)
        if arg is None or arg.annotation is None or self.shallow or frame.scope.parent is None:
            return Unknown("caller")
        typed = self.annotated(arg.annotation, self.open_frame(frame.scope.parent))
        return typed if isinstance(typed, Inst) else Unknown("caller")

    @contextmanager
    def hops(self, left: int) -> Iterator[None]:
        """Answer with so many steps to callers left. Each answer is remembered with that number, so that what is found
        does not depend on the way that led to the question."""
        was, self.reach = self.reach, max(left, 0)
        try:
            yield
        finally:
            self.reach = was

    def open_parameter(self, name: str, frame: Frame) -> Value:
        """A parameter whose caller is not given: its annotation, else what the callers in the project pass."""
        scope = frame.scope
        node = scope.node
        assert not isinstance(node, (ast.Module, ast.ClassDef))
        spec = node.args
        arg = next(one for one in parameters(spec) if one.arg == name)
        outer = self.open_frame(scope.parent) if scope.parent is not None else frame
        if (
            arg.annotation is not None
            and is_plain_type(arg.annotation)
            and arg is not spec.vararg
            and arg is not spec.kwarg
        ):
            plain = self.annotated(arg.annotation, outer)
            return plain if isinstance(plain, (Seq, Map)) else Unknown("caller")
        typed: Value = Unknown("caller") if arg.annotation is None else self.annotated(arg.annotation, outer)
        if arg is spec.vararg:
            return Seq("tuple", None, typed)
        if arg is spec.kwarg:
            return Map((), typed)
        if any(isinstance(one, Inst) for one in alternatives(typed)):
            return typed
        default = default_of(scope, name)
        passed = self.passed(name, scope, frame)
        if passed is None:
            if default is not None:
                # nobody in the project calls it: the default is what its author expects
                value = self.expr(default, outer)
                if isinstance(value, Const) and value.value is None:
                    return typed
                return join([value, typed if not isinstance(typed, (Num,)) else Unknown("caller")])
            return Unknown("caller", flaglike=True) if isinstance(typed, Unknown) and says_pin(name) else typed
        if says_pin(name) and (default is None or truth_of(self.expr(default, outer)) is not False):
            # what cannot be told of the callers is taken at its word
            passed = each(passed, lambda one: replace(one, flaglike=True) if isinstance(one, Unknown) else one)
        return self.narrow_by_type(passed, typed)

    def narrow_by_type(self, value: Value, typed: Value) -> Value:
        if isinstance(typed, Unknown):
            return value
        return each(value, lambda one: typed if isinstance(one, Unknown) and one.symbol is None else one)

    def passed(self, name: str, scope: Scope, frame: Frame) -> Value | None:
        """What the callers in the project pass for a parameter; None when there is no caller to be seen."""
        found: list[Value] = []
        callers = self.callers(scope, frame.obj)
        if all(caller is scope for caller, _, _ in callers):
            return None  # nobody, or only itself
        for _, args, obj in callers:
            bound = Frame(scope, obj, args, frame.closure, 0, -1)
            found.append(self.bind(name, scope, args, bound) if args is not None else Unknown("caller"))
        return join(found)

    def callers(self, scope: Scope, obj: Value | None) -> list[tuple[Scope, Args | None, Value | None]]:
        """The calls of a function in the project: where, with which arguments (None: cannot be told)."""
        if isinstance(scope.node, ast.Lambda) or scope.name in (
            "forward",
            "__call__",
            "__enter__",
            "__exit__",
            "__iter__",
        ):
            return []
        if scope not in self._callers:
            self._callers[scope] = []  # while they are being looked for
            with self.hops(0):
                self._callers[scope] = list(self._find_callers(scope))
        return self._callers[scope]

    def _find_callers(self, scope: Scope) -> Iterator[tuple[Scope, Args | None, Value | None]]:
        owner = scope.owner
        names = [scope.name]
        if scope.name == "__init__" and owner is not None:
            names = [owner.name, "cls", "__init__"]
        is_test = in_tests(scope.module)
        seen = 0
        for name in names:
            calls = self.calls_named(name, scope)
            if calls is None:
                yield scope, None, None
                return
            for caller, call in calls:
                if in_tests(caller.module) and not is_test:
                    continue
                matched = self.matches(caller, call, scope)
                if matched is False:
                    continue
                if is_partial(call, scope):
                    kept = self.names_of(caller, call)
                    if kept is not None:
                        names += [one for one in kept if one not in names]
                        continue
                seen += 1
                if seen > MAX_CALLERS or matched is None:
                    yield caller, None, None
                    if seen > MAX_CALLERS:
                        return
                    continue
                yield caller, matched[0], matched[1]

    def names_of(self, scope: Scope, call: ast.Call) -> list[str] | None:
        """The names and attributes that what `call` gives is assigned to, here or by those who call a function that
        returns it; None where it goes elsewhere."""
        statement = scope.flow.statement.get(call)
        match statement:
            case ast.Assign(value=value, targets=targets) if value is call:
                names = [call_name(target) for target in targets]
                return names if all(names) else None
            case ast.AnnAssign(value=value, target=target) if value is call:
                return [call_name(target)] if call_name(target) else None
            case ast.Return(value=value) if value is call and scope.is_function:
                found: list[str] = []
                for caller, maker in self.project.calls_of(scope.name, scope.module) or ():
                    if isinstance(caller.flow.statement.get(maker), ast.Return):
                        return None
                    kept = self.names_of(caller, maker)
                    if kept is None:
                        return None
                    found += kept
                return found or None
        return None

    def calls_named(self, name: str, scope: Scope) -> list[tuple[Scope, ast.Call]] | None:
        if scope.owner is not None and scope.name == "__init__" and name in ("cls", "__init__"):
            # only the class itself and what derives from it can mean it
            modules = {scope.module: None}
            for derived in self.subclasses(scope.owner):
                modules[derived.module] = None
            return [one for module in modules for one in module.calls(name)]
        calls = self.project.calls_of(name, scope.module)
        if calls is None and scope.owner is not None:
            # a common name: only a file that speaks of the class or a base of it can call the method of such an object
            return self.project.calls_near(name, [one.name for one in self.classes(scope.owner)], scope.module)
        return calls

    def matches(
        self, caller: Scope, call: ast.Call, target: Scope
    ) -> tuple[Args, Value | None] | Literal[False] | None:
        """How `call` enters `target`: its arguments and the object; None when it may, False when it does not."""
        frame = self.open_frame(caller)
        made_partial = is_partial(call, target)
        callee = call.args[0] if made_partial and call.args else call.func
        args = make_args(call, frame)
        if made_partial:
            args = Args(args.positional[1:], args.keywords, True)
        if isinstance(callee, ast.Attribute) and target.owner is not None and target.name != "__init__":
            return self.matches_method(self.expr(callee.value, frame), args, target)
        for one in alternatives(self.expr(callee, frame)):
            match one:
                case Func(scope=scope, bound=bound) if scope is target:
                    return args, bound
                case Cls(scope=scope) if target.name == "__init__" and self.find_method(scope, "__init__") is target:
                    return args, Inst(scope)
                case Partial(func=Func(scope=scope, bound=bound), args=first) if scope is target:
                    return first.plus(args), bound
        return False

    def matches_method(
        self, receiver: Value, args: Args, target: Scope
    ) -> tuple[Args, Value | None] | Literal[False] | None:
        """How `receiver.name(...)` enters the method `target`, if it does."""
        owner = target.owner
        assert owner is not None
        unsure = False
        for one in alternatives(receiver):
            match one:
                case Inst(scope=scope, made=made):
                    if self.find_method(scope, target.name) is target:
                        return args, one
                    if made is None and scope in self.classes(owner):
                        return args, Inst(owner)
                case Cls(scope=scope) | Super(scope=scope):
                    if self.find_method(scope, target.name) is target or (
                        isinstance(one, Super) and owner in self.classes(scope)
                    ):
                        if isinstance(one, Super):
                            return args, one.obj
                        if method_kind(target) == "instance":
                            return Args(args.positional[1:], args.keywords, args.open), Inst(scope)
                        return args, one
                case Unknown():
                    unsure = True
        if not unsure:
            return False
        # the receiver is unknown: the name alone decides when only one class has such a method
        return (args, None) if self.is_unique_method(target) else None

    def is_unique_method(self, target: Scope) -> bool:
        modules = self.project.modules_with(target.name, DEFINED, target.module)
        if modules is None:
            return False
        found = [
            one for module in modules for one in module.scopes() if one.name == target.name and one.owner is not None
        ]
        return all(one is target or in_tests(one.module) for one in found)

    # --- types -------------------------------------------------------------------------------------------------

    def annotated(self, node: ast.expr, frame: Frame) -> Value:
        """A value of the annotated type."""
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str):
                try:
                    node = ast.parse(node.value, mode="eval").body
                except (SyntaxError, ValueError):
                    return Unknown("caller")
            else:
                return NONE if node.value is None else Unknown("caller")
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            sides = [self.annotated(side, frame) for side in (node.left, node.right)]
            kept = [side for side in sides if not isinstance(side, Const)]
            return join(kept) if kept and not any(isinstance(one, Unknown) for one in kept) else Unknown("caller")
        if isinstance(node, ast.Subscript):
            return self.annotated_generic(node, frame)
        if not isinstance(node, (ast.Name, ast.Attribute)):
            return Unknown("caller")
        found = self.expr(node, frame)
        match found:
            case Cls(scope=scope):
                return Unknown("caller") if self.is_opaque_class(scope) else Inst(scope)
            case Ref(name="torch.Tensor"):
                return Unknown("caller")
            case Ref(name="numpy.ndarray"):
                return Fact("cpu", shape=PACKED, array=True, needs="caller")
        return Unknown("caller")

    def annotated_generic(self, node: ast.Subscript, frame: Frame) -> Value:
        name = call_name(node.value)
        inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        match name:
            case "Optional" | "Final" | "ClassVar" | "Annotated" | "Required" | "InitVar":
                return self.annotated(inner[0], frame)
            case "Union":
                kept = [one for one in (self.annotated(part, frame) for part in inner) if not isinstance(one, Const)]
                return join(kept) if kept and not any(isinstance(one, Unknown) for one in kept) else Unknown("caller")
            case "list" | "List" | "Sequence" | "Iterable" | "Iterator" | "set" | "deque" | "Collection":
                return Seq("list", None, self.annotated(inner[0], frame))
            case "dict" | "Dict" | "Mapping" | "defaultdict" | "OrderedDict" if len(inner) == 2:
                return Map((), self.annotated(inner[1], frame))
            case "tuple" | "Tuple":
                if len(inner) == 2 and isinstance(inner[1], ast.Constant) and inner[1].value is Ellipsis:
                    return Seq("tuple", None, self.annotated(inner[0], frame))
                return Seq("tuple", tuple(self.annotated(one, frame) for one in inner))
        found = self.annotated(node.value, frame)
        held = self.annotated(inner[-1], frame) if isinstance(found, Inst) else None
        return replace(found, of=held) if isinstance(found, Inst) and isinstance(held, Inst) else found

    def is_opaque_class(self, scope: Scope) -> bool:
        """A class whose objects carry no attributes of their own to follow: enums, protocols, type aliases."""
        return any(
            isinstance(one, Ref) and one.name.rpartition(".")[2] in ("Enum", "IntEnum", "Protocol", "TypedDict")
            for one in self.mro(scope)
        )

    # --- classes -----------------------------------------------------------------------------------------------

    def mro(self, scope: Scope) -> list[Scope | Ref]:
        """The class and its bases, nearest first; a base outside the project is a Ref."""
        known = self._mros.get(scope)
        if known is not None:
            return known
        self._mros[scope] = [scope]  # while a cyclic import is being followed
        found: list[Scope | Ref] = [scope]
        node = scope.node
        assert isinstance(node, ast.ClassDef)
        frame = self.open_frame(scope.parent) if scope.parent is not None else self.module_frame(scope.module)
        for base in node.bases:
            inner = base.value if isinstance(base, ast.Subscript) else base
            for one in alternatives(self.expr(inner, frame)):
                if isinstance(one, Cls) and one.scope not in found:
                    found += [each_base for each_base in self.mro(one.scope) if each_base not in found]
                elif isinstance(one, Ref):
                    found.append(one)
                elif isinstance(one, Unknown):
                    found.append(Ref("?." + call_name(inner)))
        self._mros[scope] = found
        return found

    def classes(self, scope: Scope) -> list[Scope]:
        return [one for one in self.mro(scope) if not isinstance(one, Ref)]

    def subclasses(self, scope: Scope) -> list[Scope]:
        """All classes of the project that derive from it, by name and then by resolving the base."""
        known = self._subclasses.get(scope)
        if known is not None:
            return known
        self._subclasses[scope] = []
        found: list[Scope] = []
        for one in self.project.derived_from(scope.name, scope.module):
            if one is not scope and scope in self.classes(one) and not in_tests(one.module):
                found.append(one)
                found += [deeper for deeper in self.subclasses(one) if deeper not in found]
        self._subclasses[scope] = list(dict.fromkeys(found))
        return self._subclasses[scope]

    def find_method(self, scope: Scope, name: str) -> Scope | None:
        for one in self.classes(scope):
            method = one.method(name)
            if method is not None:
                return method
        return None

    def has_base(self, scope: Scope, name: str) -> bool:
        return any(isinstance(one, Ref) and one.name.rpartition(".")[2] == name for one in self.mro(scope))

    def fields(self, scope: Scope) -> list[tuple[str, ast.AnnAssign]]:
        """The fields of a dataclass or NamedTuple in the order of the constructor's parameters."""
        found: dict[str, ast.AnnAssign] = {}
        for one in reversed(self.classes(scope)):
            for statement in getattr(one.node, "body", ()):
                if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                    if call_name(statement.annotation) != "ClassVar":
                        found[statement.target.id] = statement
        return list(found.items())

    def is_record(self, scope: Scope) -> bool:
        """A class whose constructor is made from its annotations."""
        if self.has_base(scope, "NamedTuple") or self.has_base(scope, "Struct"):
            return True
        for one in self.classes(scope):
            assert isinstance(one.node, ast.ClassDef)
            for decorator in one.node.decorator_list:
                target = decorator.func if isinstance(decorator, ast.Call) else decorator
                if call_name(target) in ("dataclass", "dataclass_with_default_init", "define", "attrs", "frozen"):
                    return True
        return False

    def construct(self, cls: Cls, args: Args, node: ast.AST, frame: Frame) -> Value:
        scope = cls.scope
        if self.is_opaque_class(scope):
            return Unknown("project")
        if frame.depth >= MAX_FRAMES:
            return Inst(scope)
        init = self.find_method(scope, "__init__")
        entered = init if init is not None else scope
        closure = None if entered.parent is None else self.open_frame(entered.parent)
        made = self.frame(("made", scope, node, frame, args), entered, None, args, closure, frame.depth + 1)
        made.obj = Inst(scope, made)
        return made.obj

    def instance_attribute(self, inst: Inst, attr: str) -> Value:
        return self.query(("attr", inst, attr), lambda: self._instance_attribute(inst, attr))

    def _instance_attribute(self, inst: Inst, attr: str) -> Value:
        if attr == "__class__":
            return Cls(inst.scope)
        if attr == "__dict__":
            return Unknown("class")
        method = self.find_method(inst.scope, attr)
        if method is not None:
            return self.bound_method(inst, attr, method)
        found = self.stored(inst, attr, self.classes(inst.scope))
        if self.is_record(inst.scope):
            found += self.field_value(inst, attr)
        if not found and inst.made is None:
            for derived in self.subclasses(inst.scope):
                found += self.stored(Inst(derived), attr, [derived])
                method = derived.method(attr)
                if method is not None:
                    found.append(self.bound_method(Inst(derived), attr, method))
        if all(isinstance(one, Const) and one.value is None for one in found):
            found += self.stored_elsewhere(inst, attr)
        value = each(join(found), lambda one: replace(one, held=True) if isinstance(one, Fact) else one)
        if isinstance(value, Bottom):
            if found:
                return value
            return Unknown("class", symbol("attr", inst, attr), flaglike=says_pin(attr))
        if isinstance(value, Unknown) and value.symbol is None:
            return Unknown(value.needs, symbol("attr", inst, attr), value.flaglike)
        return value

    def bound_method(self, inst: Inst, attr: str, method: Scope) -> Value:
        if isinstance(method.node, ast.ClassDef):
            return Cls(method)
        chosen = [method]
        if inst.made is None and attr != "__init__":
            chosen += [
                one
                for derived in self.subclasses(inst.scope)
                if (one := derived.method(attr)) is not None and one not in chosen
            ]
        values: list[Value] = []
        for one in chosen:
            assert isinstance(one.node, (ast.FunctionDef, ast.AsyncFunctionDef))
            owner = inst if one.owner is None or one.owner in self.classes(inst.scope) else Inst(one.owner)
            kind = method_kind(one)
            bound: Value | None = None if kind == "static" else Cls(inst.scope) if kind == "class" else owner
            func = Func(one, None, bound)
            if is_property(one.node):
                values.append(self.call_function(func, Args(), one.node, self.open_frame(one)))
            else:
                values.append(func)
        return join(values)

    def stored(self, inst: Inst, attr: str, classes: list[Scope]) -> list[Value]:
        """What the methods of these classes store in `self.attr`, and what their bodies assign."""
        found: list[Value] = []
        pending: list[tuple[Fill, Frame]] = []
        for cls in classes:
            for method in cls.module.stores(attr):
                if enclosing_class(method) is not cls:
                    continue
                for store in method.flow.stores:
                    if store.attr != attr or not self.is_self(store.base, method):
                        continue
                    frame = self.frame_for(inst, method)
                    if self.excluded(store.conditions, frame):
                        continue
                    if store.fill:
                        fill = store.definition
                        assert isinstance(fill, Fill)
                        pending.append((fill, frame))
                    else:
                        found.append(self.define(store.definition, frame))
            found += self.registered(inst, attr, cls)
            body = cls.flow.final.get(attr)
            if body is not None and not isinstance(body, Free) and not self.is_record(cls):
                found.append(self.define(body, self.open_frame(cls)))
        if any(isinstance(one, Fact) for value in found for one in alternatives(value)):
            return found  # elements of a tensor were written
        fills = [self.deepen([], fill.keys, self.put_value(fill, frame), frame) for fill, frame in pending]
        sequence = next((one for value in found for one in alternatives(value) if isinstance(one, Seq)), None)
        if sequence is not None:
            fills = [Seq(sequence.kind, None, fill.element()) if isinstance(fill, Map) else fill for fill in fills]
        return found + fills

    def registered(self, inst: Inst, attr: str, cls: Scope) -> list[Value]:
        """`self.register_buffer("attr", ...)`: it follows its module to the device, a GPU by convention."""
        for method, call in (*cls.module.calls("register_buffer"), *cls.module.calls("register_parameter")):
            if (
                enclosing_class(method) is cls
                and call.args
                and isinstance(call.args[0], ast.Constant)
                and call.args[0].value == attr
            ):
                if call_name(call.func) == "register_buffer":
                    return [Fact("gpu", shape=PACKED, assumed=True)]
                return [Unknown("runtime", symbol("parameter", inst.scope, attr))]
        return []

    def is_self(self, base: ast.expr, method: Scope) -> bool:
        """Whether `base` is the object that the method (or the method around a nested function) belongs to."""
        if not isinstance(base, ast.Name):
            return False
        scope: Scope | None = method
        while scope is not None and scope.is_function:
            assert not isinstance(scope.node, (ast.Module, ast.ClassDef))
            first = [arg.arg for arg in (*scope.node.args.posonlyargs, *scope.node.args.args)][:1]
            if scope.owner is not None:
                return first == [base.id] and method_kind(scope) != "static"
            scope = scope.parent
        return False

    def frame_for(self, inst: Inst, method: Scope) -> Frame:
        """The frame in which a method of `inst` runs: the constructor's own, or one that any caller may enter."""
        if method.owner is None:
            return self.open_frame(method)
        made = inst.made
        if made is not None and method.name == "__init__":
            if made.scope is method:
                return made
            inner = self.super_frame(inst, made, method)
            if inner is not None:
                return inner
        return self.open_frame(method, inst)

    def super_frame(self, inst: Inst, made: Frame, target: Scope) -> Frame | None:
        """The frame of a base's `__init__`, entered through `super().__init__(...)` or `Base.__init__(self, ...)`."""
        if not made.scope.is_function:
            return None
        for call in made.scope.flow.calls:
            func = call.func
            if not (isinstance(func, ast.Attribute) and func.attr == "__init__"):
                continue
            args = make_args(call, made)
            if not (isinstance(func.value, ast.Call) and call_name(func.value.func) == "super"):
                args = Args(args.positional[1:], args.keywords, args.open)
            owner = made.scope.owner
            bases = [] if owner is None else [one for one in self.classes(inst.scope) if one is not owner]
            inits = [one.method("__init__") for one in bases if one.method("__init__") is not None]
            if inits and inits[0] is target:
                return self.frame(
                    ("super", target, made, call),
                    target,
                    inst,
                    args,
                    self.open_frame(target.parent) if target.parent else None,
                    made.depth + 1,
                )
            if inits and inits[0] is not None and made.depth < MAX_FRAMES:
                nearer = self.frame(("super", inits[0], made, call), inits[0], inst, args, None, made.depth + 1)
                return self.super_frame(inst, nearer, target)
        return None

    def field_value(self, inst: Inst, attr: str) -> list[Value]:
        """A dataclass or NamedTuple field: the constructor's argument, here or at every construction in the project."""
        fields = self.fields(inst.scope)
        names = [name for name, _ in fields]
        if attr not in names:
            return []
        if inst.made is not None and inst.made.args is not None and inst.made.scope is inst.scope:
            return [self.field_argument(inst, attr, fields, inst.made.args)]
        if inst.made is not None and inst.made.scope.is_function:
            return []
        declared = dict(fields)[attr]
        if is_plain_type(declared.annotation):
            return [Unknown("project")]
        typed = self.annotated(declared.annotation, self.open_frame(inst.scope))
        if any(isinstance(one, Inst) for one in alternatives(typed)):
            return [typed]
        if self.shallow or self.reach == 0:
            return [Unknown("project")]
        with self.hops(self.reach - 1):
            return self.constructed(inst, attr, fields)

    def constructed(self, inst: Inst, attr: str, fields: list[tuple[str, ast.AnnAssign]]) -> list[Value]:
        """What every construction in the project, and code outside the class, gives a field."""
        found: list[Value] = []
        for target in (inst.scope, *self.subclasses(inst.scope)):
            calls = self.project.calls_of(target.name, target.module)
            if calls is None:
                return [Unknown("project")]
            module_calls = [one for one in target.module.calls("cls") if enclosing_class(one[0]) is target]
            for caller, call in (*calls, *module_calls):
                if in_tests(caller.module) and not in_tests(target.module):
                    continue
                frame = self.open_frame(caller)
                for one in alternatives(self.expr(call.func, frame)):
                    if isinstance(one, Cls) and one.scope is target:
                        found.append(self.field_argument(Inst(target), attr, fields, make_args(call, frame)))
                if len(found) > MAX_CALLERS:
                    return [Unknown("project")]
        stores = self.stored_elsewhere(inst, attr)
        found += stores
        return found

    def field_argument(self, inst: Inst, attr: str, fields: list[tuple[str, ast.AnnAssign]], args: Args) -> Value:
        names = [name for name, _ in fields]
        given, exact = self.expand(args)
        index = names.index(attr)
        if index < len(given):
            return given[index]() if exact else Unknown("caller")
        for keyword, arg in args.keywords:
            if keyword == attr:
                return self.argument(arg)
        if args.open or not exact:
            return Unknown("caller")
        default = dict(fields)[attr].value
        if default is None:
            return Unknown("caller")
        value = self.expr(default, self.open_frame(inst.scope))
        if isinstance(default, ast.Call) and call_name(default.func) == "field":
            for keyword_node in default.keywords:
                if keyword_node.arg == "default":
                    return self.expr(keyword_node.value, self.open_frame(inst.scope))
                if keyword_node.arg == "default_factory":
                    factory = self.expr(keyword_node.value, self.open_frame(inst.scope))
                    return each(factory, lambda one: self.apply(one, Args(), default, self.open_frame(inst.scope)))
            return Unknown("class")
        return value

    def stored_elsewhere(self, inst: Inst, attr: str) -> list[Value]:
        """What code outside the class stores in the attribute of such an object."""
        stores = None if self.shallow or self.reach == 0 else self.project.stores_of(attr, inst.scope.module)
        if stores is None:
            return [Unknown("project")]
        family = {*self.classes(inst.scope), *(self.subclasses(inst.scope) if inst.made is None else ())}
        found: list[Value] = []
        for scope, store in stores:
            if self.is_self(store.base, scope) or (in_tests(scope.module) and not in_tests(inst.scope.module)):
                continue
            frame = self.open_frame(scope)
            base = self.expr(store.base, frame)
            if any(
                isinstance(one, Inst) and (one.scope in family or inst.scope in self.classes(one.scope))
                for one in alternatives(base)
            ):
                found.append(self.define(store.definition, frame))
        return found

    def stored_anywhere(self, attr: str, frame: Frame) -> Value:
        """An attribute of an object of unknown kind: what the project stores under that name, when all of it is seen.

        Only names under which nothing but the results of tensor calls are stored are followed.
        """
        if (
            attr.startswith("__")
            or self.shallow
            or self.reach == 0
            or not self.project.only_tensors_stored(attr, frame.scope.module)
        ):
            return Unknown("runtime")
        stores = self.project.stores_of(attr, frame.scope.module)
        if not stores or len(stores) > MAX_CALLERS or not all(makes_tensor(store.definition) for _, store in stores):
            return Unknown("runtime")
        with self.hops(self.reach - 1):
            value = join([self.define(store.definition, self.open_frame(scope)) for scope, store in stores])
        return value if all(isinstance(one, Fact) for one in alternatives(value)) else Unknown("runtime")

    # --- attributes --------------------------------------------------------------------------------------------

    def attribute(self, value: Value, attr: str, node: ast.expr, frame: Frame) -> Value:
        return each(value, lambda one: self._attribute(one, attr, node, frame))

    def _attribute(self, value: Value, attr: str, node: ast.expr, frame: Frame) -> Value:
        match value:
            case Ref(name=name):
                return Ref(f"{name}.{attr}")
            case Mod(module=module):
                return self.module_name(module, attr)
            case Fact():
                found = library.tensor_attribute(self, value, attr, node, frame)
                if found is None:
                    return self.query(("anywhere", attr), lambda: self.stored_anywhere(attr, frame))
                return found
            case Inst():
                return self.instance_attribute(value, attr)
            case Cls(scope=scope):
                return self.class_attribute(scope, attr)
            case Super(scope=scope, obj=obj):
                return self.super_attribute(scope, obj, attr)
            case Dev(kind=kind):
                if attr == "type":
                    return (
                        Const({"cpu": "cpu", "gpu": "cuda"}.get(kind))
                        if kind in ("cpu", "gpu") and not value.assumed
                        else Unknown("runtime", symbol(value, attr))
                    )
                return Unknown("runtime", symbol(value, attr))
            case Const(value=None):
                return BOTTOM
            case Unknown(symbol=known, needs=needs):
                if library.is_tensor_name(attr):
                    return library.unknown_attribute(value, attr)
                if attr == "saved_tensors":
                    return self.saved_tensors(frame)
                found = self.query(("anywhere", attr), lambda: self.stored_anywhere(attr, frame))
                if not isinstance(found, Unknown):
                    return found
                return Unknown(needs, symbol(known, attr) if known is not None else None, says_pin(attr))
            case Func() | Partial() | Num() | Flag():
                return Unknown("local")
            case Seq() if attr in ("values", "indices") and isinstance(value.element(), Fact):
                return value.element()  # torch's named tuples
        return Method(value, attr)

    def saved_tensors(self, frame: Frame) -> Value:
        """What the forward of an autograd function saved for this backward (torch.autograd.Function)."""
        owner = enclosing_class(frame.scope)
        if owner is None:
            return Unknown("class")
        found: list[Value] = []
        for method, call in owner.module.calls("save_for_backward"):
            if enclosing_class(method) is owner:
                inner = self.open_frame(method)
                found.append(
                    Seq("tuple", tuple(self.expr(arg, inner) for arg in call.args if not isinstance(arg, ast.Starred)))
                )
        return join(found) if found else Unknown("class")

    def class_attribute(self, scope: Scope, attr: str) -> Value:
        method = self.find_method(scope, attr)
        if method is not None:
            if isinstance(method.node, ast.ClassDef):
                return Cls(method)
            return Func(method, None, Cls(scope) if method_kind(method) == "class" else None)
        for one in self.classes(scope):
            body = one.flow.final.get(attr)
            if body is not None and not isinstance(body, Free):
                return self.define(body, self.open_frame(one))
        return Unknown("class", symbol("class", scope, attr))

    def super_attribute(self, scope: Scope, obj: Value, attr: str) -> Value:
        start = obj.scope if isinstance(obj, (Inst, Cls)) else scope
        order = self.classes(start)
        after = order[order.index(scope) + 1 :] if scope in order else self.classes(scope)[1:]
        for one in after:
            method = one.method(attr)
            if method is not None and not isinstance(method.node, ast.ClassDef):
                return Func(method, None, None if method_kind(method) == "static" else obj)
        return Unknown("class")

    # --- expressions -------------------------------------------------------------------------------------------

    def expr(self, node: ast.expr, frame: Frame) -> Value:
        match node:
            case ast.Name():
                definition = frame.scope.flow.uses.get(node)
                return self.free_or_own(node.id, frame) if definition is None else self.define(definition, frame)
            case ast.Constant():
                return Const(node.value)
            case ast.Attribute():
                definition = frame.scope.flow.uses.get(node)
                if definition is not None:
                    return self.define(definition, frame)
                return self.attribute(self.expr(node.value, frame), node.attr, node, frame)
            case ast.Call():
                return self.query((node, frame), lambda: self.call(node, frame))
            case ast.Subscript():
                return self.query((node, frame), lambda: self.subscript(node, frame))
            case ast.Tuple() | ast.List() | ast.Set():
                return self.display(node, frame)
            case ast.Dict():
                return self.dict_display(node, frame)
            case ast.BinOp():
                left = self.expr(node.left, frame)
                settled = library.settled(left)
                return operators.binary(
                    self, left, node.op, left if settled else self.expr(node.right, frame), node, frame
                )
            case ast.UnaryOp():
                return operators.unary(self, node, frame)
            case ast.Compare():
                return operators.compare(self, node, frame)
            case ast.BoolOp():
                return self.boolean(node, frame)
            case ast.IfExp():
                known = self.truth(node.test, frame)
                if known is not None:
                    return self.expr(node.body if known else node.orelse, frame)
                return join((self.expr(node.body, frame), self.expr(node.orelse, frame)))
            case ast.NamedExpr() | ast.Await() | ast.Starred() | ast.FormattedValue():
                return self.expr(node.value, frame)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp():
                return Seq("list", None, self.expr(node.elt, frame))
            case ast.DictComp():
                return Map((), self.expr(node.value, frame))
            case ast.Lambda():
                return Func(frame.scope.child(node), frame)
            case ast.JoinedStr():
                first = node.values[0] if node.values else None
                if isinstance(first, ast.Constant) and isinstance(first.value, str) and ":" in first.value:
                    return Const(first.value)
                return Unknown("local")
        return Unknown("local")

    def free_or_own(self, name: str, frame: Frame) -> Value:
        """A name in code that the flow did not walk (annotations, bases): the last definition counts."""
        definition = frame.scope.flow.final.get(name)
        if definition is not None and not isinstance(definition, Free):
            return self.define(definition, frame)
        return self.free(name, frame)

    def display(self, node: ast.Tuple | ast.List | ast.Set, frame: Frame) -> Value:
        kind = "tuple" if isinstance(node, ast.Tuple) else "list"
        items: list[Value] = []
        for element in node.elts:
            if isinstance(element, ast.Starred):
                value = self.expr(element.value, frame)
                if isinstance(value, Seq) and value.items is not None:
                    items += value.items
                    continue
                rest = [self.expr(e, frame) for e in node.elts if not isinstance(e, ast.Starred)]
                rest += [self.iterate(self.expr(e.value, frame)) for e in node.elts if isinstance(e, ast.Starred)]
                return Seq(kind, None, join(rest))
            items.append(self.expr(element, frame))
        if len(items) > 64:
            return Seq(kind, None, join(items))
        return Seq(kind, tuple(items))

    def dict_display(self, node: ast.Dict, frame: Frame) -> Value:
        items: dict[Hashable, Value] = {}
        rest: list[Value] = []
        for key_node, value_node in zip(node.keys, node.values):
            value = self.expr(value_node, frame)
            if key_node is None:
                for one in alternatives(value):
                    if isinstance(one, Map):
                        items.update(one.items)
                        rest.append(one.rest)
                    else:
                        rest.append(Unknown("local"))
                continue
            key = self.expr(key_node, frame)
            if isinstance(key, Const) and hashable(key.value):
                items[key.value] = value
            else:
                rest.append(value)
        return Map(tuple(items.items()), join(rest))

    def boolean(self, node: ast.BoolOp, frame: Frame) -> Value:
        found: list[Value] = []
        is_and = isinstance(node.op, ast.And)
        for position, part in enumerate(node.values):
            value = self.expr(part, frame)
            known = truth_of(value)
            last = position == len(node.values) - 1
            if known is not None and known != is_and and not isinstance(value, Flag):
                found.append(value)
                break
            if known is not None and known == is_and and not last:
                continue
            if not last and is_and:
                # a value that may be true lets the next one through; what is false of it comes out
                found.append(Const(False) if isinstance(value, Unknown) and not value.flaglike else BOTTOM)
                if isinstance(value, Unknown) and not value.flaglike:
                    found.append(Unknown(value.needs))
                continue
            if not last:
                found += [one for one in alternatives(value) if truth_of(one) is not False]
                continue
            found.append(value)
        return join(found)

    def subscript(self, node: ast.Subscript, frame: Frame) -> Value:
        base = self.expr(node.value, frame)

        def pick(one: Value) -> Value:
            if isinstance(one, Fact):
                return library.index(self, one, node, frame)
            if isinstance(one, Ref):
                return one  # a generic type
            if one == NONE:
                return BOTTOM
            if isinstance(node.slice, ast.Tuple) and any(isinstance(part, ast.Slice) for part in node.slice.elts):
                # no list takes such a key
                if isinstance(one, Leaves):
                    return library.index(self, one.fact, node, frame)
                if isinstance(one, Unknown):
                    return Fact(needs=one.needs)
            if isinstance(node.slice, ast.Slice):
                return self.slice_of(one, node.slice, frame)
            return self.subscript_value(one, self.near(node.slice, frame))

        return each(base, pick)

    def slice_of(self, base: Value, part: ast.Slice, frame: Frame) -> Value:
        if not isinstance(base, Seq):
            return base if isinstance(base, (Leaves, Unknown)) else Unknown("local")
        if base.items is not None:
            bounds = [None if one is None else self.expr(one, frame) for one in (part.lower, part.upper, part.step)]
            if all(one is None or isinstance(one, Const) for one in bounds):
                try:
                    return Seq(base.kind, base.items[slice(*[None if one is None else one.value for one in bounds])])  # type: ignore[union-attr,arg-type]
                except (TypeError, ValueError):
                    pass
        return Seq(base.kind, None, base.element())

    def subscript_value(self, base: Value, key: Value) -> Value:
        match base:
            case Seq(items=items):
                if items is not None and isinstance(key, Const) and isinstance(key.value, int):
                    # past the end: something that was not seen was put in
                    return items[key.value] if -len(items) <= key.value < len(items) else Unknown("local")
                return base.element()
            case Map():
                if isinstance(key, Const) and hashable(key.value):
                    return base.get(key.value)
                return base.element()
            case Leaves():
                return base
            case Inst(scope=scope):
                if self.has_base(scope, "NamedTuple") and isinstance(key, Const) and isinstance(key.value, int):
                    names = [name for name, _ in self.fields(scope)]
                    if -len(names) <= key.value < len(names):
                        return self.instance_attribute(base, names[key.value])
                method = self.find_method(scope, "__getitem__")
                if method is not None:
                    return self.call_function(
                        Func(method, None, base), Args((Arg(None, None, key),)), method.node, self.open_frame(method)
                    )
                return Unknown("class")
            case Unknown(symbol=known) if known is not None and isinstance(key, (Const, Num, Unknown)):
                tag = key_of(key)
                if isinstance(key, Unknown) and key.symbol is None:
                    return Unknown(base.needs)
                return Unknown(base.needs, symbol(known, "[]", tag))
            case Unknown():
                return Unknown(base.needs)
            case Cls():
                return base
        return Unknown("local")

    def iterate(self, value: Value) -> Value:
        """What iteration draws from a value."""

        def draw(one: Value) -> Value:
            match one:
                case Seq():
                    return one.element()
                case Map(items=items, rest=rest):
                    keys = [Const(key) for key, _ in items]
                    return join(
                        [*keys[:8], *([] if isinstance(rest, Bottom) and len(keys) <= 8 else [Unknown("local")])]
                    )
                case Fact():
                    return library.select_first(one)
                case Leaves():
                    return one
                case LibObject(leaf=leaf) if leaf is not None:
                    return leaf
                case Inst(scope=scope):
                    if self.has_base(scope, "NamedTuple"):
                        return join([self.instance_attribute(one, name) for name, _ in self.fields(scope)])
                    for name in ("__iter__", "__next__"):
                        method = self.find_method(scope, name)
                        if method is not None:
                            found = self.call_function(
                                Func(method, None, one), Args(), method.node, self.open_frame(method)
                            )
                            if name == "__next__" or not isinstance(found, Inst):
                                return found if name == "__next__" else self.iterate(found)
                    return Unknown("class")
                case Const(value=None):
                    return BOTTOM
                case Unknown(needs=needs):
                    return Unknown(needs)
            return Unknown("local")

        return each(value, draw)

    def element(self, value: Value, index: int | None, total: int) -> Value:
        """What unpacking gives to one target."""

        def pick(one: Value) -> Value:
            match one:
                case Seq(items=items):
                    if index is None:
                        return Seq("list", None, one.element())
                    if items is not None:
                        if total >= 0 and len(items) != total and isinstance(one.rest, Bottom):
                            return BOTTOM
                        return items[index] if -len(items) <= index < len(items) else BOTTOM
                    return one.element()
                case Inst(scope=scope) if self.has_base(scope, "NamedTuple") and index is not None:
                    names = [name for name, _ in self.fields(scope)]
                    return self.instance_attribute(one, names[index]) if -len(names) <= index < len(names) else BOTTOM
                case Unknown(symbol=known, needs=needs):
                    return Unknown(
                        needs, symbol(known, "[]", index) if known is not None and index is not None else None
                    )
            return self.iterate(one)

        return each(value, pick)

    def entered(self, value: Value) -> Value:
        """What a context manager gives to `as`."""

        def enter(one: Value) -> Value:
            match one:
                case Seq():
                    return one.element()
                case Inst(scope=scope):
                    method = self.find_method(scope, "__enter__") or self.find_method(scope, "__aenter__")
                    if method is not None:
                        return self.call_function(Func(method, None, one), Args(), method.node, self.open_frame(method))
                    return one
                case Unknown() | LibObject() | Fact() | Leaves():
                    return one
            return Unknown("local")

        return each(value, enter)

    # --- calls -------------------------------------------------------------------------------------------------

    def call(self, node: ast.Call, frame: Frame) -> Value:
        args = make_args(node, frame)
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("cpu", "cuda", "to"):
            # where a copy leads is known whatever it copies; only what is known near by can make it a no-op
            known = self.near(node.func.value, frame)
            if isinstance(known, Unknown) and (
                node.func.attr != "to" or library.target_of(self, args).devices is not None
            ):
                return library.call(self, Method(known, node.func.attr), args, node, frame)
        if isinstance(node.func, ast.Attribute) and node.func.attr in library.TELLING_CALLS:
            called = node.func
            func = each(
                self.expr(called.value, frame),
                lambda one: (
                    Method(one, called.attr)
                    if isinstance(one, Unknown)
                    else self.attribute(one, called.attr, called, frame)
                ),
            )
        else:
            func = self.expr(node.func, frame)
        return each(func, lambda one: self.apply(one, args, node, frame))

    def apply(self, func: Value, args: Args, node: ast.expr, frame: Frame) -> Value:
        match func:
            case Ref() | Method():
                return library.call(self, func, args, node, frame)
            case Func():
                taught = self.table.lookup(self.dotted_name(func.scope)) if self.teaches else None
                if taught is not None:
                    return library.call(self, Ref(taught.name), args, node, frame)
                return self.call_function(func, args, node, frame)
            case Cls():
                return self.construct(func, args, node, frame)
            case Partial(func=inner, args=first):
                return each(inner, lambda one: self.apply(one, first.plus(args), node, frame))
            case Inst(scope=scope):
                name = "forward" if self.find_method(scope, "__call__") is None else "__call__"
                method = self.find_method(scope, name)
                if method is None:
                    return Unknown("class")
                return each(self.instance_attribute(func, name), lambda one: self.apply(one, args, node, frame))
            case Bottom():
                return BOTTOM
            case Const(value=None):
                return BOTTOM
        name = call_name(node.func) if isinstance(node, ast.Call) else ""
        known = func.symbol if isinstance(func, Unknown) else None
        stable = known is not None and not args.positional and not args.keywords
        return Unknown("project", symbol(known, "()") if stable else None, says_pin(name))

    teaches = False

    def dotted_name(self, scope: Scope) -> str:
        """The name under which a user's row may speak of a function of the project."""
        module = scope.module
        if module.path is None or module.import_root is None:
            return scope.qualname
        parts = module.path.relative_to(module.import_root).with_suffix("").parts
        parts = parts[:-1] if parts and parts[-1] == "__init__" else parts
        return ".".join((*parts, scope.qualname))

    def call_function(self, func: Func, args: Args, node: ast.AST, frame: Frame) -> Value:
        scope = func.scope
        if frame.depth >= MAX_FRAMES or self.shallow or self.is_nested(scope, frame):
            return Unknown("project", flaglike=says_pin(scope.name))
        closure = func.closure
        if closure is None and scope.parent is not None:
            closure = self.open_frame(scope.parent)
        entered = self.frame(("call", func, node, frame, args), scope, func.bound, args, closure, frame.depth + 1)
        return self.query(("return", entered), lambda: self.returned(entered))

    def is_nested(self, scope: Scope, frame: Frame) -> bool:
        """Whether the function is being entered already, as in recursion."""
        return frame.scope is scope and frame.depth > 1

    def returned(self, frame: Frame) -> Value:
        """What a function returns in a frame: the join over the returns that it may reach."""
        scope = frame.scope
        flow = scope.flow
        if flow.yields:
            drawn = [
                self.iterate(self.expr(one.value, frame)) if isinstance(one, ast.Starred) else self.expr(one, frame)
                for one in flow.yields
            ]
            return Seq("iterator", None, join(drawn))
        found: list[Value] = []
        for one in flow.returns:
            if self.excluded(one.conditions, frame):
                continue
            found.append(NONE if one.value is None else self.expr(one.value, frame))
        if flow.ends and flow.returns:
            found.append(NONE)
        if not flow.returns:
            return NONE if flow.ends and not is_stub(scope) else Unknown("project")
        value = join(found)
        if isinstance(value, Unknown):
            typed = self.return_type(frame)
            if not isinstance(typed, Unknown):
                return typed
        return value

    def return_type(self, frame: Frame) -> Value:
        node = frame.scope.node
        if (
            isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            and node.returns is not None
            and frame.scope.parent is not None
        ):
            if isinstance(frame.obj, Inst) and frame.obj.of is not None and is_type_variable(node.returns, frame.scope):
                return frame.obj.of
            typed = self.annotated(node.returns, self.open_frame(frame.scope.parent))
            if isinstance(typed, Inst):
                return typed
        return Unknown("project")

    # --- tests -------------------------------------------------------------------------------------------------

    def excluded(self, conditions: tuple[tuple[ast.expr, bool], ...], frame: Frame) -> bool:
        """Whether one of the conditions surely came out the other way."""
        for test, outcome in conditions[-MAX_CONDITIONS:]:
            known = self.truth(test, frame)
            if known is not None and known != outcome:
                return True
        return False

    def truth(self, test: ast.expr, frame: Frame) -> bool | None:
        """How a test comes out, when that is sure."""
        match test:
            case ast.Constant():
                return bool(test.value)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                known = self.truth(operand, frame)
                return None if known is None else not known
            case ast.BoolOp(op=op, values=values):
                sure = isinstance(op, ast.Or)
                known_parts = [self.truth(value, frame) for value in values]
                if sure in known_parts:
                    return sure
                return None if None in known_parts else not sure
            case ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING"):
                return False
            case ast.Call(func=ast.Name(id="isinstance"), args=[subject, kinds]):
                return refine.is_instance(self, self.near(subject, frame), kinds, frame)
        return truth_of(self.near(test, frame))

    def step(self, frame: Frame, node: ast.AST, message: str) -> Step:
        return Step(frame.scope.module.filename, getattr(node, "lineno", 1), message)


# --- small helpers ---------------------------------------------------------------------------------------------------


def is_partial(call: ast.Call, target: Scope) -> bool:
    """Whether `call` is `functools.partial(target, ...)`, read by its name."""
    return (
        isinstance(call.func, (ast.Name, ast.Attribute))
        and call_name(call.func) == "partial"
        and target.name != "partial"
    )


def is_type_variable(node: ast.expr, scope: Scope) -> bool:
    """Whether an annotation is a type variable of its module."""
    definition = scope.module.scope.flow.final.get(node.id) if isinstance(node, ast.Name) else None
    return (
        isinstance(definition, Assign)
        and isinstance(definition.value, ast.Call)
        and call_name(definition.value.func) == "TypeVar"
    )


def hands_on(wrapper: Scope) -> bool:
    """Whether a decorator's inner function returns just what the function that it wraps returned."""
    maker = wrapper.parent
    if maker is None or isinstance(maker.node, (ast.Module, ast.ClassDef)):
        return True
    wrapped = {one.arg for one in parameters(maker.node.args)}

    def is_handed(value: ast.expr | None) -> bool:
        match value:
            case None | ast.Constant(value=None):
                return True
            case ast.Await(value=inner):
                return is_handed(inner)
            case ast.Call(func=ast.Name(id=name)):
                return name in wrapped
            case ast.Name(id=name):
                bound = wrapper.flow.bindings.get(name, [])
                return bool(bound) and all(
                    isinstance(one, Assign) and not isinstance(one.value, ast.Name) and is_handed(one.value)
                    for one in bound
                )
        return False

    return all(is_handed(one.value) for one in wrapper.flow.returns)


def is_unbound(scope: Scope, name: str) -> bool:
    """Whether a function's own name is read where it has no value yet: it is never the module's of that name."""
    if not scope.is_function or name in scope.flow.outer:
        return False
    bound = [one for one in scope.flow.bindings.get(name, ()) if not isinstance(one, (Fill, Reshaped))]
    # a comprehension's own names are among the bindings too
    return bool(bound) and not any(isinstance(one, (Item, Unpack)) for one in bound)


def hashable(value: object) -> bool:
    return isinstance(value, (str, int, float, bool, bytes, type(None)))


def truth_of(value: Value) -> bool | None:
    """The truth of a value: None when it is not sure. A flag of availability counts as true."""
    match value:
        case Const(value=constant):
            return bool(constant)
        case Unknown(flaglike=True):
            return True
        case Flag() | Func() | Cls() | Inst() | Mod() | Ref() | Dev() | LibObject():
            return True
        case Seq(items=items) if items is not None:
            return len(items) > 0
        case Alts(values=values):
            known = {truth_of(one) for one in values}
            return known.pop() if len(known) == 1 else None
    return None


def named_unknown(value: Value, definition: Def, frame: Frame) -> Value:
    """An unknown value gets the identity of the definition that holds it, so that equal sizes are seen as equal."""
    if isinstance(value, Unknown) and value.symbol is None:
        return Unknown(value.needs, symbol(definition, frame), value.flaglike)
    return value


def make_args(node: ast.Call, frame: Frame) -> Args:
    positional = tuple(
        Arg(frame, arg.value, starred=True) if isinstance(arg, ast.Starred) else Arg(frame, arg) for arg in node.args
    )
    keywords = tuple((keyword.arg, Arg(frame, keyword.value)) for keyword in node.keywords if keyword.arg is not None)
    return Args(positional, keywords, any(keyword.arg is None for keyword in node.keywords))


def exact_prefix(args: Args) -> int:
    """How many positional arguments come before the first starred one."""
    return next((i for i, arg in enumerate(args.positional) if arg.starred), len(args.positional))


def call_name(node: ast.expr) -> str:
    path = dotted(node)
    if path is not None:
        return path.rpartition(".")[2]
    return (
        node.attr
        if isinstance(node, ast.Attribute)
        else call_name(node.value)
        if isinstance(node, ast.Subscript)
        else ""
    )


def says_pin(name: str) -> bool:
    """Whether a name is about page-locked memory being available or wanted."""
    return "pin" in name.lower().split("_") or "pinned" in name.lower().split("_")


def method_kind(scope: Scope) -> str:
    for decorator in getattr(scope.node, "decorator_list", ()):
        name = call_name(decorator)
        if name == "staticmethod":
            return "static"
        if name == "classmethod":
            return "class"
    return "class" if scope.name in ("__new__", "__init_subclass__", "__class_getitem__") else "instance"


def takes_object(scope: Scope) -> bool:
    return scope.owner is not None and method_kind(scope) != "static"


def is_property(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(
        call_name(one) in ("property", "cached_property")
        for one in node.decorator_list
        if not isinstance(one, ast.Call)
    )


def is_stub(scope: Scope) -> bool:
    """A body that only holds a place: pass, a docstring, an ellipsis."""
    body = getattr(scope.node, "body", [])
    if not isinstance(body, list):
        return False
    return all(
        isinstance(one, ast.Pass) or (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)) for one in body
    )


def default_of(scope: Scope, name: str) -> ast.expr | None:
    node = scope.node
    assert not isinstance(node, (ast.Module, ast.ClassDef))
    spec = node.args
    positional = [*spec.posonlyargs, *spec.args]
    for arg, default in zip(reversed(positional), reversed(spec.defaults)):
        if arg.arg == name:
            return default
    for arg, keyword_default in zip(spec.kwonlyargs, spec.kw_defaults):
        if arg.arg == name:
            return keyword_default
    return None


def enclosing_class(scope: Scope) -> Scope | None:
    """The class whose method (or a function nested in it) this is."""
    one: Scope | None = scope
    while one is not None:
        if one.owner is not None:
            return one.owner
        one = one.parent
    return None


PLAIN_TYPES = frozenset(
    ("int", "float", "str", "bytes", "SymInt", "Path", "complex", "dtype", "Callable", "ModuleType")
)  # fmt: skip
CONTAINER_TYPES = frozenset(
    ("Optional", "Union", "list", "List", "set", "Set", "dict", "Dict", "tuple", "Tuple", "Sequence", "Iterable",
     "Mapping", "Literal", "frozenset", "deque", "defaultdict", "Iterator", "Collection")
)  # fmt: skip


def is_plain_type(node: ast.expr) -> bool:
    """Whether an annotation allows numbers and text only: nothing behind it can be a tensor or say where one is."""
    match node:
        case ast.Constant(value=str() as text):
            try:
                return is_plain_type(ast.parse(text, mode="eval").body)
            except (SyntaxError, ValueError):
                return False
        case ast.Constant(value=value):
            return value is None or value is Ellipsis
        case ast.BinOp(left=left, right=right):
            return is_plain_type(left) and is_plain_type(right)
        case ast.Subscript(value=value, slice=inner):
            name = call_name(value)
            if name in ("Literal", "Callable"):
                return True
            parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
            return name in CONTAINER_TYPES and all(is_plain_type(part) for part in parts)
        case ast.Name() | ast.Attribute():
            return call_name(node) in PLAIN_TYPES
    return False


def makes_tensor(definition: Def) -> bool:
    """Whether an assignment, read by its text alone, stores what a tensor library or a tensor's method gives."""
    if not isinstance(definition, Assign):
        return False
    value = definition.value
    if isinstance(value, ast.Constant) and value.value is None:
        return True
    if not (isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute)):
        return False
    root = (dotted(value.func) or "").partition(".")[0]
    return root in ("torch", "np", "numpy") or value.func.attr in library.TELLING_METHODS or value.func.attr == "numpy"

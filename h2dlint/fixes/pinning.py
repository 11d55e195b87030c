"""How to spell "pinned" here: the configured expression, the module's or project's own flag, `True`, or a test."""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import dataclass

from h2dlint.fixes.context import RuleContext, argument, call_of, dotted
from h2dlint.fixes.names import import_edit, names_in, torch_name
from h2dlint.fixes.project_flags import flag_of_project
from h2dlint.fixes.uses import uses_in
from h2dlint.model import Edit, Site


@dataclass(frozen=True, slots=True)
class Pin:
    """An expression for `pin_memory=`; `sure` where it is the literal True."""

    text: str
    edits: tuple[Edit, ...] = ()

    @property
    def sure(self) -> bool:
        return self.text == "True"

    def keep(self, name: str) -> str:
        """The pinned copy of the tensor `name`, which is evaluated twice: must be a plain name or path."""
        return f"{name}.pin_memory()" if self.sure else f"{name}.pin_memory() if {self.text} else {name}"


def find_pin(site: Site, context: RuleContext, at: ast.AST) -> Pin:
    """How code at the node `at` says that memory is to be pinned."""
    if context.config.pin_expression:
        return _configured(context, context.config.pin_expression)
    if flag := _flag_in_use(context, at):
        return Pin(flag)
    if (shared := flag_of_project(context, at)) is not None:
        return Pin(shared[0], (import_edit(context, shared[1]),) if shared[1] else ())
    if is_surely_gpu(site, context):
        return Pin("True")
    torch, edits = torch_name(context, at)
    return Pin(f"{torch}.cuda.is_available()", edits)


def is_surely_gpu(site: Site, context: RuleContext) -> bool:
    """Whether the copy goes to a GPU or fails: a literal CUDA device, `.cuda()`, or proof of the other side."""
    far = site.destination
    if site.verdict.direction == "d2h":
        far = site.source
    if far is not None and far.device == "gpu" and not far.assumed and not far.named:
        return True
    call = call_of(site)
    if call is None:
        return False
    match call.func:
        case ast.Attribute(attr="cuda"):
            return True
        case ast.Attribute(attr="to"):
            target = argument(call, 0, "device") or argument(call, 0, "other")
        case _:
            target = next((k.value for k in call.keywords if k.arg == "device"), None)
    return target is not None and _is_cuda(target, context, call)


def _is_cuda(target: ast.expr, context: RuleContext, at: ast.AST) -> bool:
    match target:
        case ast.Constant(value=str() as text):
            return text.split(":")[0] == "cuda"
        case ast.Call(func=func, args=[first, *_]) if (dotted(func) or "").endswith("device"):
            return _is_cuda(first, context, at)
        case ast.Name(id=name):
            function = context.function(at)
            values = _values_of(name, function) if function else []
            return len(values) == 1 and not isinstance(values[0], ast.Name) and _is_cuda(values[0], context, at)
        case ast.Attribute(attr="device", value=owner):
            return _known_on_gpu(ast.unparse(owner), context, at)
        case _:
            return False


def _known_on_gpu(path: str, context: RuleContext, at: ast.AST) -> bool:
    """Whether the code around, or an assert before, says that `path` is on the GPU."""
    test = f"{path}.is_cuda"
    child = at
    for up in context.ancestors(at):
        if isinstance(up, ast.If) and child in up.body and ast.unparse(up.test) == test:
            return True
        for block in ("body", "orelse"):
            statements = getattr(up, block, [])
            if isinstance(statements, list) and child in statements:
                before = statements[: statements.index(child)]
                if any(isinstance(s, ast.Assert) and ast.unparse(s.test) == test for s in before):
                    return True
        child = up
    return False


def _values_of(name: str, function: ast.AST) -> list[ast.expr]:
    """What `name` is bound to in a function; a binding of another kind counts as the name itself."""
    values: list[ast.expr] = []
    for node in uses_in(function).about.get(name, ()):
        match node:
            case ast.Assign(targets=targets, value=value):
                values += [value for target in targets if isinstance(target, ast.Name) and target.id == name]
            case ast.AnnAssign(target=ast.Name(id=found), value=ast.expr() as value) if found == name:
                values.append(value)
            case ast.arg(arg=found) if found == name:
                values.append(ast.Name(name))
            case ast.NamedExpr(target=ast.Name(id=found), value=value) if found == name:
                values.append(value)
            case _:
                continue
    return values


def _configured(context: RuleContext, text: str) -> Pin:
    """The configured expression; a dotted name whose first part this module does not know is imported."""
    parts = text.split(".")
    known = {*names_in(context.tree), "self"}
    if len(parts) > 1 and all(part.isidentifier() for part in parts) and parts[0] not in known:
        return Pin(parts[-1], (import_edit(context, f"from {'.'.join(parts[:-1])} import {parts[-1]}"),))
    return Pin(text)


def _flag_in_use(context: RuleContext, at: ast.AST) -> str | None:
    """The expression that this module most often gives as `pin_memory=` and that means the same at `at`."""
    counts: Counter[str] = Counter()
    for (flag, _), values in context.pin_flags.items():
        if _means_the_same(values[0], context, at):
            counts[flag] += len(values)
    for name in context.config.pin_flags:
        short = name.split(".")[-1]
        if short in context.bindings:
            counts[short] += 1
    return counts.most_common(1)[0][0] if counts else None


def _means_the_same(flag: ast.expr, context: RuleContext, at: ast.AST) -> bool:
    """Whether a flag found elsewhere in the module has the same value at `at`, and may be true."""
    match flag:
        case ast.Name(id=name):
            function = context.function(at)
            if function is not None and name in context.bound_in(function):
                return False
            return name in context.bindings and _may_be_true(context.bindings[name])
        case ast.Attribute(value=ast.Name(id="self"), attr=attr):
            owner, here = context.owner(flag), context.owner(at)
            if owner is None or owner is not here or not _has_self(context, at):
                return False
            return _attribute_may_be_true(owner, attr)
        case ast.Call(func=ast.Name() | ast.Attribute() as func, args=args, keywords=keywords):
            base = dotted(func)
            if base is None or base.split(".")[0] not in context.bindings:
                return False
            inner = [*args, *(keyword.value for keyword in keywords)]
            return all(isinstance(arg, ast.Constant) or _means_the_same(arg, context, at) for arg in inner)
        case ast.Attribute():
            base = dotted(flag)
            return base is not None and base.split(".")[0] in context.bindings
        case _:
            return False


def _may_be_true(value: ast.expr | None) -> bool:
    """False for a value that is False, or is whenever an attribute is missing."""
    match value:
        case ast.Constant(value=constant):
            return bool(constant)
        case ast.Call(func=ast.Name(id="getattr"), args=[_, _, ast.Constant(value=default)]):
            return bool(default)
        case _:
            return True


def _attribute_may_be_true(owner: ast.ClassDef, attr: str) -> bool:
    values: list[ast.expr | None] = []
    for node in ast.walk(owner):
        match node:
            case ast.Assign(targets=targets, value=value) if any(_is_self(target, attr) for target in targets):
                values.append(value)
            case ast.AnnAssign(target=target, value=value) if _is_self(target, attr):
                values.append(value)
            case _:
                continue
    return bool(values) and all(_may_be_true(value) and not _defaults_to_false(value, owner) for value in values)


def _defaults_to_false(value: ast.expr | None, owner: ast.ClassDef) -> bool:
    """Whether `value` is a parameter whose default is False."""
    if not isinstance(value, ast.Name):
        return False
    for node in ast.walk(owner):
        if not isinstance(node, ast.arguments):
            continue
        names = [*node.posonlyargs, *node.args]
        given = [*zip(reversed(names), reversed(node.defaults)), *zip(node.kwonlyargs, node.kw_defaults)]
        for arg, default in given:
            if arg.arg == value.id and isinstance(default, ast.Constant) and default.value is False:
                return True
    return False


def _is_self(target: ast.expr, attr: str) -> bool:
    match target:
        case ast.Attribute(value=ast.Name(id="self"), attr=found):
            return found == attr
        case _:
            return False


def _has_self(context: RuleContext, at: ast.AST) -> bool:
    function = context.function(at)
    return function is not None and any(arg.arg == "self" for arg in function.args.args)

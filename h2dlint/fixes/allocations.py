"""Pins where the memory is made: `pin_memory=` on the factory, or the default of the parameter that decides it."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from h2dlint import apis
from h2dlint.fixes.calls import add_keyword
from h2dlint.fixes.context import RuleContext, dotted
from h2dlint.fixes.pinning import find_pin
from h2dlint.fixes.places import replace_in_line
from h2dlint.model import Edit, Fact, Site


@dataclass(frozen=True, slots=True)
class Allocation:
    """The edits that pin an allocation; `doubt` says why a person should look first."""

    call: ast.Call
    edits: tuple[Edit, ...]
    doubt: str = ""


def pin_allocation(site: Site, fact: Fact, context: RuleContext) -> Allocation | str:
    """Pins the allocation behind `fact`; a reason where that is not possible in this file."""
    origin = fact.origin
    if origin is None:
        return "its allocation is not seen"
    call = context.expression_at(origin.span)
    if not isinstance(call, ast.Call):
        elsewhere = origin.span.filename != context.module.filename
        return "it is allocated in another file" if elsewhere else "no factory call makes it"
    row = apis.lookup(origin.call)
    if row is None or not row.pin:
        return f"`{dotted(call.func) or origin.call}` takes no `pin_memory=`"
    pin = find_pin(site, context, call)
    flag = next((keyword.value for keyword in call.keywords if keyword.arg == "pin_memory"), None)
    if flag is not None and not isinstance(flag, ast.Constant):
        return _change_flag(context, call, flag, pin.text, pin.edits)
    text = add_keyword(context.text(call), "pin_memory", pin.text)
    if text is None:
        return "its ** arguments may hold `pin_memory` already"
    return Allocation(call, (replace_in_line(context, call, text), *pin.edits))


def _change_flag(
    context: RuleContext, call: ast.Call, flag: ast.expr, pin: str, edits: tuple[Edit, ...]
) -> Allocation | str:
    """An allocation whose flag is a value that comes out false: the parameter's default changes, else the flag."""
    function = context.function(call)
    if isinstance(flag, ast.Name) and function is not None:
        names = [*function.args.posonlyargs, *function.args.args]
        given = [*zip(reversed(names), reversed(function.args.defaults))]
        given += [(a, d) for a, d in zip(function.args.kwonlyargs, function.args.kw_defaults) if d is not None]
        for arg, default in given:
            if arg.arg == flag.id:
                if not isinstance(default, ast.Constant) or default.value:
                    return f"its callers decide by `{flag.id}`"
                doubt = f"it changes the default of `{flag.id}` for every caller"
                return Allocation(call, (context.replace(default, pin), *edits), doubt)
        if any(arg.arg == flag.id for arg in [*names, *function.args.kwonlyargs]):
            return f"its callers decide by `{flag.id}`"
    doubt = f"it overrules `{ast.unparse(flag)}`, which comes out false"
    return Allocation(call, (context.replace(flag, pin), *edits), doubt)

"""The source taken into fresh pinned memory first: gathered (`staging`) or as it lies (`pin_memory()`).

Both are safe where buffers are reused: the memory is new for each copy, and PyTorch's pinned allocator hands it out
again only when the copies from it are done.
"""

from __future__ import annotations

import ast

from h2dlint.fixes.capture import CAPTURED, pin_before_capture
from h2dlint.fixes.context import RuleContext, dotted, is_quiet, is_spread, receiver, source_of
from h2dlint.fixes.helper import copy_with_helper
from h2dlint.fixes.names import fresh_name, torch_name
from h2dlint.fixes.pinning import find_pin
from h2dlint.fixes.places import Place, dot_of, find_place, flat, replace_in_line, replace_source
from h2dlint.model import Edit, Fix, Site


def stage(site: Site, context: RuleContext, call: ast.Call) -> Fix | str:
    """Gathers a view with gaps into packed pinned memory, from which one copy goes out."""
    source = source_of(call)
    if source is None:
        return "the source is hidden behind * or ** arguments"
    if site.captured:
        return CAPTURED
    pin = find_pin(site, context, call)
    shape = _shape_owner(site, context, call)
    if isinstance(shape, Reason):
        return str(shape)
    place = find_place(context, source)
    if not isinstance(place, Place):
        if pin.sure and shape is None:
            edits = append(context, call, source, ".contiguous().pin_memory()")
            return _fix(site, "pack the view into pinned memory", edits)
        return f"the view has to be packed before the statement, but {place}"
    torch, imports = torch_name(context, call)
    lines: list[str] = []
    view = dotted(source)
    if view is None:
        view = fresh_name(context, call, "strided")
        lines.append(f"{view} = {flat(context, source)}")
    staging = fresh_name(context, call, "staging")
    if source is receiver(call):
        # What `to` makes of a view keeps the order of its strides, and so has its stand-in.
        lines.append(f"{staging} = {torch}.empty_like({view}, pin_memory={pin.text})")
    else:
        sizes = f"{shape or view}.shape"
        lines.append(f"{staging} = {torch}.empty({sizes}, dtype={view}.dtype, pin_memory={pin.text})")
    edit = replace_source(context, call, source, f"{staging}.copy_({view})")
    edits = (place.before(context, lines), *edit, *imports, *pin.edits)
    return _fix(site, "gather the view into pinned staging memory, then copy once", edits)


def snapshot(site: Site, context: RuleContext, call: ast.Call) -> Fix | str:
    """Copies the source into pinned memory of its own, just before it goes out."""
    source = source_of(call)
    if source is None:
        return "the source is hidden behind * or ** arguments"
    if site.captured:
        return pin_before_capture(site, context, call)
    if (helped := copy_with_helper(context, call)) is not None:
        return helped
    pin = find_pin(site, context, call)
    message = "pin a copy of the source"
    if pin.sure:
        return _fix(site, message, (*append(context, call, source, ".pin_memory()"), *pin.edits))
    place = find_place(context, source)
    name = dotted(source)
    if not isinstance(place, Place):
        if name is None:
            return f"the source has to be pinned before the statement, but {place}"
        return _fix(site, message, (*replace_source(context, call, source, f"({pin.keep(name)})"), *pin.edits))
    staged = fresh_name(context, call, "pinned")
    first = [] if name else [f"{staged} = {flat(context, source)}"]
    lines = [*first, f"{staged} = {pin.keep(name or staged)}"]
    edits = (place.before(context, lines), *replace_source(context, call, source, staged), *pin.edits)
    return _fix(site, message, edits)


def append(context: RuleContext, call: ast.Call, source: ast.expr, suffix: str) -> tuple[Edit, ...]:
    """Puts a method call behind the source of a copy."""
    if source is receiver(call):
        assert isinstance(call.func, ast.Attribute)
        row, column = dot_of(context, call.func)
        return (context.insert(row, column, suffix),)
    text = context.text(source)
    if not isinstance(source, (ast.Name, ast.Attribute, ast.Subscript, ast.Call)):
        text = f"({text})"
    return (replace_in_line(context, source, text + suffix),)


class Reason(str):
    """Why something cannot be done."""


def _shape_owner(site: Site, context: RuleContext, call: ast.Call) -> str | Reason | None:
    """What has the shape that arrives: the destination where the source is broadcast to it, else the source (None)."""
    if source_of(call) is receiver(call) or not (
        site.verdict.fault == "broadcast" or is_spread(site.source, site.destination)
    ):
        return None
    destination = receiver(call)
    if destination is None or not is_quiet(destination):
        return Reason("the destination cannot be evaluated twice")
    text = flat(context, destination)
    return text if isinstance(destination, (ast.Name, ast.Attribute, ast.Subscript, ast.Call)) else f"({text})"


def _fix(site: Site, message: str, edits: tuple[Edit, ...]) -> Fix:
    if site.source is not None and site.source.named:
        return Fix("unsafe", message, edits, "only names say that the source is in host memory")
    if any(fact.device != "cpu" for fact in site.sources):
        return Fix("unsafe", message, edits, "on some path the source may be elsewhere, and then it cannot be pinned")
    return Fix("safe", message, edits)

"""The project's own pinned asynchronous copy, named in the configuration, in the place of `.to(device)`.

The helper is called as `helper(tensor, device)` and has to give what `tensor.to(device, non_blocking=True)` gives.
"""

from __future__ import annotations

import ast

from h2dlint.fixes.context import RuleContext, argument, receiver
from h2dlint.fixes.names import import_edit, names_in
from h2dlint.fixes.places import flat, replace_in_line
from h2dlint.model import Fix


def copy_with_helper(context: RuleContext, call: ast.Call) -> Fix | None:
    """The call of the configured helper; None without one, inside it, or where the copy gives more than a device."""
    source, device = receiver(call), argument(call, 0, "device")
    keywords = {keyword.arg for keyword in call.keywords}
    if not context.config.pinned_copy or source is None or device is None or not keywords <= {"device", "non_blocking"}:
        return None
    if len(call.args) > 1 or not isinstance(call.func, ast.Attribute) or call.func.attr != "to":
        return None
    module, _, name = context.config.pinned_copy.rpartition(".")
    function = context.function(call)
    if function is not None and function.name == name:
        return None
    known = name in names_in(context.tree)
    imports = () if known or not module else (import_edit(context, f"from {module} import {name}"),)
    text = f"{name}({flat(context, source)}, {flat(context, device)})"
    return Fix("safe", f"copy with `{name}`", (replace_in_line(context, call, text), *imports))

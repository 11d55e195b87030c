"""Arguments added to a call with LibCST, in the layout that the call already has. LibCST is imported here, late."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import libcst


def add_keyword(text: str, name: str, value: str) -> str | None:
    """The call `text` with `name=value` as its last keyword, or in place of the one it has.

    None where that cannot be done: `text` is no call, or ends in ** arguments that may hold the name.
    """
    import libcst as cst

    call = cst.parse_expression(f"({text})")
    if not isinstance(call, cst.Call):
        return None
    args = list(call.args)
    bare = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
    # `name = value` where the call's own keywords stand like that.
    equal = next((arg.equal.deep_clone() for arg in args if isinstance(arg.equal, cst.AssignEqual)), bare)
    new = cst.Arg(keyword=cst.Name(name), value=cst.parse_expression(value), equal=equal)
    for index, arg in enumerate(args):
        if arg.keyword is not None and arg.keyword.value == name:
            args[index] = arg.with_changes(value=new.value)
            return _code(call.with_changes(args=args))
        if arg.star == "**":
            return None
    if not args:
        return _code(call.with_changes(args=[new], whitespace_before_args=cst.SimpleWhitespace("")))
    last = args[-1]
    if isinstance(last.value, cst.GeneratorExp) and not last.value.lpar:
        last = last.with_changes(value=last.value.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()]))
    between = _gap_between(call)
    if isinstance(last.comma, cst.Comma):
        args[-1] = last.with_changes(comma=cst.Comma(whitespace_after=between))
        new = new.with_changes(comma=last.comma)
    else:
        comma = cst.Comma(whitespace_after=between)
        args[-1] = last.with_changes(comma=comma, whitespace_after_arg=cst.SimpleWhitespace(""))
        new = new.with_changes(whitespace_after_arg=last.whitespace_after_arg)
    return _code(call.with_changes(args=[*args, new]))


def _gap_between(call: libcst.Call) -> libcst.BaseParenthesizableWhitespace:
    """What this call puts between two arguments: a blank, or a new line where each has its own."""
    import libcst as cst

    before = [arg.comma.whitespace_after for arg in call.args[:-1] if isinstance(arg.comma, cst.Comma)]
    if before:
        return before[-1].deep_clone()
    one_line = isinstance(call.args[-1].comma, cst.Comma) and isinstance(
        call.whitespace_before_args, cst.ParenthesizedWhitespace
    )
    return call.whitespace_before_args.deep_clone() if one_line else cst.SimpleWhitespace(" ")


def _code(call: libcst.Call) -> str:
    import libcst as cst

    code = cst.Module(body=[]).code_for_node(call)
    return code[1:-1]

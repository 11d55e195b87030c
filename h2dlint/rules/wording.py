"""What all messages share: the finding's place, how an operand is named, where its memory was made."""

from __future__ import annotations

import ast
import os

from h2dlint.fixes.context import RuleContext
from h2dlint.model import Fact, Finding, Fix, Site, Step

MAX_OPERAND = 60
HOLDS = "so this non_blocking copy holds the host until the GPU catches up"
HOLDS_DOWN = "and holds the host until the data is there"
WAITS = "so the host waits for all queued work"


def report(code: str, name: str, site: Site, context: RuleContext, message: str, fix: Fix | str) -> Finding:
    """The finding at a site; `fix` is one, or the reason there is none."""
    steps = site.steps or tuple(step for fact in (*site.sources, *site.destinations) for step in fact.steps)
    if site.captured:
        message += "; here a CUDA graph is being captured, so it raises"
    return Finding(
        code=code,
        name=name,
        message=message,
        filename=site.filename,
        row=site.row,
        column=site.column,
        end_row=site.end_row,
        end_column=site.end_column,
        statement=_statement_rows(site, context),
        steps=steps,
        fix=fix if isinstance(fix, Fix) else None,
        declined=fix if isinstance(fix, str) else "",
    )


def _statement_rows(site: Site, context: RuleContext) -> tuple[int, int]:
    """First and last row of the statement; of a compound one only its header."""
    if site.call is None or site.call not in context.parents:
        return site.row, site.end_row
    statement = context.statement(site.call)
    body = getattr(statement, "body", None)
    if isinstance(body, list) and body and isinstance(body[0], ast.stmt):
        return statement.lineno, max(site.end_row, body[0].lineno - 1)
    return statement.lineno, statement.end_lineno or site.end_row


def operand(node: ast.expr | None) -> str:
    """An expression as a message names it: short, in one line."""
    if node is None:
        return "the tensor"
    text = ast.unparse(node)
    return f"`{text}`" if len(text) <= MAX_OPERAND else f"`{text[: MAX_OPERAND - 3]}...`"


def made_at(fact: Fact | None, site: Site) -> str:
    """Where the memory behind a fact was made: "line 7", or "vllm/v1/utils.py:118" of another file."""
    if fact is None or fact.origin is None:
        return ""
    span = fact.origin.span
    return f"line {span.row}" if span.filename == site.filename else f"{short_path(span.filename)}:{span.row}"


def short_path(filename: str) -> str:
    """The path from the current folder if it lies below it."""
    if not os.path.isabs(filename):
        return filename
    relative = os.path.relpath(filename)
    return filename if relative.startswith("..") else relative


def by_name(fact: Fact | None) -> str:
    """The admission that a device is known by a name only."""
    return " (that one end is on the GPU is known by its name only)" if fact is not None and fact.named else ""


def with_step(fix: Fix, step: Step | None) -> Fix:
    """The fix with what makes it safe in its message."""
    if step is None:
        return fix
    where = f"{short_path(step.filename)}:{step.row}"
    return Fix(fix.safety, f"{fix.message}; {step.message} ({where})", fix.edits, fix.why)

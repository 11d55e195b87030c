"""A pageable source made pinned: where it is allocated if that is safe, else just before the copy."""

from __future__ import annotations

import ast

from h2dlint.fixes.allocations import Allocation, pin_allocation
from h2dlint.fixes.context import RuleContext, holds, receiver, source_of
from h2dlint.fixes.guards import judge_reuse
from h2dlint.fixes.staging import CAPTURED, snapshot, stage
from h2dlint.model import Fix, Site


def pin_source(site: Site, context: RuleContext, call: ast.Call) -> Fix | str:
    """The best fix for a source in pageable memory, or why there is none.

    A buffer that is written again while a copy may run keeps its pageable memory and is pinned copy by copy.
    """
    source, fact = source_of(call), site.source
    if source is None or fact is None:
        return "the source is not written here"
    if site.layout == "strided" and not (source is receiver(call) and fact.layout == "permuted"):
        return stage(site, context, call)
    if len(site.sources) == 1 and not fact.named:
        allocation = pin_allocation(site, fact, context)
        if isinstance(allocation, Allocation) and not allocation.doubt:
            if site.captured:
                return _outside_capture(context, call, allocation)
            reuse = judge_reuse(site, context, source, fact.origin.span if fact.origin else None)
            if reuse.safe:
                return Fix("safe", "allocate it in pinned memory", allocation.edits)
    return snapshot(site, context, call)


def _outside_capture(context: RuleContext, call: ast.Call, allocation: Allocation) -> Fix | str:
    """Pins an allocation that no `with` around the captured copy holds."""
    for up in context.ancestors(call):
        if isinstance(up, (ast.With, ast.AsyncWith)) and holds(up, allocation.call):
            return CAPTURED
    if allocation.call in ast.walk(context.statement(call)):
        return CAPTURED
    why = "the graph reads this memory whenever it is replayed: keep it alive, and wait for a replay before writing it"
    return Fix("unsafe", "allocate it in pinned memory", allocation.edits, why)

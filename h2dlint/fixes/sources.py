"""A pageable source made pinned: where it is allocated if that is safe, else just before the copy."""

from __future__ import annotations

import ast

from h2dlint.fixes.allocations import Allocation, pin_allocation
from h2dlint.fixes.capture import WHY, capture_around, keep_with_graph, pin_before_capture
from h2dlint.fixes.context import RuleContext, holds, receiver, source_of
from h2dlint.fixes.guards import judge_reuse
from h2dlint.fixes.staging import snapshot, stage
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
                return _outside_capture(site, context, call, allocation)
            reuse = judge_reuse(site, context, source, fact.origin.span if fact.origin else None)
            if reuse.safe:
                return Fix("safe", "allocate it in pinned memory", allocation.edits)
    return snapshot(site, context, call)


def _outside_capture(site: Site, context: RuleContext, call: ast.Call, allocation: Allocation) -> Fix | str:
    """Pins an allocation that is not captured itself, else moves it out."""
    block = capture_around(context, call)
    captured = context.function(call) if block is None else block[0]
    if captured is None or holds(captured, allocation.call):
        return pin_before_capture(site, context, call)
    edits = (*allocation.edits, *keep_with_graph(context, call))
    return Fix("unsafe", "allocate it in pinned memory and keep it alive", edits, WHY)

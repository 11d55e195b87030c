"""Facts and verdicts as the data files hold them; without torch, so that any machine can judge the records again."""

from __future__ import annotations

from typing import Any

from h2dlint.model import Dim, Fact, Shape, Size


def pack_fact(fact: Fact) -> dict[str, Any]:
    """The parts of a fact that the copy model reads, as JSON holds them."""
    dims = None if fact.shape is None else [_pack_dim(dim) for dim in fact.shape.dims]
    record = {"device": fact.device, "memory": fact.memory, "dtype": fact.dtype, "bytes": fact.max_bytes, "dims": dims}
    return {**record, "array": True} if fact.array else record


def unpack_fact(record: dict[str, Any]) -> Fact:
    """The inverse of `pack_fact`."""
    dims = record["dims"]
    return Fact(
        device=record["device"],
        memory=record["memory"],
        dtype=record["dtype"],
        max_bytes=record["bytes"],
        array=record.get("array", False),
        shape=None if dims is None else Shape(tuple(_unpack_dim(*dim) for dim in dims), tail=False),
    )


def _pack_dim(dim: Dim) -> tuple[int | None, int, int, int]:
    return (None if dim.size is None else dim.size.number, dim.order, int(dim.gap), int(dim.zero))


def _unpack_dim(size: int | None, order: int, gap: int, zero: int) -> Dim:
    return Dim(None if size is None else Size(None, size), order, bool(gap), bool(zero))

"""The copy model, row by row: the measured table of which copies hold the host, and where the model must not know."""

from __future__ import annotations

from dataclasses import replace

import pytest

from h2dlint.copies import SMALL_BYTES, combine, is_small, judge
from h2dlint.model import Dim, Fact, Shape, Size, Verdict

GPU = Fact(device="gpu")
ASSUMED_GPU = Fact(device="gpu", assumed=True)
CPU = Fact(device="cpu")
NOWHERE = Fact()
OTHER = Fact(device="other")

N = Size("n", 0, "n")


def number(size: int) -> Size:
    return Size(None, size)


def shape(*sizes: int | Size | None, orders: tuple[int, ...] = (), gaps: tuple[int, ...] = (), tail: bool = False,
          zeros: tuple[int, ...] = ()) -> Shape:  # fmt: skip
    dims = []
    for index, size in enumerate(sizes):
        order = orders[index] if orders else index
        length = number(size) if isinstance(size, int) else size
        dims.append(Dim(length, order, gap=index in gaps, zero=index in zeros))
    return Shape(tuple(dims), tail)


PACKED = shape(4, 8)
GAPPED = shape(4, N, gaps=(0,))
TURNED = shape(8, 4, orders=(1, 0))
SPREAD = shape(4, 8, zeros=(0,))
SPREAD_OUTER = shape(4, 8, orders=(1, 0), zeros=(0,))
PACKED_TAIL = Shape((), tail=True)


def pinned(layout: Shape | None = PACKED, **facts: object) -> Fact:
    return replace(Fact(device="cpu", memory="pinned", shape=layout), **facts)  # type: ignore[arg-type]


def pageable(layout: Shape | None = PACKED, **facts: object) -> Fact:
    return replace(pinned(layout, **facts), memory="pageable")


def unsure(layout: Shape | None = PACKED, **facts: object) -> Fact:
    return replace(pinned(layout, **facts), memory="unknown")


def gpu(layout: Shape | None, **facts: object) -> Fact:
    return replace(Fact(device="gpu", shape=layout), **facts)  # type: ignore[arg-type]


HALF = "torch.float16"
FLOAT = "torch.float32"

UPLOADS = {
    "pinned packed to": ("to", pinned(), GPU, "async", "none"),
    "pinned packed cuda": ("cuda", pinned(), NOWHERE, "async", "none"),
    "pinned packed of unknown rank": ("to", pinned(PACKED_TAIL), GPU, "async", "none"),
    "pinned packed copy_": ("copy_", pinned(), gpu(PACKED), "async", "none"),
    "pinned packed copy_ into gaps": ("copy_", pinned(), gpu(GAPPED), "async", "none"),
    "pinned packed copy_ into permuted": ("copy_", pinned(shape(8, 4)), gpu(TURNED), "async", "none"),
    "pinned packed copy_ into unknown shape": ("copy_", pinned(), GPU, "async", "none"),
    "pinned packed to another dtype": ("to", pinned(dtype=FLOAT), gpu(None, dtype=HALF), "async", "none"),
    "pinned packed copy_ to another dtype": ("copy_", pinned(dtype=FLOAT), gpu(PACKED, dtype=HALF), "async", "none"),
    "pageable to": ("to", pageable(), GPU, "blocks", "pageable"),
    "pageable cuda": ("cuda", pageable(), NOWHERE, "blocks", "pageable"),
    "pageable copy_": ("copy_", pageable(), gpu(PACKED), "blocks", "pageable"),
    "pageable of unknown shape": ("to", pageable(None), GPU, "blocks", "pageable"),
    "pageable with gaps": ("copy_", pageable(GAPPED), gpu(GAPPED), "blocks", "pageable"),
    "pageable small": ("to", pageable(shape(2), max_bytes=8), GPU, "blocks", "pageable"),
    "pinned with gaps to": ("to", pinned(GAPPED), GPU, "blocks", "gapped"),
    "pinned with gaps cuda": ("cuda", pinned(GAPPED), GPU, "blocks", "gapped"),
    "pinned with gaps copy_ into the same gaps": ("copy_", pinned(GAPPED), gpu(GAPPED), "blocks", "gapped"),
    "pinned with gaps copy_ into packed": ("copy_", pinned(GAPPED), gpu(shape(4, N)), "blocks", "gapped"),
    "pinned with gaps copy_ into unknown shape": ("copy_", pinned(GAPPED), GPU, "blocks", "gapped"),
    "unknown memory with gaps": ("copy_", unsure(GAPPED), GPU, "blocks", "gapped"),
    "one row of a buffer with gaps": ("copy_", pinned(shape(1, N, gaps=(0,))), GPU, "async", "none"),
    "pinned permuted to": ("to", pinned(TURNED), GPU, "async", "none"),
    "pinned permuted to other dtype": ("to", pinned(TURNED, dtype=FLOAT), gpu(None, dtype=HALF), "blocks", "permuted"),
    "pinned permuted to the same dtype": ("to", pinned(TURNED, dtype=FLOAT), gpu(None, dtype=FLOAT), "async", "none"),
    "pinned permuted to packed": ("to", pinned(TURNED), gpu(shape(8, 4)), "blocks", "permuted"),
    "pinned permuted copy_ into packed": ("copy_", pinned(TURNED), gpu(shape(8, 4)), "blocks", "permuted"),
    "pinned permuted copy_ into permuted": ("copy_", pinned(TURNED), gpu(TURNED), "async", "none"),
    "pinned permuted copy_ into permuted with gaps": (
        "copy_", pinned(TURNED), gpu(shape(8, 4, orders=(1, 0), gaps=(1,))), "blocks", "permuted",
    ),
    "pinned permuted copy_ into permuted of another dtype": (
        "copy_", pinned(TURNED, dtype=FLOAT), gpu(TURNED, dtype=HALF), "blocks", "permuted",
    ),
    "pinned permuted copy_ into another permutation": (
        "copy_", pinned(shape(2, 3, 4, orders=(1, 2, 0))), gpu(shape(2, 3, 4, orders=(2, 0, 1))), "blocks", "permuted",
    ),
    "pinned permuted copy_ into packed of any rank": ("copy_", pinned(TURNED), gpu(PACKED_TAIL), "blocks", "permuted"),
    "pinned permuted copy_ into permuted of unknown rank": (
        "copy_", pinned(TURNED), gpu(shape(8, 4, orders=(1, 0), tail=True)), "unknown", "none",
    ),
    "pinned permuted copy_ into the same of unknown rank": (
        "copy_", pinned(shape(8, 4, orders=(1, 0), tail=True)), gpu(shape(8, 4, orders=(1, 0), tail=True)),
        "async", "none",
    ),
    "pinned permuted copy_ into more dimensions": (
        "copy_", pinned(TURNED), gpu(shape(1, 8, 4, orders=(0, 2, 1))), "blocks", "permuted",
    ),
    "pinned single copy_ into more dimensions, perhaps": (
        "copy_", pinned(shape(1)), gpu(shape(8, tail=True)), "async", "none",
    ),
    "pinned copy_ of more dimensions than fit": ("copy_", pinned(shape(1, 1, 8)), gpu(shape(4, 8)), "async", "none"),
    "pinned permuted copy_ into unknown shape": ("copy_", pinned(TURNED), GPU, "unknown", "none"),
    "unknown memory permuted copy_ into packed": ("copy_", unsure(TURNED), gpu(shape(8, 4)), "blocks", "permuted"),
    "pinned expand to": ("to", pinned(SPREAD), GPU, "blocks", "broadcast"),
    "pinned expand copy_": ("copy_", pinned(SPREAD), gpu(PACKED), "blocks", "broadcast"),
    "pinned row copy_ into rows": ("copy_", pinned(shape(8)), gpu(shape(4, 8)), "blocks", "broadcast"),
    "pinned row copy_ into n rows": ("copy_", pinned(shape(8)), gpu(shape(N, 8)), "blocks", "broadcast"),
    "pinned row copy_ into one row": ("copy_", pinned(shape(8)), gpu(shape(1, 8)), "async", "none"),
    "pinned row copy_ into rows of unknown number": ("copy_", pinned(shape(8)), gpu(shape(None, 8)), "async", "none"),
    "pinned single copy_ into longer": ("copy_", pinned(shape(4, 1)), gpu(shape(4, 8)), "blocks", "broadcast"),
    "pinned 0-dim copy_ into vector": ("copy_", pinned(shape()), gpu(shape(8)), "blocks", "broadcast"),
    "pinned 0-dim copy_ into 0-dim": ("copy_", pinned(shape()), gpu(shape()), "async", "none"),
    "pinned row copy_ into many more dimensions": (
        "copy_", pinned(shape(8)), gpu(shape(2, 3, tail=True)), "blocks", "broadcast",
    ),
    "pinned of unknown layout": ("to", pinned(None), GPU, "unknown", "none"),
    "unknown memory packed": ("to", unsure(), GPU, "unknown", "none"),
    "unknown memory, unknown layout": ("to", unsure(None), GPU, "unknown", "none"),
    "no elements, pageable": ("to", pageable(shape(0, 8)), GPU, "async", "none"),
    "no bytes, pageable": ("copy_", pageable(None, max_bytes=0), GPU, "async", "none"),
    "no elements in the destination": ("copy_", pageable(None), gpu(shape(0)), "async", "none"),
}  # fmt: skip

DOWNLOADS = {
    "to cpu": ("to", GPU, CPU, "async", "none"),
    "to cpu with gaps": ("to", gpu(GAPPED), CPU, "async", "none"),
    "to cpu permuted": ("to", gpu(TURNED), CPU, "async", "none"),
    "to cpu of another dtype": ("to", gpu(PACKED, dtype=FLOAT), replace(CPU, dtype=HALF), "async", "none"),
    "to cpu permuted of another dtype": (
        "to",
        gpu(TURNED, dtype=FLOAT),
        replace(CPU, dtype=HALF),
        "blocks",
        "permuted",
    ),
    "to cpu permuted with gaps": ("to", gpu(shape(8, 4, orders=(1, 0), gaps=(1,))), CPU, "blocks", "permuted"),
    "to cpu expanded of another dtype": (
        "to",
        gpu(SPREAD_OUTER, dtype=FLOAT),
        replace(CPU, dtype=HALF),
        "async",
        "none",
    ),
    "to cpu permuted, expanded": ("to", gpu(shape(8, 2, 4, orders=(1, 2, 0), zeros=(1,))), CPU, "blocks", "permuted"),
    "to cpu from anywhere": ("to", NOWHERE, CPU, "async", "none"),
    "into pageable": ("copy_", GPU, pageable(), "blocks", "pageable"),
    "into pageable, 8 bytes": ("copy_", gpu(shape(1)), pageable(shape(1), max_bytes=8), "blocks", "pageable"),
    "into pageable of unknown shape": ("copy_", GPU, pageable(None), "blocks", "pageable"),
    "into pageable from anywhere": ("copy_", NOWHERE, pageable(), "blocks", "pageable"),
    "into pinned packed": ("copy_", gpu(PACKED), pinned(), "async", "none"),
    "into pinned packed from gaps": ("copy_", gpu(GAPPED), pinned(shape(4, N)), "async", "none"),
    "into pinned packed from another dtype": ("copy_", gpu(PACKED, dtype=FLOAT), pinned(dtype=HALF), "async", "none"),
    "into pinned packed, repeated": ("copy_", gpu(shape(8)), pinned(shape(4, 8)), "async", "none"),
    "into pinned gaps": ("copy_", gpu(GAPPED), pinned(GAPPED), "blocks", "gapped"),
    "into gaps of unknown memory": ("copy_", GPU, unsure(GAPPED), "blocks", "gapped"),
    "into pinned permuted from packed": ("copy_", gpu(shape(8, 4)), pinned(TURNED), "blocks", "permuted"),
    "into pinned permuted from permuted": ("copy_", gpu(TURNED), pinned(TURNED), "async", "none"),
    "into pinned of unknown layout": ("copy_", GPU, pinned(None), "unknown", "none"),
    "into unknown memory": ("copy_", GPU, unsure(), "unknown", "none"),
    "into pageable without elements": ("copy_", GPU, pageable(shape(0)), "async", "none"),
}


def check(verdict: Verdict, kind: str, direction: str, fault: str) -> None:
    assert (verdict.kind, verdict.direction, verdict.fault) == (kind, direction, fault), verdict
    assert verdict.reason
    assert not verdict.reason.endswith(".")


@pytest.mark.parametrize("row", UPLOADS.values(), ids=UPLOADS.keys())
def test_upload_without_wait(row: tuple[str, Fact, Fact, str, str]) -> None:
    operation, source, destination, kind, fault = row
    verdict = judge(operation, source, destination, True)
    check(verdict, kind, "h2d", fault)
    assert verdict.host == ("source" if kind != "unknown" else "none")


@pytest.mark.parametrize("row", DOWNLOADS.values(), ids=DOWNLOADS.keys())
def test_download_without_wait(row: tuple[str, Fact, Fact, str, str]) -> None:
    operation, source, destination, kind, fault = row
    verdict = judge(operation, source, destination, True)
    check(verdict, kind, "d2h", fault)
    assert verdict.host == ("destination" if kind != "unknown" else "none")


@pytest.mark.parametrize("near", [pinned(), pageable(), unsure(None), pinned(GAPPED)])
@pytest.mark.parametrize("operation", ["to", "copy_", "cuda", "setitem", "new_on_device"])
def test_upload_that_says_nothing_waits(operation: str, near: Fact) -> None:
    check(judge(operation, near, GPU, False), "blocks", "h2d", "missing non_blocking")


@pytest.mark.parametrize("operation", ["to", "copy_", "cpu", "setitem"])
def test_download_that_says_nothing_waits(operation: str) -> None:
    check(judge(operation, GPU, pinned(), False), "blocks", "d2h", "missing non_blocking")


def test_cpu_takes_no_flag() -> None:
    check(judge("cpu", GPU, NOWHERE, True), "blocks", "d2h", "missing non_blocking")
    check(judge("cpu", NOWHERE, NOWHERE, None), "unknown", "unknown", "none")
    check(judge("cpu", pinned(), NOWHERE, None), "async", "h2h", "none")


@pytest.mark.parametrize("operation", ["to", "copy_"])
def test_without_the_flag_a_gpu_must_be_proven(operation: str) -> None:
    check(judge(operation, pageable(), ASSUMED_GPU, False), "unknown", "h2d", "none")
    check(judge(operation, pageable(), NOWHERE, False), "unknown", "unknown", "none")
    check(judge(operation, ASSUMED_GPU, CPU, False), "unknown", "d2h", "none")


def test_with_the_flag_the_far_end_is_a_gpu() -> None:
    check(judge("to", pageable(), NOWHERE, True), "blocks", "h2d", "pageable")
    check(judge("copy_", pageable(), NOWHERE, True), "blocks", "h2d", "pageable")
    check(judge("to", pinned(), ASSUMED_GPU, True), "async", "h2d", "none")
    check(judge("copy_", NOWHERE, pageable(), True), "blocks", "d2h", "pageable")


@pytest.mark.parametrize("flag", [True, False, None])
def test_host_to_host_is_no_copy_to_wait_for(flag: bool | None) -> None:
    for operation in ("to", "copy_", "cpu", "setitem", "new_on_device"):
        check(judge(operation, pageable(), CPU, flag), "async", "h2h", "none")


@pytest.mark.parametrize("flag", [True, False, None])
def test_device_to_device_never_waits(flag: bool | None) -> None:
    for operation in ("to", "copy_", "cuda", "setitem", "new_on_device"):
        check(judge(operation, gpu(GAPPED), GPU, flag), "async", "d2d", "none")


def test_gpu_source_to_somewhere() -> None:
    check(judge("to", GPU, NOWHERE, True), "async", "unknown", "none")
    check(judge("to", GPU, NOWHERE, False), "unknown", "unknown", "none")
    check(judge("copy_", GPU, NOWHERE, True), "unknown", "unknown", "none")


def test_unknown_source_says_where_it_could_be_decided() -> None:
    source = Fact(needs="caller", shape=GAPPED)
    for operation, destination in (("to", GPU), ("cuda", NOWHERE), ("copy_", GPU), ("to", NOWHERE), ("copy_", NOWHERE)):
        verdict = judge(operation, source, destination, True)
        check(verdict, "unknown", "unknown", "none")
        assert verdict.needs == "caller"
    assert judge("to", unsure(needs="class"), GPU, True).needs == "class"
    assert judge("copy_", GPU, Fact(device="cpu", needs="project"), True).needs == "project"
    assert judge("copy_", GPU, Fact(needs="module"), True).needs == "module"


@pytest.mark.parametrize("flag", [True, False, None])
def test_other_devices_are_not_judged(flag: bool | None) -> None:
    for source, destination in ((pageable(), OTHER), (OTHER, pageable()), (OTHER, GPU), (OTHER, NOWHERE)):
        verdict = judge("copy_", source, destination, flag)
        check(verdict, "unknown", "unknown", "none")
        assert "another kind" in verdict.reason


def test_unknown_flag_keeps_what_holds_either_way() -> None:
    check(judge("copy_", pageable(), GPU, None), "blocks", "h2d", "pageable")
    check(judge("copy_", pinned(GAPPED), GPU, None), "blocks", "h2d", "gapped")
    check(judge("copy_", pinned(), GPU, None), "unknown", "h2d", "none")
    check(judge("to", GPU, CPU, None), "unknown", "d2h", "none")
    check(judge("to", pageable(), ASSUMED_GPU, None), "unknown", "h2d", "none")
    check(judge("to", pageable(shape(0)), GPU, None), "async", "h2d", "none")


def test_zero_elements_never_wait() -> None:
    for operation in ("to", "copy_", "cuda"):
        check(judge(operation, pageable(shape(0, N)), GPU, False), "async", "h2d", "none")
    check(judge("copy_", gpu(shape(0)), pageable(shape(0)), False), "async", "d2h", "none")


def test_tensor_on_device() -> None:
    check(judge("new_on_device", CPU, GPU, None), "blocks", "h2d", "missing non_blocking")
    check(judge("new_on_device", CPU, ASSUMED_GPU, None), "unknown", "h2d", "none")
    check(judge("new_on_device", CPU, NOWHERE, None), "unknown", "unknown", "none")
    check(judge("new_on_device", CPU, CPU, None), "async", "h2h", "none")


def test_cpu_index() -> None:
    whole = "torch.int64"
    check(judge("index", pageable(shape(4), dtype=whole), GPU, None), "blocks", "h2d", "missing non_blocking")
    check(judge("index", pinned(shape(4), dtype=whole), GPU, None), "blocks", "h2d", "missing non_blocking")
    check(judge("index", pageable(shape(4), dtype="torch.bool"), GPU, None), "async", "h2d", "none")
    check(judge("index", pageable(shape(4), dtype="torch.uint8"), GPU, None), "async", "h2d", "none")
    check(judge("index", pageable(shape(), dtype=whole), GPU, None), "async", "h2d", "none")
    check(judge("index", pageable(shape(4)), GPU, None), "unknown", "h2d", "none")
    check(judge("index", pageable(None, dtype=whole), GPU, None), "unknown", "h2d", "none")
    check(judge("index", pageable(shape(4), dtype=whole), ASSUMED_GPU, None), "unknown", "unknown", "none")
    check(judge("index", pageable(shape(4), dtype=whole), CPU, None), "async", "h2h", "none")
    check(judge("index", GPU, GPU, None), "unknown", "unknown", "none")


def test_index_by_a_list_or_an_array() -> None:
    for facts in ({}, {"dtype": "torch.bool"}, {"dtype": "torch.int64"}):
        index = Fact(device="cpu", shape=shape(4), array=True, **facts)  # type: ignore[arg-type]
        check(judge("index", index, GPU, None), "blocks", "h2d", "missing non_blocking")
    check(judge("index", Fact(device="cpu", array=True), GPU, None), "unknown", "h2d", "none")
    check(judge("index", Fact(device="cpu", shape=shape(), array=True), GPU, None), "async", "h2d", "none")


def test_setitem() -> None:
    check(judge("setitem", pinned(shape(8)), gpu(shape(8)), None), "blocks", "h2d", "missing non_blocking")
    check(judge("setitem", pinned(shape()), gpu(shape(8)), None), "unknown", "h2d", "none")
    check(judge("setitem", pinned(shape(8)), ASSUMED_GPU, None), "unknown", "h2d", "none")


def test_operations_are_a_closed_set() -> None:
    with pytest.raises(ValueError, match="'clone'"):
        judge("clone", pinned(), GPU, True)


def test_small() -> None:
    assert is_small(pageable(None, max_bytes=SMALL_BYTES))
    assert not is_small(pageable(None, max_bytes=SMALL_BYTES + 1))
    assert not is_small(pageable(None))


def test_small_counts_what_a_broadcast_repeats() -> None:
    value = pinned(shape(), max_bytes=8)
    assert is_small(value, into=gpu(shape(), max_bytes=8))
    assert not is_small(value, into=gpu(shape(N), max_bytes=None))
    assert not is_small(value, into=gpu(shape(1 << 20), max_bytes=8 << 20))
    assert is_small(value, into=gpu(shape(16), max_bytes=128))
    assert is_small(value, into=GPU)


BLOCKS = judge("to", pageable(), GPU, True)
ASYNC = judge("to", pinned(), GPU, True)
UNKNOWN = judge("to", unsure(needs="caller"), GPU, True)
DOWN = judge("copy_", GPU, pageable(), True)


def test_combine_is_unanimous_or_unknown() -> None:
    assert combine([BLOCKS, BLOCKS]) == BLOCKS
    assert combine([ASYNC]) == ASYNC
    mixed = combine([ASYNC, BLOCKS])
    assert (mixed.kind, mixed.direction, mixed.fault) == ("unknown", "h2d", "pageable")
    assert "for some values" in mixed.reason
    half = combine([BLOCKS, UNKNOWN])
    assert (half.kind, half.needs) == ("unknown", "caller")
    assert combine([ASYNC, UNKNOWN]).needs == "caller"


def test_combine_drops_a_direction_that_differs() -> None:
    both = combine([BLOCKS, DOWN])
    assert (both.kind, both.direction) == ("blocks", "unknown")


def test_combine_needs_a_verdict() -> None:
    with pytest.raises(ValueError, match="no verdicts"):
        combine([])

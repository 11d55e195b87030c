"""The copy model: what an operation does to the thread that calls it, given what is known of both ends.

A pure function without torch. It mirrors PyTorch's copy kernel (aten/src/ATen/native/cuda/Copy.cu:
`copy_requires_temporaries`, `copy_kernel_cuda`) and the allocation that `.to` makes first (`_to_copy` in
aten/src/ATen/native/TensorConversions.cpp). Three clients share it: the linter with inferred facts, the runtime checker
with exact ones, and tests/gpu, which holds every prediction to a clock.

What the kernel does, in short. One `cudaMemcpyAsync` serves a copy whose ends have one dtype and, seen together, one
packed stretch of memory. Any other copy between host and device goes through a contiguous temporary of the host's end:
`.contiguous()` returns that end itself where it is contiguous, and else makes *pageable* memory, pinned source or not.
`cudaMemcpyAsync` with pageable memory is staged by the driver, and the calling thread waits for queued work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from h2dlint.model import Direction, Fact, Need, Shape, Verdict

SMALL_BYTES = 64 * 1024
"""Up to here the driver buffers a pageable upload and returns, while less than some 4 MiB of such pieces are queued."""

Gather = Literal["none", "gapped", "permuted", "broadcast", "unknown"]

_WHY_GATHERED = {
    "gapped": "is a view with gaps",
    "permuted": "is permuted against the other end",
    "broadcast": "is repeated by a broadcast",
}
_STAGED = "the driver stages it through its own pinned memory and the calling thread waits"


def judge(operation: str, source: Fact, destination: Fact, non_blocking: bool | None) -> Verdict:
    """Say whether the thread that calls `operation` waits for the GPU.

    operation     "to", "cuda", "cpu", "copy_"; "new_on_device" (`torch.tensor(source, device=...)`); "index" (`source`
                  is the index, a list counting as an `array`, `destination` the tensor that it indexes);
                  "setitem" (`destination[...] = source`)
    destination   for "to" and "new_on_device" what the call asks for: a device, a dtype or None to keep the source's,
                  a shape only where the call sets another memory format
    non_blocking  None when it is not known; ignored where the operation has no such argument

    With `non_blocking=True` an unknown far end is taken for a GPU: that is what the flag is written for. Without it a
    GPU must be proven. The size of the copy plays no part here but for zero elements: see `is_small`.
    Raises ValueError for another operation.
    """
    match operation:
        case "to" | "copy_":
            pass
        case "cuda":
            destination = replace(destination, device="gpu", assumed=False)
        case "cpu":
            destination, non_blocking = replace(destination, device="cpu", assumed=False), False
        case "new_on_device" | "setitem":
            non_blocking = False
        case "index":
            return _judge_index(source, destination)
        case _:
            raise ValueError(f"the copy model knows no operation {operation!r}")
    if "other" in (source.device, destination.device):
        return _unknown("unknown", "one end is a device of another kind, whose copies this model does not describe")
    if non_blocking is None:
        return _judge_either_way(operation, source, destination)
    if non_blocking:
        source, destination = _take_far_end_for_gpu(source, destination)
    match source.device, destination.device:
        case "cpu", "cpu":
            return Verdict("async", "h2h", "no device is involved")
        case "gpu", "gpu":
            return Verdict("async", "d2d", "both ends are on the GPU")
        case "gpu", "unknown" if non_blocking and operation == "to":
            return Verdict("async", "unknown", "it stays on a GPU or arrives in memory that PyTorch pins")
        case "cpu", "gpu":
            return _judge_upload(operation, source, destination, non_blocking)
        case "gpu", "cpu":
            return _judge_download(operation, source, destination, non_blocking)
        case "unknown", _:
            return _unknown("unknown", "the source's device is not known", source.needs)
        case _:
            return _unknown("unknown", "the destination's device is not known", destination.needs)


def combine(verdicts: Sequence[Verdict]) -> Verdict:
    """Join the verdicts of the values that may reach one site: unanimous or unknown, moves within the host left out.

    The first verdict lends its reason where all agree. Raises ValueError when there is none.
    """
    if not verdicts:
        raise ValueError("no verdicts to combine")
    # a move from host to host is none: what it does where it leaves the host decides
    verdicts = [each for each in verdicts if each.direction != "h2h"] or verdicts
    first = verdicts[0]
    direction = first.direction if all(each.direction == first.direction for each in verdicts) else "unknown"
    if all(each.kind == first.kind for each in verdicts):
        return replace(first, direction=direction)
    needs: Need = next((each.needs for each in verdicts if each.kind == "unknown"), "runtime")
    waits = next((each for each in verdicts if each.kind == "blocks"), None)
    if waits is None:
        return _unknown(direction, "not every value that may arrive here is known", needs)
    return replace(waits, kind="unknown", direction=direction, reason=f"for some values {waits.reason}", needs=needs)


def is_small(fact: Fact, into: Fact | None = None) -> bool:
    """Whether a pageable upload of `fact` is provably at most 64 KiB, and so seldom waits.

    Only for uploads with non_blocking=True: a download into pageable memory waits at any size. `into` is the
    destination of a `copy_`, whose size counts where it repeats the source.
    """
    staged = into if into is not None and _is_repeated(fact.shape, into.shape) else fact
    return staged.max_bytes is not None and staged.max_bytes <= SMALL_BYTES


def _judge_upload(operation: str, source: Fact, destination: Fact, non_blocking: bool) -> Verdict:
    """Host to device."""
    if _is_empty(source) or (operation == "copy_" and _is_empty(destination)):
        return Verdict("async", "h2d", "it has no elements, so nothing is copied", host="source")
    if not non_blocking:
        return _judge_waiting(operation, "h2d", source, destination)
    if source.memory == "pageable":
        return Verdict("blocks", "h2d", f"the source is pageable: {_STAGED}", host="source", fault="pageable")
    gather = _find_gather(source, destination, allocated=operation != "copy_" and destination.shape is None)
    if gather == "unknown":
        return _unknown("h2d", "the layout of the two ends is not known", source.needs)
    if gather != "none":
        reason = f"the source {_WHY_GATHERED[gather]}: it is gathered into a pageable temporary first, and {_STAGED}"
        return Verdict("blocks", "h2d", reason, host="source", fault=gather)
    if source.memory == "pinned":
        return Verdict("async", "h2d", "the source is pinned and one packed stretch of memory", host="source")
    return _unknown("h2d", "whether the source is pinned is not known", source.needs)


def _judge_download(operation: str, source: Fact, destination: Fact, non_blocking: bool) -> Verdict:
    """Device to host. `.to` allocates a pinned result itself, with the source's strides where they are dense."""
    if _is_empty(source) or (operation == "copy_" and _is_empty(destination)):
        return Verdict("async", "d2h", "it has no elements, so nothing is copied", host="destination")
    if not non_blocking:
        return _judge_waiting(operation, "d2h", source, destination)
    if operation != "copy_":
        if _is_scrambled(source, destination):
            reason = "the result keeps the source's permuted strides, so the copy passes through pageable memory"
            return Verdict("blocks", "d2h", reason, host="destination", fault="permuted")
        return Verdict("async", "d2h", "PyTorch makes the result in pinned memory", host="destination")
    if destination.memory == "pageable":
        reason = "the destination is pageable: the calling thread waits until the data has arrived"
        return Verdict("blocks", "d2h", reason, host="destination", fault="pageable")
    gather = _find_gather(destination, source, allocated=False, download=True)
    if gather == "unknown":
        return _unknown("d2h", "the layout of the two ends is not known", destination.needs)
    if gather != "none":
        reason = (
            f"the destination {_WHY_GATHERED[gather]}: the data arrives in a pageable temporary first, "
            "and the calling thread waits for it"
        )
        return Verdict("blocks", "d2h", reason, host="destination", fault=gather)
    if destination.memory == "pinned":
        return Verdict("async", "d2h", "the destination is pinned and one packed stretch of memory", host="destination")
    return _unknown("d2h", "whether the destination is pinned is not known", destination.needs)


def _judge_waiting(operation: str, direction: Direction, source: Fact, destination: Fact) -> Verdict:
    """A copy between host and device without non_blocking: it synchronises the stream, whatever the memory."""
    device = destination if direction == "h2d" else source
    if device.assumed:
        return _unknown(direction, "that the far end is a GPU is only assumed", device.needs)
    # aten's copy_to (TensorIndexing.h) fills from a 0-dim value, unless the target is 0-dim or indexed by tensors.
    if operation == "setitem" and source.rank == 0:
        return _unknown(direction, "whether a 0-dim value is filled in or copied depends on the index")
    host: Literal["source", "destination"] = "source" if direction == "h2d" else "destination"
    what = "the constructor" if operation == "new_on_device" else "the copy"
    reason = f"{what} waits until the GPU has done all queued work, because nothing says non_blocking"
    return Verdict("blocks", direction, reason, host=host, fault="missing non_blocking")


def _judge_index(index: Fact, indexed: Fact) -> Verdict:
    """`indexed[index]`: the index goes to the device with a wait, but for mask tensors and 0-dim integers.

    A mask's positions are written to pinned memory and copied asynchronously (expandTensors in
    aten/src/ATen/native/IndexingUtils.h); a 0-dim integer on the host is read there and makes a view. Lists and arrays
    become a tensor on the device first, with a wait, masks too.
    """
    if indexed.device == "cpu" and index.device == "cpu":
        return Verdict("async", "h2h", "no device is involved")
    if indexed.device != "gpu" or indexed.assumed:
        return _unknown("unknown", "that the indexed tensor is on a GPU is not proven", indexed.needs)
    if index.device != "cpu":
        return _unknown("unknown", "that the index is in host memory is not proven", index.needs)
    if index.rank == 0:
        return Verdict("async", "h2d", "a 0-dim index is read on the host and makes a view", host="source")
    if index.dtype in ("torch.bool", "torch.uint8") and not index.array:
        return Verdict("async", "h2d", "the positions of a mask travel through pinned memory", host="source")
    if _is_empty(index):
        return Verdict("async", "h2d", "it has no elements, so nothing is copied", host="source")
    if index.rank is None or (index.dtype is None and not index.array):
        return _unknown("h2d", "whether the index is a mask or a 0-dim number is not known", index.needs)
    reason = "the index is in host memory: it is copied to the GPU first, and the calling thread waits"
    return Verdict("blocks", "h2d", reason, host="source", fault="missing non_blocking")


def _judge_either_way(operation: str, source: Fact, destination: Fact) -> Verdict:
    """The flag is not known: what holds with it and without it holds."""
    with_flag = judge(operation, source, destination, True)
    without = judge(operation, source, destination, False)
    if with_flag.kind == without.kind:
        return with_flag
    return _unknown(with_flag.direction, "the value of non_blocking is not known")


def _take_far_end_for_gpu(source: Fact, destination: Fact) -> tuple[Fact, Fact]:
    """The convention for non_blocking=True, where the near end is known to be the host."""
    match source.device, destination.device:
        case "cpu", "unknown":
            return source, replace(destination, device="gpu", assumed=True)
        case "unknown", "cpu":
            return replace(source, device="gpu", assumed=True), destination
        case _:
            return source, destination


def _find_gather(near: Fact, far: Fact, *, allocated: bool, download: bool = False) -> Gather:
    """Why the kernel needs a contiguous temporary of the host's end `near`; "none" where that end itself will do.

    `allocated` says that the call makes the far end, with the strides of the near one where those are dense. In a
    `download` a source that is repeated is repeated on the GPU.
    """
    match near.layout:
        case "contiguous":
            return "broadcast" if not (allocated or download) and _is_repeated(near.shape, far.shape) else "none"
        case "permuted":
            if _has_other_dtype(near, far):
                return "permuted"
            if allocated:
                return "none"
            return _compare_orders(near.shape, far.shape)
        case layout:
            return layout


def _is_empty(fact: Fact) -> bool:
    """Whether the tensor surely has no elements."""
    if fact.max_bytes == 0:
        return True
    return fact.shape is not None and any(dim.size is not None and dim.size.number == 0 for dim in fact.shape.dims)


def _is_repeated(source: Shape | None, destination: Shape | None) -> bool:
    """Whether `destination.copy_(source)` surely broadcasts: a missing or single dimension meets a longer one."""
    if source is None or destination is None or source.tail:
        return False
    missing = len(destination.dims) - len(source.dims)
    if any(dim.size is not None and not dim.single for dim in destination.dims[: max(missing, 0)]):
        return True
    if destination.tail or missing < 0:
        return False
    pairs = zip(source.dims, destination.dims[missing:], strict=True)
    return any(mine.single and theirs.size is not None and not theirs.single for mine, theirs in pairs)


def _compare_orders(near: Shape | None, far: Shape | None) -> Gather:
    """Whether a permuted end can be copied onto the far one as a single stretch: both dense, in the same order."""
    if near is None or far is None:
        return "unknown"
    if far.layout != "permuted":
        return "permuted"
    if near.tail != far.tail or len(near.dims) != len(far.dims):
        return "unknown" if near.tail or far.tail else "permuted"
    return "none" if _rank_dims(near) == _rank_dims(far) else "permuted"


def _rank_dims(shape: Shape) -> list[int]:
    """The dimensions longer than one, from the outermost in memory."""
    long = [index for index, dim in enumerate(shape.dims) if not dim.single]
    return sorted(long, key=lambda index: shape.dims[index].order)


def _is_scrambled(source: Fact, destination: Fact) -> bool:
    """Whether `.to("cpu")` of a GPU tensor needs a temporary for a result that is not contiguous."""
    if source.device != "gpu" or source.shape is None or source.shape.tail:
        return False
    dims = tuple(dim for dim in source.shape.dims if not dim.zero)
    ranks = _rank_dims(Shape(dims, tail=False))
    dense = source.layout == "permuted" and not _has_other_dtype(source, destination)
    return ranks != sorted(ranks) and not dense


def _has_other_dtype(one: Fact, other: Fact) -> bool:
    """Whether the dtypes are known and differ; an unknown one is taken for equal."""
    return one.dtype is not None and other.dtype is not None and one.dtype != other.dtype


def _unknown(direction: Direction, reason: str, needs: Need = "runtime") -> Verdict:
    return Verdict("unknown", direction, reason, needs=needs)

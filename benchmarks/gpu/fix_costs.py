"""What each way of writing the fix costs: `python -m benchmarks.gpu.fix_costs OUT.json`.

Two tables. "rows" uploads the first columns of a pinned buffer of padded rows, over row counts and bytes in a row;
"pieces" joins pageable pieces and uploads the result. All times are medians of host microseconds with the stream idle:
`host` until the call returns, `whole` until the GPU has the data.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import pathlib
import sys
from collections.abc import Callable, Iterator

import torch

from benchmarks.gpu.steady import describe_machine, time_alone

ROW_COUNTS = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 32, 64, 256, 1024)
ROW_BYTES = (256, 4096, 65536, 1 << 20)
PIECE_COUNTS = (2, 8, 64)
PIECE_BYTES = (4096, 65536, 1 << 20)
LARGEST = 64 << 20
PADDING = 64
HOST_TO_DEVICE = 1

Call = Callable[[], object]


def list_row_ways(rows: int, row_bytes: int) -> Iterator[tuple[str, Call]]:
    """Ways to upload `src[:, :n]`, where a row of `row_bytes` is followed by `PADDING` bytes."""
    n, width = row_bytes, row_bytes + PADDING
    src = torch.zeros(rows, width, dtype=torch.uint8, pin_memory=True)
    dst = torch.zeros(rows, width, dtype=torch.uint8, device="cuda")
    copy_2d = load_memcpy_2d()

    def index_rows() -> None:
        for row in range(dst.shape[0]):
            dst[row, :n].copy_(src[row, :n], non_blocking=True)

    def zip_rows() -> None:
        for far, near in zip(dst[:, :n].unbind(0), src[:, :n].unbind(0), strict=True):
            far.copy_(near, non_blocking=True)

    def stage() -> None:
        staging = torch.empty(src[:, :n].shape, dtype=src.dtype, pin_memory=True)
        staging.copy_(src[:, :n])
        dst[:, :n].copy_(staging, non_blocking=True)

    def pin_after() -> None:
        dst[:, :n].copy_(src[:, :n].contiguous().pin_memory(), non_blocking=True)

    def copy_pitched() -> None:
        stream = torch.cuda.current_stream().cuda_stream
        copy_2d(dst.data_ptr(), width, src.data_ptr(), width, n, rows, HOST_TO_DEVICE, stream)

    yield "fault", lambda: dst[:, :n].copy_(src[:, :n], non_blocking=True)
    yield "rows by index", index_rows
    yield "rows by unbind", zip_rows
    yield "staging", stage
    yield "contiguous().pin_memory()", pin_after
    yield "whole buffer", lambda: dst.copy_(src, non_blocking=True)
    yield "cudaMemcpy2DAsync", copy_pitched


def list_piece_ways(count: int, piece_bytes: int) -> Iterator[tuple[str, Call]]:
    """Ways to join `count` pageable pieces and upload the result."""
    pieces = [torch.zeros(piece_bytes // 16, 2, dtype=torch.int64) for _ in range(count)]

    def join_into_pinned() -> torch.Tensor:
        pinned = torch.empty(
            (sum(piece.shape[0] for piece in pieces), *pieces[0].shape[1:]), dtype=pieces[0].dtype, pin_memory=True
        )
        return torch.cat(pieces, out=pinned).to("cuda", non_blocking=True)

    yield "fault", lambda: torch.cat(pieces).to("cuda", non_blocking=True)
    yield "out=pinned", join_into_pinned
    yield "pin_memory()", lambda: torch.cat(pieces).pin_memory().to("cuda", non_blocking=True)


def load_memcpy_2d() -> Callable[..., int]:
    """`cudaMemcpy2DAsync` of the CUDA runtime that PyTorch has loaded.

    Raises OSError where that library is not found under its usual names.
    """
    major = str(torch.version.cuda).split(".")[0]
    library = ctypes.CDLL(f"libcudart.so.{major}")
    function = library.cudaMemcpy2DAsync
    size = ctypes.c_size_t
    function.argtypes = [
        ctypes.c_void_p, size, ctypes.c_void_p, size, size, size, ctypes.c_int, ctypes.c_void_p,
    ]  # fmt: skip

    def call(*arguments: int) -> int:
        code: int = function(*arguments)
        if code:
            raise RuntimeError(f"cudaMemcpy2DAsync failed with error {code}")
        return code

    return call


def measure_rows() -> list[dict[str, object]]:
    table = []
    for row_bytes, rows in itertools.product(ROW_BYTES, ROW_COUNTS):
        if rows * row_bytes <= LARGEST:
            ways = {name: time_call(call, heavy=rows >= 256) for name, call in list_row_ways(rows, row_bytes)}
            table.append({"rows": rows, "row_bytes": row_bytes, "ways": ways})
    return table


def measure_pieces() -> list[dict[str, object]]:
    table = []
    for piece_bytes, count in itertools.product(PIECE_BYTES, PIECE_COUNTS):
        ways = {name: time_call(call) for name, call in list_piece_ways(count, piece_bytes)}
        table.append({"pieces": count, "piece_bytes": piece_bytes, "ways": ways})
    return table


def time_call(call: Call, *, heavy: bool = False) -> dict[str, float]:
    host, whole = time_alone(call, repeats=7 if heavy else 25)
    return {"host": round(host, 1), "whole": round(whole, 1)}


def main(argv: list[str]) -> int:
    rows, pieces = measure_rows(), measure_pieces()
    parts = [f'"machine": {json.dumps(describe_machine())}']
    for name, table in (("rows", rows), ("pieces", pieces)):
        lines = ",\n".join(json.dumps(row) for row in table)
        parts.append(f'"{name}": [\n{lines}\n]')
    pathlib.Path(argv[0]).write_text("{" + ",\n".join(parts) + "}\n")
    for row in (*rows, *pieces):
        print(json.dumps(row))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

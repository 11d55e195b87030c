"""Nsight Systems SQLite exports (`nsys export --type sqlite`) -> the copies that held the host.

Tables come and go with the version and the options of the recording, so each is asked for before it is used. Stacks
are in `CUDA_CALLCHAINS` (`--cudabacktrace`, `--python-backtrace=cuda`); without them the innermost NVTX range is told.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from h2dlint.model import Direction
from h2dlint.runtime.kineto import is_library
from h2dlint.runtime.stalls import Cover, Frame, Moment, Stall

_CALLS = "CUPTI_ACTIVITY_KIND_RUNTIME"
_COPIES = "CUPTI_ACTIVITY_KIND_MEMCPY"
_PROCESS = 0xFFFFFF000000
"""The bits of a globalTid that are its process, which a globalPid holds as well."""
_DIRECTIONS: dict[int, Direction] = {1: "h2d", 2: "d2h"}
_MEMORIES = {
    0: "Pageable", 1: "Pinned", 2: "Device", 3: "Array", 4: "Managed", 5: "Device Static", 6: "Managed Static",
}  # fmt: skip
"""As the table ENUM_CUDA_MEM_KIND of newer exports has them."""
_LINE = re.compile(r"(?P<function>.*?)[:(](?P<line>\d+)\)?$")


def read_nsys(path: Path, min_ns: int) -> list[Stall]:
    """The copies between host and device whose calls held the host for at least `min_ns`, in order of time.

    Raises ValueError where the file is no export with CUDA calls and copies, OSError where it cannot be opened.
    """
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as database:
            return _Export(database, path).read(min_ns)
    except sqlite3.DatabaseError as error:
        raise ValueError(f"{path}: not an Nsight Systems SQLite export: {error}") from error


class _Export:
    """One open export."""

    def __init__(self, database: sqlite3.Connection, path: Path) -> None:
        self._database = database
        self._tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if not {_CALLS, _COPIES, "StringIds"} <= self._tables:
            raise ValueError(f"{path}: the export holds no CUDA calls and copies (record with --trace=cuda)")

    def read(self, min_ns: int) -> list[Stall]:
        found = [each for each in self._match_calls(self._read_copies()) if each[0].ns >= min_ns]
        found.sort(key=lambda each: each[1].start)
        labels = self._read_ranges([moment for _, moment, _ in found])
        return [
            replace(self._place(stall, chain), label=label)
            for (stall, _, chain), label in zip(found, labels, strict=True)
        ]

    def _read_copies(self) -> dict[tuple[int | None, int], Stall]:
        """Copies by process and correlation, without a time yet."""
        process = "globalPid" if "globalPid" in self._columns(_COPIES) else "NULL"
        query = f"SELECT {process}, correlationId, copyKind, srcKind, dstKind, bytes FROM {_COPIES}"
        copies = {}
        for pid, correlation, kind, source, target, size in self._database.execute(query):
            if kind not in _DIRECTIONS:
                continue
            host = _MEMORIES.get(source if kind == 1 else target, "Unknown")
            way = "HtoD" if kind == 1 else "DtoH"
            name = f"Memcpy {way} ({_MEMORIES.get(source, 'Unknown')} -> {_MEMORIES.get(target, 'Unknown')})"
            memory: Literal["pageable", "pinned", "unknown"] = "unknown"
            if host in ("Pageable", "Pinned"):
                memory = "pageable" if host == "Pageable" else "pinned"
            key = (None if pid is None else pid & _PROCESS, correlation)
            copies[key] = Stall(name, _DIRECTIONS[kind], memory, size, 0)
        return copies

    def _match_calls(self, copies: dict[tuple[int | None, int], Stall]) -> Iterator[tuple[Stall, Moment, int | None]]:
        """Each copy with the time of its call, and of a stream's synchronisation right behind it in its thread."""
        chain = "c.callchainId" if "callchainId" in self._columns(_CALLS) else "NULL"
        query = (
            f"SELECT c.start, c.end, c.globalTid, c.correlationId, {chain}, s.value FROM {_CALLS} AS c "
            "JOIN StringIds AS s ON s.id = c.nameId ORDER BY c.globalTid, c.start"
        )
        pending: tuple[Stall, Moment, int | None] | None = None
        for start, end, thread, correlation, chain_id, name in self._database.execute(query):
            if pending and "StreamSynchronize" in name and pending[1].thread == thread:
                stall, moment, chain_before = pending
                yield replace(stall, ns=stall.ns + end - start), moment, chain_before
                pending = None
                continue
            if pending:
                yield pending
                pending = None
            if "emcpy" in name:
                copy = copies.get((thread & _PROCESS, correlation)) or copies.get((None, correlation))
                if copy:
                    pending = (replace(copy, ns=end - start), Moment(thread, start), chain_id)
        if pending:
            yield pending

    def _place(self, stall: Stall, chain: int | None) -> Stall:
        """The innermost Python frame of a callchain, where there is one."""
        if chain is None or "CUDA_CALLCHAINS" not in self._tables:
            return stall
        query = (
            "SELECT s.value, m.value FROM CUDA_CALLCHAINS AS c LEFT JOIN StringIds AS s ON s.id = c.symbol "
            "LEFT JOIN StringIds AS m ON m.id = c.module WHERE c.id = ? ORDER BY c.stackDepth"
        )
        for symbol, module in self._database.execute(query, (chain,)):
            if not str(module).endswith(".py") or is_library(module):
                continue
            match = _LINE.match(symbol or "")
            line = int(match["line"]) if match else 0
            return replace(stall, frame=Frame(module, 0, match["function"] if match else symbol or ""), line=line)
        return stall

    def _read_ranges(self, moments: list[Moment]) -> list[str]:
        """The innermost NVTX range around each moment, "" where there is none."""
        cover: Cover[str] = Cover(moments)
        if "NVTX_EVENTS" in self._tables:
            text = "COALESCE(n.text, s.value)" if "textId" in self._columns("NVTX_EVENTS") else "n.text"
            join = "LEFT JOIN StringIds AS s ON s.id = n.textId" if "textId" in text or "s.value" in text else ""
            query = f"SELECT n.globalTid, n.start, n.end, {text} FROM NVTX_EVENTS AS n {join} WHERE n.end IS NOT NULL"
            for thread, start, end, name in self._database.execute(query):
                if name:
                    cover.add(thread, start, end - start, name)
        return [names[0] if names else "" for names in cover]

    def _columns(self, table: str) -> set[str]:
        return {row[1] for row in self._database.execute(f"PRAGMA table_info({table})")}

"""What the runtime checker saw of one line: the record that reports, JSON and the join with static sites share."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields

from h2dlint.model import Direction, Layout, Memory, Verdict, VerdictKind

SYNC = "sync"
"""The operation of a row that only PyTorch's sync debug mode saw."""

ADVICE = {
    "HTD101": "copy contiguous pieces (one row each), or gather into a pinned staging tensor first",
    "HTD102": "give cat or stack a pinned `out=`, pin the new tensor where it is made, or pin the result",
    "HTD103": "give cat or stack a pinned `out=`, pin the new tensor where it is made, or pin the result",
    "HTD104": "give cat or stack a pinned `out=`, pin the new tensor where it is made, or pin the result",
    "HTD105": 'allocate the host tensor pinned and whole, or use `.to("cpu", non_blocking=True)`',
    "HTD301": "use `torch.full((), x, device=...)` for a scalar; pin a list's tensor and copy it non_blocking",
    "HTD302": "pin the source and pass non_blocking=True",
    "HTD303": "move the index to the GPU first, from pinned memory with non_blocking=True",
    "HTD304": "use `target[...].copy_(value, non_blocking=True)` with a pinned value",
}


@dataclass(frozen=True, slots=True)
class Observation:
    """All copies of one kind that one source line made.

    Rows and columns count from 1, the end is exclusive; columns are 0 where Python does not tell them (3.10). `codes`
    are the rules that may name the fault: the checker sees the memory, not the expression that allocated it, so an
    unpinned source is any of HTD102 to HTD104. `host_ns` is the time that the calls took on the host, `worst_ns` the
    longest of them; both are 0 for operation "sync", whose time is not known. `small` uploads are pageable but at most
    64 KiB. `cold` says that the line ran fewer times than the checker was told to let pass. `allowed` is the reason
    given to `allow`, or "".
    """

    filename: str
    row: int
    column: int
    end_row: int
    end_column: int
    operation: str
    direction: Direction
    verdict: VerdictKind
    reason: str
    codes: tuple[str, ...]
    memory: Memory
    layout: Layout
    count: int
    bytes: int
    host_ns: int
    worst_ns: int
    small: bool = False
    cold: bool = False
    allowed: str = ""
    threads: tuple[str, ...] = ()

    @property
    def found(self) -> bool:
        """Whether this is a fault to report: a copy that held the host though nothing asked it to."""
        return self.verdict == "blocks" and bool(self.codes) and not (self.small or self.cold or self.allowed)

    @property
    def advice(self) -> str:
        return ADVICE.get(self.codes[0], "") if self.codes else ""

    def to_dict(self) -> dict[str, object]:
        """The JSON object of this row."""
        return {**asdict(self), "found": self.found, "advice": self.advice}

    @classmethod
    def from_dict(cls, row: dict[str, object]) -> Observation:
        """The row that `to_dict` wrote. Raises ValueError where a key is missing or of another type."""
        values = {}
        for known in fields(cls):
            value = row.get(known.name)
            if isinstance(value, list):
                value = tuple(value)
            if type(value).__name__ != _TYPES.get(known.name, "str"):
                raise ValueError(f"an observed row has no valid {known.name!r}: {value!r}")
            values[known.name] = value
        return cls(**values)  # type: ignore[arg-type]


_TYPES = {
    **dict.fromkeys(("row", "column", "end_row", "end_column", "count", "bytes", "host_ns", "worst_ns"), "int"),
    **dict.fromkeys(("small", "cold"), "bool"),
    **dict.fromkeys(("codes", "threads"), "tuple"),
}


def name_codes(operation: str, verdict: Verdict) -> tuple[str, ...]:
    """The rules that speak of an operation with this verdict; none for a wait that was asked for (`.cpu()`)."""
    if verdict.kind != "blocks":
        return ()
    match operation, verdict.direction, verdict.fault:
        case "new_on_device", _, _:
            return ("HTD301",)
        case "index", _, _:
            return ("HTD303",)
        case "setitem", _, _:
            return ("HTD304",)
        case _, "h2d", "missing non_blocking":
            return ("HTD302",)
        case _, "h2d", "pageable":
            return ("HTD102", "HTD103", "HTD104")
        case _, "h2d", _:
            return ("HTD101",)
        case _, "d2h", "missing non_blocking":
            return ()
        case _:
            return ("HTD105",)

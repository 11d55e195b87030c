"""The values that the stages of h2dlint hand to each other. All of them are frozen; no stage changes another's.

Words (the same everywhere): a *fact* is what is known of one tensor; a *site* is a call that moves a tensor between
host and device, or may; a *finding* is what a rule says of a site; an *edit* replaces a span of the source's bytes.

Rows count from 1. Columns count from 1 and count characters in everything that is reported; inside `Span` they are
ast's own: from 0, in UTF-8 bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import ast
    from collections.abc import Hashable

DeviceKind = Literal["cpu", "gpu", "other", "unknown"]
Memory = Literal["pinned", "pageable", "unknown"]
Layout = Literal["contiguous", "permuted", "gapped", "broadcast", "unknown"]
Direction = Literal["h2d", "d2h", "d2d", "h2h", "unknown"]
VerdictKind = Literal["blocks", "async", "unknown"]
Need = Literal["local", "class", "module", "project", "caller", "runtime"]
OriginKind = Literal["new", "join", "op", "copy", "index", "view", "other"]


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of a file as ast gives it: rows from 1, columns from 0 in UTF-8 bytes, end exclusive."""

    filename: str
    row: int
    column: int
    end_row: int
    end_column: int


@dataclass(frozen=True, slots=True)
class Step:
    """One link of the evidence: what happened to the tensor at `filename:row`."""

    filename: str
    row: int
    message: str


@dataclass(frozen=True, slots=True)
class Size:
    """The length of a dimension: `offset` alone when `symbol` is None, else an unknown number plus `offset`.

    Two sizes with the same symbol and offset are equal at run time; `text` is how the source spells it.
    """

    symbol: Hashable | None
    offset: int = 0
    text: str = field(default="", compare=False)

    @property
    def number(self) -> int | None:
        return self.offset if self.symbol is None else None

    def __str__(self) -> str:
        return str(self.offset) if self.symbol is None else self.text or "?"


@dataclass(frozen=True, slots=True)
class Dim:
    """One dimension of a view, in logical order.

    `size` is None where nothing is known of it. `gap` says that a step along this dimension jumps over memory that is
    not part of the view; `order` is its rank from the outermost in memory; `zero` says that its stride is 0 (expand).
    """

    size: Size | None
    order: int
    gap: bool = False
    zero: bool = False

    @property
    def single(self) -> bool:
        return self.size is not None and self.size.number == 1


@dataclass(frozen=True, slots=True)
class Shape:
    """Dimensions and strides. `tail` says that further dimensions of unknown number follow, packed without gaps."""

    dims: tuple[Dim, ...] = ()
    tail: bool = True

    @property
    def layout(self) -> Layout:
        """How a copy kernel sees it (at::TensorImpl::compute_contiguous and compute_non_overlapping_and_dense)."""
        long = [dim for dim in self.dims if not dim.single]
        if any(dim.zero for dim in long):
            return "broadcast"
        if any(dim.gap for dim in long):
            return "gapped"
        orders = [dim.order for dim in long]
        return "contiguous" if orders == sorted(orders) else "permuted"

    @property
    def rank(self) -> int | None:
        return None if self.tail else len(self.dims)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the memory of a tensor was allocated: the expression that a fix would change.

    `call` is the dotted name of what made it ("torch.cat"), `kind` the row's effect, `function` the qualified name of
    the function that holds it ("" at module level).
    """

    kind: OriginKind
    call: str
    span: Span
    function: str = ""


@dataclass(frozen=True, slots=True)
class Fact:
    """What is known of one tensor (or numpy array, which shares memory with tensors).

    device    where the memory is; `assumed` when only a convention says so (`device=self.device`)
    memory    of a host tensor: page-locked or not
    shape     dimensions and strides, None when unknown
    dtype     "torch.float32" and so on, None when unknown
    max_bytes an upper bound of the size in bytes, None when there is none
    origin    the allocation behind it
    steps     the evidence, from the allocation on
    named     the device is known by a name only (`buf.gpu`)
    held      an attribute holds it, so it outlives the call that copies it
    needs     where a "unknown" device or memory could be decided
    """

    device: DeviceKind = "unknown"
    memory: Memory = "unknown"
    shape: Shape | None = None
    dtype: str | None = None
    max_bytes: int | None = None
    assumed: bool = False
    named: bool = False
    array: bool = False
    grad: bool | None = None
    needs: Need = "runtime"
    held: bool = field(default=False, compare=False)
    origin: Origin | None = field(default=None, compare=False)
    steps: tuple[Step, ...] = field(default=(), compare=False)

    @property
    def layout(self) -> Layout:
        return "unknown" if self.shape is None else self.shape.layout

    @property
    def rank(self) -> int | None:
        return None if self.shape is None else self.shape.rank

    def then(self, step: Step, **changes: object) -> Fact:
        """The fact after one more event."""
        return replace(self, steps=(*self.steps, step), **changes)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the copy model says of an operation; `reason` is a clause that a message can hold."""

    kind: VerdictKind
    direction: Direction
    reason: str
    host: Literal["source", "destination", "none"] = "none"
    fault: Literal["pageable", "gapped", "permuted", "broadcast", "missing non_blocking", "none"] = "none"
    needs: Need = "runtime"


@dataclass(frozen=True, slots=True)
class Site:
    """A call that moves a tensor between host and device, or may.

    `sources` and `destinations` hold one fact for each value that may reach the call (usually one), the worst first.
    `destinations` is empty for `.to` and `.cuda`, whose target is `target`.
    `function` is the innermost enclosing def (None at module level), `call` the ast node of the call.
    """

    filename: str
    row: int
    column: int
    end_row: int
    end_column: int
    operation: str
    verdict: Verdict
    memory: Memory
    layout: Literal["contiguous", "strided", "unknown"]
    non_blocking: bool | None
    sources: tuple[Fact, ...] = ()
    destinations: tuple[Fact, ...] = ()
    target: str = ""
    codes: tuple[str, ...] = ()
    cold: bool = False
    small: bool = False
    captured: bool = False
    steps: tuple[Step, ...] = ()
    call: ast.AST | None = field(default=None, compare=False, repr=False)
    function: ast.AST | None = field(default=None, compare=False, repr=False)
    qualname: str = ""

    @property
    def source(self) -> Fact | None:
        return self.sources[0] if self.sources else None

    @property
    def destination(self) -> Fact | None:
        return self.destinations[0] if self.destinations else None


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace `span` by `content`. An insertion has an empty span."""

    span: Span
    content: str


@dataclass(frozen=True, slots=True)
class Fix:
    """What to write instead. `safety` "unsafe" comes with the reason in `why`."""

    safety: Literal["safe", "unsafe"]
    message: str
    edits: tuple[Edit, ...]
    why: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule says of a site. Rows and columns count characters from 1; the end is exclusive.

    `statement` is the first and last row of the statement: a noqa comment on any of them counts.
    `declined` says why there is no fix, where a user may wonder.
    """

    code: str
    name: str
    message: str
    filename: str
    row: int
    column: int
    end_row: int
    end_column: int
    statement: tuple[int, int]
    steps: tuple[Step, ...] = ()
    fix: Fix | None = None
    declined: str = ""

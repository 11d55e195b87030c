"""What is known at one point of a function about one copy: is it in flight, and what names its host memory?"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class Box:
    """A container whose elements are of kind `inner`."""

    inner: Kind


@dataclass(frozen=True, slots=True)
class Tup:
    """A tuple or list written out, element by element."""

    items: tuple[Kind | None, ...]


@dataclass(frozen=True, slots=True)
class Mark:
    """A CUDA event: `good` once recorded behind the copy, `stale` when recorded before it or not at all."""

    word: Literal["good", "stale", "other"]


@dataclass(frozen=True, slots=True)
class Lane:
    """A stream by its name; "" is the one that is current where the function starts."""

    name: str


# What an expression is to the copy: the memory itself as a tensor or a numpy array, something that holds it, an event.
Kind = Literal["tensor", "array"] | Box | Tup | Mark | Lane


def is_memory(kind: Kind | None) -> bool:
    return kind in ("tensor", "array")


def holds_memory(kind: Kind | None) -> bool:
    match kind:
        case "tensor" | "array":
            return True
        case Box(inner=inner):
            return holds_memory(inner)
        case Tup(items=items):
            return any(holds_memory(item) for item in items)
        case _:
            return False


def element_of(kind: Kind | None) -> Kind | None:
    """What iterating or indexing gives."""
    match kind:
        case Box(inner=inner):
            return inner
        case Tup(items=items):
            return items[0] if items and all(item == items[0] for item in items) else None
        case "tensor" | "array":
            return kind
        case _:
            return None


def join_kinds(one: Kind | None, other: Kind | None) -> Kind | None:
    """Of two ways, the one that leads to the memory."""
    return one if holds_memory(one) or other is None else other


@dataclass(slots=True)
class State:
    """`live` says that the copy may be in flight. `names` maps paths to what they are, `lanes` holds the streams that
    are ordered behind the copy, `given` the tests that were true where it was made; `turned` says that a loop or a
    method has come round since."""

    live: bool = False
    names: dict[str, Kind] = field(default_factory=dict)
    lanes: frozenset[str] = frozenset()
    given: dict[str, bool] = field(default_factory=dict)
    turned: bool = False

    def copy(self) -> State:
        return State(self.live, dict(self.names), self.lanes, dict(self.given), self.turned)

    def finish(self) -> None:
        """The host has waited: nothing is in flight. Events stay, and are old for the next copy."""
        self.live = self.turned = False
        self.lanes = frozenset()
        self.given = {}
        self.names = {
            path: Mark("stale") if isinstance(kind, Mark) else kind
            for path, kind in self.names.items()
            if isinstance(kind, (Mark, Lane))
        }

    def forget(self, path: str) -> None:
        """`path` is bound anew: it, what hangs on it, and what is indexed by it mean something else now.

        Not so the slot `[path % 2]` of a ring, which comes round.
        """
        word = re.compile(rf"(?<![\w.]){re.escape(path)}(?!\w)(?! % \w+\])")
        self.names = {one: kind for one, kind in self.names.items() if not word.search(one)}
        self.given = {one: outcome for one, outcome in self.given.items() if not word.search(one)}


def join(one: State | None, other: State | None) -> State | None:
    """Two ways meet; where the copy is in flight on one of them only, that one counts."""
    if one is None or other is None:
        return one or other
    if one.live != other.live:
        return one if one.live else other
    names = {**other.names, **one.names}
    for path, kind in other.names.items():
        if kind == Mark("good") or holds_memory(kind):
            names[path] = kind
    given = {test: outcome for test, outcome in one.given.items() if other.given.get(test) == outcome}
    return State(one.live, names, one.lanes | other.lanes, given, one.turned or other.turned)

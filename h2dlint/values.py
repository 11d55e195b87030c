"""What an expression may be worth: the abstract values of the interpreter, and how alternatives join.

A tensor or an array is a `Fact`. Everything else that can lead to one is here: constants, devices, containers,
functions, classes, instances, library names. `Alts` holds what different paths may bring; `BOTTOM` is no value at all
(unreachable, or still being computed); `Unknown` is any value.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from h2dlint.model import DeviceKind, Fact, Need, Size

if TYPE_CHECKING:
    import ast

    from h2dlint.facts import Frame
    from h2dlint.project import Module, Scope

MAX_ALTERNATIVES = 8
MAX_NESTING = 6
"""How deep containers in containers are joined; a tree that a loop walks down or builds up has no end otherwise."""


class Symbol:
    """The identity of an unknown value: what it was made of. Equal parts give the same object."""

    __slots__ = ("__weakref__", "parts")

    def __init__(self, parts: tuple[Hashable, ...]) -> None:
        self.parts = parts

    def __reduce__(self) -> tuple[object, ...]:
        # to another process goes the identity alone: the parts lead to the whole project
        return symbol, ("another process", id(self))


_SYMBOLS: WeakValueDictionary[tuple[Hashable, ...], Symbol] = WeakValueDictionary()


def symbol(*parts: Hashable) -> Symbol:
    found = _SYMBOLS.get(parts)
    if found is None:
        found = _SYMBOLS[parts] = Symbol(parts)
    return found


@dataclass(frozen=True, slots=True)
class Bottom:
    """No value: control never gets here with one."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """Any value. Two unknowns with the same symbol are the same value at run time."""

    needs: Need = field(default="runtime", compare=False)
    symbol: Symbol | None = None
    flaglike: bool = False  # an opaque answer to "can this host pin?"


@dataclass(frozen=True, slots=True)
class Const:
    value: object


@dataclass(frozen=True, slots=True)
class Num:
    """A whole number that is known up to a symbol."""

    size: Size


@dataclass(frozen=True, slots=True)
class Dev:
    kind: DeviceKind
    assumed: bool = False


@dataclass(frozen=True, slots=True)
class Flag:
    """True where memory can be pinned or a GPU is there."""


@dataclass(frozen=True, slots=True)
class OnGpu:
    """Whether a device that is not known is a GPU. As a pin flag it says: pinned where that matters."""


@dataclass(frozen=True, slots=True)
class Ref:
    """A name of a library: `torch.cat`, `numpy.int32`."""

    name: str


@dataclass(frozen=True, slots=True)
class LibObject:
    """What a library call gave, when it is no tensor: a stream, an event, a loader."""

    name: str
    leaf: Value | None = None


@dataclass(frozen=True, slots=True)
class Leaves:
    """A nested container of unknown form, all of whose tensors are like `fact`: a batch, a checkpoint."""

    fact: Fact


@dataclass(frozen=True, slots=True)
class Seq:
    """A list, tuple, set, deque or iterator. `items` when each element is known, else `rest` stands for all of them."""

    kind: str
    items: tuple[Value, ...] | None
    rest: Value = Bottom()

    def element(self) -> Value:
        return join((*(self.items or ()), self.rest))


@dataclass(frozen=True, slots=True)
class Map:
    """A dict: values of constant keys, and what any other key may give."""

    items: tuple[tuple[Hashable, Value], ...] = ()
    rest: Value = Bottom()

    def element(self) -> Value:
        return join((*(value for _, value in self.items), self.rest))

    def get(self, key: Hashable) -> Value:
        known = dict(self.items)
        if key in known:
            return known[key]
        return self.rest if not isinstance(self.rest, Bottom) else Unknown("local")


@dataclass(frozen=True, slots=True)
class Func:
    """A function of the project, with the frame that it closes over and the object that it is bound to."""

    scope: Scope
    closure: Frame | None
    bound: Value | None = None


@dataclass(frozen=True, slots=True)
class Arg:
    """An argument not yet evaluated: an expression with its frame, or a value."""

    frame: Frame | None
    node: ast.expr | None
    value: Value | None = None
    starred: bool = False


@dataclass(frozen=True, slots=True)
class Args:
    positional: tuple[Arg, ...] = ()
    keywords: tuple[tuple[str, Arg], ...] = ()
    open: bool = False  # a `**mapping` that may hold any keyword

    def plus(self, other: Args) -> Args:
        names = {name for name, _ in other.keywords}
        kept = tuple(one for one in self.keywords if one[0] not in names)
        return Args(self.positional + other.positional, kept + other.keywords, self.open or other.open)


@dataclass(frozen=True, slots=True)
class Partial:
    func: Value
    args: Args


@dataclass(frozen=True, slots=True)
class Cls:
    scope: Scope
    closure: Frame | None = None


@dataclass(frozen=True, slots=True)
class Inst:
    """An object of a class of the project; `made` is the frame of the constructor call, None for any object of it, `of`
    what the last type variable of a generic class stands for."""

    scope: Scope
    made: Frame | None = None
    of: Value | None = None


@dataclass(frozen=True, slots=True)
class Super:
    scope: Scope
    obj: Value


@dataclass(frozen=True, slots=True)
class Mod:
    module: Module


@dataclass(frozen=True, slots=True)
class Method:
    """A method of a library object or of an unknown one."""

    base: Value
    name: str


@dataclass(frozen=True, slots=True)
class Alts:
    values: tuple[Value, ...]


Value = (
    Bottom | Unknown | Const | Num | Dev | Flag | OnGpu | Ref | LibObject | Leaves | Seq | Map | Func | Partial | Cls
    | Inst | Super | Mod | Method | Alts | Fact
)  # fmt: skip
BOTTOM = Bottom()
NONE = Const(None)


def alternatives(value: Value) -> tuple[Value, ...]:
    """The values that `value` stands for: none for BOTTOM, else one or more."""
    if isinstance(value, Alts):
        return value.values
    return () if isinstance(value, Bottom) else (value,)


def join(values: Iterable[Value], level: int = 0) -> Value:
    """The least value that stands for all of them. `level` is how many containers it lies in."""
    kept: dict[object, Value] = {}
    seqs: dict[str, Seq] = {}
    maps: Map | None = None
    for value in values:
        for one in alternatives(value):
            match one:
                case Seq():
                    known = seqs.get(one.kind)
                    seqs[one.kind] = one if known is None else _join_seqs(known, one, level + 1)
                    kept.setdefault(("seq", one.kind), one)
                case Map():
                    maps = one if maps is None else _join_maps(maps, one, level + 1)
                    kept.setdefault("map", one)
                case Fact():
                    kept.setdefault((one, one.origin), one)
                case _:
                    kept.setdefault(key_of(one), one)
    found = [_final(key, one, seqs, maps) for key, one in kept.items()]
    if len(found) > 1:
        found = _drop_covered(found)
    if len(found) > MAX_ALTERNATIVES:
        found = _crowd(found)
    if not found:
        return BOTTOM
    return found[0] if len(found) == 1 else Alts(tuple(found))


def key_of(value: Value) -> object:
    """A hashable stand-in; a constant's type counts, so that True and 1 differ."""
    if isinstance(value, Const):
        return (type(value.value), value.value)
    if isinstance(value, Unknown):
        return Unknown(symbol=value.symbol, flaglike=value.flaglike)
    return value


def _final(key: object, one: Value, seqs: dict[str, Seq], maps: Map | None) -> Value:
    if isinstance(one, Seq):
        return seqs[one.kind]
    return maps if isinstance(one, Map) and maps is not None else one


def _drop_covered(found: list[Value]) -> list[Value]:
    """An object made in some frame is one of any objects of its class; all unknowns are alike beside other values."""
    opened = {one.scope for one in found if isinstance(one, Inst) and one.made is None}
    kept = [one for one in found if not (isinstance(one, Inst) and one.made is not None and one.scope in opened)]
    numbers = [one for one in kept if isinstance(one, Num)]
    unknowns: list[Unknown] = [one for one in kept if isinstance(one, Unknown)]
    if len(numbers) > 1:
        # different numbers are no number: what a loop counts has no end otherwise
        kept = [one for one in kept if not isinstance(one, Num)]
        unknowns.append(Unknown("local"))
    if len(unknowns) > 1 or len(numbers) > 1:
        kept = [one for one in kept if not isinstance(one, Unknown)]
        for flaglike in (True, False):
            alike = [one for one in unknowns if one.flaglike == flaglike]
            kept += [Unknown(alike[0].needs, flaglike=flaglike)] if alike else []
    return kept


def _crowd(found: list[Value]) -> list[Value]:
    """Too many alternatives: tensors that agree on where they are stand for each other, anything more is unknown."""
    merged: dict[tuple[object, ...], Fact] = {}
    others: list[Value] = []
    for one in found:
        if not isinstance(one, Fact):
            others.append(one)
            continue
        key = (one.device, one.memory, one.layout)
        first = merged.get(key)
        merged[key] = (
            one
            if first is None
            else replace(first, dtype=None, max_bytes=None, grad=None, assumed=first.assumed or one.assumed)
        )
    rest = [*merged.values(), *others]
    return rest if len(rest) <= MAX_ALTERNATIVES else [Unknown("runtime")]


def _join_seqs(one: Seq, other: Seq, level: int) -> Seq:
    if level > MAX_NESTING:
        return Seq(one.kind, None, Unknown("runtime"))
    if one == other:
        return one
    if one.items is not None and other.items is not None and len(one.items) == len(other.items):
        items = tuple(join(pair, level) for pair in zip(one.items, other.items))
        return Seq(one.kind, items, join((one.rest, other.rest), level))
    return Seq(one.kind, None, join((*(one.items or ()), one.rest, *(other.items or ()), other.rest), level))


def _join_maps(one: Map, other: Map, level: int) -> Map:
    if level > MAX_NESTING:
        return Map((), Unknown("runtime"))
    if one == other:
        return one
    items: dict[Hashable, Value] = dict(one.items)
    for key, value in other.items:
        items[key] = join((items[key], value), level) if key in items else value
    return Map(tuple(items.items()), join((one.rest, other.rest), level))


def each(value: Value, change: Callable[[Value], Value]) -> Value:
    """Apply `change` to every alternative and join what comes out."""
    if isinstance(value, Alts):
        return join([change(one) for one in value.values])
    return BOTTOM if isinstance(value, Bottom) else change(value)


def as_size(value: Value, text: str) -> Size | None:
    """The length that `value` stands for, None when it is not one number."""
    match value:
        case Const(value=int() as number) if not isinstance(number, bool):
            return Size(None, number)
        case Num(size=size):
            return replace(size, text=text)
        case Unknown(symbol=symbol) if symbol is not None:
            return Size(symbol, 0, text)
    return None

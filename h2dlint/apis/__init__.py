"""What calls of torch, numpy and friends do to facts. The knowledge is data: the *.toml files beside this module.

The files are read through `rows.json`, which `python -m h2dlint.apis.build` makes of them: reading TOML would take as
long as linting a small project. A test fails when the two differ.

A file holds groups of rows (`[[row]]`): the names of one group behave alike. `names` are dotted; where `owners` is
given, each name is short and stands below each owner ("torch torch.Tensor" x "abs" are two rows). Names are a list, or
one string with blanks between them. `[aliases]` maps the prefix of a name to the one under which its row stands.

`params` are the positional parameters after the tensor the call works on. A function ("torch.narrow") takes that tensor
as its own first parameter, called `first` (a row's key, else the file's); a method ("torch.Tensor.narrow") has it as
its receiver. "size*" takes all positional arguments that are left, or one tuple of them. `source` says what proves the
row; where it is missing, `[sources]` gives the page for the longest prefix of the name.

Users write the same keys under `[tool.h2dlint.functions]`, one row a name: `"mine.to_pinned" = {effect = "new",
memory = "pinned"}`, `{effect = "new", device = "gpu"}`, `{effect = "sync", waits = "device"}`.

Effects (what the call gives):
    new         a tensor of its own memory, made from plain values or files
    like        a new tensor on the device of the tensor argument, unless `device=` says another
    wrap        shares the memory of its array, buffer or tensor; a list makes it `new`
    join        a new tensor made of a list of tensors
    op          a new tensor on the device of its tensor arguments
    self        the receiver, changed in place
    view        a tensor that shares the receiver's memory
    maybe_view  a view where strides allow it, else a copy in pageable memory
    cast        the receiver where dtype is already right, else a copy in pageable memory
    move        may change the device: code decides, `move` says how
    host        a Python value; of a GPU tensor only after waiting for the device
    query       a Python value that needs no wait
    sync        the host waits for the device
    order       one stream waits for another, the host does not
    event       a CUDA event, or a record of one
    stream      a CUDA stream, or its choice
    flag        a bool that says whether pinned memory or a GPU is to be had
    module      an object whose call works on its tensor arguments
    loader      an iterable of batches
    load        tensors read from a file
    unknown     nothing may be assumed
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

Effect = Literal[
    "new", "like", "wrap", "join", "op", "self", "view", "maybe_view", "cast", "move", "host", "query", "sync", "order",
    "event", "stream", "flag", "module", "loader", "load", "unknown",
]  # fmt: skip
Group = Mapping[str, Any]

EFFECTS: tuple[Effect, ...] = get_args(Effect)
METHOD_OWNERS = frozenset({"torch.Tensor", "numpy.ndarray", "torch.UntypedStorage", "PIL.Image.Image"})


class RowError(ValueError):
    """A row that does not follow the schema; the message is one line that names file, row and what was expected."""


@dataclass(frozen=True, slots=True)
class Row:
    """What one callable does.

    params    positional parameters in order; "*" ends one that takes all that are left
    first     the parameter that holds the tensor worked on; "" for a method (its receiver) and for factories
    pin       takes `pin_memory=`; `out` takes `out=`, which is then the result
    memory    of a new tensor on the CPU: "pageable", "pinned" or "unknown"
    device    "cpu", "gpu", "same" (the tensor arguments'), "arg" (`device=` where given; else for `like` and `wrap` the
              tensor argument's, for the others the CPU), "unknown"
    shape     of `new` and `like`: "size" (sizes one by one or as one tuple), "data" (of the data argument), "scalar",
              "range" (one dimension), "like", "size_or_data"; of `op`: "same" (the first tensor's sizes); "none" else
    rank      number of dimensions: "same" (first tensor's), "broadcast" (most of any tensor's), "reduce" (0 without
              `dim`, else one less for each unless `keepdim`), "plus1", "0" to "3", "unknown"
    layout    of the result: "contiguous" always; "keeps": contiguous where all tensor arguments are; "unknown"
    dtype     "torch.bool" and so on; "same" (first tensor's); "promote" (of tensors and numbers); "float" (a floating
              dtype stays, whole numbers become the default one); "wide" (whole numbers become int64); of `cast` also
              "arg" (the dtype argument) and "other" (the other tensor's); None when unknown. `dtype=` in a call wins
    returns   "tensor", "array", "list", "tuple", "int", "bool", ... : what the call gives. "namedtuple:values,indices"
              names its tensors; "dim:values,indices" is a tensor, but that named tuple where `dim` is given;
              "if:return_inverse" is a tensor, but a tuple where one of these arguments is true
    view      how a view changes the shape, in torch's own words ("narrow", "transpose"). "same" changes nothing, "T"
              turns all dimensions round, "mT" the last two, "view_dtype" reads the bytes as another dtype, "shared"
              puts the memory where other processes see it (no longer pinned). "unknown": the layout is not known
    move      which copy: "to", "cuda", "copy_", ...
    waits     what `sync` waits for: "device", "stream" or "event"
    copies    when a `wrap` copies: "never", "dtype", "always" or "maybe"
    """

    name: str
    effect: Effect
    params: tuple[str, ...] = ()
    first: str = ""
    pin: bool = False
    out: bool = False
    memory: str = "pageable"
    device: str = "same"
    shape: str = "none"
    rank: str = "unknown"
    layout: str = "unknown"
    dtype: str | None = None
    returns: str = "tensor"
    view: str = ""
    move: str = ""
    waits: str = ""
    copies: str = ""
    executes: str = ""
    source: str = ""


# What each key may hold: a type, or the words themselves.
_CHOICES: dict[str, type | tuple[str, ...]] = {
    "first": str,
    "pin": bool,
    "out": bool,
    "memory": ("pageable", "pinned", "unknown"),
    "device": ("cpu", "gpu", "arg", "same", "unknown"),
    "shape": ("size", "data", "scalar", "range", "like", "size_or_data", "same", "none"),
    "rank": ("same", "broadcast", "reduce", "plus1", "0", "1", "2", "3", "unknown"),
    "layout": ("contiguous", "keeps", "unknown"),
    "dtype": str,
    "returns": str,
    "view": (
        "as_strided", "atleast", "broadcast_tensors", "broadcast_to", "chunk", "contiguous", "diagonal", "dsplit",
        "expand", "expand_as", "flatten", "hsplit", "index", "mT", "meshgrid", "movedim", "narrow", "permute", "ravel",
        "reshape", "reshape_as", "same", "select", "shared", "split", "squeeze", "t", "T", "tensor_split", "transpose",
        "unbind", "unflatten", "unfold", "unknown", "unsqueeze", "view", "view_as", "view_dtype", "vsplit",
    ),
    "move": ("to", "cuda", "cpu", "copy_", "pin_memory", "xpu", "mtia", "ipu", "foreach_copy_", "host_register",
             "host_unregister", "module"),
    "waits": ("device", "stream", "event"),
    "copies": ("never", "dtype", "always", "maybe"),
    "executes": ("needs cuda", "needs library"),
    "source": str,
}  # fmt: skip

_RETURNS = (
    "tensor", "array", "list", "tuple", "dict", "none", "int", "float", "bool", "complex", "str", "bytes", "dtype",
    "device", "storage", "object", "unknown",
)  # fmt: skip
_RETURNS_WITH = ("namedtuple:", "dim:", "if:")

_ANY = frozenset({"effect", "params", "first", "source", "executes", "returns"})
_RESULT = frozenset({"out", "rank", "shape", "layout", "dtype", "device", "memory"})
_KEYS: dict[Effect, frozenset[str]] = {
    "new": _ANY | _RESULT | {"pin"},
    "like": _ANY | _RESULT | {"pin"},
    "wrap": _ANY | {"copies", "device", "dtype"},
    "join": _ANY | _RESULT,
    "op": _ANY | _RESULT,
    "self": _ANY | {"view"},
    "view": _ANY | {"view"},
    "maybe_view": _ANY | {"view"},
    "cast": _ANY | {"dtype"},
    "move": _ANY | {"move"},
    "host": _ANY,
    "query": _ANY,
    "sync": _ANY | {"waits"},
    "order": _ANY,
    "event": _ANY,
    "stream": _ANY,
    "flag": _ANY,
    "module": _ANY | {"view"},
    "loader": _ANY | {"pin"},
    "load": _ANY | {"memory", "device"},
    "unknown": _ANY | {"memory", "device"},
}
_NEEDED: dict[Effect, str] = {"view": "view", "maybe_view": "view", "move": "move", "sync": "waits", "wrap": "copies"}
# Effects that work on a tensor: a function among them takes it as its first parameter.
_ON_TENSOR = frozenset({"op", "self", "view", "maybe_view", "cast", "like", "host"})
_DEVICES: dict[Effect, str] = {"new": "cpu", "load": "cpu", "wrap": "cpu", "unknown": "unknown"}


class Entry(NamedTuple):
    """Where a name stands: its owner, its group and the group's file (None for rows of the user)."""

    owner: str
    group: Group
    file: Group | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """Rows by name. Groups are indexed at once; a `Row` is made when it is first asked for."""

    entries: Mapping[str, Entry]
    aliases: Mapping[str, str] = field(default_factory=dict)
    made: dict[str, Row] = field(default_factory=dict, compare=False, repr=False)

    def lookup(self, name: str) -> Row | None:
        """The row of a dotted name, None when there is none."""
        row = self.made.get(name)
        if row is not None:
            return row
        entry = self.entries.get(name)
        if entry is None:
            return self._lookup_alias(name)
        row = self.made[name] = _build_row(name, entry)
        return row

    def _lookup_alias(self, name: str) -> Row | None:
        prefix = name
        while prefix:
            target = self.aliases.get(prefix)
            if target is not None:
                return self.lookup(target + name[len(prefix) :])
            prefix = prefix.rpartition(".")[0]
        return None


def lookup(name: str) -> Row | None:
    """The built-in row of a dotted name ("torch.nn.functional.pad"), None when there is none."""
    return builtin_table().lookup(name)


@cache
def builtin_table() -> Table:
    """The rows that come with h2dlint, read once."""
    entries: dict[str, Entry] = {}
    aliases: dict[str, str] = {}
    for file in json.loads(Path(__file__).with_name("rows.json").read_text(encoding="utf-8")):
        aliases.update(file.get("aliases", {}))
        for group in file["row"]:
            for owner, dotted in expand_names(group):
                entries[dotted] = Entry(owner, group, file)
    return Table(entries, aliases)


def expand_names(group: Group) -> list[tuple[str, str]]:
    """(owner, dotted name) of each row of a group."""
    names = _split_words(group.get("names"))
    owners = _split_words(group.get("owners"))
    if owners:
        return [(owner, f"{owner}.{name}") for owner in owners for name in names]
    return [(name.rpartition(".")[0], name) for name in names]


def user_table(rows: Mapping[str, Mapping[str, object]], where: str = "[tool.h2dlint.functions]") -> Table:
    """The built-in rows and, before them, the user's.

    rows maps a dotted name to the keys of its row. Raises RowError when one is wrong; `where` names the file.
    """
    for error in validate(rows, where):
        raise RowError(error)
    builtin = builtin_table()
    own = {name: Entry(name.rpartition(".")[0], row) for name, row in rows.items()}
    return Table({**builtin.entries, **own}, builtin.aliases)


def validate(rows: Mapping[str, object], where: str) -> list[str]:
    """What is wrong with the rows, one line each, with the file or section `where`, the row and what was expected."""
    errors = []
    for name, row in rows.items():
        if not all(part.isidentifier() for part in name.split(".")):
            errors.append(f"{where}: {name!r}: expected a dotted name such as 'package.module.function'")
        errors += [f"{where}: {name}: {error}" for error in find_errors(row)]
    return errors


def _build_row(name: str, entry: Entry) -> Row:
    keys: dict[str, Any] = drop_names(entry.group)
    effect: Effect = keys["effect"]
    method = entry.owner in METHOD_OWNERS
    first = keys.pop("first", entry.file.get("first", "") if entry.file and effect in _ON_TENSOR else "")
    params = tuple(_split_words(keys.pop("params", "")))
    keys.setdefault("device", _DEVICES.get(effect, "same"))
    keys.setdefault("memory", "unknown" if effect == "unknown" else "pageable")
    keys["source"] = find_source(name, entry)
    keys["out"] = keys.get("out", False) and not method
    if first and not method:
        return Row(name=name, params=(first, *params), first=first, **keys)
    return Row(name=name, params=params, **keys)


def find_source(name: str, entry: Entry) -> str:
    """What proves a row: its own source, else the page that the file gives for the longest prefix of its name."""
    if "source" in entry.group or entry.file is None:
        return str(entry.group.get("source", ""))
    sources = entry.file.get("sources", {})
    prefix = name.rpartition(".")[0]
    while prefix and prefix not in sources:
        prefix = prefix.rpartition(".")[0]
    return str(sources[prefix]).format(name=name) if prefix else ""


def drop_names(group: Group) -> dict[str, Any]:
    """The keys of a group that its rows share."""
    return {key: value for key, value in group.items() if key not in ("names", "owners")}


def _split_words(value: object) -> list[str]:
    if isinstance(value, str):
        return value.split()
    return list(value) if isinstance(value, (list, tuple)) else []


def find_errors(row: object) -> list[str]:
    """What is wrong with the keys of one row, a line each."""
    if not isinstance(row, Mapping):
        return [f"expected a table of keys, got {row!r}"]
    effect = row.get("effect")
    if effect not in EFFECTS:
        return [f"effect: expected one of {', '.join(EFFECTS)}; got {effect!r}"]
    errors = []
    for key, value in row.items():
        if key not in _KEYS[effect]:
            errors.append(
                f"{key}: unknown key for effect {effect!r}, expected one of {', '.join(sorted(_KEYS[effect]))}"
            )
        elif expected := _find_expected(key, value):
            errors.append(f"{key}: expected {expected}; got {value!r}")
    needed = _NEEDED.get(effect)
    if needed and needed not in row:
        errors.append(f"{needed}: expected, because effect is {effect!r}")
    return errors


def _find_expected(key: str, value: object) -> str:
    """What the key should hold, "" when the value is right."""
    if key == "effect":
        return ""
    if key == "params":
        right = isinstance(value, str) or (isinstance(value, list) and all(isinstance(word, str) for word in value))
        return "" if right else "a list of parameter names"
    if key == "returns":
        right = value in _RETURNS or (isinstance(value, str) and value.startswith(_RETURNS_WITH))
        return "" if right else f"one of {', '.join(_RETURNS)} or one of {', '.join(_RETURNS_WITH)} and names"
    choice = _CHOICES[key]
    if isinstance(choice, tuple):
        return "" if value in choice else f"one of {', '.join(choice)}"
    return "" if isinstance(value, choice) else {"str": "a string", "bool": "true or false"}[choice.__name__]

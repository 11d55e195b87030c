"""Programs around the rules: hypothesis strategies for source text, many functions to a module.

Every function takes a number, a device and a flag, and returns what it uploaded or read back. Host buffers are filled
with different numbers, so that a fix which takes a wrong row, dimension or dtype gives another result.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

HEADS = (
    "import torch\n",
    "import torch as th\n",
    '"""A module."""\n\nfrom __future__ import annotations\n\nimport math\n\nimport torch\n',
    "import torch, math\n",
    "try:\n    import torch\nexcept ImportError:\n    torch = None\n",
)

PREAMBLE = """
import numpy as np
from torch.nn.utils.rnn import pad_sequence

PIN = {torch}.cuda.is_available()
SEEN = []


def seen(value):
    SEEN.append(str(value))
    return value


def fill(host):
    return host.copy_({torch}.arange(1, 1 + host.numel()).reshape(host.shape))

"""


@dataclass
class Writer:
    """The body of one function as it is drawn: lines, names in use, and what it returns."""

    pick: Callable[..., Any]
    torch: str
    lines: list[str] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    indent: str = ""
    count: int = 0

    def name(self, *wanted: str) -> str:
        """A name not yet used; often one that a fix would like to use itself."""
        taken = {word for line in self.lines for word in line.replace("(", " ").replace(",", " ").split()}
        free = [name for name in wanted if name not in taken]
        if free and self.pick(True, False):
            return self.pick(*free)
        self.count += 1
        return f"v{self.count}"

    def add(self, text: str) -> None:
        comment = self.pick("", "", "", "  # a comment")
        self.lines.append(self.indent + text + (comment if "\n" not in text else ""))

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        self.lines.append(self.indent + header)
        before, self.indent = self.indent, self.indent + "    "
        yield
        self.indent = before


@st.composite
def modules(draw: Any, functions: int, kinds: tuple[str, ...] = ()) -> str:
    """A module of so many functions f0, f1, ...; with `kinds` only of those."""
    chosen = [kind for kind in KINDS if not kinds or kind.__name__ in kinds]

    def pick(*options: Any) -> Any:
        return options[draw(st.integers(0, len(options) - 1))]

    head = pick(*HEADS)
    torch = "th" if "as th" in head else "torch"
    parts = [head, PREAMBLE.format(torch=torch)]
    for number in range(functions):
        parts.append(f"\n\n{_write_function(pick, torch, number, chosen)}")
    return "".join(parts)


def _write_function(pick: Any, torch: str, number: int, kinds: list[Any]) -> str:
    writer = Writer(pick, torch)
    for _ in range(pick(1, 1, 2, 3)):
        kind = pick(*kinds)
        around = pick("", "", "", "if", "for", "with", "try", "match", "while", "def")
        write = _AROUND[around] if around else _plain
        write(writer, kind)
    writer.add(f"return [{', '.join(writer.results)}]")
    body = textwrap.indent("\n".join(writer.lines), "    ")
    return f"def f{number}(n, device, flag):\n{body}\n"


# --- around ------------------------------------------------------------------------------------------------------


def _plain(writer: Writer, kind: Any) -> None:
    kind(writer)


def _conditional(writer: Writer, kind: Any) -> None:
    mark = len(writer.results)
    with writer.block(writer.pick("if flag:", "if n > 1 and flag:", "if not flag or n:")):
        kind(writer)
    names, writer.results[mark:] = writer.results[mark:], [f"out{mark}"]
    writer.lines.append(f"{writer.indent}    out{mark} = [{', '.join(names)}]")
    with writer.block("else:"):
        writer.add(f"out{mark} = None")


def _loop(writer: Writer, kind: Any) -> None:
    mark = len(writer.results)
    writer.add(f"out{mark} = []")
    with writer.block(writer.pick("for row in range(2):", "for turn in range(n):", "for t in (1, 2):")):
        kind(writer)
        names, writer.results[mark:] = writer.results[mark:], [f"out{mark}"]
        writer.add(f"out{mark}.append([{', '.join(names)}])")


def _while(writer: Writer, kind: Any) -> None:
    mark = len(writer.results)
    writer.add(f"out{mark} = []")
    with writer.block(f"while len(out{mark}) < 2:"):
        kind(writer)
        names, writer.results[mark:] = writer.results[mark:], [f"out{mark}"]
        writer.add(f"out{mark}.append([{', '.join(names)}])")


def _with(writer: Writer, kind: Any) -> None:
    with writer.block(f"with {writer.torch}.no_grad():"):
        kind(writer)


def _try(writer: Writer, kind: Any) -> None:
    mark = len(writer.results)
    with writer.block("try:"):
        kind(writer)
        names, writer.results[mark:] = writer.results[mark:], [f"out{mark}"]
        writer.add(f"out{mark} = [{', '.join(names)}]")
    with writer.block("except RuntimeError as error:"):
        writer.add(f"out{mark} = str(error)[:9]")


def _match(writer: Writer, kind: Any) -> None:
    mark = len(writer.results)
    writer.add(f"out{mark} = None")
    with writer.block("match n:"), writer.block("case 0 | 1 | 2 | 3:"):
        kind(writer)
        names, writer.results[mark:] = writer.results[mark:], [f"out{mark}"]
        writer.add(f"out{mark} = [{', '.join(names)}]")


def _nested(writer: Writer, kind: Any) -> None:
    mark = len(writer.results)
    with writer.block(f"def inner{mark}():"):
        kind(writer)
        names, writer.results[mark:] = writer.results[mark:], [f"inner{mark}()"]
        writer.add(f"return [{', '.join(names)}]")


_AROUND: dict[str, Any] = {
    "if": _conditional, "for": _loop, "with": _with, "try": _try, "match": _match, "while": _while, "def": _nested,
}  # fmt: skip


# --- expressions -------------------------------------------------------------------------------------------------


def _dtype(writer: Writer) -> str:
    return writer.pick("", *(f", dtype={writer.torch}.{name}" for name in ("float32", "int64", "int32", "float64")))


def _shape(writer: Writer, rank: int) -> list[str]:
    return [writer.pick("3", "2", "1", "0", "4", "9", "n", "n + 1") for _ in range(rank)]


def _tuple(sizes: list[str]) -> str:
    return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"


def _subscripts(writer: Writer, rank: int) -> str:
    items = [writer.pick(":", ":", ":n", ":1", "1:", "::2", "0", "-1", "n", ":seen(n)", "1:3") for _ in range(rank)]
    if writer.pick(0, 0, 0, 1):
        items[: writer.pick(1, 2)] = ["..."]
    return ", ".join(items)


def _pinned_host(writer: Writer, rank: int) -> tuple[str, list[str]]:
    """A buffer in pinned memory (where a GPU is), filled."""
    name = writer.name("staging", "host", "pinned", "row", "strided")
    sizes = _shape(writer, rank)
    pin = writer.pick("PIN", "PIN", f"{writer.torch}.cuda.is_available()")
    make = f"{writer.torch}.empty({_tuple(sizes)}{_dtype(writer)}, pin_memory={pin})"
    if writer.pick(0, 1):
        writer.add(f"{name} = {make}")
        writer.add(f"{name}.copy_({writer.torch}.arange({name}.numel()).reshape({name}.shape))")
    else:
        writer.add(f"{name} = fill({make})")
    return name, sizes


def _sent(writer: Writer, source: str, dtype: bool = True) -> str:
    """`source` sent to the device in one of the ways there are."""
    torch = writer.torch
    call = writer.pick(
        f"{source}.to(device, non_blocking=True)",
        f"{source}.to(device, non_blocking=True)",
        f"{source}.to(device=device, non_blocking=True)",
        f"{source}.to(non_blocking=True, device=device)",
        f"{source}.to(device, {torch}.float64, non_blocking=True)" if dtype else f"{source}.to(device, None, True)",
        f"{source}.to(device, {torch}.float32, True)" if dtype else f"{source}.to(device, non_blocking=True)",
        f"{source}.to(device, dtype={torch}.int64, non_blocking=True)",
        f"{source}.to(device, non_blocking=True, copy=True)",
        f"{source}.to(device, non_blocking=True, memory_format={torch}.contiguous_format)",
    )
    return call + writer.pick("", "", "", ".float()", ".sum()", "[:1]", ".t()")


def _use(writer: Writer, expression: str) -> None:
    """Binds the expression to a result, in one of the ways a statement may hold it."""
    name = writer.name("out", "pieces", "column")
    writer.results.append(name)
    form = writer.pick(
        "{name} = {e}",
        "{name} = {e}",
        "{name} = (\n    {e}\n)",
        "{name}: object = {e}",
        "{name} = [{e}][0]",
        "{name} = (lambda: {e})()",
        "{name} = [{e} for _ in range(2)]",
        "{name} = {e} if flag else None",
        "{name} = flag and {e}",
        "{name} = seen(n), {e}",
        "{name} = {e}, seen(n)",
        "{name} = dict(a={e})['a']",
        '{name} = f"{{({e}).shape}}"',
        "{name} = 1; {name} = {e}",
        "{name} = None\nif flag: {name} = {e}",
        "{name} = 0\nif ({name} := {e}) is None: pass",
    )
    if form[-1] == '"':
        expression = expression.replace("\n", "")
    for line in form.format(name=name, e=expression).split("\n"):
        writer.lines.append(writer.indent + line)


# --- kinds -------------------------------------------------------------------------------------------------------


def strided_copy(writer: Writer) -> None:
    """HTD101: a view of a pinned buffer copied into a view of a buffer on the device."""
    rank = writer.pick(2, 2, 2, 3, 3, 4)
    host, sizes = _pinned_host(writer, rank)
    view = f"{host}[{(sub := _subscripts(writer, rank))}]"
    device = writer.name("dev", "column", "depth")
    dtype = _dtype(writer)
    form = writer.pick("same", "same", "same", "fit", "wide")
    if form == "same":
        writer.add(f"{device} = {writer.torch}.zeros({_tuple(sizes)}{dtype}, device=device)")
        target = f"{device}[{sub}]"
    elif form == "fit":
        shape = f"{host}[{sub.replace('seen(n)', 'n')}].shape"
        writer.add(f"{device} = {writer.torch}.zeros({shape}{dtype}, device=device)")
        target = device
    else:
        writer.add(f"{device} = {writer.torch}.zeros({_tuple(['2', *sizes])}{dtype}, device=device)")
        target = f"{device}[1, {sub}]"
    copy = writer.pick(
        f"{target}.copy_({view}, non_blocking=True)",
        f"{target}.copy_({view}, True)",
        f"{target}.copy_(src={view}, non_blocking=True)",
        f"{target}.copy_(\n    {view},\n    non_blocking=True,\n)",
        f"{target}.copy_(  # why\n    {view}, non_blocking=True)",
    )
    form = writer.pick("statement", "statement", "statement", "use", "semicolon", "if")
    if form == "use":
        _use(writer, copy.replace("  # why", ""))
    elif form == "semicolon" and "\n" not in copy:
        writer.add(f"x = n; {copy}; y = x")
    elif form == "if" and "\n" not in copy:
        writer.add(f"if flag: {copy}")
    else:
        for line in copy.split("\n"):
            writer.lines.append(writer.indent + line)
    if writer.pick(0, 0, 0, 1):
        writer.add(f"{host}.zero_()")
    writer.results.append(device)


def row_copy(writer: Writer) -> None:
    """HTD101: the first columns of a buffer with few rows."""
    host, device = writer.name("host", "row"), writer.name("dev", "column")
    sizes = writer.pick(["3", "n + 1"], ["2", "9"], ["3", "9", "2"], ["2", "2", "9"], ["1", "9"], ["4", "9"])
    make = f"{writer.torch}.empty({_tuple(sizes)}{_dtype(writer)}, pin_memory=PIN)"
    writer.add(f"{host} = {make}")
    subscript = writer.pick(":, :n", ":, :n", "..., :n", ":, :, :n" if len(sizes) == 3 else ":, :2")
    writer.add(f"{host}.copy_({writer.torch}.arange({host}.numel()).reshape({host}.shape))")
    writer.add(f"{device} = {writer.torch}.zeros({_tuple(sizes)}{_dtype(writer)}, device=device)")
    copy = f"{device}[{subscript}].copy_({host}[{subscript}], non_blocking=True)"
    form = writer.pick("{copy}", "{copy}", "{name} = {copy}", "if n: {copy}")
    name = writer.name("out", "pieces")
    writer.add(form.format(copy=copy, name=name))
    writer.results += [device, name] if form.startswith("{name}") else [device]


def strided_to(writer: Writer) -> None:
    """HTD101: a view with gaps sent as a new tensor."""
    rank = writer.pick(2, 2, 3, 4)
    host, _ = _pinned_host(writer, rank)
    narrow = f"{host}.narrow({writer.pick('1', '-1')}, 0, 1)"
    _use(writer, _sent(writer, writer.pick(f"{host}[{_subscripts(writer, rank)}]", f"{host}[:, :n]", narrow)))
    if writer.pick(0, 0, 0, 1):
        writer.add(f"{host}.add_(1)")


def turned_copy(writer: Writer) -> None:
    """HTD101: a permuted or expanded source."""
    host, sizes = _pinned_host(writer, 2)
    device = writer.name("dev", "staging")
    view = writer.pick(
        f"{host}.t()", f"{host}.T", f"{host}.transpose(0, 1)", f"{host}.permute(1, 0)", f"{host}.swapaxes(-1, 0)",
        f"{host}.mT", f"{host}[:1].expand(3, -1)", f"{host}[0]", f"{host}[:, :1]",
    )  # fmt: skip
    shape = writer.pick(sizes[::-1], sizes, ["3", sizes[1]])
    writer.add(f"{device} = {writer.torch}.zeros({_tuple(shape)}{_dtype(writer)}, device=device)")
    copy = f"{device}.copy_({view}, non_blocking=True)"
    if writer.pick(0, 0, 1):
        _use(writer, copy)
    else:
        writer.add(copy)
    writer.results.append(device)


def join(writer: Writer) -> None:
    """HTD102: tensors joined, then sent."""
    torch = writer.torch
    grad = writer.pick("", "", "", "", ", requires_grad=True")
    rank = writer.pick(1, 1, 2, 2, 3, 4)
    sizes = [writer.pick("2", "3", "1", "n") for _ in range(rank)]
    sizes[writer.pick(*range(rank))] = writer.pick("k", "k", "k + 1", "2")
    count = writer.pick("range(n)", "range(3)", "range(1, 4)", "[0, 2, n]")
    shape = _tuple(sizes)
    item = writer.pick(
        f"{torch}.ones({shape}{_dtype(writer)}{grad})",
        f"{torch}.ones({shape}{_dtype(writer)})",
        f"{torch}.full({shape}, k)",
        f"seen({torch}.ones({shape}))",
        f"({torch}.zeros({shape}) + k)",
        f"{torch}.zeros({_tuple(sizes[::-1])}).permute({', '.join(map(str, range(rank - 1, -1, -1)))})",
    )
    if rank == 4 and writer.pick(0, 1):
        item = f"{torch}.ones({shape}).contiguous(memory_format={torch}.channels_last)"
    if rank == 1 and writer.pick(0, 1):
        item = f"{torch}.arange(k)"
    pieces = writer.name("pieces", "parts", "t", "pinned")
    form = writer.pick("comprehension", "append", "inline", "inline", "list", "mixed", "names")
    if form == "append":
        writer.add(f"{pieces} = []")
        with writer.block(f"for k in {count}:"):
            writer.add(f"{pieces}.append({item})")
    elif form == "inline":
        pieces = f"[{item} for k in {count}]"
    elif form == "list":
        pieces = f"[{item.replace('k', '2')}, {item.replace('k', '1')}]"
    elif form == "names":
        first, second = writer.name("piece", "t"), writer.name("pinned_2", "x")
        writer.add(f"{first} = {item.replace('k', '1')}")
        writer.add(f"{second} = {torch}.ones({shape.replace('k', '2')})")
        pieces = writer.pick(f"[{first}, {second}]", f"({first}, {second})", f"[{first}] * 2 + [{second}]")
    else:
        writer.add(f"{pieces} = [{item} for k in {count}]")
        if form == "mixed":
            writer.add(f"{pieces}.append({torch}.ones({_tuple(sizes).replace('k', '1')}, dtype={torch}.float64))")
    dim = writer.pick("", ", 0", ", dim=-1", ", dim=1", ", -2", ", dim=0", ", axis=0")
    joined = writer.pick(
        f"{torch}.cat({pieces}{dim})",
        f"{torch}.cat({pieces}{dim})",
        f"{torch}.stack({pieces}{dim.replace('axis', 'dim')})",
        f"{torch}.concat({pieces}{dim})",
        f"{torch}.concatenate({pieces}{dim})",
        f"{torch}.cat(tensors={pieces}, dim=0)",
        f"{torch}.hstack({pieces})",
        f"{torch}.vstack({pieces})",
        f"{torch}.column_stack({pieces})",
        f"{torch}.dstack({pieces})",
        f"pad_sequence({pieces}, batch_first=True)",
        f"{torch}.block_diag(*{pieces})",
    )
    _send(writer, joined, writer.name("joined", "pinned", "staging"))


def new(writer: Writer) -> None:
    """HTD103: a new tensor sent."""
    torch = writer.torch
    value = writer.pick("[1, 2, n]", "list(range(n))", "[[1.5, n], [2, 3]]", "n", "seen([1, 2])", "[]", "[True, False]")
    made = writer.pick(
        f"{torch}.tensor({value}{_dtype(writer)})",
        f"{torch}.tensor({value}{_dtype(writer)})",
        f"{torch}.tensor(\n    {value},\n)",
        f"{torch}.as_tensor({value})",
        f"{torch}.zeros({_tuple(_shape(writer, 2))}{_dtype(writer)})",
        f"{torch}.full({_tuple(_shape(writer, 2))}, n)",
        f"{torch}.arange(seen(n))",
        f"{torch}.linspace(0, 1, n)",
        f"{torch}.ones(n, requires_grad=True)",
        f"{torch}.eye(n)",
        f"{torch}.from_numpy(np.arange(n))",
        f"{torch}.from_numpy(np.ones((3, n)))",
        f"{torch}.as_tensor(np.arange(n))",
        f"{torch}.FloatTensor([1, n])",
        f"{torch}.scalar_tensor(n)",
        f"{torch}.tensor(n).view(1)",
        f"{torch}.zeros_like({torch}.ones(n, 3).t())",
    )
    _send(writer, made, writer.name("fresh", "pinned", "staging"))


def computed(writer: Writer) -> None:
    """HTD104: the result of an operation sent."""
    host, _ = _pinned_host(writer, writer.pick(1, 2))
    torch = writer.torch
    made = writer.pick(
        f"({host} + 1)", f"{host}[1:] - {host}[:-1]", f"{host}.clone()", f"{host}[[0]]", f"{host}.double()",
        f"{host}.repeat(2, 1)", f"{host}.t().contiguous()", f"{torch}.cumsum({host}, 0)", f"{host}.flip(0)",
        f"{host}[{host} > 1]", f"{torch}.where({host} > 1, {host}, 0)", f"{host} * seen(n)", f"{host}.sum(0)",
        f"-{host}", f"{host}.roll(1)", f"{torch}.sort({host})[0]", f"{host}.index_select(0, {torch}.tensor([0]))",
    )  # fmt: skip
    _send(writer, made, writer.name("spans", "pinned", "t"))


def _send(writer: Writer, made: str, name: str) -> None:
    """Sends a fresh tensor: as an expression, by name, into a buffer, with writes of it before and after."""
    form = writer.pick("inline", "name", "name", "copy", "inline copy")
    plain = made.replace("\n", "").replace("    ", "")
    atom = plain if plain[0] in "(tnp" and plain[-1] == ")" and plain.count(" - ") == 0 else f"({plain})"
    if form == "inline":
        _use(writer, _sent(writer, atom))
        return
    if form == "inline copy":
        device = writer.name("dev", "pinned")
        writer.add(f"{device} = {writer.torch}.zeros(({plain.replace('seen', '')}).shape, device=device)")
        writer.add(f"{device}.copy_({plain}, non_blocking=True)")
        writer.results.append(device)
        return
    for line in f"{name} = {made}".split("\n"):
        writer.lines.append(writer.indent + line)
    if writer.pick(0, 0, 0, 1):
        writer.add(f"{name} = {name}.detach()")
        writer.add(f"{name}[:1] = 3")
    if form == "copy":
        device = writer.name("dev", "row")
        writer.add(f"{device} = {writer.torch}.zeros({name}.shape{_dtype(writer)}, device=device)")
        writer.add(f"{device}.copy_({name}, non_blocking=True)")
        writer.results.append(device)
    else:
        _use(writer, _sent(writer, name))
    if writer.pick(0, 0, 1):
        writer.add(writer.pick(f"{name} += 1", f"{name}.zero_()", f"{name}[:1] = 7", f"del {name}"))


def download(writer: Writer) -> None:
    """HTD105: a tensor on the device read back into a host buffer."""
    torch = writer.torch
    sizes = _shape(writer, 2)
    device, host = writer.name("dev", "row"), writer.name("host", "pinned")
    writer.add(f"{device} = {torch}.ones({_tuple(sizes)}{_dtype(writer)}, device=device)")
    pin = writer.pick("", ", pin_memory=PIN")
    writer.add(f"{host} = {torch}.zeros({_tuple(sizes)}{_dtype(writer)}{pin})")
    sub = writer.pick("", "", "[:, :n]", "[:n]", "[:, :1]", "[0]")
    writer.add(f"{host}{sub}.copy_({device}{sub}, non_blocking=True)")
    if writer.pick(0, 1, 1, 1, 1, 1):
        writer.add(writer.pick(f"{torch}.cuda.synchronize()", f"{torch}.cuda.current_stream().synchronize()"))
    writer.add(f"seen({host}.sum().item())")
    writer.results.append(host)


def on_device(writer: Writer) -> None:
    """HTD3: host data used on a GPU that is proven to be one."""
    torch = writer.torch
    value = writer.pick("3", "-1.5", "True", "2 + 1j", "[1, 2, n]", "n", "[[1.5], [n]]", "[]", "seen([n])")
    dtype = _dtype(writer)
    made = writer.pick(
        f"{torch}.tensor({value}{dtype}, device='cuda')",
        f"{torch}.tensor({value}, device='cuda'{dtype})",
        f"{torch}.as_tensor({value}{dtype}, device='cuda')",
        f"{torch}.ones(3, device='cuda').new_tensor({value})",
        f"{torch}.tensor({value}{dtype}).cuda()",
        f"{torch}.tensor({value}{dtype}).to('cuda')",
        f"{torch}.tensor({value}{dtype}).cuda(non_blocking=True)",
        f"{torch}.tensor({value}).to('cuda', {torch}.float64)",
        f"{torch}.ones(4, 3, device='cuda')[[0, 1]]",
        f"{torch}.arange(12, device='cuda')[{torch}.tensor([n, 1])]",
    )
    if writer.pick(0, 1):
        _use(writer, made)
        return
    table = writer.name("table", "dev")
    writer.add(f"{table} = {torch}.arange(12, device='cuda').reshape(4, 3)")
    rows = writer.name("rows", "pinned")
    if writer.pick(0, 1):
        writer.add(f"{rows} = {torch}.tensor([0, n])")
        _use(writer, f"{table}[{rows}]")
    else:
        writer.add(f"{rows} = {torch}.full((1, 3), n)")
        writer.add(f"{table}[{writer.pick(':1', '0:1', '-1:')}] = {rows}")
    writer.results.append(table)


KINDS = (
    strided_copy, row_copy, strided_to, turned_copy, join, join, join, new, new, computed, download, on_device,
)  # fmt: skip

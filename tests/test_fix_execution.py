"""Every kind of fix, run on the CPU before and after: same values, shapes, dtypes, gradients and exceptions.

On a host without a GPU `torch.cuda.is_available()` is false, so that fixed code allocates ordinary memory: just what a
fix has to keep working. Where a fix writes `True`, the pinning is taken out of the text by hand.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fix_helpers import context_of, fixed, gpu, host, made, run, site_of, view

import h2dlint
from h2dlint.config import Config, Selection

torch = pytest.importorskip("torch")

PINNED = "pinned"
Arguments = Callable[[], Iterator[tuple[Any, ...]]]


def same(one: Any, two: Any) -> bool:
    """Equal values of equal type, shape, dtype and need of a gradient, tensors inside containers included."""
    if isinstance(one, torch.Tensor) and isinstance(two, torch.Tensor):
        alike = one.shape == two.shape and one.dtype == two.dtype and one.requires_grad == two.requires_grad
        return alike and bool(torch.equal(one, two))
    if isinstance(one, (list, tuple)) and isinstance(two, (list, tuple)):
        return len(one) == len(two) and all(same(a, b) for a, b in zip(one, two))
    return type(one) is type(two) and one == two


def function(body: str, parameters: str, head: str = "") -> str:
    return f"import torch\n{head}\n\ndef f({parameters}):\n{textwrap.indent(textwrap.dedent(body).strip(), '    ')}\n"


def compare(before: str, after: str, arguments: Arguments) -> int:
    """Runs both texts on equal arguments; gives how many sets were tried."""
    after = after.replace("pin_memory=True", "pin_memory=False").replace(".pin_memory()", ".detach()")
    tried = 0
    for one, two in zip(arguments(), arguments()):
        was, now = run(before, "f", *one), run(after, "f", *two)
        assert same(was, now), (one, was, now, after)
        assert same(list(one), list(two)), "an argument was changed in another way"
        tried += 1
    return tried


def buffers(*shapes: tuple[int, ...], widths: tuple[int, ...] = (0, 1, 4)) -> Arguments:
    """(destination, source, n): buffers of each shape, the source filled, and n columns to copy."""

    def give() -> Iterator[tuple[Any, ...]]:
        for shape in shapes:
            for width in widths:
                source = torch.arange(1, 1 + torch.Size(shape).numel(), dtype=torch.int64).reshape(shape)
                yield torch.zeros(shape, dtype=torch.int64), source, width
                yield torch.zeros(shape, dtype=torch.float32), source.clone(), width

    return give


STRIDED = [
    ("d[:, :n].copy_(s[:, :n], non_blocking=True)  # site\nreturn d", view(3, "n", gap=(0,)), ((3, 5), (1, 5), (0, 5))),
    ("return d[:, :n].copy_(s[:, :n], non_blocking=True)  # site", view(3, "n", gap=(0,)), ((3, 5), (0, 5))),
    ("x = d[:, :n].copy_(s[:, :n], non_blocking=True)  # site\nreturn x, d", view(3, "n", gap=(0,)), ((3, 5),)),
    ("d.copy_(s[:, :n], non_blocking=True)  # site\nreturn d", view(3, "n", gap=(0,)), ((3, 4), (3, 5))),
    ("d[..., :n].copy_(s[..., :n], True)  # site\nreturn d", view(3, "n", gap=(0,)), ((3, 5), (1, 4))),
    ("d[:, :, :n].copy_(s[:, :, :n], non_blocking=True)  # site\nreturn d", view(2, 2, "n", gap=(0, 1)), ((2, 2, 5),)),
    ("d[..., :n].copy_(s[..., :n], non_blocking=True)  # site\nreturn d", view(2, 2, "n", gap=(0, 1)), ((2, 2, 5),)),
    ("d[:, :n].copy_(s[:, :n], non_blocking=True)  # site\nreturn d", view(2, 4, 3, gap=(0,)), ((2, 5, 3), (0, 5, 3))),
    ("d[0].copy_(s[:, :n][1], non_blocking=True)  # site\nreturn d", view("n", 3, gap=(0,)), ((2, 4, 3),)),
    ("d[:, :n].copy_(s[:, :n], non_blocking=True)  # site\nreturn d", view("rows", "n", gap=(0,)), ((9, 5), (0, 5))),
    ("d[:, 0].copy_(s[:, 0], non_blocking=True)  # site\nreturn d", view(3, gap=(0,)), ((3, 5), (1, 5), (0, 5))),
    ("d[::2].copy_(s[::2], non_blocking=True)  # site\nreturn d", view("m", 5, gap=(0,)), ((3, 5), (1, 5), (0, 5))),
    ("d[:, ::2].copy_(s[:, ::2], non_blocking=True)  # site\nreturn d", view(3, "m", gap=(0, 1)), ((3, 5),)),
    ("d[:2, :n].copy_(s[1:3, :n], non_blocking=True)  # site\nreturn d", view(2, "n", gap=(0,)), ((3, 5), (4, 4))),
    ("return d[:, :n].copy_(s[:, :n], non_blocking=True).sum()  # site", view(3, "n", gap=(0,)), ((3, 5),)),
    ("if n: d[:, :n].copy_(s[:, :n], non_blocking=True)  # site\nreturn d", view(3, "n", gap=(0,)), ((3, 5),)),
    ("x = n; d[:, :x].copy_(s[:, :x], non_blocking=True)  # site\nreturn d", view(3, "n", gap=(0,)), ((3, 5),)),
    ("for row in n, n:\n    d[:, :n].copy_(s[:, :n], True)  # site\nreturn d, row", view(3, "n", gap=(0,)), ((3, 5),)),
]  # fmt: skip


@pytest.mark.parametrize(("body", "shape", "shapes"), STRIDED)
def test_strided_copies(body: str, shape: Any, shapes: tuple[tuple[int, ...], ...]) -> None:
    before = function(body, "d, s, n")
    context = context_of(before)
    after = fixed(context, site_of(context, "HTD101", host(shape, PINNED), gpu(shape), "gapped"))
    assert compare(before, after, buffers(*shapes)) > 0


@pytest.mark.parametrize(
    ("body", "shape", "fault"),
    [
        ("d.copy_(s.t(), non_blocking=True)  # site\nreturn d", view("a", "b", order=(1, 0)), "permuted"),
        ("d.copy_(s.T, non_blocking=True)  # site\nreturn d", view("a", "b", order=(1, 0)), "permuted"),
        ("d.copy_(s.transpose(0, 1), non_blocking=True)  # site\nreturn d", view("a", "b", order=(1, 0)), "permuted"),
        ("v = s.t()\nd.copy_(v, non_blocking=True)  # site\nreturn d", view("a", "b", order=(1, 0)), "permuted"),
        ("d.copy_(s[:1].t(), non_blocking=True)  # site\nreturn d", view("a", 1), "broadcast"),
        ("return d.copy_(s.t(), non_blocking=True)  # site", view("a", "b", order=(1, 0)), "permuted"),
    ],
)
def test_permuted_and_broadcast_copies(body: str, shape: Any, fault: str) -> None:
    before = function(body, "d, s, n")
    context = context_of(before)
    after = fixed(context, site_of(context, "HTD101", host(shape, PINNED), gpu(view("a", "b")), fault))
    assert compare(before, after, buffers((4, 4), (1, 1), (0, 0))) > 0


def pieces() -> Iterator[tuple[Any, ...]]:
    """(list of tensors, device): alike, one, none, odd ranks, pieces without elements."""
    for shapes in ([], [(2, 3)], [(2, 3), (0, 3), (4, 3)], [(0, 3)], [(3,), (2,)], [(2, 3, 4), (1, 3, 4)], [()]):
        for dtype in (torch.int64, torch.float32, torch.bool):
            yield [torch.ones(shape, dtype=dtype) for shape in shapes], "cpu"
    yield [torch.ones(0), torch.ones(2, 3)], "cpu"
    yield [torch.ones(2, 3), torch.ones(0)], "cpu"
    yield [torch.ones(2, 3), torch.ones(2, 4)], "cpu"
    yield None, "cpu"


JOINS = [
    ("torch.cat", "xs = [v + 1 for v in vs]\nreturn torch.cat(xs).to(dev, non_blocking=True)  # site"),
    ("torch.cat", "xs = [v + 1 for v in vs]\nreturn torch.cat(xs, dim=-1).to(dev, non_blocking=True)  # site"),
    ("torch.cat", "xs = [v + 1 for v in vs]\nreturn torch.cat(xs, 1).to(dev, non_blocking=True)  # site"),
    ("torch.cat", "return torch.cat([v + 1 for v in vs]).to(dev, non_blocking=True)  # site"),
    ("torch.cat", "xs = []\nfor v in vs:\n    xs.append(v)\nreturn torch.cat(xs).to(dev, non_blocking=True)  # site"),
    ("torch.stack", "xs = [v + 1 for v in vs]\nreturn torch.stack(xs).to(dev, non_blocking=True)  # site"),
    ("torch.stack", "xs = [v + 1 for v in vs]\nreturn torch.stack(xs, dim=-1).to(dev, non_blocking=True)  # site"),
    ("torch.stack", "xs = [v + 1 for v in vs]\nreturn torch.stack(xs, -2).to(dev, non_blocking=True)  # site"),
    ("torch.stack", "xs = [v + 1 for v in vs]\nreturn torch.stack(xs, 1).to(dev, non_blocking=True)  # site"),
    ("torch.cat", "return torch.cat([*vs, *vs]).to(dev, non_blocking=True)  # site"),
    ("torch.hstack", "return torch.hstack(vs).to(dev, non_blocking=True)  # site"),
    ("torch.cat", "full = torch.cat(vs)  # made\nreturn full.to(dev, non_blocking=True)  # site"),
    ("torch.cat", "if vs: return torch.cat(vs).to(dev, non_blocking=True)  # site\nreturn None"),
    ("torch.cat", "xs = [v * 1 for v in vs]\nreturn torch.cat(xs).to(dev, non_blocking=True).sum()  # site"),
]


# A shape that does not fit makes `out=` grow, with a warning.
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.filterwarnings("ignore:The use of `x.T` on tensors")
@pytest.mark.parametrize(("call", "body"), JOINS)
def test_joins(call: str, body: str) -> None:
    before = function(body, "vs, dev")
    context = context_of(before)
    fact = made(context, host(), call, "join")
    after = fixed(context, site_of(context, "HTD102", fact, gpu(), operation="to"))
    assert compare(before, after, pieces) > 20


def ranked(rank: int) -> Arguments:
    """Lists of alike pieces of one rank, an empty list and one whose pieces do not fit."""

    def give() -> Iterator[tuple[Any, ...]]:
        for sizes in ([], [2], [2, 3], [0, 2], [0], [1, 0, 4]):
            yield [torch.arange(size * 3 ** (rank - 1)).reshape(size, *[3] * (rank - 1)) for size in sizes], "cpu"
        if rank > 1:
            yield [torch.ones([2] * rank), torch.ones([4] * rank)], "cpu"

    return give


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("dim", [-3, -2, -1, 0, 1, 2])
@pytest.mark.parametrize("call", ["torch.cat", "torch.stack"])
def test_joins_of_known_rank_in_every_dimension(call: str, rank: int, dim: int) -> None:
    before = function(
        f"xs = [v + 1 for v in vs]\nreturn {call}(xs, dim={dim}).to(dev, non_blocking=True)  # site", "vs, dev"
    )
    context = context_of(before)
    shape = view(*["n"] * (rank + (call == "torch.stack")))
    site = site_of(context, "HTD102", made(context, host(shape), call, "join"), gpu(), operation="to")
    assert compare(before, fixed(context, site), ranked(rank)) > 5


def test_a_join_of_pieces_with_gradients_passes_them_on() -> None:
    before = function("xs = [v * 2 for v in vs]\nreturn torch.cat(xs).to(dev, non_blocking=True)  # site", "vs, dev")
    context = context_of(before)
    site = site_of(context, "HTD102", made(context, host(grad=True), "torch.cat", "join"), gpu(), operation="to")
    for text in (before, fixed(context, site)):
        leaves = [torch.ones(2, requires_grad=True), torch.ones(3, requires_grad=True)]
        run(text, "f", leaves, "cpu").sum().backward()
        assert [leaf.grad.tolist() for leaf in leaves] == [[2.0] * 2, [2.0] * 3]


def test_staging_passes_gradients_on() -> None:
    before = function("return s[:, :2].to(dev, non_blocking=True)  # site", "s, dev")
    context = context_of(before)
    site = site_of(context, "HTD101", host(view(3, 2, gap=(0,)), PINNED), None, "gapped", operation="to")
    after = fixed(context, site)
    assert "staging" in after
    for text in (before, after):
        leaf = torch.ones(3, 4, requires_grad=True)
        run(text, "f", leaf, "cpu").sum().backward()
        assert leaf.grad.tolist() == [[1.0, 1.0, 0.0, 0.0]] * 3


def values() -> Iterator[tuple[Any, ...]]:
    for value in ([], [1], [1, 2, 3], [[1.5], [2.5]], 3.5, True, "x", None):
        yield value, "cpu"


NEW = [
    ("torch.tensor", "return torch.tensor(v).to(dev, non_blocking=True)  # site"),
    ("torch.tensor", "return torch.tensor(v, dtype=torch.float64).to(dev, torch.int32, non_blocking=True)  # site"),
    (
        "torch.tensor",
        "t = torch.tensor(\n    v,\n)  # made\nreturn (\n    t\n    .to(dev, non_blocking=True)  # site\n)",
    ),
    ("torch.tensor", "t = torch.tensor(v)  # made\no = t.to(dev, non_blocking=True)  # site\nt.add_(1)\nreturn t"),
    ("torch.as_tensor", "return torch.as_tensor(v).to(dev, non_blocking=True)  # site"),
    ("torch.FloatTensor", "return torch.FloatTensor([v]).to(dev, non_blocking=True)  # site"),
    ("torch.as_tensor", "return [t.to(dev, non_blocking=True) for t in [torch.as_tensor(v)]]  # site"),
]


@pytest.mark.parametrize(("call", "body"), NEW)
def test_new_tensors(call: str, body: str) -> None:
    text = body if "# made" not in body or "\n)  # made" not in body else body.replace(")  # made", ")")
    text = text.replace("torch.tensor(\n", "torch.tensor(  # made\n") if text != body else text
    before = function(text, "v, dev")
    if "\n    .to(" in text:
        before = before.replace("  # site", "").replace("return (", "return (").replace("    t\n", "    t  # site\n")
    context = context_of(before)
    fact = made(context, host(), call)
    after = fixed(context, site_of(context, "HTD103", fact, gpu(), operation="to"))
    assert compare(before, after, values) == 8
    assert after != before


ON_DEVICE = [
    "return torch.tensor(3, device=dev)  # site",
    "return torch.tensor(-1.5, device=dev)  # site",
    "return torch.tensor(True, device=dev)  # site",
    "return torch.tensor(2 + 1j, device=dev)  # site",
    "return torch.tensor(3, dtype=torch.float16, device=dev)  # site",
    "return torch.tensor(v, device=dev)  # site",
    "return torch.tensor(v, dtype=torch.float64, device=dev)  # site",
    "return torch.as_tensor(v, device=dev)  # site",
]


@pytest.mark.parametrize("body", ON_DEVICE)
def test_tensors_made_on_the_device(body: str) -> None:
    before = function(body, "v, dev")
    context = context_of(before)
    operation = "as_tensor" if "as_tensor" in body else "tensor"
    site = site_of(context, "HTD301", host(), gpu(assumed=False), "missing non_blocking", operation=operation)
    assert compare(before, fixed(context, site), values) == 8


# --- fixtures/fixes: what the linter itself nominates ------------------------------------------------------------

FIXTURES = Path(__file__).parent.parent / "fixtures" / "fixes"
EVERYTHING = Config(selections=(Selection(select=("HTD1", "HTD2")),), include_cold=True, include_small=True)


def text_of(side: str, name: str) -> str:
    return (FIXTURES / side / name).read_text("utf-8")


def functions(name: str) -> list[str]:
    tree = ast.parse(text_of("before", name))
    return [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name[0] != "_"]


NAMES = sorted(path.name for path in (FIXTURES / "before").glob("*.py"))


@pytest.mark.parametrize("name", NAMES)
def test_fixtures_become_what_stands_in_after(name: str) -> None:
    filename = str(FIXTURES / "before" / name)
    fixed_once = h2dlint.fix_source(text_of("before", name), filename=filename, unsafe=True, config=EVERYTHING)
    assert fixed_once.source == text_of("after", name)
    assert fixed_once.findings == () and fixed_once.problems == ()
    again = h2dlint.fix_source(fixed_once.source, filename=filename, unsafe=True, config=EVERYTHING)
    assert again.source == fixed_once.source


@pytest.mark.parametrize("name", NAMES)
def test_fixtures_are_found_in_every_function_but_the_silent_one(name: str) -> None:
    text = text_of("before", name)
    found = h2dlint.lint_source(text, filename=str(FIXTURES / "before" / name), config=EVERYTHING)
    spans = {n.name: (n.lineno, n.end_lineno or 0) for n in ast.parse(text).body if isinstance(n, ast.FunctionDef)}
    for function, (first, last) in spans.items():
        here = [one for one in found if first <= one.row <= last]
        assert bool(here) is (function != "silent" and not function.startswith("_")), function
        assert all(one.fix is not None and one.fix.safety == "safe" for one in here), function


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize(("name", "function"), [(name, f) for name in NAMES for f in functions(name)])
def test_fixtures_run_the_same_before_and_after(name: str, function: str) -> None:
    for n in (0, 1, 2, 5, 9, 11):
        was, now = (run(text_of(side, name), function, n, "cpu") for side in ("before", "after"))
        assert same(was, now), (n, was, now)

"""Tables of what a fix makes of a text, the forms that are left alone first; hand-made sites give the facts."""

from __future__ import annotations

import ast
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import pytest
from fix_helpers import FILENAME, call_at, context_of, finding, fixed, gpu, host, made, row_of, site_of, view

from h2dlint.config import Config
from h2dlint.engine import lint_source
from h2dlint.fixes.apply import OverlapError, overlap, splice
from h2dlint.fixes.calls import add_keyword
from h2dlint.fixes.context import is_quiet
from h2dlint.fixes.guards import find_guard
from h2dlint.fixes.names import fresh_name
from h2dlint.fixes.wrap import wrap
from h2dlint.model import Edit, Span

PINNED = "pinned"
PIN = "torch.cuda.is_available()"


def edit(row: int, column: int, end_row: int, end_column: int, content: str) -> Edit:
    return Edit(Span(FILENAME, row, column, end_row, end_column), content)


# --- apply -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "edits", "after"),
    [
        ("a\nb\n", [], "a\nb\n"),
        ("a\nb\n", [edit(2, 0, 2, 1, "c")], "a\nc\n"),
        ("a\nb", [edit(2, 1, 2, 1, "\nc")], "a\nb\nc"),
        ("é = x\n", [edit(1, 5, 1, 6, "y")], "é = y\n"),
        ("ab\n", [edit(1, 0, 1, 0, "1"), edit(1, 0, 1, 0, "2"), edit(1, 1, 1, 2, "c")], "12ac\n"),
        ("ab\n", [edit(1, 0, 1, 0, "1"), edit(1, 0, 1, 0, "1")], "1ab\n"),
        ("a\x0cb\r", [edit(1, 2, 1, 3, "c")], "a\x0cc\r"),
    ],
)
def test_splice_changes_the_spans_only(text: str, edits: list[Edit], after: str) -> None:
    assert splice(text, edits) == after


def test_splice_refuses_edits_that_meet_or_lie_outside() -> None:
    with pytest.raises(OverlapError):
        splice("abc", [edit(1, 0, 1, 2, "x"), edit(1, 1, 1, 3, "y")])
    with pytest.raises(ValueError, match="row 3"):
        splice("a\nb", [edit(3, 0, 3, 0, "x")])
    with pytest.raises(ValueError, match="column 9"):
        splice("a\nb", [edit(1, 9, 1, 9, "x")])


def test_overlap_ignores_the_import_that_two_fixes_share() -> None:
    shared = edit(1, 0, 1, 0, "import torch\n")
    assert not overlap([shared, edit(3, 0, 3, 1, "x")], [shared, edit(4, 0, 4, 1, "y")])
    assert overlap([edit(3, 0, 3, 4, "x")], [edit(3, 2, 3, 6, "y")])
    assert overlap([edit(3, 0, 3, 0, "x")], [edit(3, 0, 3, 0, "y")])


# --- helpers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "after"),
    [
        ("f(*a, **k)", None),
        ("f", None),
        ("f()", "f(k=v)"),
        ("f(a)", "f(a, k=v)"),
        ("f(a,)", "f(a, k=v,)"),
        ("f(x for x in y)", "f((x for x in y), k=v)"),
        ("f(a, k=False)", "f(a, k=v)"),
        ("f(\n    a,\n    b,\n)", "f(\n    a,\n    b,\n    k=v,\n)"),
        ("f(\n    a,  # why\n)", "f(\n    a,  # why\n    k=v,\n)"),
        ("f(\n    a, b\n)", "f(\n    a, b, k=v\n)"),
        ("f(a, b = 1)", "f(a, b = 1, k = v)"),
        ("g(1)\n    .f(a)", "g(1)\n    .f(a, k=v)"),
    ],
)
def test_add_keyword_keeps_the_layout(call: str, after: str | None) -> None:
    found = add_keyword(call, "k", "v")
    if after is not None and "# why" in after:
        # The comment may move behind the new argument, but it stays and so does the meaning.
        assert found is not None
        assert "# why" in found
        assert ast.dump(ast.parse(found)) == ast.dump(ast.parse(after))
    else:
        assert found == after


@pytest.mark.parametrize(
    ("line", "after"),
    [
        ("x = f(a, b)", "x = f(a, b)"),
        ("        y = ff(aa).to(dev, nb=True)", "        y = ff(aa).to(\n            dev, nb=True\n        )"),
        ("y = ff(aaaaaaaaaaaa, bbbbbbbbbbbbbbbbb)", "y = ff(\n    aaaaaaaaaaaa,\n    bbbbbbbbbbbbbbbbb,\n)"),
        ('y = "a very long string that has no place to break"', 'y = "a very long string that has no place to break"'),
        ("y = f(', (', bbbbbbbbbbbbbbbbb).c()", "y = f(\n    ', (', bbbbbbbbbbbbbbbbb\n).c()"),
    ],
)
def test_wrap_breaks_at_the_last_bracket(line: str, after: str) -> None:
    assert wrap(line, 30, "    ") == after
    assert ast.dump(ast.parse(line.strip())) == ast.dump(ast.parse(after.strip()))


@pytest.mark.parametrize(
    ("source", "quiet"),
    [
        ("a.b[:, :n]", True),
        ("a.narrow(0, 1, n).t()", True),
        ("a[len(x)]", True),
        ("a.pop()[:, :n]", False),
        ("f(a)", False),
        ("a[i := 3]", False),
        ("a[next(it)]", False),
    ],
)
def test_quiet_expressions_can_be_evaluated_twice(source: str, quiet: bool) -> None:
    assert is_quiet(ast.parse(source, mode="eval").body) is quiet


def test_fresh_names_avoid_all_that_the_scope_sees() -> None:
    context = context_of(
        "row = 1\n"
        "def f(row_2):\n"
        "    def g():\n"
        "        x()  # site\n"
        "        return row_3\n"
        "    row = 2\n"
        "class C:\n"
        "    def h(self):\n"
        "        y()  # made\n"
    )
    site, other = row_of(context.module.text, "# site"), row_of(context.module.text, "# made")
    assert site is not None and other is not None
    assert fresh_name(context, call_at(context.tree, site), "row") == "row_4"
    assert fresh_name(context, call_at(context.tree, other), "row") == "row"


# --- HTD101 ------------------------------------------------------------------------------------------------------

ROWS = [
    pytest.param(
        "d[:, :n].copy_(s[:, :n], non_blocking=True)",
        "for row in range(d.shape[0]):\n    d[row, :n].copy_(s[row, :n], non_blocking=True)",
        view(3, "n", gap=(0,)),
        id="two dimensions",
    ),
    pytest.param(
        "d.copy_(s[:, :n], non_blocking=True)",
        "for row in range(d.shape[0]):\n    d[row].copy_(s[row, :n], non_blocking=True)",
        view(3, "n", gap=(0,)),
        id="whole destination",
    ),
    pytest.param(
        "d[..., :n].copy_(s[..., :n], True)",
        "for row in range(d.shape[0]):\n    d[row, :n].copy_(s[row, :n], True)",
        view(3, "n", gap=(0,)),
        id="ellipsis",
    ),
    pytest.param(
        "d[:, :, :n].copy_(src=s[..., :n], non_blocking=True)",
        "for row in range(d.shape[0]):\n"
        "    for column in range(d.shape[1]):\n"
        "        d[row, column, :n].copy_(src=s[row, column, :n], non_blocking=True)",
        view(2, 2, "n", gap=(0, 1)),
        id="nested",
    ),
    pytest.param(
        "d[:, :n].copy_(s[:, :n], non_blocking=True)",
        "for row in range(d.shape[0]):\n    d[row, :n].copy_(s[row, :n], non_blocking=True)",
        view(3, "n", 5, gap=(0,)),
        id="three dimensions, one loop",
    ),
    pytest.param(
        "d[:, :n].copy_(s[1, :, :n], non_blocking=True)",
        "for row in range(d.shape[0]):\n    d[row, :n].copy_(s[1, row, :n], non_blocking=True)",
        view(3, "n", gap=(0,)),
        id="one plane of the source",
    ),
    pytest.param(
        "x = d[:, :n].copy_(s[:, :n], non_blocking=True)",
        "for row in range(d.shape[0]):\n    d[row, :n].copy_(s[row, :n], non_blocking=True)\nx = d[:, :n]",
        view(3, "n", gap=(0,)),
        id="result bound",
    ),
    pytest.param(
        "return d[:, :n].copy_(s[:, :n], non_blocking=True)",
        "for row in range(d.shape[0]):\n    d[row, :n].copy_(s[row, :n], non_blocking=True)\nreturn d[:, :n]",
        view(3, "n", gap=(0,)),
        id="result returned",
    ),
    pytest.param(
        "d[:, :n].copy_(s[:, :n], non_blocking=True)",
        "for row in range(d.shape[0]):\n    d[row, :n].copy_(s[row, :n], non_blocking=True)",
        view("self.position_dims", "n", gap=(0,)),
        id="as many rows as a position has axes",
    ),
]


@pytest.mark.parametrize(("before", "after", "shape"), ROWS)
def test_few_rows_become_a_loop(before: str, after: str, shape: object) -> None:
    text = "import torch\n\n\ndef f(d, s, n):\n" + textwrap.indent(before, "    ") + "  # site\n"
    context = context_of(text)
    site = site_of(context, "HTD101", host(shape, PINNED), gpu(shape), "gapped")  # type: ignore[arg-type]
    assert fixed(context, site).replace("  # site", "") == text[: text.index("def f")] + "def f(d, s, n):\n" + (
        textwrap.indent(after, "    ") + "\n"
    )


STAGED = [
    ("d[:, :n].copy_(s[:, :n], non_blocking=True)", view(64, "n", gap=(0,))),
    ("d[:, :n].copy_(s[:, :n], non_blocking=True)", view("max_num_reqs", "n", gap=(0,))),
    ("d.copy_(s[:, 0], non_blocking=True)", view(3, gap=(0,))),
    ("d.copy_(s[::2], non_blocking=True)", view(2, gap=(0,))),
    ("d.copy_(s[:, ::2], non_blocking=True)", view(3, 4, gap=(0, 1))),
    ("d.copy_(s[1:3, :n], non_blocking=True)", view(2, "n", gap=(0,))),
    ("d.copy_(s.narrow(1, 0, n), non_blocking=True)", view(3, "n", gap=(0,))),
    ("g(d.copy_(s[:, :n], non_blocking=True))", view(3, "n", gap=(0,))),
    ("x = 1; d.copy_(s[:, :n], non_blocking=True)", view(3, "n", gap=(0,))),
    ("if n: d.copy_(s[:, :n], non_blocking=True)", view(3, "n", gap=(0,))),
]


@pytest.mark.parametrize(("before", "shape"), STAGED)
def test_other_views_go_through_staging(before: str, shape: object) -> None:
    text = "import torch\n\n\ndef f(d, s, n):\n" + textwrap.indent(before, "    ") + "  # site\n"
    context = context_of(text)
    site = site_of(context, "HTD101", host(shape, PINNED), gpu(shape), "gapped")  # type: ignore[arg-type]
    found = finding(context, site)
    assert found.fix is not None and found.fix.safety == "safe"
    after = fixed(context, site)
    assert "for " not in after
    assert f"staging = torch.empty(strided.shape, dtype=strided.dtype, pin_memory={PIN})" in after
    assert "d.copy_(staging.copy_(strided)" in after or "d[:, :n].copy_(staging.copy_(strided)" in after


def test_rows_are_not_looped_where_the_ends_may_differ_in_their_number() -> None:
    context = context_of("import torch\ndef f(d, s, n):\n    d[:, :n].copy_(s[:, :n], non_blocking=True)  # site\n")
    site = site_of(context, "HTD101", host(view(1, "n", gap=(0,)), PINNED), gpu(view(3, "n", gap=(0,))), "gapped")
    assert "for row" not in fixed(context, site)


def test_a_turned_source_turns_the_destination() -> None:
    context = context_of(
        "import torch\n"
        "def load(self, n_in, n_out):\n"
        "    disk = torch.zeros((n_in, n_out), pin_memory=True)  # made\n"
        "    self.weight.copy_(disk.transpose(-1, -2), non_blocking=True)  # site\n"
    )
    shape = view("o", "i", order=(1, 0))
    site = site_of(
        context, "HTD101", made(context, host(shape, PINNED), "torch.zeros"), gpu(view("o", "i")), "permuted"
    )
    found = finding(context, site)
    assert found.fix is not None and found.fix.safety == "safe"
    assert "self.weight.transpose(-1, -2).copy_(disk, non_blocking=True)" in fixed(context, site)


def test_where_nothing_can_stand_before_the_statement_the_finding_says_so() -> None:
    context = context_of("import torch\nf = lambda d, s, n: d.copy_(s[:, :n], non_blocking=True)  # site\n")
    shape = view(3, "n", gap=(0,))
    found = finding(context, site_of(context, "HTD101", host(shape, PINNED), gpu(shape), "gapped"))
    assert found.fix is None and "lambda" in found.declined


def test_on_a_sure_gpu_a_lambda_packs_in_place() -> None:
    context = context_of('import torch\nf = lambda s, n: s[:, :n].to("cuda", non_blocking=True)  # site\n')
    shape = view(3, "n", gap=(0,))
    site = site_of(context, "HTD101", host(shape, PINNED), None, "gapped", operation="to")
    assert 's[:, :n].contiguous().pin_memory().to("cuda"' in fixed(context, site)


# --- guards ------------------------------------------------------------------------------------------------------

GUARDS = [
    ("", "", "", False),
    ("torch.cuda.current_stream().synchronize()", "", "", True),
    ("torch.cuda.synchronize()", "", "", True),
    ("self.free.synchronize()", "self.free.record()", "", True),
    ("self.free.synchronize()", "", "", False),
    ("if n: self.free.synchronize()", "self.free.record()", "", False),
    ("if self.free is not None: self.free.synchronize()", "self.free.record()", "", True),
    ("", "self.free.record(); self.free.synchronize()", "", True),
    ("self.free.wait()", "self.free.record()", "", False),
    ("", "", "with self.refill(): self.step(n)", True),
    ("", "", "with self.nothing(): self.step(n)", False),
    ("", "", "self.free.synchronize(); self.step(n); self.free.record()", True),
    ("", "", "with self.refill(): self.step(n)\n        self.step(n)", False),
]


@pytest.mark.parametrize(("before", "after", "caller", "guarded"), GUARDS)
def test_guards_are_seen_in_the_function_around_it_and_in_all_callers(
    before: str, after: str, caller: str, guarded: bool
) -> None:
    text = f"""\
import torch
from contextlib import contextmanager

class Runner:
    def __init__(self, n):
        self.host = torch.zeros((3, n + 1), pin_memory=True)
        self.dev = torch.zeros((3, n + 1), device="cuda")
        self.free = torch.cuda.Event()
        self.free.record()

    @contextmanager
    def refill(self):
        self.free.synchronize()
        yield
        self.free.record()

    @contextmanager
    def nothing(self):
        yield

    def run(self, n):
        {caller or "pass"}

    def step(self, n):
        {before or "pass"}
        self.host[:, :n] = 1
        self.dev[:, :n].copy_(self.host[:, :n], non_blocking=True)  # site
        {after or "pass"}
"""
    context = context_of(text)
    shape = view(3, "n", gap=(0,))
    site = site_of(context, "HTD101", host(shape, PINNED), gpu(shape), "gapped")
    assert (find_guard(site, context) is not None) is guarded
    found = finding(context, site)
    assert found.fix is not None and "for row in range(self.dev.shape[0])" in fixed(context, site)
    assert found.fix.safety == ("safe" if guarded else "unsafe")
    assert guarded or "record an event" in found.fix.why


def test_a_buffer_that_is_never_written_again_needs_no_guard() -> None:
    text = """\
import torch

class Table:
    def __init__(self):
        self.host = torch.ones((3, 9), pin_memory=True)
        self.dev = torch.zeros((3, 9), device="cuda")

    def step(self, n):
        self.dev[:, :n].copy_(self.host[:, :n], non_blocking=True)  # site
"""
    shape = view(3, "n", gap=(0,))
    context = context_of(text)
    found = finding(context, site_of(context, "HTD101", host(shape, PINNED), gpu(shape), "gapped"))
    assert found.fix is not None and found.fix.safety == "safe"
    for write in (
        "self.host.zero_()",
        "self.host[0] = 1",
        "fill(self.host)",
        "self.view = self.host[0]",
        "return self.host",
    ):
        context = context_of(text + f"\n    def other(self):\n        {write}\n")
        found = finding(context, site_of(context, "HTD101", host(shape, PINNED), gpu(shape), "gapped"))
        assert found.fix is not None and found.fix.safety == "unsafe", write


# --- HTD102 ------------------------------------------------------------------------------------------------------


def cat_case(text: str, call: str = "torch.cat", shape: object = None, **more: object) -> str:
    context = context_of(text)
    fact = made(context, host(shape, **more), call, "join")  # type: ignore[arg-type]
    return fixed(context, site_of(context, "HTD102", fact, gpu(), operation="to"))


def body(text: str) -> str:
    return "\n".join(line for line in text.split("\n") if line.strip() and line[0] == " ").replace("  # site", "")


@pytest.mark.parametrize(
    ("call", "name", "rank", "shape"),
    [
        ("torch.cat(xs)", "torch.cat", None, "0"),
        ("torch.cat(xs, 2)", "torch.cat", view("a", "b"), "0"),
        ("torch.cat(xs)", "torch.cat", view("a"), "sum(t.shape[0] for t in xs)"),
        ("torch.cat(xs)", "torch.cat", view("a", "b"), "(sum(t.shape[0] for t in xs), xs[0].shape[1])"),
        ("torch.cat(xs, -1)", "torch.cat", view("a", "b"), "(xs[0].shape[0], sum(t.shape[-1] for t in xs))"),
        ("torch.cat(xs)", "torch.cat", view(1, 2, 3), "(sum(t.shape[0] for t in xs), *xs[0].shape[1:])"),
        ("torch.cat(xs, dim=-1)", "torch.cat", view(1, 2, 3), "(*xs[0].shape[:-1], sum(t.shape[-1] for t in xs))"),
        (
            "torch.cat(xs, 1)",
            "torch.cat",
            view(1, 2, 3),
            "(*xs[0].shape[:1], sum(t.shape[1] for t in xs), *xs[0].shape[2:])",
        ),
        ("torch.cat(xs)", "torch.cat", view(1, 2, 3, 4), "0"),
        ("torch.stack(xs)", "torch.stack", view(1, 2, 3, 4), "0"),
        ("torch.stack(xs)", "torch.stack", None, "0"),
        ("torch.stack(xs)", "torch.stack", view("a", "b", "c"), "(len(xs), *xs[0].shape)"),
        ("torch.stack(xs, dim=-1)", "torch.stack", view("a", "b", "c"), "(*xs[0].shape, len(xs))"),
        ("torch.stack(xs, -2)", "torch.stack", view("a", "b", "c"), "(*xs[0].shape[:-1], len(xs), *xs[0].shape[-1:])"),
        ("torch.stack(xs, 1)", "torch.stack", view("a", "b", "c"), "(*xs[0].shape[:1], len(xs), *xs[0].shape[1:])"),
    ],
)
def test_alike_pieces_are_joined_into_pinned_memory(call: str, name: str, rank: object, shape: str) -> None:
    sent = f"{call}.to(dev, non_blocking=True)"
    text = f"import torch\ndef f(n, dev):\n    xs = [make(i) for i in n]\n    return {sent}  # site\n"
    after = cat_case(text, name, rank)
    flat = " ".join(after.split())
    assert " ".join(f"torch.empty({shape}, dtype=xs[0].dtype, pin_memory={PIN})".split()) in flat or shape in flat
    assert "if xs else None" in flat
    assert f"return {call[:-1]}, out=pinned).to(dev, non_blocking=True)" in flat


NOT_ALIKE = [
    "xs = [a, b]",
    "xs = xs",
    "xs = [a if c else b for c in cs]",
    "xs = [make(i) for i in y]\n    xs.append(other)",
    "xs = []\n    for y in ys:\n        xs.append(y)\n        xs.append(tail)",
    "xs = []\n    xs.extend(ys)",
    "xs = [make(i) for i in y]\n    xs[0] = other",
    "xs = [make(i) for i in y]\n    xs += other",
    "xs = [make(i) for i in y]\n    change(xs)",
    "xs = [torch.zeros(2, requires_grad=True) for i in y]",
    "xs = []\n    for y in ys:\n        p = a\n        if y:\n            p = b\n        xs.append(p)",
]


@pytest.mark.parametrize("pieces", NOT_ALIKE)
def test_pieces_that_may_differ_are_pinned_afterwards(pieces: str) -> None:
    text = f"import torch\ndef f(dev):\n    {pieces}\n    return torch.cat(xs).to(dev, non_blocking=True)  # site\n"
    after = cat_case(text)
    assert "out=" not in after
    assert f"pinned = torch.cat(xs)\n    pinned = pinned.pin_memory() if {PIN} else pinned\n" in after
    assert "return pinned.to(dev, non_blocking=True)" in after


def test_a_comprehension_in_the_call_is_evaluated_once() -> None:
    joined = "torch.cat([make(i) for i in range(n)], 0)"
    text = f"import torch\ndef f(n, dev):\n    return {joined}.to(dev, non_blocking=True)  # site\n"
    after = cat_case(text)
    assert "    pieces = [make(i) for i in range(n)]\n" in after
    assert after.count("make(i)") == 1
    assert "torch.cat(pieces, 0, out=pinned).to(" in after


def test_grad_and_a_computed_dimension_keep_the_join_as_it_is() -> None:
    text = """\
import torch
def f(n, dev, d):
    xs = [make(i) for i in n]
    return torch.cat(xs).to(dev, non_blocking=True)  # site
"""
    assert "out=" not in cat_case(text, grad=True)
    assert "out=" not in cat_case(text.replace("cat(xs)", "cat(xs, d)"))
    assert "out=" in cat_case(text)


def test_a_joined_tensor_that_is_written_after_the_copy_is_pinned_as_a_copy() -> None:
    text = """\
import torch
def f(n, dev):
    xs = [make(i) for i in n]
    full = torch.cat(xs)  # made
    out = full.to(dev, non_blocking=True)  # site
    full.zero_()
    return out
"""
    after = cat_case(text)
    assert "out=pinned" not in after
    assert f"pinned = full.pin_memory() if {PIN} else full" in after
    assert "out=pinned" in cat_case(text.replace("full.zero_()", "pass"))


# --- HTD103, HTD104, how to pin ----------------------------------------------------------------------------------


def new_case(text: str, call: str = "torch.tensor", code: str = "HTD103", config: Config | None = None) -> str:
    context = context_of(text, config)
    row = row_of(text, "# site")
    assert row is not None
    method = "copy_" if ".copy_(" in text.split("\n")[row - 1] else "cuda" if ".cuda(" in text else "to"
    fact = made(context, host(), call, "new")
    return fixed(context, site_of(context, code, fact, gpu(), operation=method))


@pytest.mark.parametrize(
    ("head", "target", "pin"),
    [
        ("import torch", "dev", "torch.cuda.is_available()"),
        ("import torch as th", "dev", "th.cuda.is_available()"),
        ("import torch", "'cuda'", "True"),
        ("import torch", "torch.device('cuda', 1)", "True"),
        ("import torch", "'mps'", "torch.cuda.is_available()"),
        ("import torch\nfrom flags import PIN\nx = torch.zeros(1, pin_memory=PIN)", "dev", "PIN"),
        ("import torch\nPIN = False\nx = torch.zeros(1, pin_memory=PIN)", "dev", "torch.cuda.is_available()"),
        ("import torch\nfrom flags import can_pin\nx = torch.zeros(1, pin_memory=can_pin())", "dev", "can_pin()"),
        ("import torch\ndef g(p):\n    return torch.zeros(1, pin_memory=p)", "dev", "torch.cuda.is_available()"),
    ],
)
def test_pinned_is_spelled_as_the_module_spells_it(head: str, target: str, pin: str) -> None:
    torch = "th" if " as th" in head else "torch"
    text = f"{head}\n\ndef f(v, dev):\n    return {torch}.tensor(v).to({target}, non_blocking=True)  # site\n"
    assert f"{torch}.tensor(v, pin_memory={pin}).to({target}, non_blocking=True)" in new_case(text)


@pytest.mark.parametrize(
    ("flag", "pin"),
    [
        ("self.pin = config.pin", "self.pin"),
        ("self.pin = getattr(config, 'pin', False)", "torch.cuda.is_available()"),
        ("self.pin = False", "torch.cuda.is_available()"),
    ],
)
def test_an_attribute_is_believed_if_it_may_be_true(flag: str, pin: str) -> None:
    text = f"""\
import torch
class A:
    def __init__(self, config):
        {flag}
        self.x = torch.zeros(1, pin_memory=self.pin)
    def f(self, v, dev):
        return torch.tensor(v).to(dev, non_blocking=True)  # site
"""
    assert f"torch.tensor(v, pin_memory={pin})" in new_case(text)


def test_a_configured_expression_is_imported_once_in_the_right_place() -> None:
    config = Config(pin_expression="engine.flags.PIN_MEMORY")
    copy = "torch.tensor(v).to(dev, non_blocking=True)"
    text = f'"""Doc."""\n\nimport torch\n\n\ndef f(v, dev):\n    return {copy}  # site\n'
    after = new_case(text, config=config)
    assert after.startswith('"""Doc."""\n\nimport torch\nfrom engine.flags import PIN_MEMORY\n\n\ndef f')
    assert "torch.tensor(v, pin_memory=PIN_MEMORY)" in after
    assert "torch.tensor(v, pin_memory=self.can_pin)" in new_case(text, config=Config(pin_expression="self.can_pin"))


MADE = "t = torch.zeros(n)  # made"
SENT = "o = t.to(dev, non_blocking=True)  # site"
LIFETIMES = [
    # (body, whether the allocation itself is pinned)
    ([MADE, SENT], True),
    ([MADE, "fill(t)", SENT], True),
    ([MADE, SENT, "t.add_(1)"], False),
    ([MADE, SENT, "t[0] = 1"], False),
    ([MADE, SENT, "fill(t)"], False),
    ([MADE, SENT, "u = t[1:]", "u += 1"], False),
    ([MADE, SENT, "return t"], False),
    ([MADE, SENT, "self.kept = t"], False),
    ([MADE, SENT, "return lambda: t"], False),
    ([MADE, "for i in n:", "    t[0] = i", f"    {SENT}"], False),
    (["for i in n:", f"    {MADE}", "    t[0] = i", f"    {SENT}"], True),
    ([MADE.replace("t =", "self.t ="), SENT.replace("t.to", "self.t.to"), "self.t[0] = 1"], False),
]


@pytest.mark.parametrize(("lines", "pinned"), LIFETIMES)
def test_the_allocation_is_pinned_unless_it_is_written_while_the_copy_may_run(lines: list[str], pinned: bool) -> None:
    body = "\n    ".join(lines)
    after = new_case(f"import torch\ndef f(self, n, dev):\n    {body}\n    return o\n", "torch.zeros")
    assert ("torch.zeros(n, pin_memory=" in after) is pinned
    assert ("pinned = " in after) is not pinned


def test_a_factory_without_the_argument_is_pinned_behind() -> None:
    text = "import torch\ndef f(a, d):\n    d.copy_(torch.from_numpy(a.astype(int)), non_blocking=True)  # site\n"
    after = new_case(text, "torch.from_numpy")
    assert f"pinned = torch.from_numpy(a.astype(int))\n    pinned = pinned.pin_memory() if {PIN} else pinned\n" in after
    sure = "import torch\ndef f(a):\n    return torch.from_numpy(a).cuda(non_blocking=True)  # site\n"
    assert "torch.from_numpy(a).pin_memory().cuda(non_blocking=True)" in new_case(sure, "torch.from_numpy")


def test_a_binary_expression_is_pinned_with_its_parentheses() -> None:
    text = "import torch\ndef f(a, b):\n    return (a - b).to('cuda', non_blocking=True)  # site\n"
    context = context_of(text)
    site = site_of(context, "HTD104", host(), gpu(), operation="to")
    assert "(a - b).pin_memory().to('cuda'" in fixed(context, site)
    context = context_of(text.replace("(a - b).to('cuda', non_blocking=True)", "d.copy_(a - b, non_blocking=True)"))
    site = site_of(context, "HTD104", host(), gpu(assumed=False))
    assert "d.copy_((a - b).pin_memory(), non_blocking=True)" in fixed(context, site)


def test_the_project_s_own_helper_is_preferred_to_a_pinned_copy() -> None:
    config = Config(pinned_copy="engine.copies.send")
    text = "import torch\ndef f(a, b, dev):\n    return (a - b).to(dev, non_blocking=True)  # site\n"
    context = context_of(text, config)
    site = site_of(context, "HTD104", host(), gpu(), operation="to")
    assert fixed(context, site) == (
        "import torch\nfrom engine.copies import send\ndef f(a, b, dev):\n    return send(a - b, dev)  # site\n"
    )
    for left in ("(a - b).to(dev, torch.int32, non_blocking=True)", "(a - b).cuda(non_blocking=True)"):
        context = context_of(text.replace("(a - b).to(dev, non_blocking=True)", left), config)
        assert "send(" not in fixed(context, site_of(context, "HTD104", host(), gpu()))
    context = context_of(text.replace("def f(", "def send("), config)
    assert "return send(" not in fixed(context, site_of(context, "HTD104", host(), gpu(), operation="to"))


def test_inside_a_comprehension_the_copy_is_pinned_in_place() -> None:
    text = "import torch\ndef f(xs, dev):\n    return [x.to(dev, non_blocking=True) for x in xs]  # site\n"
    context = context_of(text)
    after = fixed(context, site_of(context, "HTD104", host(), gpu(), operation="to"))
    assert f"[(x.pin_memory() if {PIN} else x).to(dev, non_blocking=True) for x in xs]" in after


def test_operands_with_effects_keep_their_order() -> None:
    text = "import torch\ndef f(q, a, b):\n    q.pop().copy_(a - b, non_blocking=True)  # site\n"
    context = context_of(text)
    found = finding(context, site_of(context, "HTD104", host(), gpu()))
    assert found.fix is None and "has to run first" in found.declined


@pytest.mark.parametrize(
    ("line", "placed"),
    [
        ("return torch.cat(a).to(dev), (a - b).to(dev, non_blocking=True)  # site", True),
        ("return a.float(), (a - b).to(dev, non_blocking=True)  # site", True),
        ("return {'x': len(a), 'y': (a - b).to(dev, non_blocking=True)}  # site", True),
        ("return torch.rand(2), (a - b).to(dev, non_blocking=True)  # site", False),
        ("return a.pop(), (a - b).to(dev, non_blocking=True)  # site", False),
        ("return d.copy_(a), (a - b).to(dev, non_blocking=True)  # site", False),
        ("return (b := a), (a - b).to(dev, non_blocking=True)  # site", False),
        ("return d and (a - b).to(dev, non_blocking=True)  # site", False),
        ("return a if d else (a - b).to(dev, non_blocking=True)  # site", False),
        ("return lambda: (a - b).to(dev, non_blocking=True)  # site", False),
        ("while (a - b).to(dev, non_blocking=True): pass  # site", False),
        ("assert d, (a - b).to(dev, non_blocking=True)  # site", False),
        ("for x in (a - b).to(dev, non_blocking=True): pass  # site", True),
        ("with d.lock, (a - b).to(dev, non_blocking=True): pass  # site", True),
        ("with d.lock(), (a - b).to(dev, non_blocking=True): pass  # site", False),
        ("def g(x=(a - b).to(dev, non_blocking=True)): pass  # site", False),
        ("if d: pass\n    elif (a - b).to(dev, non_blocking=True): pass  # site", False),
        ("match d:\n        case x if (a - b).to(dev, non_blocking=True): pass  # site", False),
        ("x = y[(a - b).to(dev, non_blocking=True)] = 1  # site", True),
        ("y[d.pop()] = (a - b).to(dev, non_blocking=True)  # site", True),
        ("if d: return (a - b).to(dev, non_blocking=True)  # site", True),
        ("x = 1; return (a - b).to(dev, non_blocking=True)  # site", True),
    ],
)
def test_statements_go_where_the_copy_runs_once_and_first(line: str, placed: bool) -> None:
    context = context_of(f"import torch\n\ndef f(a, b, d, dev):\n    {line}\n")
    row = row_of(context.module.text, "# site")
    call = next(c for c in context.calls["to"] if c.lineno == row and c.keywords)
    plain = context_of("import torch\nx.to(dev, non_blocking=True)  # site\n")
    site = replace(site_of(plain, "HTD104", host(), gpu(), operation="to"), call=call)
    found = finding(context, site)
    assert (found.fix is not None) is placed, found.declined
    if placed:
        after = fixed(context, site)
        assert "pinned = a - b" in after
        assert after.index("pinned = a - b") < after.index("pinned.to(dev, non_blocking=True)")


def test_a_gapped_pageable_view_is_staged_as_pin_memory_keeps_the_gaps() -> None:
    text = "import torch\ndef f(s, d, n):\n    d.copy_(s[:, :n], non_blocking=True)  # site\n"
    context = context_of(text)
    shape = view(3, "n", gap=(0,))
    site = replace(site_of(context, "HTD104", host(shape), gpu(shape)), layout="strided")
    assert "staging.copy_(strided)" in fixed(context, site)


def test_nothing_is_pinned_inside_a_capture() -> None:
    text = "import torch\ndef f(v, d):\n    d.copy_(torch.tensor(v), non_blocking=True)  # site\n"
    context = context_of(text)
    fact = made(context, host(), "torch.tensor")
    found = finding(context, replace(site_of(context, "HTD103", fact, gpu()), captured=True))
    assert found.fix is None
    assert "before the capture" in found.declined
    assert "it raises" in found.message


def test_a_name_only_device_makes_the_fix_unsafe_and_is_said() -> None:
    text = "import torch\ndef f(a, dev):\n    return a.host.to(dev, non_blocking=True)  # site\n"
    context = context_of(text)
    found = finding(context, site_of(context, "HTD104", host(named=True), gpu(), operation="to"))
    assert found.fix is not None and found.fix.safety == "unsafe"
    assert "name only" in found.message


# --- HTD105 ------------------------------------------------------------------------------------------------------

DOWN = """\
import torch

class Snapshot:
    def __init__(self, n{parameter}):
        self.host = torch.empty(n{keyword})  # made
        self.done = torch.cuda.Event()

    def save(self, acts):
        self.host.copy_(acts, non_blocking=True)  # site
        {after}

    def load(self):
        {wait}
        return self.host.tolist()
"""


@pytest.mark.parametrize(
    ("after", "wait", "safety"),
    [
        ("pass", "pass", "unsafe"),
        ("self.done.record()", "self.done.synchronize()", "safe"),
        ("torch.cuda.synchronize()", "pass", "safe"),
        ("self.done.record()", "pass", "unsafe"),
        ("pass", "self.done.synchronize()", "unsafe"),
    ],
)
def test_a_pinned_destination_is_safe_with_a_wait_only(after: str, wait: str, safety: str) -> None:
    context = context_of(DOWN.format(parameter="", keyword="", after=after, wait=wait))
    down = made(context, host(), "torch.empty")
    site = site_of(context, "HTD105", gpu(assumed=False), down, direction="d2h")
    found = finding(context, site)
    assert found.fix is not None and found.fix.safety == safety
    assert "torch.empty(n, pin_memory=True)" in fixed(context, site)


@pytest.mark.parametrize(
    ("parameter", "keyword", "wanted"),
    [
        (", pin_memory=False", ", pin_memory=pin_memory", "def __init__(self, n, pin_memory=True)"),
        ("", ", pin_memory=getattr(self, 'pin', False)", "torch.empty(n, pin_memory=True)"),
    ],
)
def test_a_flag_that_comes_out_false_is_changed_unsafely(parameter: str, keyword: str, wanted: str) -> None:
    text = DOWN.format(parameter=parameter, keyword=keyword, after="self.done.record()", wait="self.done.synchronize()")
    context = context_of(text)
    site = site_of(context, "HTD105", gpu(assumed=False), made(context, host(), "torch.empty"), direction="d2h")
    found = finding(context, site)
    assert found.fix is not None and found.fix.safety == "unsafe"
    assert wanted in fixed(context, site)


@pytest.mark.parametrize(("after", "safety"), [("torch.cuda.synchronize()", "safe"), ("pass", "unsafe")])
def test_a_gapped_destination_of_few_rows_is_filled_row_by_row(after: str, safety: str) -> None:
    text = f"import torch\ndef f(h, g, n):\n    h[:, :n].copy_(g[1, :, :n], non_blocking=True)  # site\n    {after}\n"
    context = context_of(text)
    shape = view(3, "n", gap=(0,))
    site = site_of(context, "HTD105", gpu(shape), host(shape, PINNED), "gapped", direction="d2h")
    found = finding(context, site)
    assert found.fix is not None and found.fix.safety == safety
    loop = "for row in range(h.shape[0]):\n        h[row, :n].copy_(g[1, row, :n], non_blocking=True)"
    assert loop in fixed(context, site)
    many = site_of(context, "HTD105", gpu(shape), host(view(9, "n", gap=(0,)), PINNED), "gapped", direction="d2h")
    assert finding(context, many).fix is None


def test_an_indexed_destination_is_said_to_lose_the_data() -> None:
    text = "import torch\ndef f(h, rows, g):\n    h[rows].copy_(g, non_blocking=True)  # site\n"
    context = context_of(text)
    down = made(context, host(), "index", "index", names=("copy_",))
    found = finding(context, site_of(context, "HTD105", gpu(), down, direction="d2h"))
    assert found.fix is None
    assert "never reaches the buffer" in found.message


# --- HTD3 --------------------------------------------------------------------------------------------------------

BLOCKING = [
    ("return x.to(g.device)", "return x.pin_memory().to(g.device, non_blocking=True)"),
    ("return x.cuda()", "return x.pin_memory().cuda(non_blocking=True)"),
    ("g.copy_(x)", "g.copy_(x.pin_memory(), non_blocking=True)"),
    ("g.copy_(x + 1)", "g.copy_((x + 1).pin_memory(), non_blocking=True)"),
    ("g.copy_(x, non_blocking=False)", "g.copy_(x.pin_memory(), non_blocking=True)"),
    (
        "return x.to(\n        g.device,\n    )",
        "return x.pin_memory().to(\n        g.device,\n        non_blocking=True,\n    )",
    ),
    ("return x.to(*g)", None),
    ("return x.to(g.device, **more)", None),
]


@pytest.mark.parametrize(("line", "after"), BLOCKING)
def test_a_blocking_copy_is_made_asynchronous_unsafely(line: str, after: str | None) -> None:
    first, *rest = line.split("\n")
    text = "\n".join([f"import torch\ndef f(x, g, more):\n    {first}  # site", *rest]) + "\n"
    context = context_of(text)
    fault = "missing non_blocking"
    found = finding(context, site := site_of(context, "HTD302", host(), gpu(assumed=False), fault))
    if after is None:
        assert found.fix is None and "*" in found.declined
        return
    assert found.fix is not None and found.fix.safety == "unsafe"
    assert f"    {after}\n" in fixed(context, site).replace("  # site", "")


@pytest.mark.parametrize(
    ("line", "after"),
    [
        ("return g[i]", "return g[i.pin_memory().to(g.device, non_blocking=True)]"),
        ("return g[[0, -1]]", "return g[torch.tensor([0, -1], pin_memory=True).to(g.device, non_blocking=True)]"),
        ("return g.get()[i]", None),
        ("return g[[a, 1]]", None),
        ("return g[i, 0]", None),
    ],
)
def test_an_index_goes_ahead_from_pinned_memory(line: str, after: str | None) -> None:
    context = context_of(f"import torch\ndef f(g, i):\n    {line}\n\ni = torch.tensor([1])  # made\nx.to(1)  # site\n")
    plain = site_of(context, "HTD303", made(context, host(), "torch.tensor"), gpu(assumed=False), operation="to")
    node = next(n for n in ast.walk(context.tree) if isinstance(n, ast.Subscript))
    found = finding(context, site := replace(plain, call=node))
    assert (found.fix is None) is (after is None)
    if after is not None:
        assert f"    {after}\n" in fixed(context, site)


@pytest.mark.parametrize(
    ("line", "after"),
    [
        ("g[:n] = x", "g[:n].copy_(x.pin_memory(), non_blocking=True)"),
        ("g[..., 0] = self.x", "g[..., 0].copy_(self.x.pin_memory(), non_blocking=True)"),
        ("g[i] = x", None),
        ("g[[0, 1]] = x", None),
        ("g[:n] = x + 1", None),
        ("g[True] = x", None),
        ("g[:n] += x", None),
        ("h = g[:n] = x", None),
    ],
)
def test_an_assignment_becomes_a_copy_where_the_target_is_a_view(line: str, after: str | None) -> None:
    context = context_of(f"import torch\ndef f(self, g, x, n, i):\n    {line}\n\nx.to(1)  # site\n")
    plain = site_of(context, "HTD304", host(), gpu(assumed=False), operation="to")
    node = next(n for n in ast.walk(context.tree) if isinstance(n, ast.Subscript))
    found = finding(context, site := replace(plain, call=node))
    assert (found.fix is None) is (after is None)
    if after is not None:
        assert f"    {after}\n" in fixed(context, site)


def test_a_needed_import_goes_where_it_runs_before_the_code() -> None:
    text = (
        "from __future__ import annotations\n"
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n"
        "    import torch\n"
        "def f(x, dev):\n"
        "    return x.to(dev, non_blocking=True)  # site\n"
        "import late\n"
    )
    context = context_of(text)
    after = fixed(context, site_of(context, "HTD103", host(), gpu(), operation="to"))
    assert after.split("\n")[1:3] == ["from typing import TYPE_CHECKING", "import torch"]
    assert after.count("import torch\n") == 2


@pytest.mark.parametrize(
    ("head", "added"),
    [
        ("from .base import *\nx = torch.ones(1)\n", False),
        ("from .base import *\n", True),
        ("from .base import *\ndef g():\n    import torch\n    return torch.ones(1)\n", True),
        ("from .base import y\nx = torch.ones(1)\n", True),
    ],
)
def test_torch_that_a_star_import_brings_is_not_imported_again(head: str, added: bool) -> None:
    context = context_of(f"{head}def f(x, dev):\n    return x.to(dev, non_blocking=True)  # site\n")
    after = fixed(context, site_of(context, "HTD103", host(), gpu(), operation="to"))
    assert ("\nimport torch\n" in f"\n{after}") is added
    assert "torch.cuda.is_available()" in after


# --- time --------------------------------------------------------------------------------------------------------

ONE_EACH = "def f{n}(v):\n    e{n} = torch.tensor(v)\n    return e{n}.to('cuda', non_blocking=True)\n\n\n"
IN_ONE = "    e{n} = torch.tensor(v)\n    out.append(e{n}.to('cuda', non_blocking=True))\n"


@pytest.mark.parametrize("head, each", [("", ONE_EACH), ("def f(v, out):\n", IN_ONE)])
def test_time_is_linear_in_the_findings_of_one_file(head: str, each: str, tmp_path: Path) -> None:
    """Six times the findings in less than eighteen times the time; a walk of the file a finding takes 36 times."""
    times = []
    for count in (50, 300):
        text = "import torch\n\n\n" + head + "".join(each.format(n=n) for n in range(count))
        path = tmp_path / f"m{count}.py"
        start = time.process_time()
        findings = lint_source(text, str(path), Config(include_small=True, include_cold=True))
        times.append(time.process_time() - start)
        assert [finding.fix is not None for finding in findings] == [True] * count
    assert times[1] < 18 * max(times[0], 0.02)

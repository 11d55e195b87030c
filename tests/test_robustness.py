"""Code that no one writes by hand: the interpreter ends in bounded time and memory, says so, and says it every time.

The bounds here are generous for a busy machine; what they guard against is growth that is not linear.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from h2dlint.config import Config
from h2dlint.engine import lint_source
from h2dlint.facts import MAX_FRAMES, MAX_STEPS
from h2dlint.model import Site
from h2dlint.project import Project
from h2dlint.sites import find_sites, interpreter_of

SECONDS = 20
"""For one file of any of these kinds; each takes a small part of it."""
MEGABYTES = 1_000
"""For a process that lints one of them."""

HEAD = "import torch\n\n\n"


@contextmanager
def bounded() -> Iterator[None]:
    start = time.process_time()
    yield
    assert time.process_time() - start < SECONDS


def sites_in(text: str, folder: Path | None = None, name: str = "a.py") -> list[Site]:
    project = Project(folder, Config())
    module = project.load((folder or Path("/nowhere")) / name, text.encode())
    return find_sites(project, module, opt_in=False)


def verdicts(text: str) -> list[str]:
    with bounded():
        return [site.verdict.kind for site in sites_in(text)]


def function(*statements: str, name: str = "f", args: str = "") -> str:
    """A function of these statements."""
    return f"def {name}({args}):\n" + "".join(f"    {one}\n" for one in statements) + "\n\n"


def send(value: str) -> str:
    return f"{value}.to('cuda', non_blocking=True)"


# --- much of one thing -----------------------------------------------------------------------------------------------


def test_twenty_thousand_lines() -> None:
    bodies = ("x = torch.zeros(n, 8)", "y = x[:, :n]", "return y")
    text = HEAD + "".join(function(*bodies, name=f"f{i}", args="n") for i in range(3_400))
    text += function(send("f3399(n)"), name="last", args="n")
    assert len(text.splitlines()) > 20_000
    assert verdicts(text) == ["blocks"]


def test_ten_thousand_assignments() -> None:
    chain = [f"x{i} = x{i - 1}[:8]" for i in range(1, 10_000)]
    assert verdicts(HEAD + function("x0 = torch.zeros(8)", *chain, send("x9999"))) == ["unknown"]


def test_ten_thousand_assignments_of_one_name() -> None:
    chain = ["x = x.clone()"] * 10_000
    assert verdicts(HEAD + function("x = torch.zeros(8)", *chain, send("x"))) == ["unknown"]


def test_ten_thousand_assignments_that_do_not_matter() -> None:
    others = [f"y{i} = y{i - 1} + 1" for i in range(1, 10_000)]
    assert verdicts(HEAD + function("y0 = 0", "x = torch.zeros(8)", *others, send("x"))) == ["blocks"]


def test_a_chain_within_the_bounds_is_followed() -> None:
    chain = [f"x{i} = x{i - 1}[:8]" for i in range(1, 40)]
    assert verdicts(HEAD + function("x0 = torch.zeros(8)", *chain, send("x39"))) == ["blocks"]


def test_ten_thousand_sites() -> None:
    sites = [send("x")] * 10_000
    assert verdicts(HEAD + function("x = torch.zeros(8)", *sites)) == ["blocks"] * 10_000


def test_huge_literals() -> None:
    numbers = ", ".join(str(i) for i in range(100_000))
    rows = ", ".join("[1, 2, 3, 4]" for _ in range(20_000))
    text = HEAD + function(send(f"torch.tensor([{numbers}])"), send(f"torch.tensor([{rows}])"))
    assert verdicts(text) == ["blocks", "blocks"]


def test_huge_dict_of_tensors() -> None:
    entries = ", ".join(f"'k{i}': torch.zeros(8)" for i in range(5_000))
    text = f"{HEAD}T = {{{entries}}}\n\n\n" + function(send("T['k7']"), send("T[k]"), args="k")
    assert verdicts(text) == ["blocks", "blocks"]


def test_many_callers() -> None:
    calls = "".join(function(f"g(torch.zeros({i + 1}))", name=f"c{i}") for i in range(500))
    assert set(verdicts(HEAD + function(send("x"), name="g", args="x") + calls)) <= {"unknown", "blocks"}


def test_past_the_bound_nothing_wrong_is_said() -> None:
    """A value that takes more questions than one site may ask."""
    width = MAX_STEPS + 500
    terms = [f"y{i} = torch.zeros({i + 1})" for i in range(width)]
    terms[-1] = f"y{width - 1} = torch.zeros(3, pin_memory=True)"
    pieces = ", ".join(f"y{i}" for i in range(width))
    with bounded():
        (site,) = sites_in(HEAD + function(*terms, f"for y in [{pieces}]:", "    " + send("y")))
    assert site.verdict.kind == "unknown"
    assert "more code than is followed" in site.verdict.reason


# --- deep nesting ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opening", ["(", "-", "x[", "f(", "[", "not "])
def test_nested_expressions(opening: str) -> None:
    closing = {"(": ")", "x[": "]", "f(": ")", "[": "]"}.get(opening, "")
    depth = 500 if opening in ("-", "not ") else 150  # the parser of Python itself allows no more brackets
    text = HEAD + function(f"y = {opening * depth}x{closing * depth}", send("y"), args="x")
    assert verdicts(text) in (["unknown"], [])


@pytest.mark.parametrize("tail", [".clone()", "[0]", ".to('cpu')", " + x", " if c else x", " and x"])
def test_five_hundred_chained_expressions(tail: str) -> None:
    text = HEAD + function(f"y = x{tail * 500}", send("y"), args="x, c")
    assert set(verdicts(text)) <= {"unknown", "blocks"}


def test_deep_expressions_pass_through_the_whole_engine() -> None:
    with bounded():
        assert lint_source(HEAD + function("y = " + "-" * 500 + "x", send("y"), args="x"), "deep.py", Config()) == []


def test_five_hundred_branches_one_after_another() -> None:
    branches = [line for i in range(500) for line in (f"if c > {i}:", f"    x = torch.zeros({i + 1}, pin_memory=True)")]
    assert verdicts(HEAD + function("x = torch.zeros(8)", *branches, send("x"), args="c")) == ["unknown"]


def test_long_elif_chain() -> None:
    arms = [line for i in range(100) for line in (f"{'el' * (i > 0)}if c == {i}:", "    x = torch.ones(8)")]
    text = HEAD + function(*arms, "else:", "    raise ValueError", send("x"), args="c")
    assert verdicts(text) == ["blocks"]


def test_nested_loops_reach_a_fixed_point() -> None:
    depth = 15
    loops = ["    " * i + f"for i{i} in range(2):" for i in range(depth)]
    inner = "    " * depth
    text = HEAD + function("x = torch.zeros(8)", *loops, f"{inner}x = x.clone()", f"{inner}{send('x')}")
    assert verdicts(text) == ["blocks"]


# --- classes and calls -----------------------------------------------------------------------------------------------


def subclass(name: str, base: str, *statements: str) -> str:
    body = "".join(f"        {one}\n" for one in statements)
    return f"class {name}({base}):\n    def make(self):\n{body}\n\n"


def test_deep_class_hierarchy() -> None:
    classes = "class C0:\n    def __init__(self):\n        self.x = torch.zeros(8)\n\n\n"
    classes += "".join(subclass(f"C{i}", f"C{i - 1}", "return self.x") for i in range(1, 200))
    assert verdicts(HEAD + classes + function(send("C199().x"), send("C199().make()"))) == ["blocks", "blocks"]


def test_wide_class_hierarchy() -> None:
    classes = subclass("Base", "object", "return torch.zeros(8)")
    classes += "".join(subclass(f"C{i}", "Base", f"return torch.zeros({i + 1})") for i in range(300))
    assert set(verdicts(HEAD + classes + function(send("o.make()"), args="o: Base"))) <= {"unknown", "blocks"}


def test_classes_that_are_their_own_bases() -> None:
    classes = subclass("A", "B", "return super().make()") + subclass("B", "A", "return super().make()")
    found = verdicts(HEAD + classes + function(send("A().x"), send("A().make()")))
    assert set(found) == {"unknown"}


def test_mutual_recursion() -> None:
    functions = function("return b(x, n - 1)", name="a", args="x, n")
    functions += function("return c(x, n)", name="b", args="x, n")
    functions += function("return x if n else a(x, n)", name="c", args="x, n")
    text = HEAD + functions + function(send("a(torch.zeros(8), n)"), args="n")
    assert verdicts(text) in (["blocks"], ["unknown"])


def test_recursion_that_never_ends() -> None:
    text = HEAD + function("return a(a(x))", name="a", args="x") + function(send("a(torch.zeros(8))"))
    assert verdicts(text) in (["unknown"], [])


def test_a_tower_of_calls() -> None:
    """Each function calls the next twice: 2 ** 30 paths, each function once."""
    tower = "".join(function(f"return f{i + 1}(f{i + 1}(x))", name=f"f{i}", args="x") for i in range(30))
    tower += function("return x.clone()", name="f30", args="x")
    assert verdicts(HEAD + tower + function(send("f0(torch.zeros(8))"))) == ["unknown"]


def test_calls_within_the_bounds_are_followed() -> None:
    depth = MAX_FRAMES - 2
    tower = "".join(function(f"return f{i + 1}(x)", name=f"f{i}", args="x") for i in range(depth))
    tower += function("return x.clone()", name=f"f{depth}", args="x")
    assert verdicts(HEAD + tower + function(send("f0(torch.zeros(8))"))) == ["blocks"]


def test_a_site_that_no_value_reaches() -> None:
    uses = ("torch.zeros(3).to(d, non_blocking=True)", "torch.tensor([1], device=d)")
    text = HEAD + function("if False:", "    d = 'cuda'", *uses)
    project = Project(None, Config())
    module = project.load("unreached.py", text.encode())
    assert {site.verdict.kind for site in find_sites(project, module, opt_in=True)} <= {"unknown", "blocks"}


MEASURE = """
import resource, sys
from pathlib import Path
from h2dlint.config import Config
from h2dlint.project import Project
from h2dlint.sites import find_sites

module = Project(None, Config()).load(Path("/nowhere/a.py"), sys.stdin.buffer.read())
find_sites(module.project, module, opt_in=True)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the unit of ru_maxrss is the kilobyte on Linux")
@pytest.mark.parametrize(
    "body",
    [
        function("x = torch.zeros(8)", *[send("x")] * 10_000),
        function("x = torch.zeros(8)", *["x = x.clone()"] * 10_000, send("x")),
        function(send(f"torch.tensor([{'1, ' * 100_000}])")),
    ],
    ids=["sites", "assignments", "literal"],
)
def test_memory(body: str) -> None:
    command = [sys.executable, "-c", MEASURE]
    done = subprocess.run(command, input=HEAD + body, capture_output=True, text=True, check=True)
    assert int(done.stdout) / 1_000 < MEGABYTES


# --- modules that go round in circles --------------------------------------------------------------------------------


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


CYCLE = {
    "pkg/__init__.py": "from .a import *\nfrom .b import *\n",
    "pkg/a.py": "from .b import *\nfrom . import c\nfrom pkg import later\nX = later\n",
    "pkg/b.py": "from .a import *\nfrom .c import Y as later\n",
    "pkg/c.py": "import torch\nfrom pkg.a import X\nimport pkg\nY = X\n\n\n" + function(send("Y"), send("pkg.Z")),
}


def test_cyclic_imports(tmp_path: Path) -> None:
    write(tmp_path, CYCLE)
    with bounded():
        found = sites_in(CYCLE["pkg/c.py"], tmp_path, "pkg/c.py")
    assert [site.verdict.kind for site in found] == ["unknown", "unknown"]


def test_a_module_that_imports_itself(tmp_path: Path) -> None:
    imports = "import torch\n\nX = torch.zeros(8)\nimport me\nfrom me import *\nfrom me import X as Y\n\n\n"
    text = imports + function(send("Y"), send("me.X"), send("me.me.me.X"))
    write(tmp_path, {"me.py": text})
    with bounded():
        found = sites_in(text, tmp_path, "me.py")
    assert [site.verdict.kind for site in found] == ["unknown", "blocks", "blocks"]


def test_a_chain_of_a_hundred_modules(tmp_path: Path) -> None:
    files = {f"m{i}.py": f"from m{i + 1} import X\n" for i in range(100)}
    files["m100.py"] = "import torch\nX = torch.zeros(8)\n"
    files["user.py"] = "from m60 import X\n\n\n" + function(send("X"))
    write(tmp_path, files)
    with bounded():
        assert [site.verdict.kind for site in sites_in(files["user.py"], tmp_path, "user.py")] == ["blocks"]


# --- the same every time ---------------------------------------------------------------------------------------------

BUFFERS = """
import torch


class Pair:
    def __init__(self, n, pin):
        self.cpu = torch.zeros(n, 8, pin_memory=pin)
        self.gpu = torch.zeros(n, 8, device="cuda")

    def send(self, n):
        return self.gpu[:, :n].copy_(self.cpu[:, :n], non_blocking=True)


class Plain(Pair):
    def send(self, n):
        return self.gpu.copy_(self.cpu, non_blocking=True)
"""
ENGINE = """
import torch
from .buffers import Pair, Plain
from . import helpers


class Engine:
    def __init__(self):
        self.pairs = {"a": Pair(4, True), "b": Plain(4, False)}
        self.late = None

    def step(self, names):
        for name in names:
            self.pairs[name].send(3)
            self.pairs[name].cpu.to("cuda", non_blocking=True)
        if self.late is None:
            self.late = helpers.make(8)
        return helpers.move(self.late)
"""
HELPERS = """
import torch


def make(n):
    return torch.cat([torch.zeros(n), torch.ones(n)])


def move(x):
    return x.to("cuda", non_blocking=True)


def both(x, flag):
    y = x if flag else torch.zeros(4)
    return move(y)
"""
MORE = """
import torch
from .helpers import both, make, move


def run(k):
    for x in (torch.zeros(3), torch.zeros(3, pin_memory=True), make(k)):
        move(x)
        both(x, k)
        x.cuda(non_blocking=True)
"""
PROJECT = {
    "pyproject.toml": "",
    "pkg/__init__.py": "from .buffers import Pair\nfrom .engine import Engine\n",
    "pkg/buffers.py": BUFFERS,
    "pkg/engine.py": ENGINE,
    "pkg/helpers.py": HELPERS,
    "pkg/more.py": MORE,
}
LIST = """
import json, sys
from pathlib import Path
from h2dlint.config import Config
from h2dlint.listing import describe
from h2dlint.project import Project
from h2dlint.sites import find_sites

root, names = Path(sys.argv[1]), sys.argv[2:]
project = Project(root, Config())
found = {}
for name in names:
    module = project.load(root / name)
    found[name] = [describe(site) for site in find_sites(project, module, opt_in=True)]
json.dump(found, sys.stdout, sort_keys=True)
"""


def run_python(*arguments: str, seed: str = "0") -> str:
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_sites_do_not_depend_on_order_or_hash_seed(tmp_path: Path) -> None:
    write(tmp_path, PROJECT)
    names = [name for name in PROJECT if name.endswith(".py")]
    answers = {
        run_python("-c", LIST, str(tmp_path), *order, seed=seed)
        for order in (names, names[::-1], [*names[2:], *names[:2]])
        for seed in ("0", "1", "77")
    }
    (answer,) = answers
    assert sum(len(found) for found in json.loads(answer).values()) >= 5


def test_sites_do_not_depend_on_what_was_asked_before(tmp_path: Path) -> None:
    """One file alone, and the same file after all others."""
    write(tmp_path, PROJECT)
    names = [name for name in PROJECT if name.endswith(".py")]
    together = json.loads(run_python("-c", LIST, str(tmp_path), *names))
    for name in names:
        assert json.loads(run_python("-c", LIST, str(tmp_path), name))[name] == together[name]


def test_output_does_not_depend_on_jobs(tmp_path: Path) -> None:
    write(tmp_path, PROJECT)
    options = ("--isolated", "--no-cache", "--exit-zero", "--output-format", "json")
    answers = {
        run_python("-m", "h2dlint", *options, "--jobs", jobs, str(tmp_path), seed=seed)
        for jobs in ("1", "2")
        for seed in ("0", "5")
    }
    (answer,) = answers
    assert json.loads(answer)


def test_asking_twice_gives_the_same(tmp_path: Path) -> None:
    write(tmp_path, PROJECT)
    project = Project(tmp_path, Config())
    module = project.load(tmp_path / "pkg/more.py")
    first = find_sites(project, module, opt_in=True)
    assert interpreter_of(project) is interpreter_of(project)
    assert find_sites(project, module, opt_in=True) == first


def test_a_tree_of_dicts_that_loops_walk_and_build_ends() -> None:
    lines = ["def build(flat, device):", "    tree = {}", "    for path in flat:", "        node = tree"]
    for index in range(12):
        lines.append(f"        node[path[{index}]] = node[path[{index + 1}]] = {{'a': {{}}, path: node}}")
        lines.append(f"        node = node[path[{index}]]")
    lines += ["        tree = {path: node, 'b': tree}", "    return tree['a'].to(device, non_blocking=True)", ""]
    assert verdicts("\n".join(lines)) == ["unknown"]

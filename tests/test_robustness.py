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


def test_twenty_thousand_lines() -> None:
    part = "def f{0}(n):\n    x = torch.zeros(n, 8)\n    y = x[:, :n]\n    return y\n\n\n"
    text = HEAD + "".join(part.format(i) for i in range(3_400))
    text += "def last(n):\n    f3399(n).to('cuda', non_blocking=True)\n"
    assert len(text.splitlines()) > 20_000
    assert verdicts(text) == ["blocks"]


def test_ten_thousand_assignments() -> None:
    chain = "".join(f"    x{i} = x{i - 1}[:8]\n" for i in range(1, 10_000))
    text = HEAD + "def f():\n    x0 = torch.zeros(8)\n" + chain + "    x9999.to('cuda', non_blocking=True)\n"
    assert verdicts(text) == ["unknown"]


def test_ten_thousand_assignments_of_one_name() -> None:
    text = HEAD + "def f():\n    x = torch.zeros(8)\n" + "    x = x.clone()\n" * 10_000 + "    x.to('cuda', non_blocking=True)\n"
    assert verdicts(text) == ["unknown"]


def test_a_chain_within_the_bounds_is_followed() -> None:
    chain = "".join(f"    x{i} = x{i - 1}[:8]\n" for i in range(1, 40))
    text = HEAD + "def f():\n    x0 = torch.zeros(8)\n" + chain + "    x39.to('cuda', non_blocking=True)\n"
    assert verdicts(text) == ["blocks"]


def test_ten_thousand_sites() -> None:
    text = HEAD + "def f():\n    x = torch.zeros(8)\n" + "    x.to('cuda', non_blocking=True)\n" * 10_000
    assert verdicts(text) == ["blocks"] * 10_000


@pytest.mark.parametrize("opening", ["(", "-", "x[", "f(", "[", "not "])
def test_five_hundred_nested_expressions(opening: str) -> None:
    closing = {"(": ")", "x[": "]", "f(": ")", "[": "]"}.get(opening, "")
    depth = 500 if opening in ("-", "not ") else 150  # the parser of Python itself allows no more brackets
    text = HEAD + f"def f(x):\n    y = {opening * depth}x{closing * depth}\n    y.to('cuda', non_blocking=True)\n"
    assert verdicts(text) in (["unknown"], [])


@pytest.mark.parametrize("tail", [".clone()", "[0]", ".to('cpu')", " + x", " if c else x", " and x"])
def test_five_hundred_chained_expressions(tail: str) -> None:
    text = HEAD + f"def f(x, c):\n    y = x{tail * 500}\n    y.to('cuda', non_blocking=True)\n"
    with bounded():
        assert {site.verdict.kind for site in sites_in(text)} <= {"unknown", "blocks", "async"}


def test_deep_expressions_pass_through_the_whole_engine() -> None:
    text = HEAD + "def f(x):\n    y = " + "-" * 500 + "x\n    y.to('cuda', non_blocking=True)\n"
    with bounded():
        assert lint_source(text, "deep.py", Config()) == []


def test_five_hundred_nested_blocks_of_branches() -> None:
    branches = "".join(f"    if c > {i}:\n        x = torch.zeros({i + 1}, pin_memory=True)\n" for i in range(500))
    text = HEAD + "def f(c):\n    x = torch.zeros(8)\n" + branches + "    x.to('cuda', non_blocking=True)\n"
    assert verdicts(text) == ["unknown"]


def test_long_elif_chain() -> None:
    arms = "    if c == 0:\n        x = torch.zeros(8)\n" + "".join(f"    elif c == {i}:\n        x = torch.ones(8)\n" for i in range(1, 100))
    text = HEAD + "def f(c):\n" + arms + "    else:\n        raise ValueError\n    x.to('cuda', non_blocking=True)\n"
    assert verdicts(text) == ["blocks"]


def test_nested_loops_reach_a_fixed_point() -> None:
    depth = 15
    body = "".join("    " * (i + 1) + f"for i{i} in range(2):\n" for i in range(depth))
    inner = "    " * (depth + 1)
    text = HEAD + "def f():\n    x = torch.zeros(8)\n" + body + inner + "x = x.clone()\n" + inner + "x.to('cuda', non_blocking=True)\n"
    assert verdicts(text) == ["blocks"]


def test_deep_class_hierarchy() -> None:
    classes = "class C0:\n    def __init__(self):\n        self.x = torch.zeros(8)\n\n"
    classes += "".join(f"class C{i}(C{i - 1}):\n    def m{i}(self):\n        return self.x\n\n" for i in range(1, 200))
    text = HEAD + classes + "def f():\n    C199().x.to('cuda', non_blocking=True)\n"
    assert verdicts(text) == ["blocks"]


def test_wide_class_hierarchy() -> None:
    classes = "class Base:\n    def make(self):\n        return torch.zeros(8)\n\n"
    classes += "".join(f"class C{i}(Base):\n    def make(self):\n        return torch.zeros({i + 1})\n\n" for i in range(300))
    text = HEAD + classes + "def f(o: Base):\n    o.make().to('cuda', non_blocking=True)\n"
    with bounded():
        assert {site.verdict.kind for site in sites_in(text)} <= {"unknown", "blocks"}


def test_classes_that_are_their_own_bases() -> None:
    text = HEAD + "class A(B):\n    pass\n\n\nclass B(A):\n    pass\n\n\ndef f():\n    A().x.to('cuda', non_blocking=True)\n"
    assert verdicts(text) == ["unknown"]


def test_mutual_recursion() -> None:
    text = HEAD + "def a(x, n):\n    return b(x, n - 1)\n\n\ndef b(x, n):\n    return c(x, n)\n\n\ndef c(x, n):\n    return x if n else a(x, n)\n\n\n"
    text += "def f(n):\n    a(torch.zeros(8), n).to('cuda', non_blocking=True)\n"
    assert verdicts(text) in (["blocks"], ["unknown"])


def test_recursion_that_never_ends() -> None:
    text = HEAD + "def a(x):\n    return a(a(x))\n\n\ndef f():\n    a(torch.zeros(8)).to('cuda', non_blocking=True)\n"
    with bounded():
        assert [site.verdict.kind for site in sites_in(text)] in (["unknown"], [])


def test_a_tower_of_calls() -> None:
    """Each function calls the next twice: 2 ** 30 paths, each function once."""
    functions = "".join(f"def f{i}(x):\n    return f{i + 1}(f{i + 1}(x))\n\n\n" for i in range(30))
    text = HEAD + functions + "def f30(x):\n    return x.clone()\n\n\ndef f(x):\n    f0(torch.zeros(8)).to('cuda', non_blocking=True)\n"
    with bounded():
        assert [site.verdict.kind for site in sites_in(text)] == ["unknown"]


def test_calls_within_the_bounds_are_followed() -> None:
    functions = "".join(f"def f{i}(x):\n    return f{i + 1}(x)\n\n\n" for i in range(MAX_FRAMES - 2))
    text = HEAD + functions + f"def f{MAX_FRAMES - 2}(x):\n    return x.clone()\n\n\ndef f():\n    f0(torch.zeros(8)).to('cuda', non_blocking=True)\n"
    assert verdicts(text) == ["blocks"]


def test_huge_literals() -> None:
    numbers = ", ".join(str(i) for i in range(100_000))
    rows = ", ".join("[1, 2, 3, 4]" for _ in range(20_000))
    text = HEAD + f"def f():\n    torch.tensor([{numbers}]).to('cuda', non_blocking=True)\n    torch.tensor([{rows}]).cuda(non_blocking=True)\n"
    assert verdicts(text) == ["blocks", "blocks"]


def test_huge_dict_of_tensors() -> None:
    entries = ", ".join(f"'k{i}': torch.zeros(8)" for i in range(5_000))
    text = HEAD + f"T = {{{entries}}}\n\n\ndef f(k):\n    T['k7'].to('cuda', non_blocking=True)\n    T[k].to('cuda', non_blocking=True)\n"
    assert verdicts(text) == ["blocks", "blocks"]


def test_many_callers() -> None:
    calls = "".join(f"def c{i}():\n    g(torch.zeros({i + 1}))\n\n\n" for i in range(500))
    text = HEAD + "def g(x):\n    x.to('cuda', non_blocking=True)\n\n\n" + calls
    with bounded():
        assert {site.verdict.kind for site in sites_in(text)} <= {"unknown", "blocks"}


def test_past_the_bound_the_reason_says_so() -> None:
    """A value that takes more questions than one site may ask."""
    width = MAX_STEPS + 500
    terms = "".join(f"    y{i} = torch.zeros({i + 1})\n" for i in range(width))
    pieces = ", ".join(f"y{i}" for i in range(width))
    text = HEAD + f"def f():\n{terms}    torch.cat([{pieces}]).pin_memory().to('cuda', non_blocking=True)\n"
    with bounded():
        (site,) = sites_in(text)
    assert site.verdict.kind in ("unknown", "async")
    if site.verdict.kind == "unknown":
        assert "more code than is followed" in site.verdict.reason


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
        "def f():\n    x = torch.zeros(8)\n" + "    x.to('cuda', non_blocking=True)\n" * 10_000,
        "def f():\n    x = torch.zeros(8)\n" + "    x = x.clone()\n" * 10_000 + "    x.to('cuda', non_blocking=True)\n",
        f"def f():\n    torch.tensor([{'1, ' * 100_000}]).to('cuda', non_blocking=True)\n",
    ],
    ids=["sites", "assignments", "literal"],
)
def test_memory(body: str) -> None:
    done = subprocess.run([sys.executable, "-c", MEASURE], input=HEAD + body, capture_output=True, text=True, timeout=120, check=True)
    assert int(done.stdout) / 1_000 < MEGABYTES


# --- modules that go round in circles ----------------------------------------------------------------------------------


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


CYCLE = {
    "pkg/__init__.py": "from .a import *\nfrom .b import *\n",
    "pkg/a.py": "from .b import *\nfrom . import c\nfrom pkg import later\nX = later\n",
    "pkg/b.py": "from .a import *\nfrom .c import Y as later\n",
    "pkg/c.py": "import torch\nfrom pkg.a import X\nimport pkg\nY = X\n\n\ndef f():\n    Y.to('cuda', non_blocking=True)\n    pkg.Z.to('cuda', non_blocking=True)\n",
}


def test_cyclic_imports(tmp_path: Path) -> None:
    write(tmp_path, CYCLE)
    with bounded():
        found = sites_in(CYCLE["pkg/c.py"], tmp_path, "pkg/c.py")
    assert [site.verdict.kind for site in found] == ["unknown", "unknown"]


def test_a_module_that_imports_itself(tmp_path: Path) -> None:
    text = "import torch\n\nX = torch.zeros(8)\nimport me\nfrom me import *\nfrom me import X as Y\n\n\ndef f():\n"
    text += "    Y.to('cuda', non_blocking=True)\n    me.X.to('cuda', non_blocking=True)\n    me.me.me.X.cuda(non_blocking=True)\n"
    write(tmp_path, {"me.py": text})
    with bounded():
        found = sites_in(text, tmp_path, "me.py")
    assert [site.verdict.kind for site in found] == ["unknown", "blocks", "blocks"]


def test_a_chain_of_a_hundred_modules(tmp_path: Path) -> None:
    files = {f"m{i}.py": f"from m{i + 1} import X\n" for i in range(100)}
    files["m100.py"] = "import torch\nX = torch.zeros(8)\n"
    files["user.py"] = "from m60 import X\n\n\ndef f():\n    X.to('cuda', non_blocking=True)\n"
    write(tmp_path, files)
    with bounded():
        assert [site.verdict.kind for site in sites_in(files["user.py"], tmp_path, "user.py")] == ["blocks"]


# --- the same every time -----------------------------------------------------------------------------------------------

PROJECT = {
    "pyproject.toml": "",
    "pkg/__init__.py": "from .buffers import Pair\nfrom .engine import Engine\n",
    "pkg/buffers.py": "import torch\n\n\nclass Pair:\n    def __init__(self, n, pin):\n        self.cpu = torch.zeros(n, 8, pin_memory=pin)\n"
    "        self.gpu = torch.zeros(n, 8, device='cuda')\n\n    def send(self, n):\n        return self.gpu[:, :n].copy_(self.cpu[:, :n], non_blocking=True)\n\n\n"
    "class Plain(Pair):\n    def send(self, n):\n        return self.gpu.copy_(self.cpu, non_blocking=True)\n",
    "pkg/engine.py": "import torch\nfrom .buffers import Pair, Plain\nfrom . import helpers\n\n\nclass Engine:\n    def __init__(self):\n"
    "        self.pairs = {'a': Pair(4, True), 'b': Plain(4, False)}\n        self.late = None\n\n    def step(self, names):\n        for name in names:\n"
    "            self.pairs[name].send(3)\n            self.pairs[name].cpu.to('cuda', non_blocking=True)\n        if self.late is None:\n"
    "            self.late = helpers.make(8)\n        return helpers.move(self.late)\n",
    "pkg/helpers.py": "import torch\n\n\ndef make(n):\n    return torch.cat([torch.zeros(n), torch.ones(n)])\n\n\ndef move(x):\n    return x.to('cuda', non_blocking=True)\n\n\n"
    "def both(x, flag):\n    y = x if flag else torch.zeros(4)\n    return move(y)\n",
    "pkg/more.py": "import torch\nfrom .helpers import both, make, move\n\n\ndef run(k):\n    for x in (torch.zeros(3), torch.zeros(3, pin_memory=True), make(k)):\n"
    "        move(x)\n        both(x, k)\n        x.cuda(non_blocking=True)\n",
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
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=120, check=False, env={**os.environ, "PYTHONHASHSEED": seed}
    )
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
    answers = {
        run_python("-m", "h2dlint", "--isolated", "--no-cache", "--exit-zero", "--output-format", "json", "--jobs", jobs, str(tmp_path), seed=seed)
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

"""Which definitions reach a name: the static single assignment form of one scope."""

from __future__ import annotations

import ast
import sys
import textwrap

import pytest

from h2dlint.flow import (
    Assign,
    Augmented,
    Bound,
    Def,
    Fill,
    Flow,
    Free,
    Guard,
    Import,
    Loop,
    Opaque,
    Param,
    Phi,
    Reshaped,
    Unpack,
    build_flow,
    dotted,
    split_test,
    subjects,
)


def flow_of(text: str) -> Flow:
    """The flow of the first function of a text, else of the module."""
    tree = ast.parse(textwrap.dedent(text))
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            return build_flow(node)
    return build_flow(tree)


def reaching(text: str, path: str = "x") -> Def:
    """The definition that reaches the last load of a path, which stands in a call of `use`."""
    flow = flow_of(text)
    loads = [
        node
        for call in flow.calls
        if isinstance(call.func, ast.Name) and call.func.id == "use"
        for node in call.args
        if dotted(node) == path
    ]
    return flow.uses[loads[-1]]


def values(definition: Def | None) -> set[str]:
    """The sources of the expressions that a definition may stand for; other definitions by their kind."""
    found: set[str] = set()
    todo, seen = [definition], set()
    while todo:
        one = todo.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        match one:
            case Assign(value=value):
                found.add(ast.unparse(value))
            case Phi(options=options):
                todo.extend(options)
            case Loop(options=options):
                todo.extend(options)
            case Guard(before=before) | Fill(before=before) | Reshaped(before=before) | Augmented(before=before):
                todo.append(before)
            case _:
                found.add(type(one).__name__)
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 1\nx = 2\nuse(x)", {"2"}),
        ("x = 1\nif c:\n    x = 2\nuse(x)", {"1", "2"}),
        ("if c:\n    x = 1\nelse:\n    x = 2\nuse(x)", {"1", "2"}),
        ("if c:\n    x = 1\nelif d:\n    x = 2\nelse:\n    x = 3\nuse(x)", {"1", "2", "3"}),
        ("x = 1\nfor i in y:\n    x = 2\nuse(x)", {"1", "2"}),
        ("x = 1\nfor i in y:\n    use(x)\n    x = 2", {"1", "2"}),
        ("x = 1\nwhile True:\n    x = 2\n    break\nuse(x)", {"2"}),
        ("x = 1\nfor i in y:\n    if c:\n        x = 2\n        break\nelse:\n    x = 3\nuse(x)", {"2", "3"}),
        ("x = 1\ntry:\n    x = 2\n    g()\nexcept E:\n    use(x)", {"1", "2"}),
        ("x = 1\ntry:\n    x = 2\nfinally:\n    use(x)", {"2"}),
        ("try:\n    x = 1\nexcept E:\n    x = 2\nelse:\n    x = 3\nuse(x)", {"2", "3"}),
        ("match k:\n    case 1:\n        x = 1\n    case _:\n        x = 2\nuse(x)", {"1", "2"}),
        ("with c:\n    x = 1\nuse(x)", {"1"}),
        ("if (x := f()):\n    use(x)", {"f()"}),
        ("x: int = 1\nuse(x)", {"1"}),
        ("y = x = 1\nuse(x)", {"1"}),
        ("del x\nuse(x)", {"Opaque"}),
        ("use(x)", {"Free"}),
        ("import x\nuse(x)", {"Import"}),
        ("def x(): pass\nuse(x)", {"Bound"}),
        ("class x: pass\nuse(x)", {"Bound"}),
        ("for x in y:\n    use(x)", {"Item"}),
        ("with c as x:\n    use(x)", {"Entered"}),
        ("try:\n    pass\nexcept E as x:\n    use(x)", {"Opaque"}),
        ("x, y = f()\nuse(x)", {"Unpack"}),
        ("[use(x) for x in y]", {"Item"}),
    ],
)
def test_definitions_that_reach(text: str, expected: set[str]) -> None:
    body = "def f0():\n" + textwrap.indent(text, "    ")
    assert values(reaching(body)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("if c:\n    return\nx = 1\nuse(x)", {"1"}),
        ("x = 1\nif c:\n    x = 2\n    return\nuse(x)", {"1"}),
        ("x = 1\nif c:\n    x = 2\n    raise E\nuse(x)", {"1"}),
        ("x = 1\nfor i in y:\n    x = 2\n    continue\nuse(x)", {"1", "2"}),
        ("x = 1\nwhile c:\n    if d:\n        x = 2\n        continue\n    x = 3\nuse(x)", {"1", "2", "3"}),
    ],
)
def test_ways_that_end_do_not_reach(text: str, expected: set[str]) -> None:
    assert values(reaching("def f0():\n" + textwrap.indent(text, "    "))) == expected


def test_parameters_of_every_kind() -> None:
    for spec in ("x", "x, /", "*, x", "*x", "**x", "x=1"):
        assert isinstance(reaching(f"def f0({spec}):\n    use(x)"), Param), spec


def test_a_dotted_path_is_followed() -> None:
    assigned = reaching("def f0(self):\n    self.x = 1\n    use(self.x)", "self.x")
    assert values(assigned) == {"1"}


def test_a_new_base_forgets_its_paths() -> None:
    flow = flow_of("def f0(self, other):\n    self.x = 1\n    self = other\n    use(self.x)")
    path = next(call.args[0] for call in flow.calls)
    assert isinstance(path, ast.Attribute)
    assert path not in flow.uses
    assert values(flow.uses[path.value]) == {"other"}


def test_tests_leave_guards() -> None:
    found = reaching("def f0(x):\n    if x.is_cuda:\n        use(x)")
    assert isinstance(found, Guard)
    assert (found.key, found.outcome) == ("x", True)
    after = reaching("def f0(x):\n    if x is None:\n        return\n    use(x)")
    assert isinstance(after, Guard)
    assert after.outcome is False


def test_fillers_and_stores() -> None:
    assert isinstance(reaching("def f0():\n    x = []\n    x.append(1)\n    use(x)"), Fill)
    by_key = reaching("def f0():\n    x = {}\n    x['k'] = 1\n    use(x)")
    assert isinstance(by_key, Fill)
    assert [ast.unparse(key) for key in by_key.keys] == ["'k'"]
    assert isinstance(reaching("def f0(x):\n    x.t_()\n    use(x)"), Reshaped)
    assert isinstance(reaching("def f0(x):\n    x += 1\n    use(x)"), Augmented)


def test_unpacking_counts_from_both_ends() -> None:
    head = reaching("def f0():\n    x, *y, z = f()\n    use(x)")
    tail = reaching("def f0():\n    y, *z, x = f()\n    use(x)")
    middle = reaching("def f0():\n    y, *x, z = f()\n    use(x)")
    assert isinstance(head, Unpack) and head.index == 0
    assert isinstance(tail, Unpack) and tail.index == -1
    assert isinstance(middle, Unpack) and middle.index is None


def test_stores_returns_and_yields_are_listed() -> None:
    text = "def f0(self, c):\n    self.a = 1\n    if c:\n        return 2\n    yield 3\n    self.b.append(4)\n"
    flow = flow_of(text)
    assert [(store.attr, store.fill) for store in flow.stores] == [("a", False), ("b", True)]
    assert [ast.unparse(one.value) for one in flow.returns if one.value] == ["2"]
    assert [ast.unparse(one) for one in flow.yields] == ["3"]
    assert flow.ends


def test_a_body_that_always_raises_does_not_end() -> None:
    assert not flow_of("def f0():\n    raise E").ends
    assert not flow_of("def f0(c):\n    if c:\n        return 1\n    else:\n        return 2").ends


def test_contexts_and_loops_of_a_call() -> None:
    flow = flow_of("def f0():\n    with a, b:\n        for i in y:\n            use(i)\n")
    call = next(one for one in flow.calls if isinstance(one.func, ast.Name) and one.func.id == "use")
    assert [ast.unparse(one) for one in flow.contexts[call]] == ["a", "b"]
    assert flow.loops[call] == 1


def test_nested_scopes_are_not_entered() -> None:
    text = "def f0():\n    def g():\n        inner = 1\n    h = lambda: inside\n    class C:\n        member = 2\n"
    flow = flow_of(text)
    assert set(flow.bindings) == {"g", "h", "C"}


def test_star_imports_are_listed() -> None:
    flow = flow_of("from a.b import *\nfrom .c import d as e\n")
    assert [(star.module, star.level) for star in flow.stars] == [("a.b", 0)]
    final = flow.final["e"]
    assert isinstance(final, Import)
    assert (final.module, final.name, final.level) == ("c", "d", 1)


def test_tests_are_split_into_atoms() -> None:
    def atoms(text: str, outcome: bool) -> list[tuple[str, bool]]:
        return [(ast.unparse(test), known) for test, known in split_test(ast.parse(text, mode="eval").body, outcome)]

    assert atoms("a and not b", True) == [("a", True), ("b", False)]
    assert atoms("a or b", False) == [("a", False), ("b", False)]
    assert atoms("a and b", False) == [("a and b", False)]


def test_subjects_of_a_test() -> None:
    assert subjects(ast.parse("x.device.type == 'cpu'", mode="eval").body) >= {"x"}
    assert subjects(ast.parse("isinstance(self.a.b, T)", mode="eval").body) >= {"self.a.b"}


@pytest.mark.parametrize(
    "text",
    [
        "async def f0(x):\n    async with a as b:\n        async for c in d:\n            await use(x)\n",
        "def f0(x):\n    global g\n    g = 1\n    use(x)\n",
        "def f0(x):\n    print(f'{x!r:>{use(x)}}')\n",
        "def f0(x):\n    lambda: (yield)\n    use(x)\n",
        "def f0(x):\n    match x:\n        case {'a': [1, *r], **k} | C(b=2):\n            use(x)\n",
        "def f0(x):\n    x[use(x)] += 1\n",
        "def f0(x):\n    (a, [b, *c]), d.e, f[0] = use(x)\n",
        "def f0(x):\n    {k: v for k, v in use(x) if k}\n",
    ],
)
def test_every_statement_has_a_flow(text: str) -> None:
    assert any(isinstance(call.func, ast.Name) and call.func.id == "use" for call in flow_of(text).calls)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="except* came with Python 3.11")
def test_exception_groups() -> None:
    text = "def f0():\n    x = 1\n    try:\n        g()\n    except* E:\n        x = 2\n    use(x)"
    assert values(reaching(text)) == {"1", "2"}


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the type statement came with Python 3.12")
def test_newer_statements_are_passed_over() -> None:
    assert values(reaching("def f0():\n    type A = int\n    x = 1\n    use(x)")) == {"1"}


def test_kinds_that_definitions_have() -> None:
    """A definition is compared by identity, whatever it holds."""
    assert Free("x") != Free("x")
    assert Opaque("a") != Opaque("a")
    assert isinstance(flow_of("class C:\n    def m(self): pass\n").final["m"], Bound)

"""Copies that are overtaken: the host reads what has not arrived (HTD201), or writes what has not been sent (HTD202).

From an asynchronous copy on, every way through its function is followed until the host waits; then its callers, as far
as they are handed the memory; then, for memory that an attribute or a module keeps, the next call of each method that
reads or writes it. There, a wait seen anywhere between is a guard, whether or not it is the right one.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal

from h2dlint.facts import method_kind
from h2dlint.flow import Fill, Reshaped
from h2dlint.model import Site, Step
from h2dlint.project import MENTIONED, in_tests
from h2dlint.races.expressions import FoundUse, Use, picked_by
from h2dlint.races.paths import names_of, path_of
from h2dlint.races.state import Kind, Mark, State, holds_memory
from h2dlint.races.waits import Waits
from h2dlint.races.walk import Exits, Tools, Walk, round_names, stored_names
from h2dlint.sites import COLD_NAMES, interpreter_of
from h2dlint.values import Ref

if TYPE_CHECKING:
    from h2dlint.project import Module, Project, Scope

MAX_CALLERS = 6
MAX_RETURNS = 3
MAX_METHODS = 60


def find_races(project: Project, module: Module, sites: Sequence[Site]) -> list[Site]:
    """The sites, those with a race with its code and, as the last of their steps, the use that comes too early."""
    if not any(is_async(site) for site in sites):
        return list(sites)
    finder = _Finder(project, module, sites)
    return [finder.judge(site) if is_async(site) else site for site in sites]


def is_async(site: Site) -> bool:
    """Whether the host goes on while this copy runs, and its host memory is surely pinned."""
    if site.non_blocking is not True or site.verdict.kind != "async" or not isinstance(site.call, ast.Call):
        return False
    if site.verdict.direction == "h2d":
        return bool(site.sources) and all(one.device == "cpu" and one.memory == "pinned" for one in site.sources)
    return site.verdict.direction == "d2h"


class _Finder:
    def __init__(self, project: Project, module: Module, sites: Sequence[Site]) -> None:
        self.project = project
        self.module = module
        self.interp = interpreter_of(project)
        self.waits = Waits(self.interp)
        self.callers: dict[Scope, list[tuple[Scope, ast.Call]] | None] = {}
        self.waits.moves = {site.call: site for site in sites if site.call is not None and site.non_blocking is True}
        self.scopes = {scope.node: scope for scope in module.scopes()}

    def judge(self, site: Site) -> Site:
        use = self.find(site)
        if use is None:
            return site
        code = "HTD201" if use.kind == "read" else "HTD202"
        step = Step(use.scope.module.filename, getattr(use.node, "lineno", 1), use.what)
        return replace(site, codes=(*site.codes, code), steps=(*site.steps, step))

    def find(self, site: Site) -> Use | None:
        call = site.call
        scope = self.scope_of(site)
        if scope is None or not isinstance(call, ast.Call):
            return None
        tools = self.tools(site, call, scope)
        if tools is None:
            return None
        try:
            exits = Walk(tools, scope).run(State())
            self.follow_out(tools, scope, exits, 0)
        except FoundUse as found:
            return found.use
        state = exits.state
        if state is None or not state.live:
            return None
        return self.find_later(tools, scope, state)

    def scope_of(self, site: Site) -> Scope | None:
        if site.function is None:
            return self.module.scope
        return next((scope for node, scope in self.scopes.items() if node is site.function), None)

    def tools(self, site: Site, call: ast.Call, scope: Scope) -> Tools | None:
        """The search for one copy; None where its host memory has no name and is not handed on."""
        assert isinstance(call.func, ast.Attribute)
        frame = self.interp.open_frame(scope)
        down = site.verdict.direction == "d2h"
        host = call.func.value if down or site.operation != "copy_" else call.args[0] if call.args else None
        names: dict[str, Kind] = {}
        if not (down and site.operation != "copy_"):
            path = None if host is None else path_of(host, frame, self.interp)
            if path is None:
                return None
            names = names_of(path[0], frame, self.interp)
        wanted: frozenset[Literal["read", "write"]] = frozenset(("read", "write") if down else ("write",))
        lanes = frozenset(("?",)) if self.has_ambient_stream(scope) else None
        picked = [picked_by(one.slice) for one in ast.walk(host or call) if isinstance(one, ast.Subscript)]
        upper = host.slice.upper if isinstance(host, ast.Subscript) and isinstance(host.slice, ast.Slice) else None
        end = "" if upper is None else ast.unparse(upper)
        moving = frozenset(set().union(*picked) & stored_names(scope.node) - round_names(scope.node))
        return Tools(self.interp, self.waits, call, "tensor" if down else None, names, wanted, lanes, moving, end)

    def has_ambient_stream(self, scope: Scope) -> bool:
        """Whether a caller, or the module, chooses the stream that the function runs on."""
        if "set_stream(" in scope.module.text:
            return True
        for caller, call in self.calls_to(scope) or ():
            contexts = caller.flow.contexts.get(call, ())
            if any("stream" in ast.unparse(one).lower() for one in contexts):
                return True
        return False

    # --- callers -------------------------------------------------------------------------------------------------

    def calls_to(self, scope: Scope) -> list[tuple[Scope, ast.Call]] | None:
        """The calls of a function outside of tests; None when its name is too common to tell.

        A call on an unknown object counts where the file names the function's class.
        """
        if not scope.is_function or isinstance(scope.node, ast.Lambda) or scope.name in ("__init__", "cls"):
            return []
        if scope not in self.callers:
            self.callers[scope] = self._calls_to(scope)
        return self.callers[scope]

    def _calls_to(self, scope: Scope) -> list[tuple[Scope, ast.Call]] | None:
        owner = scope.owner
        calls = self.interp.calls_named(scope.name, scope)
        if calls is None and owner is None:
            calls = scope.module.calls(scope.name)
        elif calls is None and owner is not None:
            modules = self.project.modules_with(owner.name, MENTIONED, scope.module)
            calls = None if modules is None else [one for module in modules for one in module.calls(scope.name)]
        if calls is None:
            return None
        found = []
        for caller, call in calls:
            if (in_tests(caller.module) and not in_tests(scope.module)) or caller is scope:
                continue
            self.interp.begin()
            matched = self.interp.matches(caller, call, scope)
            if matched is False or (matched is None and (owner is None or owner.name not in caller.module.text)):
                continue
            found.append((caller, call))
        return found

    def follow_out(self, tools: Tools, scope: Scope, exits: Exits, depth: int) -> None:
        """Go on in the callers with what the function returns. Raises FoundUse."""
        state = exits.state
        if state is None or not state.live or depth >= MAX_RETURNS or not holds_memory(exits.kind):
            return
        calls = self.calls_to(scope)
        if calls is None or any(isinstance(kind, Mark) for kind in state.names.values()):
            # An event is recorded: whoever takes the result may wait for it.
            return
        for caller, call in calls:
            lanes = None if state.lanes == frozenset(("",)) else state.lanes
            inner = Tools(self.interp, self.waits, call, exits.kind, {}, tools.wanted, lanes)
            self.follow_out(tools, caller, Walk(inner, caller).run(State()), depth + 1)

    # --- later calls ---------------------------------------------------------------------------------------------

    def find_later(self, tools: Tools, scope: Scope, state: State) -> Use | None:
        """The use of kept memory in a later call, where no guard is seen on the way."""
        kept = {path: kind for path, kind in state.names.items() if is_kept(path, scope) and holds_memory(kind)}
        if not kept or self.may_be_awaited(state, scope):
            return None
        marks = {path: kind for path, kind in state.names.items() if isinstance(kind, Mark) and is_kept(path, scope)}
        for later in self.neighbours(scope):
            entry = State(True, {**self.closed(kept, later), **marks}, state.lanes, turned=True)
            inner = replace(tools, entered=0)
            try:
                Walk(inner, later).run(entry)
            except FoundUse as found:
                if not self.is_guarded(scope, frozenset()) and not self.is_guarded(later, frozenset()):
                    return found.use
        return None

    def closed(self, kept: dict[str, Kind], later: Scope) -> dict[str, Kind]:
        """The names of the kept memory as the later function knows them."""
        frame = self.interp.open_frame(later)
        found = dict(kept)
        for path in kept:
            for name, kind in names_of(path, frame, self.interp).items():
                if is_kept(name, later):
                    found.setdefault(name, kind)
        return found

    def may_be_awaited(self, state: State, scope: Scope) -> bool:
        """Whether an event recorded behind the copy is waited for anywhere, or leaves the function."""
        for path, kind in state.names.items():
            if kind != Mark("good"):
                continue
            name = path.split("[")[0].rsplit(".", 1)[-1]
            words = f"{name}.synchronize(", f"{name}.query(", f"{name}["
            if not is_kept(path, scope) or any(word in self.module.text for word in words):
                return True
        return False

    def neighbours(self, scope: Scope) -> Iterator[Scope]:
        """The functions that may run after `scope` and share its memory: itself first, no constructors."""
        yield scope
        owner = scope.owner
        methods = []
        if owner is not None:
            for cls in self.interp.mro(owner):
                if not isinstance(cls, Ref):
                    methods += [cls.child(node) for node in cls.defs if not isinstance(node, ast.ClassDef)]
        else:
            outer = self.module.scope
            methods = [outer.child(node) for node in outer.defs if not isinstance(node, ast.ClassDef)]
        for method in methods[:MAX_METHODS]:
            if method is not scope and not is_cold(method) and method_kind(method) != "class":
                yield method

    def is_guarded(self, scope: Scope, visited: frozenset[Scope]) -> bool:
        """Whether every caller that is seen may wait around its call; False where none is seen."""
        if scope in visited or len(visited) >= MAX_CALLERS:
            return False
        calls = self.calls_to(scope)
        if calls is None:
            return True
        hot = [(caller, call) for caller, call in calls if not is_cold(caller)]
        return bool(hot) and all(
            self.waits.may_wait(caller) or self.is_guarded(caller, visited | {scope}) for caller, _ in hot
        )


def is_cold(scope: Scope) -> bool:
    return not scope.is_function or any(fnmatchcase(scope.name, pattern) for pattern in COLD_NAMES)


def is_kept(path: str, scope: Scope) -> bool:
    """Whether the memory outlives the call: an attribute of the object, or a name of the module."""
    root = path.split(".")[0].split("[")[0]
    if root in ("self", "cls"):
        return "." in path
    if not scope.is_function or root not in scope.module.scope.flow.bindings:
        return False
    return all(isinstance(one, (Fill, Reshaped)) for one in scope.flow.bindings.get(root, ()))

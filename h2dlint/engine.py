"""The one engine under every front: bytes -> gate -> tree -> sites -> rules -> noqa -> findings, and the fix loop.

What goes wrong with one file is a value, a Problem, and never stops the others.
"""

from __future__ import annotations

import gc
import os
import pkgutil
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from h2dlint import atomic, noqa
from h2dlint.config import UNUSED_NOQA, Config, ConfigError, ConfigFinder, Selection
from h2dlint.discover import Found, find_files, find_root, matches
from h2dlint.model import Edit, Finding, Site, Step
from h2dlint.source import (
    ASYNC_WORDS,
    OPT_IN_WORDS,
    Source,
    SourceError,
    parse,
    read_source,
    splice,
    statement_rows,
    uncollected,
    wrap_text,
)

if TYPE_CHECKING:
    import ast

    from h2dlint.project import Project

_Task = Callable[["Engine", str, bool], "tuple[list[Any], list[Problem]]"]

STDIN = "<stdin>"
RACE_CODES = ("HTD201", "HTD202")
MAX_ROUNDS = 100
# Below this many files a process pool costs more than it gives: each process learns the project anew.
FILES_PER_PROCESS = 60


@dataclass(frozen=True, slots=True)
class Problem:
    """What kept a file, or a part of it, from being linted or fixed; one line. `fatal`: the run counts as failed."""

    filename: str
    row: int | None
    message: str
    fatal: bool = True

    def __str__(self) -> str:
        return f"{self.filename}: {self.message}" if self.row is None else f"{self.filename}:{self.row}: {self.message}"


@dataclass(frozen=True, slots=True)
class Change:
    """A file before and after its fixes, and the findings that they mended."""

    filename: str
    before: Source
    after: Source
    mended: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a run. `findings` are those that are left; `files` counts the files that were looked at."""

    findings: tuple[Finding, ...] = ()
    problems: tuple[Problem, ...] = ()
    changes: tuple[Change, ...] = ()
    files: int = 0

    @property
    def fixed(self) -> int:
        return sum(len(change.mended) for change in self.changes)

    @property
    def failed(self) -> bool:
        return any(problem.fatal for problem in self.problems)


@dataclass(frozen=True, slots=True)
class FixResult:
    """A source after its fixes (text for text, bytes for bytes), what is left, and what could not be done."""

    source: str | bytes
    findings: tuple[Finding, ...] = ()
    fixed: int = 0
    problems: tuple[Problem, ...] = ()


def lint_source(source: str | bytes, filename: str = STDIN, config: Config | None = None) -> list[Finding]:
    """The findings of one source. The options are those for `filename` unless `config` is given.

    Raises SourceError for what Python cannot read, ConfigError for a configuration that cannot be used.
    """
    return Engine(_finder_for(config)).lint(_take(source, filename))


def fix_source(
    source: str | bytes, filename: str = STDIN, unsafe: bool = False, config: Config | None = None
) -> FixResult:
    """The source with its safe fixes applied, with `unsafe` all of them. Raises as `lint_source` does."""
    engine = Engine(_finder_for(config))
    before = _take(source, filename)
    outcome = engine.fix(before, unsafe)
    after = outcome.source
    text = after.raw if isinstance(source, str) else after.data
    if isinstance(source, str) and source.startswith("\ufeff"):
        text = f"\ufeff{after.raw}"
    return FixResult(text, tuple(outcome.findings), len(outcome.mended), tuple(outcome.problems))


def lint_paths(
    paths: Iterable[str | os.PathLike[str]], config: Config | None = None, jobs: int | None = None
) -> Report:
    """Lint files and folders. `jobs` None chooses the number of processes by the number of files."""
    return run_paths([os.fspath(path) for path in paths], _finder_for(config), jobs=jobs)


@dataclass(slots=True)
class Outcome:
    """The state of a fix loop: the source so far, what is left, what was mended, what was taken back."""

    source: Source
    findings: list[Finding] = field(default_factory=list)
    mended: list[Finding] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


class Engine:
    """Lints and fixes sources one at a time. Files of one project share what is known of it."""

    def __init__(self, finder: ConfigFinder, linted: Path | None = None) -> None:
        self._finder = finder
        self._linted = linted
        self._projects: dict[tuple[Path, Path | None], Project] = {}
        self._configs: dict[str, Config] = {}
        self._words: dict[str, tuple[bytes, ...]] = {}

    def config(self, filename: str) -> Config:
        folder = os.path.dirname(filename)
        if folder not in self._configs:
            self._configs[folder] = self._finder.find(os.path.abspath(folder))
        return self._configs[folder]

    def words(self, filename: str) -> tuple[bytes, ...]:
        """The gate words for a file; a folder is asked about once."""
        folder = os.path.dirname(filename)
        if folder not in self._words:
            self._words[folder] = gate_words(self.config(filename))
        return self._words[folder]

    def lint(self, source: Source, tree: ast.Module | None = None, config: Config | None = None) -> list[Finding]:
        """The findings of a source, sorted. Raises SourceError."""
        config = config or self.config(source.filename)
        tree = tree or parse(source)
        if not any(word in source.data for word in gate_words(config)) or noqa_for_file(source, config):
            return []
        findings = self._check(source, tree, config)
        used: set[tuple[int, str]] = set()
        if not config.disable_noqa:
            findings, used = noqa.silence(findings, source.lines)
        if config.report_unused_noqa:
            findings += noqa.find_unused(source, used, config, rule_codes())
        return sorted(findings, key=_position)

    def sites(self, source: Source) -> list[Site]:
        """Every site of a source, silenced and cold ones too. Raises SourceError."""
        config = self.config(source.filename)
        tree = parse(source)
        if not any(word in source.data for word in OPT_IN_WORDS):
            return []
        return self._find_sites(source, tree, config, opt_in=True, races=True, far=False)[1]

    def fix(self, source: Source, unsafe: bool, config: Config | None = None) -> Outcome:
        """Apply the fixes, round after round until none is left. Raises SourceError."""
        config = config or self.config(source.filename)
        # A fix is judged by every default rule, so that none mends one fault by making another.
        wide = replace(config, selections=(*config.selections, Selection(extend=Config().selections[0].select or ())))
        lint = _remember(lambda one: self.lint(one, config=wide))
        outcome = Outcome(source)
        rejected: set[tuple[str, ...]] = set()
        for _ in range(MAX_ROUNDS):
            findings = lint(outcome.source)
            chosen = _without_overlaps(
                finding
                for finding in findings
                if _may_fix(finding, config, unsafe) and _identify(finding, outcome.source) not in rejected
            )
            if not chosen:
                break
            kept, refused = _try_fixes(outcome.source, findings, chosen, lint)
            for finding, reason in refused:
                rejected.add(_identify(finding, outcome.source))
                outcome.problems.append(
                    Problem(finding.filename, finding.row, f"the fix of {finding.code} was taken back: {reason}", False)
                )
            if kept:
                outcome.source = splice(outcome.source, _edits(kept))
                outcome.mended += kept
        if config.report_unused_noqa:
            outcome.findings = self.lint(outcome.source, config=config)
        else:
            outcome.findings = [one for one in lint(outcome.source) if config.is_selected(one.code)]
        return outcome

    def _check(self, source: Source, tree: ast.Module, config: Config) -> list[Finding]:
        from h2dlint.rules import RuleContext, load

        rules = load()
        module, sites = self._find_sites(
            source, tree, config, opt_in=config.wants_opt_in(rules), races=any(map(config.is_selected, RACE_CODES))
        )
        context = RuleContext(module, config)
        absolute = os.path.abspath(source.filename)
        findings = []
        for site in sites:
            for code in site.codes:
                if code not in rules or not is_wanted(site, code, absolute, config):
                    continue
                finding = rules[code].check(site, context)
                if finding is not None:
                    findings.append(_finish(finding, source.filename, tree, site, config))
        return findings

    def _find_sites(
        self, source: Source, tree: ast.Module, config: Config, opt_in: bool, races: bool, far: bool = True
    ) -> tuple[Any, list[Site]]:
        from h2dlint.project import Project
        from h2dlint.races import find_races
        from h2dlint.sites import find_sites

        path = Path(os.path.abspath(source.filename))
        root = find_root(path, self._linted)
        key = (root, config.file)
        if key not in self._projects:
            self._projects[key] = Project(root, config)
        project = self._projects[key]
        module = project.load(source.filename, source=source.data, tree=tree, filename=source.filename)
        sites = find_sites(project, module, opt_in=opt_in, far=far)
        return module, find_races(project, module, sites) if races else sites


def run_paths(
    paths: Sequence[str], finder: ConfigFinder, jobs: int | None = None, fix: bool = False, write: bool = True
) -> Report:
    """Lint the paths and, with `fix`, mend what may be mended; `write` False leaves the files as they are."""
    found, problems = discover(paths, finder)
    if fix and write:
        atomic.sweep([*found.strays, *atomic.find_strays({os.path.dirname(name) or "." for name, _ in found.files})])
    changes: list[Change] = []
    findings: list[Finding] = []
    engine = Engine(finder, linted_folder(paths))
    for name, here, troubles in list(_map(_lint_task, found.files, finder, linted_folder(paths), jobs)):
        problems += troubles
        config = engine.config(name) if here else Config()
        if fix and any(_may_fix(one, config, config.unsafe_fixes) for one in here):
            here, change, troubles = _fix_file(engine, name, write)
            problems += troubles
            changes += [] if change is None else [change]
        findings += here
    return Report(tuple(sorted(findings, key=_position)), tuple(problems), tuple(changes), len(found.files))


def list_sites(paths: Sequence[str], finder: ConfigFinder, jobs: int | None = None) -> tuple[list[Site], list[Problem]]:
    """Every site of the paths, in order; their syntax nodes are left out."""
    found, problems = discover(paths, finder)
    sites: list[Site] = []
    for _, here, troubles in _map(_sites_task, found.files, finder, linted_folder(paths), jobs):
        sites += here
        problems += troubles
    return sites, problems


def discover(paths: Sequence[str], finder: ConfigFinder) -> tuple[Found, list[Problem]]:
    """The files of the paths and what stood in the way. Raises ConfigError for a configuration above them."""
    here = Path.cwd()

    def excludes(folder: str) -> tuple[tuple[str, ...] | None, tuple[str, ...], Path | None]:
        config = finder.find(folder)
        return config.exclude, config.extend_exclude, config.root or here

    found = find_files(paths, excludes)
    return found, [Problem(path, None, message, named) for path, message, named in found.troubles]


def linted_folder(paths: Sequence[str]) -> Path | None:
    """The folder that was named, where one was: without any other sign its packages are looked for there."""
    folders = [path for path in paths if os.path.isdir(path)]
    return Path(os.path.abspath(folders[0])) if len(folders) == 1 else None


def gate_words(config: Config) -> tuple[bytes, ...]:
    """The text gate: a file without any of these words has nothing that a selected rule could speak of."""
    words = OPT_IN_WORDS if config.wants_opt_in(rule_codes()) else ASYNC_WORDS
    return (*words, b"HTD") if config.report_unused_noqa else words


def noqa_for_file(source: Source, config: Config) -> bool:
    return not config.disable_noqa and noqa.is_file_ignored(source.lines)


def rule_codes() -> tuple[str, ...]:
    """The codes of all rules, read from the names of their files so that none need be imported."""
    from h2dlint import rules

    if not _CODES:
        names = [module.name for module in pkgutil.iter_modules(rules.__path__)]
        _CODES.extend(sorted(name.split("_")[0].upper() for name in names if name.startswith("htd")))
    return tuple(_CODES)


_CODES: list[str] = []


def is_wanted(site: Site, code: str, path: str, config: Config) -> bool:
    """Whether the options ask for this rule at this site. `path` is absolute."""
    if not config.is_selected(code) or _is_ignored_in(path, code, config):
        return False
    # A race gives wrong data however seldom the code runs, and a copy that a graph captures raises.
    if code.startswith("HTD2") or site.captured:
        return True
    return (config.include_cold or not site.cold) and (config.include_small or not site.small)


def attempt(filename: str, work: Callable[[], Any], named: bool = True) -> tuple[Any, list[Problem]]:
    """The result of `work`, or None and the problem that stopped it. What Python cannot read counts if it was named."""
    try:
        return work(), []
    except SourceError as error:
        return None, [Problem(filename, error.row, error.message, named)]
    except ConfigError as error:
        return None, [Problem(filename, None, str(error))]
    except (RecursionError, MemoryError):
        return None, [Problem(filename, None, "is nested too deeply to be followed; it was not linted")]
    except Exception as error:
        if isinstance(error, OSError) and error.filename == filename:
            return None, [Problem(filename, None, f"cannot be read: {(error.strerror or '').lower()}")]
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{os.path.basename(frame.filename)}:{frame.lineno}"
        text = " ".join(str(error).split())
        message = f"internal error, please report it: {type(error).__name__}: {text} ({place})"
        return None, [Problem(filename, None, message)]


def _lint_task(engine: Engine, name: str, named: bool) -> tuple[list[Finding], list[Problem]]:
    findings, problems = attempt(name, lambda: engine.lint(read_source(name, Path(name).read_bytes())), named)
    return findings or [], problems


def _sites_task(engine: Engine, name: str, named: bool) -> tuple[list[Site], list[Problem]]:
    sites, problems = attempt(name, lambda: engine.sites(read_source(name, Path(name).read_bytes())), named)
    # Syntax trees are large, and no reader of a list of sites needs them.
    bare = {"filename": name, "call": None, "function": None}
    return [replace(site, steps=_show_steps(site.steps), **bare) for site in sites or ()], problems


def _fix_file(engine: Engine, name: str, write: bool) -> tuple[list[Finding], Change | None, list[Problem]]:
    def work() -> tuple[Source, Outcome]:
        before = read_source(name, Path(name).read_bytes())
        return before, engine.fix(before, engine.config(name).unsafe_fixes)

    result, problems = attempt(name, work)
    if result is None:
        return [], None, problems
    before, outcome = result
    problems = [*problems, *outcome.problems]
    if before.data == outcome.source.data:
        return outcome.findings, None, problems
    if write:
        try:
            atomic.replace_file(name, before.data, outcome.source.data)
        except atomic.WriteError as error:
            return engine.lint(before), None, [*problems, Problem(name, None, f"{error}; it was not fixed")]
    return outcome.findings, Change(name, before, outcome.source, tuple(outcome.mended)), problems


def _map(
    task: _Task, files: Sequence[tuple[str, bool]], finder: ConfigFinder, linted: Path | None, jobs: int | None
) -> Iterator[tuple[str, list[Any], list[Problem]]]:
    """(file, result, problems) of each file that passes the text gate, in order; here or in `jobs` processes."""
    engine = Engine(finder, linted)
    words = OPT_IN_WORDS if task is _sites_task else None
    busy = [(name, named) for name, named in files if named or _is_busy(name, words or engine.words(name))]
    processes = jobs or min(os.cpu_count() or 1, len(busy) // FILES_PER_PROCESS)
    if processes < 2 or len(busy) < 2:
        with uncollected():
            yield from ((name, *task(engine, name, named)) for name, named in busy)
        return
    from concurrent.futures import ProcessPoolExecutor

    # Neighbours share packages, so a process gets a stretch of the list.
    size = -(-len(busy) // (processes * 2))
    parts = [busy[start : start + size] for start in range(0, len(busy), size)]
    with ProcessPoolExecutor(processes, initializer=_start, initargs=(finder, linted)) as pool:
        for batch in pool.map(_run_batch, [(task, part) for part in parts]):
            yield from batch


def _is_busy(name: str, words: tuple[bytes, ...]) -> bool:
    """Whether a file that the walk met needs more than the gate; one that cannot be read does, to say so.

    A named file always does, because the exit status speaks of its syntax.
    """
    try:
        descriptor = os.open(name, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        try:
            data = os.read(descriptor, os.fstat(descriptor).st_size + 1)
        finally:
            os.close(descriptor)
    except OSError:
        return True
    return any(word in data for word in words)


_ENGINES: list[Engine] = []
"""In a process of the pool: its engine, which all of its batches share."""


def _start(finder: ConfigFinder, linted: Path | None) -> None:
    gc.disable()  # as `uncollected`, to the end of the process
    _ENGINES[:] = [Engine(finder, linted)]


def _run_batch(batch: tuple[_Task, Sequence[tuple[str, bool]]]) -> list[tuple[str, list[Any], list[Problem]]]:
    task, files = batch
    return [(name, *task(_ENGINES[0], name, named)) for name, named in files]


def _try_fixes(
    source: Source, before: Sequence[Finding], fixes: Sequence[Finding], lint: Callable[[Source], list[Finding]]
) -> tuple[list[Finding], list[tuple[Finding, str]]]:
    """The fixes that together do what they say, and those that do not, with the reason.

    All at once is tried first, then those on the lines that a new finding names apart from the others, then halves:
    the work grows with the number of bad fixes, not with that of fixes.
    """
    reason, lines = _judge(source, before, fixes, lint)
    if not reason:
        return list(fixes), []
    if len(fixes) == 1:
        return [], [(fixes[0], reason)]
    blamed = [one for one in fixes if source.lines[one.row - 1].strip() in lines]
    if not 0 < len(blamed) < len(fixes):
        blamed = list(fixes[len(fixes) // 2 :])
    kept, refused = _try_fixes(source, before, [one for one in fixes if one not in blamed], lint)
    more, also_refused = _try_fixes(source, before, blamed, lint)
    refused += also_refused
    if kept and more and _judge(source, before, [*kept, *more], lint)[0]:
        # Each part is right alone: the second is tried again in the next round.
        return kept, refused
    return [*kept, *more], refused


def _judge(
    source: Source, before: Sequence[Finding], fixes: Sequence[Finding], lint: Callable[[Source], list[Finding]]
) -> tuple[str, set[str]]:
    """Why these fixes must not be made (empty if they may), and the lines where that shows."""
    try:
        fixed = splice(source, _edits(fixes))
        after = lint(fixed)
    except SourceError as error:
        return f"the result would not parse ({error.message})", set()
    except ValueError as error:
        return str(error), set()
    expected = Counter(one.code for one in before) - Counter(one.code for one in fixes)
    left = Counter(one.code for one in after) - expected
    if not left:
        return "", set()
    mended = {one.code for one in fixes}
    code = sorted(left)[0]
    known = {(one.code, source.lines[one.row - 1].strip()) for one in before if one not in fixes}
    places = {(one.code, fixed.lines[one.row - 1].strip()) for one in after if one.code in left}
    reason = f"{code} would still be there" if code in mended else f"it would bring a new {code}"
    return reason, {line for _, line in places - known}


def _without_overlaps(findings: Iterable[Finding]) -> list[Finding]:
    """The findings whose edits do not meet; the first of two that do. Equal edits (one import, one allocation) may."""
    rows: dict[int, set[Edit]] = {}
    chosen = []
    for finding in findings:
        edits = [edit for edit in _edits([finding]) if edit not in rows.get(edit.span.row, ())]
        if any(_meet(edit, other) for edit in edits for row in _rows(edit) for other in rows.get(row, ())):
            continue
        for edit in edits:
            for row in _rows(edit):
                rows.setdefault(row, set()).add(edit)
        chosen.append(finding)
    return chosen


def _rows(edit: Edit) -> range:
    return range(edit.span.row, edit.span.end_row + 1)


def _meet(one: Edit, other: Edit) -> bool:
    start, end = (one.span.row, one.span.column), (one.span.end_row, one.span.end_column)
    begin, stop = (other.span.row, other.span.column), (other.span.end_row, other.span.end_column)
    return start == begin or (start < stop and begin < end)


def _may_fix(finding: Finding, config: Config, unsafe: bool) -> bool:
    if finding.fix is None or not (finding.code == UNUSED_NOQA or config.is_selected(finding.code)):
        return False
    here = os.path.abspath(finding.filename)
    if any(os.path.abspath(edit.span.filename) != here for edit in finding.fix.edits):
        return False
    return unsafe or finding.fix.safety == "safe"


def _edits(fixes: Iterable[Finding]) -> list[Edit]:
    return [edit for finding in fixes if finding.fix is not None for edit in finding.fix.edits]


def _identify(finding: Finding, source: Source) -> tuple[str, ...]:
    """What stays the same of a refused fix while other fixes move its lines."""
    line = source.lines[finding.row - 1].strip()
    return (finding.code, line, str(finding.column), *(edit.content for edit in _edits([finding])))


def _finish(finding: Finding, filename: str, tree: ast.Module, site: Site, config: Config) -> Finding:
    """The finding as it leaves the engine: shown paths, the rows of its statement, the fix that the options allow."""
    statement = statement_rows(tree, site.row, getattr(site.call, "col_offset", site.column))
    fix = finding.fix if config.is_fixable(finding.code) else None
    if fix is not None and config.is_safe(finding.code, fix.safety):
        fix = replace(fix, safety="safe")
    return replace(finding, filename=filename, statement=statement, fix=fix, steps=_show_steps(finding.steps))


def _show_steps(steps: Iterable[Step]) -> tuple[Step, ...]:
    return tuple(replace(step, filename=show_path(step.filename)) for step in steps)


def show_path(path: str) -> str:
    """A path below the current directory as relative to it."""
    if not os.path.isabs(path):
        return path
    here = os.getcwd().rstrip(os.sep) + os.sep
    return path[len(here) :] if path.startswith(here) else path


def _is_ignored_in(path: str, code: str, config: Config) -> bool:
    for pattern, codes in config.per_file_ignores:
        if not any(one == "ALL" or code.startswith(one) for one in codes):
            continue
        inverted = pattern.startswith("!")
        if matches((pattern.removeprefix("!"),), path, config.root or Path.cwd()) is not inverted:
            return True
    return False


def _position(finding: Finding) -> tuple[str, int, int, str]:
    return finding.filename, finding.row, finding.column, finding.code


def _remember(lint: Callable[[Source], list[Finding]]) -> Callable[[Source], list[Finding]]:
    """The same function, which knows the last few sources that it was asked about."""
    known: dict[bytes, list[Finding]] = {}

    def recall(source: Source) -> list[Finding]:
        if source.data not in known:
            known[source.data] = lint(source)
        return known[source.data]

    return recall


def _take(source: str | bytes, filename: str) -> Source:
    return wrap_text(filename, source) if isinstance(source, str) else read_source(filename, source)


class _Fixed(ConfigFinder):
    """A finder that gives one configuration for every file."""

    def __init__(self, config: Config) -> None:
        super().__init__(isolated=True)
        self._fixed = config


def _finder_for(config: Config | None) -> ConfigFinder:
    return ConfigFinder() if config is None else _Fixed(config)

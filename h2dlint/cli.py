"""The command line: options in, report out, exit status.

0: nothing found, or all of it fixed. 1: findings are left. 2: the run itself failed (a bad option or configuration, a
file that cannot be read, a syntax error in a named file).
"""

from __future__ import annotations

import argparse
import difflib
import os
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from h2dlint import __version__
from h2dlint.config import ConfigError, ConfigFinder
from h2dlint.discover import matches
from h2dlint.engine import (
    STDIN,
    Change,
    Engine,
    Problem,
    Report,
    attempt,
    list_sites,
    rule_codes,
    run_paths,
)
from h2dlint.model import Finding
from h2dlint.report import FORMATS, View, render
from h2dlint.source import Source, read_source

FAILED = 2
INTERRUPTED = 130
COMMANDS = ("check", "rule", "sites", "watch", "trace")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    command = arguments.pop(0) if arguments and arguments[0] in COMMANDS else "check"
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        status = _RUNNERS[command](arguments)
        sys.stdout.flush()
        return status
    except ConfigError as error:
        return _fail(str(error))
    except KeyboardInterrupt:
        print("h2dlint: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader has gone; what Python would still flush at exit goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED


class Parser(argparse.ArgumentParser):
    """Says what is wrong with the options in one line."""

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: error: {message} (see {self.prog} --help)", file=sys.stderr)
        raise SystemExit(FAILED)


def build_parser() -> argparse.ArgumentParser:
    """The options of `h2dlint check`. Those that override the configuration are absent unless given."""
    parser = Parser(
        prog="h2dlint",
        usage="h2dlint [check] [OPTIONS] [PATHS]...",
        description=__doc__.split("\n\n")[1] if __doc__ else None,
        epilog="Other commands: h2dlint rule CODE | --all; h2dlint sites PATHS; h2dlint watch -- SCRIPT ARGS; "
        "h2dlint trace FILE. Each has its own --help.",
    )
    parser.add_argument("paths", nargs="*", default=["."], metavar="PATHS", help="files, folders, or - for stdin")
    fixes = parser.add_argument_group("fixes")
    fixes.add_argument("--fix", action="store_true", help="apply the safe fixes")
    fixes.add_argument("--unsafe-fixes", action="store_true", default=argparse.SUPPRESS, help="and the unsafe ones")
    fixes.add_argument("--fix-only", action="store_true", help="apply fixes and report nothing that is left")
    fixes.add_argument("--diff", action="store_true", help="show what --fix would change, and change nothing")
    fixes.add_argument("--add-noqa", action="store_true", help="add a noqa comment for each finding")
    rules = parser.add_argument_group("rules (codes or prefixes, separated by commas; the longest prefix wins)")
    _add_selection(rules)
    codes, absent = _split_codes, argparse.SUPPRESS
    rules.add_argument("--fixable", type=codes, default=absent, metavar="CODES", help="rules whose fixes may be used")
    rules.add_argument("--unfixable", type=codes, default=absent, metavar="CODES", help="rules whose fixes may not")
    rules.add_argument(
        "--extend-safe-fixes", type=codes, default=absent, metavar="CODES", help="rules whose fixes all count as safe"
    )
    rules.add_argument("--include-cold", action="store_true", default=absent, help="also code that runs once")
    rules.add_argument("--include-small", action="store_true", default=absent, help="also copies of at most 64 KiB")
    rules.add_argument(
        "--report-unused-noqa", action="store_true", default=absent, help="report noqa comments that silence nothing"
    )
    rules.add_argument("--disable-noqa", action="store_true", default=absent, help="ignore noqa comments")
    _add_files(parser)
    output = parser.add_argument_group("output")
    output.add_argument("--output-format", choices=FORMATS, default="text", help="default: text")
    output.add_argument("--output-file", metavar="PATH", help="write the report there")
    output.add_argument("--statistics", action="store_true", help="count the findings of each rule instead")
    output.add_argument("--color", choices=("auto", "always", "never"), default="auto", help="default: auto")
    output.add_argument("--quiet", "-q", action="store_true", help="findings only, no summary")
    output.add_argument("--exit-zero", action="store_true", help="exit with 0 when something is found")
    output.add_argument("--exit-non-zero-on-fix", action="store_true", help="exit with 1 when something was fixed")
    output.add_argument("--version", action="version", version=f"h2dlint {__version__}")
    return parser


def run_check(argv: Sequence[str]) -> int:
    args = build_parser().parse_args(argv)
    finder = _build_finder(args)
    fix = args.fix or args.fix_only or args.diff
    if args.paths == ["-"]:
        report, source = _run_stdin(finder, args.stdin_filename or STDIN, fix)
    else:
        report = run_paths(args.paths, finder, args.jobs, fix, write=not args.diff)
        source = None
    for problem in report.problems:
        print(f"h2dlint: {'error' if problem.fatal else 'warning'}: {problem}", file=sys.stderr)
    if args.add_noqa:
        return _add_noqa(report, finder)
    if args.diff:
        _print_diff(report.changes, args)
    elif fix and source is not None:
        sys.stdout.buffer.write(source.data)
    _print_report(report, source, args)
    return _choose_status(report, args)


def run_sites(argv: Sequence[str]) -> int:
    from h2dlint import listing

    parser = Parser(prog="h2dlint sites", description=listing.__doc__)
    parser.add_argument("paths", nargs="*", default=["."], metavar="PATHS")
    parser.add_argument("--output-format", choices=listing.FORMATS, default="text")
    parser.add_argument("--output-file", metavar="PATH", help="write the list there")
    parser.add_argument("--observed", metavar="JSON", help="what `h2dlint watch` wrote, to be shown beside each site")
    parser.add_argument("--quiet", "-q", action="store_true", help=argparse.SUPPRESS)
    _add_files(parser)
    args = parser.parse_args(argv)
    sites, problems = list_sites(args.paths, _build_finder(args), args.jobs)
    for problem in problems:
        print(f"h2dlint: {'error' if problem.fatal else 'warning'}: {problem}", file=sys.stderr)
    if args.observed:
        text, contradicted = listing.compare(sites, args.observed, args.output_format)
    else:
        text, contradicted = listing.render(sites, args.output_format), False
    _write(text, args.output_file)
    return FAILED if any(problem.fatal for problem in problems) else int(contradicted)


def run_rule(argv: Sequence[str]) -> int:
    from h2dlint import listing

    parser = Parser(prog="h2dlint rule", description="Explain a rule.")
    parser.add_argument("code", nargs="?", help="a rule code, such as HTD101")
    parser.add_argument("--all", action="store_true", help="every rule")
    parser.add_argument("--output-format", choices=("text", "json"), default="text")
    args = parser.parse_args(argv)
    if bool(args.code) is args.all:
        parser.error("expected a rule code or --all")
    wanted = rule_codes() if args.all else [code for code in rule_codes() if code == args.code.upper()]
    if not wanted:
        parser.error(f"unknown rule code {args.code!r}; expected one of {', '.join(rule_codes())}")
    _write(listing.explain(wanted, args.output_format), None)
    return 0


def run_watch(argv: Sequence[str]) -> int:
    from h2dlint import runtime

    return runtime.watch_cli(list(argv))


def run_trace(argv: Sequence[str]) -> int:
    from h2dlint.runtime import trace

    return trace.main(list(argv))


_RUNNERS: dict[str, Callable[[Sequence[str]], int]] = {
    "check": run_check,
    "rule": run_rule,
    "sites": run_sites,
    "watch": run_watch,
    "trace": run_trace,
}


def _add_selection(group: Any) -> None:
    absent = argparse.SUPPRESS
    group.add_argument("--select", type=_split_codes, default=absent, metavar="CODES", help="run these rules only")
    group.add_argument("--extend-select", type=_split_codes, default=absent, metavar="CODES", help="run these as well")
    group.add_argument("--ignore", type=_split_codes, default=absent, metavar="CODES", help="do not run these")
    group.add_argument(
        "--per-file-ignores",
        type=_split_per_file,
        default=absent,
        metavar="PATTERN:CODES",
        help="do not run these in files of that pattern; several are separated by commas",
    )


def _add_files(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("files and configuration")
    absent = argparse.SUPPRESS
    group.add_argument(
        "--exclude", type=_split_patterns, default=absent, metavar="PATTERNS", help="leave these out (as in .gitignore)"
    )
    group.add_argument(
        "--extend-exclude", type=_split_patterns, default=absent, metavar="PATTERNS", help="leave these out as well"
    )
    group.add_argument("--stdin-filename", metavar="PATH", help="the name of what is read from stdin")
    group.add_argument("--config", type=Path, metavar="PATH", help="a TOML file with [tool.h2dlint]")
    group.add_argument("--isolated", action="store_true", help="read no configuration file")
    group.add_argument("--jobs", "-j", type=_parse_jobs, metavar="N", help="processes (default: by number of files)")
    group.add_argument("--no-cache", action="store_true", help="accepted; nothing is kept between runs")


def _build_finder(args: argparse.Namespace) -> ConfigFinder:
    return ConfigFinder(vars(args), args.config, args.isolated, rule_codes())


def _run_stdin(finder: ConfigFinder, name: str, fix: bool) -> tuple[Report, Source | None]:
    """Lint or fix stdin. The source is what it became; None where it cannot be read."""
    engine = Engine(finder)
    config = engine.config(name)
    data = sys.stdin.buffer.read()
    patterns = (*(config.exclude or ()), *config.extend_exclude)
    source, problems = attempt(name, lambda: read_source(name, data))
    if source is None:
        if fix:
            sys.stdout.buffer.write(data)
        return Report(problems=tuple(problems), files=1), None
    if patterns and matches(patterns, os.path.abspath(name), config.root or Path.cwd()):
        return Report(), source
    if not fix:
        findings, problems = attempt(name, lambda: engine.lint(source))
        return Report(tuple(findings or ()), tuple(problems), files=1), source
    outcome, problems = attempt(name, lambda: engine.fix(source, config.unsafe_fixes))
    if outcome is None:
        return Report(problems=tuple(problems), files=1), source
    changes = (Change(name, source, outcome.source, tuple(outcome.mended)),) if outcome.mended else ()
    return Report(tuple(outcome.findings), (*problems, *outcome.problems), changes, 1), outcome.source


def _print_report(report: Report, source: Source | None, args: argparse.Namespace) -> None:
    """The report on stdout; on stderr where stdout holds a diff or the fixed source."""
    taken = args.diff or (source is not None and (args.fix or args.fix_only))
    stream = sys.stderr if taken else sys.stdout
    if args.diff:
        mended = [finding for change in report.changes for finding in change.mended]
        report = replace(report, findings=(*mended, *report.findings))
    if not (args.fix_only or (args.diff and args.quiet)):
        view = View(report, _line_reader(report, source), _wants_color(args.color, stream) and not args.output_file)
        if args.statistics:
            text = _count(report.findings)
        else:
            text = render(view, "concise" if args.diff and args.output_format == "text" else args.output_format)
        _write(text, args.output_file, stream)
    if not args.quiet:
        to_stdout = not taken and args.output_format == "text" and not args.output_file
        print(_summarize(report, args), file=sys.stdout if to_stdout else sys.stderr)


def _summarize(report: Report, args: argparse.Namespace) -> str:
    left = report.findings[report.fixed :] if args.diff else report.findings
    safe = sum(one.fix is not None and one.fix.safety == "safe" for one in left)
    unsafe = sum(one.fix is not None and one.fix.safety == "unsafe" for one in left)
    if args.diff or args.fix or args.fix_only:
        verb = "would be fixed" if args.diff else "fixed"
        rest = f" ({unsafe} need --unsafe-fixes)" if unsafe else ""
        return f"{report.fixed} {verb}, {len(left)} left{rest}."
    if not left:
        failed = sum(problem.fatal for problem in report.problems)
        return f"Nothing found; {_plural(failed, 'error')}." if failed else "Nothing found."
    hints = [f"{safe} fixable with --fix"] if safe else []
    hints += [f"{unsafe} with --unsafe-fixes"] if unsafe else []
    return f"Found {_plural(len(left), 'finding')}" + (f" ({', '.join(hints)})." if hints else ".")


def _choose_status(report: Report, args: argparse.Namespace) -> int:
    if report.failed:
        return FAILED
    if args.exit_zero:
        return 0
    if report.changes and (args.diff or args.exit_non_zero_on_fix):
        return 1
    return int(bool(report.findings) and not args.fix_only)


def _add_noqa(report: Report, finder: ConfigFinder) -> int:
    from h2dlint import atomic, noqa
    from h2dlint.source import splice

    groups: dict[str, list[Finding]] = {}
    for finding in report.findings:
        groups.setdefault(finding.filename, []).append(finding)
    added = 0
    failed = report.failed
    for name, findings in groups.items():
        try:
            source = read_source(name, Path(name).read_bytes())
            after = splice(source, noqa.plan_comments(source, findings))
            atomic.replace_file(name, source.data, after.data)
            added += len(findings)
        except (OSError, ValueError) as error:
            failed = True
            print(f"h2dlint: error: {Problem(name, None, str(error))}", file=sys.stderr)
    print(f"Added noqa comments for {_plural(added, 'finding')}.")
    return FAILED if failed else 0


def _print_diff(changes: Sequence[Change], args: argparse.Namespace) -> None:
    color = _wants_color(args.color, sys.stdout)
    sys.stdout.flush()
    for change in changes:
        for line in _diff(change):
            sys.stdout.buffer.write(_paint_diff(line) if color else line)
    sys.stdout.buffer.flush()


def _diff(change: Change) -> list[bytes]:
    """A unified diff that `git apply` takes, in the file's own bytes."""
    path = change.filename.replace(os.sep, "/").lstrip("/")
    # A tab ends a name that has blanks in it.
    name = os.fsencode(path) + (b"\t" if " " in path else b"")
    before, after = ([line + b"\n" for line in source.data.split(b"\n")] for source in (change.before, change.after))
    for lines, source in ((before, change.before), (after, change.after)):
        if source.data.endswith(b"\n") or not source.data:
            lines.pop()
        else:
            lines[-1] = lines[-1].removesuffix(b"\n")
    diff = difflib.diff_bytes(difflib.unified_diff, before, after, b"a/" + name, b"b/" + name)
    return [line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n" for line in diff]


def _paint_diff(line: bytes) -> bytes:
    styles = ((b"---", b"1"), (b"+++", b"1"), (b"@@", b"36"), (b"-", b"31"), (b"+", b"32"))
    style = next((style for start, style in styles if line.startswith(start)), None)
    if style is None:
        return line
    body = line.rstrip(b"\r\n")
    return b"\033[" + style + b"m" + body + b"\033[0m" + line[len(body) :]


def _count(findings: Sequence[Finding]) -> str:
    names = {finding.code: finding.name for finding in findings}
    counts = Counter(finding.code for finding in findings).most_common()
    width = max((len(str(count)) for _, count in counts), default=0)
    return "".join(f"{count:{width}}\t{code}\t{names[code]}\n" for code, count in counts)


def _line_reader(report: Report, source: Source | None) -> Callable[[str], list[str]]:
    """Gives the lines that a finding's positions speak of; those of a changed file are the new ones."""
    known = {change.filename: change.after.lines for change in report.changes}
    if source is not None:
        known[source.filename] = source.lines

    def lines(name: str) -> list[str]:
        if name not in known:
            known[name] = read_source(name, Path(name).read_bytes()).lines
        return known[name]

    return lines


def _write(text: str, path: str | None, stream: Any = None) -> None:
    if path is None:
        (stream or sys.stdout).write(text)
        return
    try:
        Path(path).write_text(text, encoding="utf-8", errors="backslashreplace", newline="\n")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {(error.strerror or '').lower()}") from None


def _wants_color(choice: str, stream: Any) -> bool:
    if choice != "auto":
        return choice == "always"
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return bool(os.environ.get("FORCE_COLOR")) or bool(stream.isatty())


def _fail(message: str) -> int:
    print(f"h2dlint: error: {message}", file=sys.stderr)
    return FAILED


def _plural(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def _split_codes(text: str) -> tuple[str, ...]:
    return tuple(part for part in text.replace(",", " ").split() if part)


def _split_patterns(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _split_per_file(text: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """`a.py:HTD101,HTD2,tests/*:HTD3`: a part with a colon begins the next pattern."""
    groups: list[tuple[str, tuple[str, ...]]] = []
    for part in _split_codes(text):
        pattern, colon, code = part.rpartition(":")
        if colon:
            groups.append((pattern, (code,)))
        elif groups:
            groups[-1] = (groups[-1][0], (*groups[-1][1], part))
        else:
            raise argparse.ArgumentTypeError(f"expected PATTERN:CODE, found {part!r}")
    return tuple(groups)


def _parse_jobs(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a number from 1, found {text!r}")
    return int(text)

"""`h2dlint watch -- SCRIPT ARGS`: runs a program in this process under a watch, then reports."""

from __future__ import annotations

import argparse
import os
import runpy
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from h2dlint.runtime.report import render_json, render_text
from h2dlint.runtime.watching import MISSING_TORCH, Watch


def watch_cli(argv: Sequence[str]) -> int:
    """Run the command line behind `h2dlint watch`; returns the exit code.

    0 nothing held the host, 1 something did, 2 the run could not start or the program raised; the program's own
    non-zero `sys.exit` wins over 0 and 1. The report goes to standard error or `--output-file`, so that the program's
    output stays its own.
    """
    options = _parse(argv)
    try:
        watch = Watch(
            "error" if options.error else "report",
            threads="all" if options.all_threads else "this",
            from_call=options.from_call,
            syncs=not options.no_syncs,
        )
        with watch:
            code = _run(options)
    except ModuleNotFoundError as error:
        if str(error) != MISSING_TORCH:
            raise
        print(f"h2dlint watch: {error}", file=sys.stderr)
        return 2
    rows, notes = watch.rows(), watch.notes
    text = render_json(rows, notes) if options.output_format == "json" else render_text(rows, notes)
    if options.output_file:
        Path(options.output_file).write_text(text, encoding="utf-8")
    else:
        sys.stderr.write(text)
    if code:
        return code
    return 1 if watch.found and not options.exit_zero else 0


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="h2dlint watch",
        description="Run a program and report its host<->device copies that hold the host.",
        usage="h2dlint watch [OPTIONS] -- SCRIPT [ARGS]...",
    )
    parser.add_argument("-m", dest="module", action="store_true", help="SCRIPT names a module, as in python -m")
    parser.add_argument("--error", action="store_true", help="raise at the first copy that holds the host")
    parser.add_argument("--all-threads", action="store_true", help="watch every thread, not the main one alone")
    parser.add_argument(
        "--from-call", type=int, default=2, metavar="N", help="a line counts once it has copied N times (default: 2)"
    )
    parser.add_argument("--no-syncs", action="store_true", help="do not turn PyTorch's sync debug mode on")
    parser.add_argument("--output-format", choices=("text", "json"), default="text")
    parser.add_argument("--output-file", metavar="FILE", help="write the report there, not to standard error")
    parser.add_argument("--exit-zero", action="store_true", help="exit 0 also when copies held the host")
    parser.add_argument("program", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.program[:1] == ["--"]:
        del options.program[0]
    if not options.program:
        parser.error("name the script to run")
    if not options.module and not os.path.isfile(options.program[0]):
        parser.error(f"no such script: {options.program[0]}")
    return options


def _run(options: argparse.Namespace) -> int:
    """Run the program as `__main__`; returns its exit code, 2 where it raised."""
    saved_argv, saved_path = sys.argv, list(sys.path)
    name = options.program[0]
    sys.argv = list(options.program)
    try:
        if options.module:
            sys.path.insert(0, os.getcwd())
            runpy.run_module(name, run_name="__main__", alter_sys=True)
        else:
            sys.path.insert(0, os.path.dirname(os.path.abspath(name)))
            runpy.run_path(name, run_name="__main__")
    except SystemExit as leaving:
        return _read_exit(leaving.code)
    except Exception:
        traceback.print_exc()
        return 2
    finally:
        sys.argv = saved_argv
        sys.path[:] = saved_path
    return 0


def _read_exit(code: object) -> int:
    """What the interpreter makes of the argument of `sys.exit`."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code
    print(code, file=sys.stderr)
    return 1

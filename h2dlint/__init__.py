"""h2dlint: finds PyTorch host<->device copies that look asynchronous and are not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from h2dlint.config import ConfigError
    from h2dlint.engine import FixResult, Problem, Report, fix_source, lint_paths, lint_source
    from h2dlint.source import SourceError

__version__ = "0.1.0"
__all__ = [
    "ConfigError",
    "FixResult",
    "Problem",
    "Report",
    "SourceError",
    "__version__",
    "fix_source",
    "lint_paths",
    "lint_source",
]


def __getattr__(name: str) -> Any:
    # A flake8 run over files that nominate nothing, or the runtime checker, should not pay for the engine.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from h2dlint import config, engine, source

    for module in (engine, config, source):
        if hasattr(module, name):
            return getattr(module, name)
    raise AssertionError(name)

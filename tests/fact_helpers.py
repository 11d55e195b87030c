"""The little language of the fact and site fixtures, and an oracle that runs them.

A comment at the end of a line says what is known of the value there: of what an assignment or a `return` on that line
evaluates, or of an expression that stands alone::

    host = torch.zeros(4, 8, pin_memory=True)    # fact: cpu pinned contiguous rank=2
    host[:, :3]                                  # fact: cpu pinned gapped

Device (cpu, gpu, other), memory (pinned, pageable; of host memory only) and layout (contiguous, permuted, gapped,
broadcast) are exact: a word that is left out must be unknown, and `unknown` alone leaves out all three. `rank=2`,
`dtype=int64`, `size<=32` (bytes), `array` (numpy) and `assumed` are looked at only where they are written. `none` is
the value None, `a | b` are the alternatives of different paths. `(missed: ...)` at the end admits what the interpreter
says today; that may leave room for more than the truth, never rule out any of it.

The oracle runs the fixtures on a CPU: it plays the GPU with the meta device, and page-locked memory by remembering
which storages were pinned. What PyTorch itself does with views, strides and dtypes is real.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from h2dlint.config import Config
from h2dlint.model import Fact
from h2dlint.project import Module, Project, Scope
from h2dlint.sites import interpreter_of
from h2dlint.values import Const, Leaves, Unknown, Value, alternatives

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"
DEVICES = ("cpu", "gpu", "other")
MEMORIES = ("pinned", "pageable")
LAYOUTS = ("contiguous", "permuted", "gapped", "broadcast")
MARK = re.compile(r"#\s*(fact|site):\s*(.*?)\s*(?:\(missed:\s*(.*?)\s*\))?\s*$")


@dataclass(frozen=True)
class Claim:
    """One alternative as a comment writes it."""

    words: frozenset[str]

    @property
    def device(self) -> str:
        return next((word for word in DEVICES if word in self.words), "unknown")

    @property
    def memory(self) -> str:
        return next((word for word in MEMORIES if word in self.words), "unknown")

    @property
    def layout(self) -> str:
        return next((word for word in LAYOUTS if word in self.words), "unknown")

    def option(self, name: str) -> str | None:
        return next((word[len(name) :] for word in self.words if word.startswith(name)), None)

    def __str__(self) -> str:
        return " ".join(sorted(self.words)) or "unknown"


@dataclass(frozen=True)
class Mark:
    """A comment: what is true of its line, and what the tool is known to say when that is less."""

    kind: str
    row: int
    claims: tuple[Claim, ...]
    missed: tuple[Claim, ...] | None


def read_claims(text: str) -> tuple[Claim, ...]:
    """The alternatives of a comment; an unknown word is an error."""
    claims = []
    for part in text.split("|"):
        words = frozenset(part.split()) - {"unknown"}
        for word in words:
            plain = word in (*DEVICES, *MEMORIES, *LAYOUTS, "array", "assumed", "none")
            assert plain or re.fullmatch(r"rank=\d+|dtype=\w+|size<=\d+", word), f"no word of the language: {word}"
        claims.append(Claim(words))
    return tuple(claims)


def comments(text: str, kind: str) -> Iterator[tuple[int, str, str | None]]:
    """The row, words and admitted miss of every `# kind:` comment."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        match = MARK.match(token.string) if token.type == tokenize.COMMENT else None
        if match and match[1] == kind:
            yield token.start[0], match[2], match[3]


def read_facts(text: str) -> list[Mark]:
    return [
        Mark("fact", row, read_claims(said), None if missed is None else read_claims(missed))
        for row, said, missed in comments(text, "fact")
    ]


def marked_values(tree: ast.Module) -> dict[int, ast.expr]:
    """The expression that a comment at the end of each row speaks of."""
    found: dict[int, ast.expr] = {}
    for node in ast.walk(tree):
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.Return, ast.Expr)) and node.value is not None:
            assert node.end_lineno is not None
            found[node.end_lineno] = node.value
    return found


def scope_of(module: Module, row: int) -> Scope:
    """The innermost scope whose statements hold a row."""
    inside = [
        scope
        for scope in module.scopes()
        if not isinstance(scope.node, ast.Module) and scope.node.lineno <= row <= (scope.node.end_lineno or 0)
    ]
    return max(inside, key=lambda scope: getattr(scope.node, "lineno", 0), default=module.scope)


def open_project(root: Path) -> Project:
    return Project(root, Config())


def ask(project: Project, module: Module, row: int, node: ast.expr) -> Value:
    """What the interpreter makes of an expression."""
    interp = interpreter_of(project)
    interp.begin()
    return interp.expr(node, interp.open_frame(scope_of(module, row)))


def matches(value: Value, claim: Claim) -> bool:
    """Whether a value of the interpreter is just what a claim says."""
    match value:
        case Leaves(fact=fact):
            return matches(fact, claim)
        case Const(value=None):
            return "none" in claim.words
        case Fact():
            return "none" not in claim.words and fits(value, claim)
    return not claim.words


def fits(fact: Fact, claim: Claim) -> bool:
    memory = "unknown" if fact.device in ("gpu", "other") else fact.memory
    if (fact.device, memory, fact.layout) != (claim.device, claim.memory, claim.layout):
        return False
    rank, dtype, size = claim.option("rank="), claim.option("dtype="), claim.option("size<=")
    return (
        (rank is None or fact.rank == int(rank))
        and (dtype is None or fact.dtype == f"torch.{dtype}")
        and (size is None or (fact.max_bytes is not None and fact.max_bytes <= int(size)))
        and ("array" not in claim.words or fact.array)
        and ("assumed" not in claim.words or fact.assumed)
    )


def agrees(value: Value, claims: tuple[Claim, ...]) -> bool:
    """Whether the alternatives of a value are those claimed, no more and no fewer."""
    found = alternatives(value)
    return (
        bool(found)
        and all(any(matches(one, claim) for claim in claims) for one in found)
        and all(any(matches(one, claim) for one in found) for claim in claims)
    )


def is_silence(claims: tuple[Claim, ...], missed: tuple[Claim, ...]) -> bool:
    """Whether what is said leaves room for all that is true. Room for more is silence too: a site is judged only where
    all alternatives agree."""
    return all(any(one.words <= claim.words for one in missed) for claim in claims)


def describe(value: Value) -> str:
    """A value in the words of the language, for the messages of failing tests."""

    def spell(one: Value) -> str:
        match one:
            case Leaves(fact=fact):
                return spell(fact)
            case Unknown(needs=needs):
                return f"unknown [needs {needs}]"
            case Const(value=None):
                return "none"
            case Fact():
                words: list[str] = [one.device, "" if one.device == "gpu" else one.memory, one.layout]
                words = [word for word in words if word not in ("", "unknown")] or ["unknown"]
                words += [f"rank={one.rank}"] if one.rank is not None else []
                words += [one.dtype.replace("torch.", "dtype=")] if one.dtype else []
                words += [f"size<={one.max_bytes}"] if one.max_bytes is not None else []
                return " ".join(words + ["array"] * one.array + ["assumed"] * one.assumed)
        return type(one).__name__

    return " | ".join(spell(one) for one in alternatives(value)) or "no value"

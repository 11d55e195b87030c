"""The tables of `h2dlint.apis`: schema, lookup, the user's rows, and every numpy row executed on real numpy."""

from __future__ import annotations

import copy
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from h2dlint.apis import EFFECTS, Row, RowError, Table, builtin_table, lookup, user_table, validate
from h2dlint.apis.build import FILES, FOLDER, build_json, read_file, validate_file

numpy = pytest.importorskip("numpy")

# --- The files ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FILES)
def test_files_follow_the_schema(name: str) -> None:
    assert validate_file(read_file(name), name) == []


def test_rows_json_is_what_the_files_say() -> None:
    assert (FOLDER / "rows.json").read_text(encoding="utf-8") == build_json(), "run python -m h2dlint.apis.build"


def test_no_name_stands_in_two_files() -> None:
    groups = [group for name in FILES for group in read_file(name)["row"]]
    total = sum(len(str(group["names"]).split()) * len(str(group.get("owners", "one")).split()) for group in groups)
    assert len(builtin_table().entries) == total


def test_every_row_can_be_made_and_cites_its_proof() -> None:
    table = builtin_table()
    rows = [table.lookup(name) for name in table.entries]
    assert all(row is not None and row.source and row.effect in EFFECTS for row in rows)
    assert {row.effect for row in rows if row} == set(EFFECTS)


@pytest.mark.parametrize(
    ("group", "message"),
    [
        ({"names": "a.b", "effect": "opp", "source": "x"}, "effect: expected one of"),
        ({"names": "a.b", "effect": "op", "source": "x", "pinn": True}, "pinn: unknown key for effect 'op'"),
        ({"names": "a.b", "effect": "op", "source": "x", "out": "yes"}, "out: expected true or false; got 'yes'"),
        ({"names": "a.b", "effect": "op", "source": "x", "rank": "4"}, "rank: expected one of"),
        ({"names": "a.b", "effect": "view", "source": "x"}, "view: expected, because effect is 'view'"),
        ({"names": "a.b a.b", "effect": "op", "source": "x"}, "a.b stands twice"),
        ({"names": "a.b", "effect": "op"}, "a.b has no source"),
    ],
)
def test_faults_in_a_file_are_named(group: dict[str, Any], message: str) -> None:
    errors = validate_file({"row": [group]}, "torch.toml")
    assert any(error.startswith("torch.toml: row 1 (a.b): ") and message in error for error in errors), errors


def test_unknown_section_of_a_file_is_named() -> None:
    assert validate_file({"row": [], "rows": []}, "x.toml") == [
        "x.toml: rows: expected one of row, aliases, sources, first"
    ]


# --- Lookup ---------------------------------------------------------------------------------------------------------


def find_row(name: str) -> Row:
    row = lookup(name)
    assert row is not None, name
    return row


def test_functions_take_the_tensor_that_methods_are_called_on() -> None:
    assert find_row("torch.narrow").params == ("input", "dim", "start", "length")
    assert find_row("torch.Tensor.narrow").params == ("dim", "start", "length")
    assert find_row("torch.linalg.inv").first == "A"
    assert find_row("torch.where").first == ""


def test_only_functions_take_out() -> None:
    assert find_row("torch.add").out
    assert not find_row("torch.Tensor.add").out


def test_unknown_names_have_no_row() -> None:
    assert lookup("torch.no_such_thing") is None
    assert lookup("") is None
    assert lookup("zeros") is None


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("torch.functional.einsum", "torch.einsum"),
        ("torch.utils.data.dataloader.DataLoader", "torch.utils.data.DataLoader"),
        ("torch._tensor.Tensor.numpy", "torch.Tensor.numpy"),
        ("torch.nn.parameter.Parameter.view", "torch.Tensor.view"),
        ("torch.cuda.streams.Event.synchronize", "torch.cuda.Event.synchronize"),
    ],
)
def test_aliases_lead_to_the_row(alias: str, name: str) -> None:
    assert find_row(alias) is find_row(name)


def test_defaults_of_the_device() -> None:
    assert find_row("torch.zeros").device == "arg"
    assert find_row("torch.from_numpy").device == "cpu"
    assert find_row("torch.cat").device == "same"
    assert find_row("torch.cuda.FloatTensor").device == "gpu"
    resized = find_row("torch.Tensor.resize_")
    assert (resized.device, resized.memory) == ("same", "unknown")


def test_the_table_is_read_in_a_moment() -> None:
    code = (
        "import time, h2dlint.apis as apis; start = time.perf_counter(); apis.builtin_table();"
        "print(time.perf_counter() - start)"
    )
    times = [float(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout) for _ in "123"]
    assert min(times) < 0.015


def test_the_package_reads_no_toml_and_no_torch() -> None:
    code = "import sys, h2dlint.apis as a; a.lookup('torch.zeros'); print({'tomllib', 'torch'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout == "set()\n"


# --- The user's rows ------------------------------------------------------------------------------------------------


def test_user_rows_come_before_the_built_in() -> None:
    table = user_table(
        {
            "mine.to_pinned": {"effect": "new", "memory": "pinned", "params": ["data"]},
            "mine.to_gpu": {"effect": "new", "device": "gpu"},
            "mine.wait": {"effect": "sync", "waits": "device"},
            "torch.zeros": {"effect": "unknown"},
        }
    )
    assert isinstance(table, Table)
    pinned, gpu, wait = (table.lookup(f"mine.{name}") for name in ("to_pinned", "to_gpu", "wait"))
    assert pinned is not None and (pinned.memory, pinned.device, pinned.params) == ("pinned", "cpu", ("data",))
    assert gpu is not None and gpu.device == "gpu"
    assert wait is not None and wait.waits == "device"
    assert (row := table.lookup("torch.zeros")) is not None and row.effect == "unknown"
    assert table.lookup("torch.ones") == lookup("torch.ones")
    assert find_row("torch.zeros").effect == "new"


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            {"f": {"effect": "new", "memory": "locked"}},
            "memory: expected one of pageable, pinned, unknown; got 'locked'",
        ),
        ({"f": {"memory": "pinned"}}, "effect: expected one of new, like"),
        ({"f": "pinned"}, "expected a table of keys, got 'pinned'"),
        ({"f": {"effect": "new", "params": 3}}, "params: expected a list of parameter names; got 3"),
        ({"f": {"effect": "op", "returns": "tensors"}}, "returns: expected one of tensor, array"),
        ({"f": {"effect": "sync"}}, "waits: expected, because effect is 'sync'"),
        ({"f": {"effect": ["new"]}}, "effect: expected one of new"),
        ({"f": {"effect": "new", "names": "g"}}, "names: unknown key for effect 'new'"),
    ],
)
def test_faults_in_user_rows_are_one_line_each(rows: dict[str, Any], message: str) -> None:
    errors = validate(rows, "pyproject.toml [tool.h2dlint.functions]")
    assert len(errors) == 1
    assert errors[0].startswith(f"pyproject.toml [tool.h2dlint.functions]: f: {message}")
    assert "\n" not in errors[0]
    with pytest.raises(RowError, match="functions"):
        user_table(rows)


def test_a_user_name_must_be_dotted() -> None:
    (error,) = validate({"my helper()": {"effect": "op"}}, "pyproject.toml")
    assert error == "pyproject.toml: 'my helper()': expected a dotted name such as 'package.module.function'"


# --- numpy, executed ------------------------------------------------------------------------------------------------

ROWS = [row for name in builtin_table().entries if name.startswith("numpy.") and (row := lookup(name))]

# The text of a sample is what stands between the parentheses; a method's receiver comes first.
SAMPLES = {
    "2, 3": "rand randn eye tri",
    "(2, 3)": "zeros ones empty ndarray indices random random_sample standard_normal",
    "(2, 3), 1.0": "full",
    "1, 5, 2": "arange",
    "1, 5, 4": "linspace logspace geomspace",
    "4": "identity bartlett blackman hamming hanning permutation",
    "[[1, 2], [3, 4]]": "array",
    "iter([1, 2]), int": "fromiter",
    "0, 9, (2, 3)": "randint normal uniform",
    "5, (2, 3)": "choice",
    "x, 1.0": "full_like fill",
    "x": """
        copy flatten absolute abs negative positive sign floor ceil trunc rint square conjugate exp exp2 expm1
        log log2 log10 log1p sqrt cbrt sin cos tan arcsin arccos arctan sinh cosh tanh deg2rad rad2deg reciprocal isnan
        isinf isfinite logical_not signbit zeros_like ones_like empty_like sum prod mean std var max min amax amin all
        any argmax argmin median nansum nanmean nanmax nanmin cumsum cumprod sort argsort nonzero argwhere flatnonzero
        unique tril triu diff nan_to_num __neg__ __abs__ __pos__ asarray asanyarray from_dlpack tolist tobytes __len__
        size ndim nbytes itemsize shape strides dtype
    """,
    "x, None": "__deepcopy__",
    "k": "invert __invert__",
    "v.astype(int)": "bincount",
    "x, y": """
        add subtract multiply divide true_divide floor_divide mod remainder power float_power maximum minimum fmax fmin
        arctan2 hypot equal not_equal less less_equal greater greater_equal logical_and logical_or logical_xor __add__
        __radd__ __sub__ __rsub__ __mul__ __rmul__ __truediv__ __rtruediv__ __floordiv__ __rfloordiv__ __mod__ __rmod__
        __pow__ __rpow__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __iadd__ __isub__ __imul__ __itruediv__ __ifloordiv__
        __imod__ __ipow__ isin outer array_equal allclose copyto append
    """,
    "k, k": """
        bitwise_and bitwise_or bitwise_xor left_shift right_shift __and__ __rand__ __or__ __ror__ __xor__ __rxor__
        __lshift__ __rshift__ __iand__ __ior__ __ixor__ __ilshift__ __irshift__
    """,
    "x, x.T": "__matmul__ __rmatmul__ matmul dot",
    "x, 0.5": "quantile percentile",
    "v, x": "searchsorted",
    "x > 0, x, y": "where",
    "x, 0.2, 0.8": "clip",
    "x, [0]": "take",
    "x, numpy.zeros((1, 4), int), 0": "take_along_axis",
    "x, 2": "repeat roll tile partition",
    "x, 1": "pad",
    "x, 0, 1.0": "insert __setitem__",
    "x, 0": "delete",
    "v, numpy.array([0.0, 2.0])": "digitize",
    "v, v": "meshgrid",
    "k.astype(numpy.uint8)": "packbits unpackbits",
    "k * 0, [k, k, k]": "choose",
    "x, [True, False, True]": "compress",
    "x, float": "astype",
    "x, numpy.float32": "astype",
    "[x, y]": "concatenate concat stack hstack vstack dstack column_stack block",
    "v, [0], [1.0]": "put",
    "v, v > 0, [1.0]": "place putmask",
    "x.copy(), write=True": "setflags",
    "v.copy(), 4": "resize",
    "x[0, 0:1]": "item __float__ __bool__",
    "k[0, 0:1].reshape(())": "__int__ __index__",
}
BY_NAME: dict[str, list[str]] = {}
for text, words in SAMPLES.items():
    for word in words.split():
        BY_NAME.setdefault(word, []).append(text)


def make_arrays() -> dict[str, Any]:
    return {
        "numpy": numpy,
        "x": numpy.linspace(0.1, 0.9, 12).reshape(3, 4).copy(),
        "y": numpy.linspace(0.9, 0.1, 12).reshape(3, 4).copy(),
        "v": numpy.ones(4),
        "k": numpy.ones((3, 4), dtype=numpy.int64),
        "b": numpy.ones((2, 3, 4)),
    }


def find_object(name: str) -> Callable[..., Any]:
    value: Any = numpy
    for part in name.split(".")[1:]:
        value = getattr(value, part)
    return value if callable(value) else value.__get__  # type: ignore[no-any-return]


def run_sample(name: str, text: str) -> tuple[Any, list[Any]]:
    """(result, arguments) of one call."""
    seen: list[Any] = []

    def call(*args: Any, **keywords: Any) -> Any:
        seen.extend([*args, *keywords.values()])
        return find_object(name)(*args, **keywords)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return eval(f"call({text})", {**make_arrays(), "call": call}), seen


def collect_arrays(value: Any) -> Iterator[Any]:
    if isinstance(value, numpy.ndarray):
        yield value
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from collect_arrays(one)


def shares(result: Any, arguments: list[Any]) -> bool:
    return any(numpy.may_share_memory(one, two) for one in collect_arrays(result) for two in collect_arrays(arguments))


def rows_of(*effects: str) -> list[Any]:
    return [pytest.param(row, id=row.name) for row in ROWS if row.effect in effects]


@pytest.mark.parametrize("row", rows_of("new", "like", "op", "join"))
def test_result_is_new_memory(row: Row) -> None:
    if row.name.startswith("numpy.random.Generator."):
        short = row.name.rpartition(".")[2]
        keywords = {} if short == "permutation" else {"size": 3}
        args = [4] if short in ("integers", "choice", "permutation") else []
        assert isinstance(getattr(numpy.random.default_rng(0), short)(*args, **keywords), numpy.ndarray)
        return
    if row.name == "numpy.fromstring":
        assert numpy.fromstring("1 2", sep=" ").ndim == 1
        return
    samples = BY_NAME.get(row.name.rpartition(".")[2], [])
    assert samples, "no sample executes this row"
    for text in samples:
        result, arguments = run_sample(row.name, text)
        assert not shares(result, arguments)
        arrays = list(collect_arrays(arguments))
        if row.returns == "array":
            assert isinstance(result, numpy.ndarray)
            ranks = [one.ndim for one in arrays]
            expected = {
                "same": ranks[:1],
                "broadcast": [max(ranks, default=0)],
                "plus1": [rank + 1 for rank in ranks[:1]],
            }
            assert row.rank not in expected or [result.ndim] == expected[row.rank]
            assert not row.rank.isdigit() or result.ndim == int(row.rank)
            assert row.shape != "same" or result.shape == arrays[0].shape
            if row.layout == "contiguous" or (row.layout == "keeps" and all(one.flags.c_contiguous for one in arrays)):
                assert result.flags.c_contiguous


@pytest.mark.parametrize(
    "row", [row for row in rows_of("op", "join") if not row.values[0].name.startswith("numpy.ndarray")]
)
def test_out_is_the_result(row: Row) -> None:
    text = BY_NAME[row.name.rpartition(".")[2]][0]
    result, _ = run_sample(row.name, text)
    if not row.out or not isinstance(result, numpy.ndarray):
        return
    found: list[Any] = []
    given, seen = run_sample(row.name, f"{text}, out=numpy.empty({result.shape}, dtype=numpy.{result.dtype})")
    found.extend(one for one in seen if one is given)
    assert found, "out= is not what comes back"


# What each view makes of b, whose size is (2, 3, 4): (arguments, size); strides of the result follow from numpy.
VIEWS = {
    "index": ("b, (0, slice(None), slice(0, 2))", (3, 2)),
    "view_dtype": ("b, numpy.int64", (2, 3, 4)),
    "T": ("b", (4, 3, 2)),
    "mT": ("b", (2, 4, 3)),
    "permute": ("b, (2, 0, 1)", (4, 2, 3)),
    "transpose": ("b, 0, 2", (4, 3, 2)),
    "movedim": ("b, 0, 2", (3, 4, 2)),
    "squeeze": ("b[:1], 0", (3, 4)),
    "unsqueeze": ("b, 0", (1, 2, 3, 4)),
    "broadcast_to": ("b, (5, 2, 3, 4)", (5, 2, 3, 4)),
    "broadcast_tensors": ("b[:1], numpy.ones((5, 1, 1))", (5, 3, 4)),
    "atleast": ("b", (2, 3, 4)),
    "tensor_split": ("b, 2, 2", (2, 3, 2)),
    "hsplit": ("b, 3", (2, 1, 4)),
    "vsplit": ("b, 2", (1, 3, 4)),
    "dsplit": ("b, 2", (2, 3, 2)),
    "diagonal": ("b, 0, 1, 2", (2, 3)),
    "as_strided": ("b, (2, 2), (96, 8)", (2, 2)),
    "reshape": ("b, (6, 4)", (6, 4)),
    "ravel": ("b", (24,)),
}
UNKNOWN_VIEWS = {
    "flip": "x", "fliplr": "x", "flipud": "x", "rot90": "x", "sliding_window_view": "v, 2", "real": "x",
    "imag": "x + 1j", "diag": "x", "einsum": "'ij->ji', x",
}  # fmt: skip
COPIES = {
    "reshape": "b.T, (6, 4)", "ravel": "b.T", "real": "[1 + 1j]", "imag": "x", "diag": "v",
    "einsum": "'ij,kj->ik', x, y",
}  # fmt: skip


@pytest.mark.parametrize("row", rows_of("view", "maybe_view"))
def test_view_shares_memory(row: Row) -> None:
    short = row.name.rpartition(".")[2]
    text, size = (UNKNOWN_VIEWS[short], None) if row.view == "unknown" else VIEWS[row.view]
    result, arguments = run_sample(row.name, text)
    first = next(collect_arrays(result))
    assert size is None or first.shape == size
    assert shares(first, arguments)
    assert isinstance(result, {"array": numpy.ndarray, "list": list, "tuple": tuple}[row.returns])


@pytest.mark.parametrize("row", rows_of("maybe_view"))
def test_maybe_view_copies_now_and_then(row: Row) -> None:
    short = row.name.rpartition(".")[2]
    if row.name in ("numpy.ndarray.real",):
        return
    result, arguments = run_sample(row.name, COPIES[short])
    assert not shares(result, arguments)


@pytest.mark.parametrize("row", rows_of("wrap"))
def test_wrapper_shares_memory(row: Row) -> None:
    text = {"require": "x", "asfortranarray": "x.T", "ascontiguousarray": "x"}.get(row.name.rpartition(".")[2], "x")
    result, arguments = run_sample(row.name, text)
    assert shares(result, arguments) or (
        row.name == "numpy.frombuffer" and result.ctypes.data == arguments[0].ctypes.data
    )
    if row.copies == "dtype":
        result, arguments = run_sample(row.name, f"{text}, dtype=numpy.float32")
        assert not shares(result, arguments)
    if row.name in ("numpy.ascontiguousarray", "numpy.asfortranarray"):
        result, arguments = run_sample(row.name, {"ascontiguousarray": "x.T", "asfortranarray": "x"}[row.name[6:]])
        assert not shares(result, arguments)


@pytest.mark.parametrize("row", rows_of("self"))
def test_in_place_keeps_the_memory(row: Row) -> None:
    text = BY_NAME[row.name.rpartition(".")[2]][0]
    result, arguments = run_sample(row.name, text)
    assert result is (None if row.returns == "none" else arguments[0])


@pytest.mark.parametrize("row", rows_of("host", "query"))
def test_values_are_no_arrays(row: Row) -> None:
    short = row.name.rpartition(".")[2]
    text = {"__bool__": "x[0, 0:1]", "__float__": "x[0, 0:1].reshape(())", "item": "x[0, 0:1]"}.get(short)
    result, _ = run_sample(row.name, text or BY_NAME[short][0])
    assert not isinstance(result, numpy.ndarray)
    kinds = {"bool": bool, "int": (int, tuple), "float": float, "bytes": bytes, "tuple": tuple, "dtype": numpy.dtype}
    assert row.returns == "unknown" or isinstance(result, kinds[row.returns])


def test_loaded_arrays(tmp_path: Any) -> None:
    path = tmp_path / "x.npy"
    numpy.save(path, numpy.ones(3))
    assert numpy.load(path).shape == numpy.load(path, "r").shape == (3,)
    (tmp_path / "raw").write_bytes(bytes(16))
    assert numpy.fromfile(tmp_path / "raw").shape == numpy.memmap(tmp_path / "raw", float, "r").shape == (2,)
    (tmp_path / "text").write_text("1 2")
    assert numpy.loadtxt(tmp_path / "text").shape == numpy.genfromtxt(tmp_path / "text").shape == (2,)
    assert {row.name for row in ROWS if row.effect == "load"} == {
        f"numpy.{name}" for name in ("load", "fromfile", "loadtxt", "genfromtxt", "memmap")
    }


def test_copies_of_the_standard_library() -> None:
    array = numpy.ones(3)
    assert not numpy.may_share_memory(copy.deepcopy(array), array)
    assert find_row("copy.deepcopy").effect == "op"


def test_looking_up_is_quick() -> None:
    start = time.perf_counter()
    for name in builtin_table().entries:
        lookup(name)
    assert time.perf_counter() - start < 0.2

"""Every row of the torch tables is executed on real PyTorch: device, memory, layout, rank, dtype, `out=`.

A fake CUDA device shows that results stay where their tensor arguments are. A row that no sample executes fails.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from apis_samples import (
    NEW_BY_NAME,
    VIEWS,
    VIEWS_BY_NAME,
    address,
    collect_tensors,
    find_object,
    find_samples,
    make_tensors,
    read_sample,
    run_sample,
    shares,
)
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from h2dlint.apis import Row, builtin_table, lookup

torch.set_num_threads(1)

TABLE = builtin_table()
ROWS = [row for name in TABLE.entries if name.startswith(("torch.", "copy.")) and (row := TABLE.lookup(name))]


def rows_of(*effects: str) -> list[Any]:
    return [pytest.param(row, id=row.name) for row in ROWS if row.effect in effects and not row.executes]


def names_of(row: Row) -> list[str]:
    return row.returns.partition(":")[2].split(",")


def check_returns(row: Row, result: Any, text: str) -> None:
    match row.returns.partition(":")[0]:
        case "tensor":
            assert isinstance(result, torch.Tensor)
        case "list":
            assert isinstance(result, (list, tuple))
        case "tuple":
            assert isinstance(result, tuple)
        case "namedtuple":
            assert [field for field in names_of(row) if isinstance(getattr(result, field), torch.Tensor)] == names_of(
                row
            )
            assert result[0] is getattr(result, names_of(row)[0])
        case "dim":
            assert isinstance(result, torch.Tensor) or [getattr(result, field) for field in names_of(row)]
        case "if":
            assert isinstance(result, torch.Tensor)


def expected_rank(row: Row, arguments: list[Any], text: str) -> int | None:
    ranks = [one.dim() for one in collect_tensors(arguments)]
    match row.rank:
        case "same":
            return ranks[0]
        case "plus1":
            return ranks[0] + 1
        case "broadcast":
            return max(ranks)
        case "reduce":
            dims = arguments[1 + row.params.index("dim") - bool(row.first)] if has_dim(row, arguments) else None
            if dims is None:
                return 0
            keep = arguments[-1] is True
            return ranks[0] - (0 if keep else len(dims) if isinstance(dims, tuple) else 1)
        case "0" | "1" | "2" | "3":
            return int(row.rank)
    return None


def has_dim(row: Row, arguments: list[Any]) -> bool:
    return "dim" in row.params and len(arguments) > 1 + row.params.index("dim") - bool(row.first)


def expected_dtype(row: Row, arguments: list[Any]) -> torch.dtype | None:
    tensors = list(collect_tensors(arguments))
    promoted = tensors[0].dtype if tensors else torch.get_default_dtype()
    for one in [one for one in arguments if isinstance(one, (int, float, torch.Tensor)) and one is not True]:
        promoted = torch.result_type(torch.zeros(1, dtype=promoted), one)
    match row.dtype:
        case None:
            return None
        case "same":
            return tensors[0].dtype
        case "promote":
            return promoted
        case "float":
            return promoted if promoted.is_floating_point else torch.get_default_dtype()
        case "wide":
            return tensors[0].dtype if tensors[0].dtype.is_floating_point else torch.int64
    return getattr(torch, row.dtype.removeprefix("torch."))  # type: ignore[no-any-return]


@pytest.mark.parametrize("row", rows_of("op", "join", "like"))
def test_result_is_new_memory_as_the_row_says(row: Row) -> None:
    samples = find_samples(row.name)
    assert samples, "no sample executes this row"
    for text in samples:
        result, arguments = run_sample(find_object(row.name), text, make_tensors())
        check_returns(row, result, text)
        leaves = list(collect_tensors(result))
        if row.returns == "object":
            continue
        assert leaves
        for leaf in leaves:
            assert leaf.device.type == "cpu"
            assert not shares(leaf, arguments), text
        first = leaves[0]
        rank, dtype = expected_rank(row, arguments, text), expected_dtype(row, arguments)
        assert rank is None or first.dim() == rank, text
        assert dtype is None or first.dtype == dtype, text
        if row.shape in ("same", "like"):
            assert first.shape == next(collect_tensors(arguments)).shape, text
        if row.layout in ("keeps", "contiguous") and all(one.is_contiguous() for one in collect_tensors(arguments)):
            assert all(leaf.is_contiguous() for leaf in leaves), text


@pytest.mark.parametrize("row", [one for one in rows_of("op", "join") if one.values[0].layout == "contiguous"])
def test_result_is_contiguous_whatever_the_arguments(row: Row) -> None:
    for text in find_samples(row.name):
        tensors = make_tensors()
        for name in "xymb":
            tensors[name] = tensors[name].transpose(-1, -2).contiguous().transpose(-1, -2)
        result, _ = run_sample(find_object(row.name), text, tensors)
        assert all(leaf.is_contiguous() for leaf in collect_tensors(result)), text


@pytest.mark.parametrize("row", [one for one in rows_of("op", "join") if not one.values[0].name.startswith("copy")])
def test_dtype_of_whole_numbers(row: Row) -> None:
    """An operation that does not know whole numbers raises: that is no fact of ours."""
    for text in find_samples(row.name):
        tensors = make_tensors()
        tensors.update({name: tensors[name].mul(8).to(torch.int32) for name in "xyvmbn"})
        try:
            result, arguments = run_sample(find_object(row.name), text, tensors)
        except (RuntimeError, IndexError, TypeError, ValueError, NotImplementedError):
            continue
        leaves = list(collect_tensors(result))
        dtype = expected_dtype(row, arguments)
        assert dtype is None or not leaves or leaves[0].dtype == dtype, text


@pytest.mark.parametrize("row", rows_of("op", "join"))
def test_out_is_the_result(row: Row) -> None:
    if row.name.startswith("torch.Tensor.") or row.returns in ("object", "unknown"):
        assert not row.out
        return
    accepted = [text for text in find_samples(row.name) if is_out_accepted(find_object(row.name), text)]
    assert row.out == bool(accepted)


def is_out_accepted(function: Callable[..., Any], text: str) -> bool:
    result, _ = run_sample(function, text, make_tensors())
    out = torch.empty_like(result) if isinstance(result, torch.Tensor) else tuple(map(torch.empty_like, result))
    try:
        given, _ = run_sample(function, text + ", out=out", {**make_tensors(), "out": out})
    except (TypeError, RuntimeError, ValueError):
        return False
    pairs = list(itertools.zip_longest(collect_tensors(given), collect_tensors(out)))
    return all(one is two for one, two in pairs)


# Their results' sizes depend on data, or their kernels look at data: FakeTensor declines.
CANNOT_FAKE = set(
    """
    argwhere contiguous binomial __invert__ histogram histogramdd cov corrcoef nonzero index grid_sampler
    grid_sampler_2d grid_sample ctc_loss istft geqrf lobpcg lstsq new new_tensor one_hot gaussian_nll_loss unfold
    unpad_sequence unpack_sequence pad_packed_sequence
    """.split()
)


@pytest.mark.parametrize("row", rows_of("op", "join", "like", "maybe_view"))
def test_result_stays_on_the_gpu_of_its_arguments(row: Row) -> None:
    samples = find_samples(row.name)
    if row.returns == "object" or row.name.rpartition(".")[2] in CANNOT_FAKE:
        return
    args, keywords = read_sample(samples[0], make_tensors())
    with FakeTensorMode(shape_env=ShapeEnv()), torch.device("cuda"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fakes = {key: move_to_gpu(one) for key, one in keywords.items()}
        result = find_object(row.name)(*[move_to_gpu(one) for one in args], **fakes)
        assert all(leaf.is_cuda for leaf in collect_tensors(result))


def move_to_gpu(value: Any) -> Any:
    """A fake CUDA tensor like the real one."""
    if isinstance(value, (list, tuple)):
        return type(value)(map(move_to_gpu, value))
    if not isinstance(value, torch.Tensor):
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="cuda")


# --- Makers ---------------------------------------------------------------------------------------------------------

# Takes `pin_memory=True` and gives pageable memory: proven by tests/gpu/test_rows.py.
PINS_IN_VAIN = {"torch.blackman_window"}
EXECUTED_ELSEWHERE = {"torch.from_file", "torch.UntypedStorage", "torch.cuda.get_rng_state"}


@pytest.mark.parametrize("row", [row for row in rows_of("new") if row.values[0].name not in EXECUTED_ELSEWHERE])
def test_maker_gives_what_the_row_says(row: Row) -> None:
    function = find_object(row.name)
    for text in NEW_BY_NAME[row.name]:
        result, arguments = run_sample(function, text, {})
        assert result.device.type == "cpu"
        assert row.layout != "contiguous" or result.is_contiguous()
        assert row.dtype is None or str(result.dtype) == row.dtype
        assert not row.rank.isdigit() or result.dim() == int(row.rank)
        match row.shape:
            case "size":
                assert tuple(result.shape) in (tuple(arguments), *[one for one in arguments if isinstance(one, tuple)])
            case "data" | "size_or_data":
                assert tuple(result.shape) == (2, 3)
            case "scalar":
                assert result.dim() == 0
            case "range":
                assert result.dim() == 1
        assert row.pin == accepts(function, f"{text}, pin_memory=False") or row.name in PINS_IN_VAIN
        assert row.shape == "size_or_data" or (row.device == "arg") == accepts(function, f"{text}, device='cpu'")
        assert row.out == accepts(function, f"{text}, out=out", out=torch.empty_like(result))


@pytest.mark.parametrize("row", rows_of("like"))
def test_like_takes_the_keywords_the_row_says(row: Row) -> None:
    text = find_samples(row.name)[0]
    function = find_object(row.name)
    assert row.pin == accepts(function, f"{text}, pin_memory=False")
    assert (row.device == "arg") == accepts(function, f"{text}, device='cpu'")


@pytest.mark.parametrize("row", rows_of("op", "join"))
def test_operations_take_no_pin_memory(row: Row) -> None:
    # Operators swallow keywords.
    assert ".__" in row.name or not accepts(find_object(row.name), f"{find_samples(row.name)[0]}, pin_memory=False")


def accepts(function: Callable[..., Any], text: str, **more: Any) -> bool:
    try:
        run_sample(function, text.removeprefix(", "), {**make_tensors(), **more})
    except TypeError:
        return False
    return True


def test_memory_of_a_file_is_new(tmp_path: Any) -> None:
    path = tmp_path / "numbers"
    path.write_bytes(bytes(16))
    result = torch.from_file(str(path), shared=False, size=4)
    row = lookup("torch.from_file")
    assert row is not None
    assert (result.device.type, result.dim(), row.rank, row.pin) == ("cpu", 1, "1", True)


def test_storage_is_on_the_cpu() -> None:
    assert torch.UntypedStorage(8).device.type == "cpu"


# --- Memory that is shared ------------------------------------------------------------------------------------------

WRAPPED = {
    "torch.from_numpy": "a",
    "torch.as_tensor": "a",
    "torch.asarray": "a",
    "torch.frombuffer": "a, dtype=torch.float32",
    "torch.from_dlpack": "x",
    "torch.utils.dlpack.from_dlpack": "x",
    "torch.Tensor.numpy": "x",
    "torch.Tensor.__array__": "x",
    "torch.nn.Parameter": "x",
    "torch.nn.Buffer": "x",
}


def address_of(value: Any) -> int:
    return value.ctypes.data if isinstance(value, numpy.ndarray) else value.data_ptr()  # type: ignore[no-any-return]


@pytest.mark.parametrize("row", rows_of("wrap"))
def test_wrapper_shares_memory(row: Row) -> None:
    text = WRAPPED[row.name]
    array = numpy.ones((2, 3), dtype=numpy.float32)
    result, arguments = run_sample(find_object(row.name), text, {**make_tensors(), "a": array})
    assert address_of(result) == address_of(arguments[0])
    assert isinstance(result, numpy.ndarray if row.returns == "array" else torch.Tensor)
    if row.copies == "dtype":
        dtype = "numpy.float64" if row.returns == "array" else "torch.float64"
        more = {**make_tensors(), "a": array, "numpy": numpy}
        result, arguments = run_sample(find_object(row.name), f"{text}, dtype={dtype}", more)
        assert address_of(result) != address_of(arguments[0])
    assert (row.device == "arg") == accepts(find_object(row.name), f"{text}, device='cpu'", a=array)


def test_a_list_is_copied_by_wrappers() -> None:
    assert torch.as_tensor([1, 2]).tolist() == torch.asarray([1, 2]).tolist() == [1, 2]


@pytest.mark.parametrize("row", [row for row in rows_of("view", "maybe_view") if "dropout" not in row.values[0].name])
def test_view_shares_memory_in_the_layout_of_its_word(row: Row) -> None:
    for text, size, strides in VIEWS_BY_NAME.get(row.name) or VIEWS[row.view]:
        result, arguments = run_sample(find_object(row.name), text, make_tensors())
        first = next(collect_tensors(result)) if row.returns != "list" or isinstance(result, tuple) else next(result)
        assert row.returns in ("tuple", "list") or result is first
        assert (first.size(), first.stride()) == (size, strides), text
        assert shares(first, arguments)


@pytest.mark.parametrize("row", rows_of("maybe_view"))
def test_maybe_view_copies_now_and_then(row: Row) -> None:
    outcomes = set()
    for text in find_samples(row.name) + [text for text, *_ in VIEWS_BY_NAME.get(row.name, VIEWS.get(row.view, []))]:
        try:
            result, arguments = run_sample(find_object(row.name), text, make_tensors())
        except TypeError:
            continue
        outcomes.add(shares(result, arguments))
        if (
            not shares(result, arguments)
            and row.view != "unknown"
            and not result.is_complex()
            and "dropout" not in row.name
        ):
            assert result.is_contiguous() or row.view == "same"
    assert outcomes == ({True} if row.name in NEVER_COPIES_STRIDED else {True, False})


# Copies of sparse tensors only.
NEVER_COPIES_STRIDED = {"torch.Tensor.to_dense"}


# --- In place, casts ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", rows_of("self"))
def test_in_place_keeps_the_memory(row: Row) -> None:
    samples = find_samples(row.name)
    assert samples, "no sample executes this row"
    ran = False
    for text in samples:
        try:
            result, arguments = run_sample(find_object(row.name), text, make_tensors())
        except (RuntimeError, IndexError, TypeError):
            continue
        ran = True
        changed = next(collect_tensors(arguments))
        before = next(collect_tensors(read_sample(text, make_tensors())[0]))
        assert (result is None) if row.returns == "none" else result is changed
        if row.view == "":
            assert (changed.shape, changed.stride()) == (before.shape, before.stride())
    assert ran, "no sample executes this row"


@pytest.mark.parametrize("row", rows_of("cast"))
def test_cast_copies_where_the_dtype_differs(row: Row) -> None:
    dtype = {"arg": torch.float64, "other": torch.float64}.get(str(row.dtype)) or getattr(torch, str(row.dtype)[6:])
    more = {"arg": [torch.float64], "other": [torch.zeros(1, dtype=torch.float64)]}.get(str(row.dtype), [])
    right, wrong = (
        torch.zeros(2, 3).to(dtype),
        torch.zeros(2, 3, dtype=torch.int32 if dtype != torch.int32 else torch.int64),
    )
    assert find_object(row.name)(right, *more) is right or address(find_object(row.name)(right, *more)) == address(
        right
    )
    cast = find_object(row.name)(wrong, *more)
    assert cast.dtype == dtype
    assert address(cast) != address(wrong)
    turned = find_object(row.name)(wrong.t(), *more)
    assert turned.stride() == (1, 3), "a cast keeps dense strides"


# --- Moves, values, flags -------------------------------------------------------------------------------------------


def test_moves_on_the_cpu() -> None:
    x, y = torch.ones(3), torch.zeros(3)
    assert x.to("cpu") is x
    assert x.to(torch.float64).dtype == torch.float64
    assert x.to("cpu", copy=True) is not x
    assert x.cpu() is x
    assert y.copy_(x, True) is y
    assert torch._foreach_copy_([y], [x], True) is None or y.tolist() == [1, 1, 1]
    one, two = torch.UntypedStorage(4), torch.UntypedStorage(4)
    assert one.copy_(two, True) is one
    assert one.cpu() is one


def test_move_parameters_are_in_the_order_torch_takes() -> None:
    """Names taken from the signatures in the documentation of each method."""
    for name, first_line in (
        ("to", "dtype, non_blocking=False, copy=False"),
        ("cuda", "device=None, non_blocking=False"),
        ("copy_", "src, non_blocking=False"),
    ):
        documented = getattr(torch.Tensor, name).__doc__
        assert first_line.partition(",")[0] in documented
        row = lookup(f"torch.Tensor.{name}")
        assert row is not None and row.params.index("non_blocking") == {"to": 2, "cuda": 1, "copy_": 1}[name]


PYTHON = {
    "bool": bool,
    "int": int,
    "float": float,
    "complex": complex,
    "str": str,
    "dtype": torch.dtype,
    "device": torch.device,
}
HOST_SAMPLES = {
    "equal": "x, y",
    "allclose": "x, y",
    "__contains__": "x, 1.0",
    "tolist": "x",
    "item": "v[0]",
    "__index__": "k[0, 0]",
    "__format__": "x, ''",
}


@pytest.mark.parametrize("row", rows_of("host"))
def test_host_rows_give_python_values(row: Row) -> None:
    text = HOST_SAMPLES.get(row.name.rpartition(".")[2], "v[0]")
    result, _ = run_sample(find_object(row.name), text, make_tensors())
    assert not isinstance(result, torch.Tensor)
    assert row.returns == "unknown" or type(result) is PYTHON[row.returns]


QUERY_SAMPLES = {
    "is_same_size": "x, y",
    "is_set_to": "x, y",
    "can_cast": "torch.float32, torch.int32",
    "result_type": "x, y",
    "promote_types": "torch.float32, torch.int32",
    "device": "'cpu'",
    "broadcast_shapes": "(1,), (2,)",
    "is_coalesced": "torch.eye(2).to_sparse()",
}
NO_ARGUMENTS = {"is_grad_enabled", "get_num_threads", "device_count", "get_default_dtype", "get_default_device"}
NEED_CUDA = {"torch.cuda.current_device", "torch.cuda.cudart"}


@pytest.mark.parametrize("row", [row for row in rows_of("query") if row.values[0].name not in NEED_CUDA])
def test_queries_give_python_values(row: Row) -> None:
    short = row.name.rpartition(".")[2]
    text = "" if short in NO_ARGUMENTS else QUERY_SAMPLES.get(short, "x")
    if row.name == "torch.Tensor.device":
        text = "x"
    if row.name.endswith("sparse_dim") or row.name.endswith("dense_dim"):
        text = "torch.eye(2).to_sparse()"
    result, _ = run_sample(find_object(row.name), text, make_tensors())
    assert not isinstance(result, torch.Tensor)
    expected = PYTHON.get(row.returns, object)
    assert isinstance(result, expected) or (
        isinstance(result, tuple) and all(isinstance(one, expected) for one in result)
    )


@pytest.mark.parametrize("row", rows_of("flag"))
def test_flags_are_bools(row: Row) -> None:
    assert type(find_object(row.name)()) is bool


# --- Modules, loaders, files ----------------------------------------------------------------------------------------

MODULES = {
    "Linear": "4, 4",
    "Bilinear": "4, 4, 2",
    "Embedding": "5, 4",
    "EmbeddingBag": "5, 4",
    "LayerNorm": "4",
    "RMSNorm": "4",
    "GroupNorm": "1, 3",
    "RNN": "4, 4",
    "LSTM": "4, 4",
    "GRU": "4, 4",
    "GRUCell": "4, 4",
    "LSTMCell": "4, 4",
    "MultiheadAttention": "4, 2",
    "Transformer": "4, 2, 1, 1, 8",
    "TransformerEncoderLayer": "4, 2, 8, 0.0",
    "TransformerDecoderLayer": "4, 2, 8, 0.0",
    "TransformerEncoder": "torch.nn.TransformerEncoderLayer(4, 2, 8), 1",
    "TransformerDecoder": "torch.nn.TransformerDecoderLayer(4, 2, 8), 1",
    "PixelShuffle": "1",
    "Upsample": "2",
    "ZeroPad2d": "1",
    "Unflatten": "1, (2, 2)",
}
MODULE_INPUTS = {
    "Bilinear": "x, x",
    "Embedding": "k",
    "EmbeddingBag": "k",
    "MultiheadAttention": "x, x, x",
    "Transformer": "x, x",
    "TransformerDecoder": "x, x",
    "TransformerDecoderLayer": "x, x",
    "CrossEntropyLoss": "x, y",
    "L1Loss": "x, y",
    "MSELoss": "x, y",
    "PixelShuffle": "n",
    "GroupNorm": "b",
    "Upsample": "b",
    "ZeroPad2d": "b",
}


def make_module(short: str) -> tuple[Any, str]:
    """(module, arguments of its call)."""
    kind = getattr(torch.nn, short)
    dims = next(
        (
            int(one[0])
            for one in short.split("Pool")[1:] + short.split("Norm")[1:] + short.split("Conv")[-1:]
            if one[:1].isdigit()
        ),
        0,
    )
    if "Pool" in short or ("Norm" in short and dims):
        return kind(3 if "Norm" in short else 1), ["", "b", "n", "n[None]" if "Norm" not in short else "n[:, :, None]"][
            dims
        ]
    if short.startswith("Conv"):
        dims = int(short[-2])
        return kind(3, 3, 1), ["", "b", "n", "n[:, :, None]"][dims]
    text = MODULES.get(short, "")
    return eval(f"kind({text})", {"kind": kind, "torch": torch}), MODULE_INPUTS.get(short, "x")


@pytest.mark.parametrize("row", [row for row in rows_of("module") if not row.values[0].view])
def test_a_module_gives_new_memory(row: Row) -> None:
    module, text = make_module(row.name.rpartition(".")[2])
    result, arguments = run_sample(module, text, make_tensors())
    assert not any(shares(leaf, arguments) for leaf in collect_tensors(result))


def test_modules_that_may_hand_their_argument_back() -> None:
    x = torch.ones(2, 2)
    for module in (torch.nn.Identity(), torch.nn.Dropout().eval(), torch.nn.Flatten(), torch.nn.Sequential()):
        assert address(module(x)) == address(x)
    for row in ROWS:
        if row.effect == "module":
            assert isinstance(getattr(torch.nn, row.name.rpartition(".")[2]), type)


def test_loader_and_load(tmp_path: Any) -> None:
    loader = torch.utils.data.DataLoader([torch.ones(2)] * 4, 2, pin_memory=False)
    assert [tuple(batch.shape) for batch in loader] == [(2, 2), (2, 2)]
    torch.save(torch.ones(2), tmp_path / "x.pt")
    assert torch.load(tmp_path / "x.pt", "cpu").device.type == "cpu"


# --- Completeness ---------------------------------------------------------------------------------------------------

NEED_A_GPU_LIMIT = 70


def test_few_rows_wait_for_hardware() -> None:
    waiting = [row.name for row in ROWS if row.executes]
    assert len(waiting) <= NEED_A_GPU_LIMIT, waiting


@pytest.mark.parametrize("name", [row.name for row in ROWS if not row.executes])
def test_names_exist(name: str) -> None:
    find_object(name)


# Public callables that make no tensor; then those of sparse tensors; then the removed (they raise) and the quantised.
IGNORED = set(
    """
    backward boolean_dispatch choose_qparams_optimized classproperty clear_autocast_cache compile
    compiled_with_cxx11_abi
    cond fork assert_int_or_pair copy_method_params bind import_ir_module import_ir_module_from_buffer init_num_threads
    initial_seed invert_permutation manual_seed merge_type_from_type_comment module_load parse_ir parse_schema
    parse_type_comment prepare_multiprocessing_environment profiler_allow_cudagraph_cupti_lazy_reinit_cuda12 qscheme
    register_hook register_post_accumulate_grad_hook reinforce retain_grad save seed storage_type thread_safe_generator
    typename unify_type_list vmap wait while_loop Optional NamedTuple Self handle_torch_function has_torch_function
    has_torch_function_unary has_torch_function_variadic
    ccol_indices_copy col_indices_copy crow_indices_copy indices_copy row_indices_copy values_copy hsmm
    eig lstsq matrix_rank solve symeig empty_quantized int_repr native_norm
    """.split()
)
# Kernels beneath torch.nn.functional and torch.ao, which nobody calls by these names.
KERNELS = (
    "cudnn_",
    "miopen_",
    "mkldnn_",
    "fbgemm_",
    "quantize",
    "fake_quantize",
    "fused_",
    "sym_",
    "set_",
    "get_",
    "is_",
    "autocast_",
    "batch_norm_",
    "rnn_",
    "gru",
    "lstm",
    "q_",
    "use_deterministic",
    "are_deterministic",
)


def test_every_public_operation_has_a_row() -> None:
    missing = []
    for owner, module in (
        ("torch", torch),
        ("torch.Tensor", torch.Tensor),
        ("torch.nn.functional", torch.nn.functional),
        ("torch.special", torch.special),
        ("torch.fft", torch.fft),
        ("torch.linalg", torch.linalg),
        ("torch.nn.utils.rnn", torch.nn.utils.rnn),
    ):
        for short in dir(module):
            value = getattr(module, short)
            if (
                short.startswith("_")
                or not callable(value)
                or isinstance(value, type)
                or (short in IGNORED and owner != "torch.linalg")
            ):
                continue
            if not short.startswith(KERNELS) and lookup(f"{owner}.{short}") is None:
                missing.append(f"{owner}.{short}")
    assert missing == []


def test_every_operator_has_a_row() -> None:
    operators = [name for name in dir(torch.Tensor) if name.startswith("__")]
    missing = [name for name in operators if name not in NOT_OPERATORS and lookup(f"torch.Tensor.{name}") is None]
    assert missing == []


NOT_OPERATORS = set(
    """
    __annotations__ __array_priority__ __array_wrap__ __class__ __cuda_array_interface__ __delattr__ __delitem__
    __dict__
    __dir__ __dlpack_c_exchange_api__ __dlpack_device__ __doc__ __getattribute__ __getstate__ __init__ __init_subclass__
    __module__ __new__ __reduce__ __reduce_ex__ __slotnames__ __setattr__ __setstate__ __subclasshook__
    __torch_dispatch__
    __torch_function__ __weakref__
    """.split()
)

"""Where results lie when the arguments are pinned: every row of the torch tables on a real GPU.

A row implies it: views and in-place operations keep pinned memory, everything new is pageable unless `pin_memory=` or
`out=` says otherwise. Rows that only run with CUDA are executed here, too.
"""

from __future__ import annotations

import pathlib
import sys
from typing import Any

import pytest

torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")
sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

from apis_samples import (  # noqa: E402
    NEW_BY_NAME,
    VIEWS,
    VIEWS_BY_NAME,
    collect_tensors,
    find_object,
    find_samples,
    make_tensors,
    read_sample,
    run_sample,
    shares,
)

from h2dlint.apis import Row, builtin_table  # noqa: E402

pytestmark = pytest.mark.gpu
TABLE = builtin_table()


def is_known_here(name: str) -> bool:
    """Whether this PyTorch, which may be older than the table, has the name."""
    try:
        find_object(name)
    except AttributeError:
        return False
    return True


ROWS = [
    row
    for name in TABLE.entries
    if name.startswith(("torch.", "copy.")) and is_known_here(name) and (row := TABLE.lookup(name))
]


def rows_of(*effects: str) -> list[Any]:
    return [pytest.param(row, id=row.name) for row in ROWS if row.effect in effects and not row.executes]


def pin(value: Any) -> Any:
    """The same with its strided tensors pinned."""
    if isinstance(value, torch.Tensor):
        return value.pin_memory()
    return type(value)(map(pin, value)) if type(value) in (list, tuple) else value


def run_pinned(name: str, text: str) -> tuple[Any, list[Any]]:
    args, keywords = read_sample(text, make_tensors())
    given = [pin(one) for one in args]
    return find_object(name)(*given, **{key: pin(one) for key, one in keywords.items()}), given


def is_pinned(value: Any) -> list[bool]:
    """Of each tensor with elements: one without any says False whatever its memory."""
    return [one.is_pinned() for one in collect_tensors(value) if one.numel()]


@pytest.mark.parametrize("row", rows_of("op", "join", "like"))
def test_new_results_are_pageable(row: Row) -> None:
    result, _ = run_pinned(row.name, find_samples(row.name)[0])
    assert not any(is_pinned(result))


@pytest.mark.parametrize("row", [one for one in rows_of("op", "join") if one.values[0].out])
def test_out_keeps_its_memory(row: Row) -> None:
    for text in find_samples(row.name):
        result, _ = run_sample(find_object(row.name), text, make_tensors())
        if not isinstance(result, torch.Tensor) or not result.numel():
            continue
        args, keywords = read_sample(text, make_tensors())
        try:
            given = find_object(row.name)(*args, **keywords, out=torch.empty_like(result, pin_memory=True))
        except (TypeError, RuntimeError):
            continue
        assert given.is_pinned()


@pytest.mark.parametrize("row", rows_of("view", "maybe_view"))
def test_views_keep_pinned_memory(row: Row) -> None:
    texts = [text for text, *_ in VIEWS_BY_NAME.get(row.name) or VIEWS.get(row.view, [])]
    for text in texts if row.effect == "view" else find_samples(row.name):
        result, given = run_pinned(row.name, text)
        first = next(iter(collect_tensors(result if isinstance(result, (tuple, torch.Tensor)) else list(result))))
        assert first.is_pinned() == (row.effect == "view" or shares(first, given))


@pytest.mark.parametrize("row", [one for one in rows_of("self") if one.values[0].view != "shared"])
def test_in_place_keeps_pinned_memory(row: Row) -> None:
    ran = False
    for text in find_samples(row.name):
        try:
            _, given = run_pinned(row.name, text)
        except (RuntimeError, IndexError, TypeError):
            continue
        ran = True
        assert is_pinned(given)[0]
    assert ran


def test_shared_memory_is_pageable() -> None:
    assert not torch.ones(8).pin_memory().share_memory_().is_pinned()


@pytest.mark.parametrize("row", rows_of("cast"))
def test_casts_that_copy_lose_pinned_memory(row: Row) -> None:
    dtype = torch.float64 if row.dtype in ("arg", "other") else getattr(torch, str(row.dtype)[6:])
    more = {"arg": [torch.float64], "other": [torch.zeros(1, dtype=torch.float64)]}.get(str(row.dtype), [])
    same = torch.zeros(8).to(dtype).pin_memory()
    other = torch.zeros(8, dtype=torch.int64 if dtype == torch.int32 else torch.int32).pin_memory()
    assert find_object(row.name)(same, *more).is_pinned()
    assert not find_object(row.name)(other, *more).is_pinned()


@pytest.mark.parametrize("row", [one for one in rows_of("new") if one.values[0].name in NEW_BY_NAME])
def test_makers_pin_where_they_can(row: Row) -> None:
    for text in NEW_BY_NAME[row.name]:
        result, _ = run_sample(find_object(row.name), text, {})
        assert not result.is_pinned()
        if row.pin:
            pinned, _ = run_sample(find_object(row.name), f"{text}, pin_memory=True", {})
            assert pinned.is_pinned()


@pytest.mark.parametrize("row", [one for one in rows_of("like") if one.values[0].pin])
def test_makers_of_the_same_shape_pin_where_they_can(row: Row) -> None:
    result, _ = run_sample(find_object(row.name), f"{find_samples(row.name)[0]}, pin_memory=True", make_tensors())
    assert result.is_pinned()


@pytest.mark.parametrize(
    "text",
    [
        "torch.from_numpy(x.numpy())",
        "torch.as_tensor(x)",
        "torch.as_tensor(x.numpy())",
        "torch.asarray(x.numpy())",
        "torch.frombuffer(x.numpy(), dtype=x.dtype)",
        "torch.from_dlpack(x)",
        "torch.utils.dlpack.from_dlpack(x)",
        "torch.nn.Parameter(x)",
        "torch.nn.Buffer(x)",
        "torch.from_numpy(x.__array__())",
    ],
)
def test_wrappers_keep_pinned_memory(text: str) -> None:
    assert eval(text, {"torch": torch, "x": torch.ones(8).pin_memory()}).is_pinned()


def test_what_only_cuda_runs() -> None:
    x = torch.ones(8)
    gpu = x.cuda(None, True)
    assert gpu.is_cuda
    assert x.pin_memory().is_pinned()
    assert gpu.to("cpu", non_blocking=True).is_pinned()
    assert not gpu.cpu().is_pinned()
    assert torch.cuda.FloatTensor(2, 3).is_cuda
    assert torch.nn.Linear(2, 2).cuda().weight.is_cuda
    assert not torch.cuda.get_rng_state().is_cuda
    stream, event = torch.cuda.Stream(), torch.cuda.Event()
    with torch.cuda.stream(stream):
        event.record()
        gpu.record_stream(stream)
    torch.cuda.current_stream().wait_stream(stream)
    stream.wait_event(event)
    event.wait()
    for wait in (event.synchronize, stream.synchronize, torch.cuda.synchronize, torch.accelerator.synchronize):
        assert wait() is None
    assert stream.query() and event.query()
    storage = torch.UntypedStorage(8).pin_memory()
    assert storage.is_pinned()
    assert storage.cuda().device.type == "cuda"
    packed = torch.nn.utils.rnn.pack_sequence([x, x])
    assert packed.pin_memory().data.is_pinned()
    assert packed.cuda(non_blocking=True).is_cuda and packed.to("cuda", non_blocking=True).is_cuda
    assert x.type("torch.cuda.FloatTensor").is_cuda
    assert torch.arange(2, device="cuda").new_zeros(2).is_cuda


def test_registered_memory_counts_as_pinned() -> None:
    x = torch.ones(1 << 16)
    assert int(torch.cuda.cudart().cudaHostRegister(x.data_ptr(), x.nbytes, 0)) == 0
    try:
        assert x.is_pinned()
    finally:
        torch.cuda.cudart().cudaHostUnregister(x.data_ptr())


def test_a_window_that_ignores_pin_memory() -> None:
    row = TABLE.lookup("torch.blackman_window")
    assert row is not None and not row.pin
    assert not torch.blackman_window(8, pin_memory=True).is_pinned()


@pytest.mark.parametrize(
    ("text", "pinned"),
    [
        ("a[:2]", True),
        ("a.T", True),
        ("a.reshape(12)", True),
        ("numpy.asarray(a)", True),
        ("numpy.ascontiguousarray(a)", True),
        ("numpy.expand_dims(a, 0)", True),
        ("numpy.broadcast_to(a[:1], (3, 4)).view()", True),
        ("numpy.split(a, 3)[0]", True),
        ("a[[0, 1]]", False),
        ("a[a > 0]", False),
        ("a.copy()", False),
        ("a.astype('float64')", False),
        ("a.T.reshape(12)", False),
        ("numpy.array(a)", False),
        ("numpy.concatenate([a, a])", False),
        ("a + 1", False),
        ("numpy.zeros_like(a)", False),
    ],
)
def test_arrays_that_view_pinned_memory(text: str, pinned: bool) -> None:
    array = torch.ones(3, 4).pin_memory().numpy()
    assert torch.from_numpy(eval(text, {"a": array, "numpy": numpy})).is_pinned() == pinned


def test_tensors_of_other_libraries(tmp_path: pathlib.Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    safetensors.save_file({"x": torch.ones(8)}, tmp_path / "x.safetensors")
    loaded = safetensors.load_file(tmp_path / "x.safetensors")["x"]
    assert (loaded.is_cuda, loaded.is_pinned()) == (False, False)
    assert safetensors.load_file(tmp_path / "x.safetensors", device="cuda")["x"].is_cuda
    torch.save(torch.ones(8), tmp_path / "x.pt")
    assert not torch.load(tmp_path / "x.pt").is_pinned()


def test_batches_are_pinned_by_the_loader() -> None:
    data = [torch.ones(8) for _ in range(4)]
    assert all(batch.is_pinned() for batch in torch.utils.data.DataLoader(data, 2, pin_memory=True))
    assert not any(batch.is_pinned() for batch in torch.utils.data.DataLoader(data, 2))


LENGTHS_ON_CPU = {
    f"torch.nn.utils.rnn.{name}" for name in ("pack_padded_sequence", "pack_sequence", "pad_packed_sequence")
}
CPU_ALONE = {"torch.histogram", "torch.Tensor.histogram", "torch.histogramdd"}


@pytest.mark.parametrize("row", rows_of("op", "join"))
def test_results_stay_on_the_gpu(row: Row) -> None:
    """The lengths of packed sequences are host data, given and taken, so that only the values are looked at there."""
    args, keywords = read_sample(find_samples(row.name)[0], make_tensors())
    first, *rest = args
    given = [move(first), *(rest if row.name in LENGTHS_ON_CPU else map(move, rest))]
    moved = {key: move(one) for key, one in keywords.items()}
    if row.name in CPU_ALONE:
        with pytest.raises(NotImplementedError):
            find_object(row.name)(*given, **moved)
        return
    leaves = list(collect_tensors(find_object(row.name)(*given, **moved)))
    assert leaves
    assert all(one.is_cuda for one in (leaves[:1] if row.name in LENGTHS_ON_CPU else leaves))


def move(value: Any) -> Any:
    if isinstance(value, (torch.Tensor, torch.nn.utils.rnn.PackedSequence)):
        return value.cuda()
    return type(value)(map(move, value)) if type(value) in (list, tuple) else value

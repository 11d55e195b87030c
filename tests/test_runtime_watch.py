"""The runtime checker without a GPU: a mark on a CPU tensor plays the part of `is_cuda`."""

from __future__ import annotations

import json
import linecache
import subprocess
import sys
import threading
import time
import warnings

import pytest

torch = pytest.importorskip("torch")

from h2dlint.runtime import BlockingCopyError, BlockingCopyWarning, Watch, allow, watch  # noqa: E402
from h2dlint.runtime.report import read_json, render_json, render_text  # noqa: E402

PINNED: set[int] = set()


@pytest.fixture
def fake_gpu(monkeypatch):
    """Meta tensors, and CPU tensors marked by `on_gpu`, say that they are on a GPU; `pin` fakes page-locked memory."""
    monkeypatch.setattr(
        torch.Tensor, "is_cuda", property(lambda t: t.device.type == "meta" or hasattr(t, "_on_gpu")), raising=False
    )
    monkeypatch.setattr(
        torch.Tensor, "is_pinned", lambda t: t.device.type == "cpu" and t.untyped_storage().data_ptr() in PINNED
    )
    yield
    PINNED.clear()


def on_gpu(tensor):
    tensor._on_gpu = True
    return tensor


def pin(tensor):
    PINNED.add(tensor.untyped_storage().data_ptr())
    return tensor


BIG = (64, 1024)


def only(report):
    assert len(report.rows()) == 1, report.rows()
    return report.rows()[0]


@pytest.mark.parametrize(
    ("make", "verdict", "codes"),
    [
        (lambda: torch.zeros(BIG), "blocks", ("HTD102", "HTD103", "HTD104")),
        (lambda: pin(torch.zeros(BIG)), "async", ()),
        (lambda: pin(torch.zeros(BIG))[:, :1000], "blocks", ("HTD101",)),
        (lambda: pin(torch.zeros(BIG))[:32], "async", ()),
        (lambda: pin(torch.zeros(BIG)).t(), "async", ()),
        (lambda: torch.zeros(0, 4), "async", ()),
    ],
)
def test_to_is_judged_by_memory_and_layout(fake_gpu, make, verdict, codes):
    source = make()
    with watch() as report:
        source.to("meta", non_blocking=True)
    row = only(report)
    assert (row.operation, row.direction, row.verdict, row.codes) == ("to", "h2d", verdict, codes)
    assert row.count == 1
    assert row.bytes == source.numel() * 4
    assert bool(report.found) == (verdict == "blocks")


@pytest.mark.parametrize("spell", [lambda t: t.to("meta"), lambda t: t.to("meta", torch.float32, False)])
def test_a_copy_without_the_flag_is_a_blocking_copy(fake_gpu, spell):
    with watch() as report:
        spell(pin(torch.zeros(8)))
    assert only(report).codes == ("HTD302",)


def test_the_flag_counts_by_position_too(fake_gpu):
    source = pin(torch.zeros(8))
    with watch() as report:
        source.to("meta", torch.float32, True)
        source.to(torch.empty(1, device="meta"), True)
        torch.empty(8, device="meta").copy_(source, True)
    assert [row.verdict for row in report.rows()] == ["async"] * 3


@pytest.mark.parametrize(
    ("make", "codes"),
    [
        (lambda: torch.zeros(BIG), ("HTD105",)),
        (lambda: pin(torch.zeros(64, 2048))[:, :1024], ("HTD105",)),
        (lambda: pin(torch.zeros(BIG)), ()),
    ],
)
def test_downloads_are_judged_by_their_destination(fake_gpu, make, codes):
    target, source = make(), on_gpu(torch.ones(BIG))
    with watch() as report:
        target.copy_(source, non_blocking=True)
    row = only(report)
    assert (row.direction, row.codes) == ("d2h", codes)
    assert target.eq(1).all()


def test_copy_into_another_layout_or_shape(fake_gpu):
    source = pin(torch.zeros(BIG))
    with watch() as report:
        torch.empty(1024, 64, device="meta").copy_(source.t(), non_blocking=True)
        torch.empty(3, *BIG, device="meta").copy_(source, non_blocking=True)
    assert [row.codes for row in report.rows()] == [("HTD101",)] * 2
    assert sorted(row.bytes for row in report.rows()) == [64 * 1024 * 4, 3 * 64 * 1024 * 4]


def test_factories_index_and_setitem(fake_gpu):
    gpu = on_gpu(torch.zeros(10))
    index, mask = torch.tensor([1, 2]), torch.ones(10, dtype=torch.bool)
    with watch() as report:
        torch.tensor([1.0, 2.0], device="meta")
        torch.as_tensor([1.0], device="meta")
        torch.empty(1, device="meta").new_tensor([1.0])
        gpu[index]
        gpu[[0, 1]]
        gpu[mask]
        gpu[1:3] = torch.ones(2)
        gpu[index] = 3.0
        gpu[0] = 1.0
        gpu[1:4]
        gpu[3]
    seen = sorted((row.row, row.operation, row.codes) for row in report.rows())
    assert [each[1:] for each in seen] == [
        ("new_on_device", ("HTD301",)),
        ("new_on_device", ("HTD301",)),
        ("new_on_device", ("HTD301",)),
        ("index", ("HTD303",)),
        ("index", ("HTD303",)),
        ("index", ()),
        ("setitem", ("HTD304",)),
        ("index", ("HTD303",)),
    ]
    assert gpu.tolist() == [1.0, 3.0, 3.0, 0, 0, 0, 0, 0, 0, 0]


def test_foreach_copy_is_seen_pair_by_pair(fake_gpu):
    targets = [torch.empty(BIG, device="meta"), torch.empty(4)]
    with watch() as report:
        torch._foreach_copy_(targets, [torch.zeros(BIG), torch.ones(4)])
    assert only(report).codes == ("HTD302",)


def test_what_stays_on_one_side_is_not_listed(fake_gpu):
    with watch() as report:
        x = torch.zeros(4).to(torch.float64)
        x.copy_(torch.ones(4))
        x[torch.tensor([1])] = 2
        x.to("cpu")
        torch.tensor([1.0])
        torch.empty(2, device="meta").to(torch.float16)
    assert report.rows() == []
    assert x.tolist() == [1, 2, 1, 1]


def test_small_uploads_are_listed_but_no_fault(fake_gpu):
    with watch(mode="error") as report:
        torch.zeros(16 * 1024).to("meta", non_blocking=True)
    assert only(report).small
    assert report.found == []
    with watch() as report:
        torch.zeros(16 * 1024 + 1).to("meta", non_blocking=True)
    assert report.found[0].bytes == 64 * 1024 + 4


def test_rows_are_lines_with_columns(fake_gpu):
    big = torch.zeros(BIG)
    with watch() as report:
        for _ in range(3):
            é = (big.to("meta", non_blocking=True), big.to("meta", non_blocking=True))  # two calls, one line
    assert é
    rows = report.rows()
    assert sorted(row.count for row in rows) == [3, 3]
    assert len({row.row for row in rows}) == 1
    if sys.version_info >= (3, 11):
        line = linecache.getline(__file__, rows[0].row)
        for row in rows:
            assert line[row.column - 1 : row.end_column - 1] == 'big.to("meta", non_blocking=True)'
    assert all(row.filename == __file__ for row in rows)


def test_the_line_is_the_user_s_where_torch_calls_for_them(fake_gpu):
    model = torch.nn.Linear(4, 4)
    with watch() as report:
        model.to("meta")
    rows = report.rows()
    assert {row.filename for row in rows} == {__file__}
    assert {row.codes for row in rows} == {("HTD302",)}


def test_host_time_is_that_of_the_call(fake_gpu, monkeypatch):
    original = torch.Tensor.copy_
    monkeypatch.setattr(torch.Tensor, "copy_", lambda *a, **k: (time.sleep(0.02), original(*a, **k))[1], raising=False)
    target = torch.empty(BIG, device="meta")
    with watch() as report:
        for _ in range(2):
            target.copy_(torch.zeros(BIG), non_blocking=True)
    row = only(report)
    assert 0.04e9 <= row.host_ns < 1e9
    assert 0.02e9 <= row.worst_ns < row.host_ns


def test_error_mode_raises_at_the_call(fake_gpu):
    source = torch.zeros(BIG)
    with watch(mode="error"), pytest.raises(BlockingCopyError, match=r"test_runtime_watch.py:\d+: HTD102.*pageable"):
        source.to("meta", non_blocking=True)
    source.to("meta", non_blocking=True)


def test_error_mode_lets_good_copies_and_asked_for_waits_pass(fake_gpu):
    with watch(mode="error") as report:
        pin(torch.zeros(BIG)).to("meta", non_blocking=True)
        torch.zeros(4).copy_(on_gpu(torch.ones(4)))
    assert [row.verdict for row in report.rows() if row.direction == "d2h"] == ["blocks"]
    assert report.found == []


def test_warn_mode_warns_once_a_line(fake_gpu):
    source = torch.zeros(BIG)
    with watch(mode="warn"), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            source.to("meta", non_blocking=True)
    assert [each.category for each in caught] == [BlockingCopyWarning]
    assert caught[0].filename == __file__


def test_allowed_regions_are_counted_apart(fake_gpu):
    source = torch.zeros(BIG)

    def copy():
        source.to("meta", non_blocking=True)

    with watch(mode="error") as report:
        with allow("weights are loaded once"):
            copy()
        with pytest.raises(BlockingCopyError):
            copy()
    assert sorted(row.allowed for row in report.rows()) == ["", "weights are loaded once"]
    assert [row.allowed for row in report.found] == [""]
    with pytest.raises(ValueError, match="reason"), allow(" "):
        pass


def copy_in_thread(source):
    thread = threading.Thread(target=lambda: source.to("meta", non_blocking=True), name="side")
    thread.start()
    thread.join()


def test_threads(fake_gpu):
    source = torch.zeros(BIG)
    with watch() as report:
        copy_in_thread(source)
    assert report.rows() == []
    with watch(threads="all") as report, allow("this thread only"):
        copy_in_thread(source)
    row = only(report)
    assert (row.threads, row.allowed) == (("side",), "")


def test_many_threads_lose_no_count(fake_gpu):
    source = torch.zeros(BIG)

    def work():
        for _ in range(200):
            source.to("meta", non_blocking=True)

    with watch(threads="all") as report:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    assert only(report).count == 800


def test_warm_up_by_steps(fake_gpu):
    source = torch.zeros(BIG)
    with watch(warmup=2) as report:
        for _ in range(5):
            source.to("meta", non_blocking=True)
            report.step()
    assert only(report).count == 3


def test_a_decorated_function_is_watched_from_its_second_call(fake_gpu):
    source = torch.zeros(BIG)

    @watch()
    def step(depth=0):
        source.to("meta", non_blocking=True)
        if depth:
            step(depth - 1)

    step()
    source.to("meta", non_blocking=True)
    assert step.watch.rows() == []
    step(depth=1)
    source.to("meta", non_blocking=True)
    assert only(step.watch).count == 2
    step.watch.close()
    assert "to" not in vars(torch.Tensor)


def test_lines_that_ran_too_seldom_are_cold(fake_gpu):
    source = torch.zeros(BIG)
    with watch(mode="error", from_call=3) as report:
        for _ in range(2):
            source.to("meta", non_blocking=True)
        with pytest.raises(BlockingCopyError):
            for _ in range(3):
                source.to("meta", non_blocking=True)
    assert sorted((row.count, row.cold, row.found) for row in report.rows()) == [(2, True, False), (3, False, True)]


def test_a_line_that_copies_good_and_bad_tensors_in_turn_gives_both(fake_gpu):
    """Good copies go a short way after the first one at a place; it must not carry others along."""
    pinned, pageable = pin(torch.zeros(BIG)), torch.zeros(BIG)
    sources = [pinned, pageable, pinned[:, :1000], pinned, pinned[:32], torch.zeros(0), pageable] * 3
    with watch() as report:
        for source in sources:
            source.to("meta", non_blocking=True)
        for source in sources[:2]:
            source.to("meta", non_blocking=source is pageable)
    seen = sorted((row.codes, row.count, row.bytes) for row in report.rows())
    whole = 64 * 1024 * 4
    assert seen == [
        ((), 3, 0),
        ((), 9, 3 * (2 * whole + whole // 2)),
        (("HTD101",), 3, 3 * 64 * 1000 * 4),
        (("HTD102", "HTD103", "HTD104"), 1, whole),
        (("HTD102", "HTD103", "HTD104"), 6, 6 * whole),
        (("HTD302",), 1, whole),
    ]


def test_nested_watches_see_the_same(fake_gpu):
    source = torch.zeros(BIG)
    with watch() as outer:
        with watch() as inner:
            source.to("meta", non_blocking=True)
        source.to("meta", non_blocking=True)
    assert [len(each.rows()) for each in (outer, inner)] == [2, 1]


def test_torch_is_as_it_was_afterwards(fake_gpu):
    names = ("to", "cuda", "cpu", "copy_", "__getitem__", "__setitem__", "new_tensor")
    before = [getattr(torch.Tensor, name) for name in names] + [torch.tensor, torch.as_tensor, torch._foreach_copy_]
    with pytest.raises(KeyError), watch():
        assert torch.Tensor.to is not before[0]
        raise KeyError
    after = [getattr(torch.Tensor, name) for name in names] + [torch.tensor, torch.as_tensor, torch._foreach_copy_]
    assert before == after
    assert "to" not in vars(torch.Tensor)


def test_a_patch_made_meanwhile_by_somebody_else_stays(fake_gpu, monkeypatch):
    with watch():
        theirs = torch.Tensor.to
        other = lambda *a, **k: theirs(*a, **k)  # noqa: E731
        torch.Tensor.to = other
    assert torch.Tensor.to is other
    assert torch.zeros(2).to(torch.int64).dtype is torch.int64
    del torch.Tensor.to


def test_open_twice_is_refused(fake_gpu):
    once = watch()
    with once, pytest.raises(RuntimeError, match="open already"):
        once.__enter__()


def test_modes_count_once(fake_gpu):
    from torch.overrides import TorchFunctionMode

    class Mode(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    with watch() as report, Mode(), Mode():
        torch.zeros(BIG).to("meta", non_blocking=True)
    assert only(report).count == 1


def test_default_device_contexts_still_work():
    with watch(), torch.device("meta"):
        assert torch.tensor(1.0).device.type == "meta"
    with torch.device("meta"):
        assert torch.tensor(1.0).device.type == "meta"


def test_subclasses_pass_through(fake_gpu):
    class Tagged(torch.Tensor):
        pass

    with watch() as report:
        result = torch.zeros(4).as_subclass(Tagged).to("meta")
    assert type(result) is Tagged
    assert report.rows() == []


def test_vmap_grad_and_jit_still_work(fake_gpu):
    with watch() as report:
        out = torch.func.vmap(lambda x: x.to(torch.float64)[..., :2].sum())(torch.ones(3, 4))
        leaf = torch.ones(3, requires_grad=True)
        leaf.to(torch.float64).sum().backward()

        @torch.jit.script
        def scripted(x: torch.Tensor) -> torch.Tensor:
            return x.to(torch.float64) + torch.tensor([1.0])

        assert scripted(torch.ones(1)).item() == 2
    assert out.tolist() == [2, 2, 2]
    assert leaf.grad.tolist() == [1, 1, 1]
    assert report.notes == [] or "compile" in report.notes[0]


def test_what_cannot_be_judged_is_counted_and_stops_nothing(fake_gpu, monkeypatch):
    def refuse(tensor):
        raise RuntimeError("no storage")

    monkeypatch.setattr(torch.Tensor, "is_pinned", refuse)
    with watch(mode="error") as report:
        torch.zeros(4).to("meta")
    assert report.rows() == []
    assert report.notes[0].startswith("1 copies could not be judged")


def test_text_and_json_reports(fake_gpu):
    pinned = pin(torch.zeros(BIG))
    with watch() as report:
        for _ in range(4):
            pinned[:, :1000].to("meta", non_blocking=True)
        pinned.to("meta", non_blocking=True)
        torch.zeros(3).copy_(on_gpu(torch.ones(3)))
    text = render_text(report.rows(), report.notes)
    assert "HTD101 to h2d blocks, 4 times, 1000.0 KiB" in text
    assert "instead: copy contiguous pieces" in text
    assert "(a wait that the call asks for)" in text
    assert "h2dlint watch: 6 copies on 3 lines seen; 1 hold the host" in text
    written = render_json(report.rows(), report.notes)
    assert json.loads(written)["torch"] == torch.__version__
    assert read_json(written) == report.rows()


@pytest.mark.parametrize("text", ["", "[]", '{"version": 1}', '{"version": 1, "rows": [{"filename": 3}]}'])
def test_other_json_is_refused(text):
    with pytest.raises(ValueError, match=r"watch report|no valid"):
        read_json(text)


@pytest.mark.parametrize("options", [{"mode": "loud"}, {"threads": "some"}])
def test_wrong_options(options):
    with pytest.raises(ValueError, match="not '"):
        Watch(**options)


def test_the_package_imports_no_torch():
    code = (
        "import sys, h2dlint.runtime as r, h2dlint.runtime.pytest_plugin; r.allow; r.watch; r.watch_cli;"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


COMPILED = """
import sys, torch
from h2dlint.runtime import watch

def body(x):
    y = torch.empty(3)
    y.copy_(x[0, :3])
    y[1] = 3
    return y.to(torch.float64) + torch.tensor(1.0)

def check():
    torch.compiler.reset()
    compiled = torch.compile(body, backend="eager", fullgraph=True)
    assert compiled(torch.zeros(2, 4)).tolist() == [1, 4, 1]
    return compiled

def unbound(x):
    return torch.Tensor.to(x, torch.float64)

if sys.argv[1] == "before":
    check()
with watch() as report:
    compiled = check()
    if sys.argv[1] == "before":
        torch.compile(unbound, backend="eager", fullgraph=True)(torch.ones(2))
torch.compile(unbound, backend="eager", fullgraph=True)(torch.ones(2))
assert compiled(torch.zeros(2, 4)).tolist() == [1, 4, 1]
check()
assert any("compiled graphs" in note for note in report.notes)
"""


@pytest.mark.parametrize("loaded", ["before", "under"])
def test_compiled_functions_still_compile(loaded):
    """Also when torch.compile is first loaded under a watch, and after the watch has gone."""
    ran = subprocess.run([sys.executable, "-c", COMPILED, loaded], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]


def test_a_place_known_to_be_good_asks_neither_the_driver_nor_the_model(fake_gpu, monkeypatch):
    """And still sees each copy there that is not like the good ones."""
    good, far = pin(torch.zeros(BIG)), torch.empty(BIG, device="meta")

    def copy(source):
        far.copy_(source, non_blocking=True)

    with watch() as report:
        for _ in range(3):
            copy(good)
        with monkeypatch.context() as patch:
            patch.setattr(torch.Tensor, "is_pinned", lambda t: pytest.fail("the driver was asked"))
            for _ in range(5):
                copy(good)
        for other in (torch.zeros(BIG), good[:, :1], good[:1]):
            copy(other)
            copy(good)
    counts = {(row.verdict, row.layout, row.memory): row.count for row in report.rows()}
    assert sum(counts.values()) == 14
    assert counts["async", "contiguous", "pinned"] == 11
    assert counts["blocks", "contiguous", "pageable"] == 1


def test_two_watches_and_two_threads_each_count_their_own(fake_gpu):
    good, far = pin(torch.zeros(BIG)), torch.empty(BIG, device="meta")

    def copy(times):
        for _ in range(times):
            far.copy_(good, non_blocking=True)

    with watch() as outer:
        copy(3)
        with watch() as inner:
            copy(5)
        other = threading.Thread(target=copy, args=(7,))
        other.start()
        other.join()
        copy(2)
    assert [sum(row.count for row in report.rows()) for report in (outer, inner)] == [10, 5]

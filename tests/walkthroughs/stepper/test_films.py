"""The films: every kernel has one, its picture means what the kernel meant, and steps stand where their lines run."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotate.errors import UnknownName
from kernels.simt.cursor import Cursor
from kernels.simt.trace import Trace
from walkthroughs import launchables
from walkthroughs.digest import ROOT
from walkthroughs.step import steps
from walkthroughs.stepper import films
from walkthroughs.stepper.films import Film
from walkthroughs.stepper.scenes import SCENES, Pool

ALL = list(films.films().values())
each_film = pytest.mark.parametrize("film", ALL, ids=lambda film: film.id)


def focus_of(film: Film, trace: Trace) -> int:
    return trace.thread(film.focus, trace.threads[0].block)


def test_every_kernel_has_a_film_and_every_scene_belongs_to_one() -> None:
    assert {film.kernel for film in ALL} == set(launchables.names())
    assert set(SCENES) == set(films.films())


@each_film
def test_a_film_is_whole_and_traces_the_threads_that_it_names(film: Film) -> None:
    trace = films.record(film)
    assert trace.truncated is None
    assert tuple(thread.number for thread in trace.threads) == film.threads
    assert trace.block[0] * trace.block[1] * trace.block[2] == film.num_threads
    assert trace.files[trace.functions[0].file].path == film.port
    assert {event.what for event in trace.events if event.kind == "end"} == {"returned"}


@pytest.mark.parametrize("name", ["scatter", "classic-v2-reduce", "reshape-and-cache"])
def test_a_film_is_the_same_each_time(name: str) -> None:
    film = films.film(name)
    first = films.record(film).to_json()
    films.record.cache_clear()
    assert films.record(film).to_json() == first


def test_the_reduce_film_is_of_the_second_launch() -> None:
    assert films.record(films.film("classic-v2")).kernel != films.record(films.film("classic-v2-reduce")).kernel


def test_an_unknown_film_names_the_nearest() -> None:
    with pytest.raises(UnknownName, match="classic-v1"):
        films.film("clasic-v1")


# The scenes.


@each_film
def test_a_pool_is_as_large_as_its_array(film: Film) -> None:
    sizes = {array.name: array.shape[0] for array in films.record(film).arrays if array.space == "global"}
    for pool in film.scene.pools:
        assert sizes[pool.array] == 1 + sum((size - 1) * stride for _, size, stride in pool.axes)
    if film.scene.table:
        assert sum(film.scene.row) <= sizes[film.scene.table]


@given(st.data())
def test_a_place_leads_back_to_its_element(data: st.DataObject) -> None:
    pool = data.draw(st.sampled_from([pool for scene in SCENES.values() for pool in scene.pools]))
    place = {name: data.draw(st.integers(0, size - 1)) for name, size, _ in pool.axes}
    index = sum(place[name] * stride for name, _, stride in pool.axes)
    assert pool.where(index) == place


def accesses(trace: Trace, thread: int, pools: dict[str, Pool]) -> list[tuple[int, str, int]]:
    """Event number, array and element of a thread's accesses to pools."""
    found = []
    for number in trace.events_of(thread):
        event = trace.events[number]
        if event.array >= 0 and event.kind in ("read", "write", "vector") and trace.arrays[event.array].name in pools:
            found.append((number, trace.arrays[event.array].name, event.index))
    return found


BLOCK_NAMES = ("physical_block_number", "physical_block", "block_idx")
TOKEN_NAMES = ("block_offset", "token")
# The 2d kernel keeps block numbers in shared memory and copy-blocks and the writes have other names for them.
NAMED = [f for f in ALL if f.scene.pools and f.id not in ("paged-2d", "copy-blocks", "tiny-vllm-writes")]


@pytest.mark.parametrize("film", NAMED, ids=lambda film: film.id)
def test_an_element_lies_in_the_block_that_the_kernel_names(film: Film) -> None:
    """The kernel's own variables against the scene's arithmetic."""
    trace = films.record(film)
    pools = {pool.array: pool for pool in film.scene.pools}
    checked = 0
    for at in range(len(trace.threads)):
        cursor = Cursor(trace, at)
        for number, array, index in accesses(trace, at, pools):
            cursor.to(number + 1)
            place = pools[array].where(index)
            frames = cursor.state.threads[at].frames
            seen = {name: value.data for frame in frames for name, value in frame.variables.items()}
            assert place["block"] == next(seen[name] for name in BLOCK_NAMES if name in seen)
            tokens = [seen[name] for name in TOKEN_NAMES if name in seen]
            # The classic kernels read a value for several tokens at once: their names are of the first.
            if tokens and not film.id.startswith("classic"):
                assert place["token"] == tokens[0]
            checked += 1
    assert checked


@pytest.mark.parametrize("film", [f for f in ALL if f.scene.table and f.scene.pools], ids=lambda film: film.id)
def test_the_row_is_the_one_that_the_kernel_reads(film: Film) -> None:
    trace = films.record(film)
    first, count = film.scene.row
    reads = {
        event.index
        for event in trace.events
        if event.kind == "read" and trace.arrays[event.array].name == film.scene.table
    }
    assert reads
    assert min(reads) >= first
    assert max(reads) < first + count
    data = next(array.data for array in trace.arrays if array.name == film.scene.table)
    assert data is not None
    named = {data[index] for index in reads}
    if film.scene.kind == "slots":
        named = {slot // film.scene.block_size for slot in named}
    pools = {pool.array: pool for pool in film.scene.pools}
    for at in range(len(trace.threads)):
        assert {pools[array].where(index)["block"] for _, array, index in accesses(trace, at, pools)} <= named


@each_film
def test_what_runs_along_is_there(film: Film) -> None:
    trace = films.record(film)
    names = {name for event in trace.events for name, _ in event.changed}
    assert set(film.scene.running) <= names


# The join, and where steps stand.


def fenced(path: str) -> dict[int, list[str]]:
    """The open regions at each line of a port, by counting fences: what the join must answer."""
    found, stack = {}, []
    for number, line in enumerate((ROOT / path).read_text("utf-8").splitlines(), 1):
        text = line.strip()
        if text.startswith("# region:"):
            stack.append(text.removeprefix("# region:").strip())
        elif text == "# endregion":
            stack.pop()
        else:
            found[number] = list(reversed(stack))
    return found


@each_film
def test_the_join_knows_the_concepts_of_every_line_that_runs(film: Film) -> None:
    trace, joined = films.record(film), films.join(film)
    for file in trace.files:
        for line, open_there in fenced(file.path).items():
            assert list(joined.concepts_at(file.path, line)) == open_there
            for concept in open_there:
                assert any(
                    path == file.path and first <= line <= last for path, first, last in joined.port_lines(concept)
                )
    if film.source:
        assert any(joined.upstream(concept) for concept in joined.upstream_spans)
    else:
        assert not joined.upstream_spans


WITHOUT_A_FILM = {
    # Host code, arithmetic, or lines that no launch of a film passes.
    "vllm-classic/padded-rows", "vllm-classic/grid", "vllm-classic/v1-or-v2", "vllm-live/cache-shape",
    "vllm-live/table-travels", "vllm-live/update", "vllm-live/forward", "tiny-vllm/block", "tiny-vllm/constants-twice",
    "tiny-vllm/free-list", "tiny-vllm/write-decode", "tiny-vllm/lifetime", "tiny-vllm/table-copies",
    "findings/wider-product",
    # A rung's step counts what a launch does; nobody follows a thread through it.
    *(name for name in steps() if name.startswith("ladder/")),
}  # fmt: skip


def test_every_step_of_a_kernel_stands_in_a_film() -> None:
    assert {step.id for step in steps().values() if films.clip_of(step) is None} == WITHOUT_A_FILM


@pytest.mark.parametrize("name", [name for name in steps() if name not in WITHOUT_A_FILM])
def test_a_step_begins_where_its_first_line_runs(name: str) -> None:
    step = steps()[name]
    clip = films.clip_of(step)
    assert clip is not None
    assert clip.film.port == step.port
    assert clip.concepts
    assert set(clip.concepts) <= set(step.reads)
    trace = films.record(clip.film)
    lines = {file.path: fenced(file.path) for file in trace.files}
    thread = focus_of(clip.film, trace)
    visits = [
        number
        for number in trace.events_of(thread)
        if (event := trace.events[number]).kind == "line"
        and clip.concepts[0] in lines[trace.files[trace.functions[event.function].file].path][event.line]
    ]
    assert clip.start == visits[0]

"""An idea in all its kernels: which have it, in what order they are shown, and how lines are named."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from annotate.ideas import Idea, idea_of, tables
from annotate.spans import spans
from walkthroughs import ideas
from walkthroughs.ideas import PortLines, Run, appearances, named, runs, side_by_side
from walkthroughs.site.code import port_ranges


def test_walking_the_block_table_is_in_six_kernels_four_of_which_run() -> None:
    found = {entry.kernel.id: entry for entry in appearances(idea_of("block-table-walk"))}
    assert list(found) == ["classic", "paged-2d", "unified", "rocm", "tiny-vllm", "smallest"]
    assert [name for name, entry in found.items() if entry.port] == ["classic", "paged-2d", "tiny-vllm", "smallest"]
    lines = {name: [(span.first, span.last) for span in entry.upstream] for name, entry in found.items()}
    assert lines == {
        "classic": [(219, 250)],
        "paged-2d": [(152, 167), (158, 167)],
        "unified": [(419, 426)],
        "rocm": [(422, 439), (534, 553)],
        "tiny-vllm": [(478, 480)],
        "smallest": [],
    }
    assert {lines.path for lines in found["tiny-vllm"].variants} == {
        "kernels/tiny_vllm/attention.py",
        "kernels/tiny_vllm/general.py",
    }


def test_every_idea_has_each_kernel_once_with_lines_of_its_own_source() -> None:
    for idea in tables().ideas.values():
        found = appearances(idea)
        assert len({entry.kernel.id for entry in found}) == len(found)
        for entry in found:
            assert set(entry.concepts) <= set(idea.concepts)
            assert entry.upstream or entry.port or entry.variants
            for span in entry.upstream:
                assert span.source == entry.kernel.source
                assert span in spans(span.source)[span.concept]
            for lines in (*entry.port, *entry.variants):
                assert (lines.first, lines.last) in port_ranges(lines.path)[lines.concept]


def test_the_port_of_a_kernel_is_never_shown_under_another() -> None:
    for idea in tables().ideas.values():
        for entry in appearances(idea):
            allowed = {*entry.kernel.ports, *entry.kernel.shared}
            assert {lines.path for lines in entry.port} <= allowed
            assert {lines.path for lines in entry.variants} <= set(entry.kernel.variants)


def test_a_shared_file_gives_a_kernel_only_what_that_has_upstream() -> None:
    (holder,) = [entry.kernel.id for entry in appearances(idea_of("flash-scales")) if entry.port]
    assert holder == "flash-writer"


def test_kernels_keep_their_order_but_those_of_a_sibling_asked_for_come_first() -> None:
    def shown(name: str) -> list[str]:
        return [entry.kernel.id for entry in side_by_side(idea_of(name), name)]

    assert shown("block-table-walk") == ["classic", "paged-2d", "tiny-vllm", "smallest"]
    assert shown("v-address") == ["classic", "paged-2d", "tiny-vllm", "smallest"]
    assert shown("paged-2d-table") == ["paged-2d", "classic", "tiny-vllm", "smallest"]
    # One without a port is shown when it is what was asked for.
    assert shown("rocm-table") == ["rocm", "classic", "paged-2d", "tiny-vllm", "smallest"]


def test_the_concepts_of_a_kernel_are_named_once_each() -> None:
    (twoD,) = [entry for entry in appearances(idea_of("block-table-walk")) if entry.kernel.id == "paged-2d"]
    assert twoD.concepts == ("block-table-walk", "paged-2d-table")
    (smallest,) = [entry for entry in appearances(idea_of("block-table-lookup")) if entry.kernel.id == "smallest"]
    assert smallest.concepts == ("gather-lookup",)


def test_what_no_kernel_has_appears_nowhere() -> None:
    assert appearances(Idea("doc-query", "x", "", ("doc-query",))) == ()


def test_a_source_without_recorded_lines_leaves_the_ports(monkeypatch) -> None:
    monkeypatch.setattr(ideas, "recorded", list)
    found = appearances(idea_of("block-table-walk"))
    assert [entry.kernel.id for entry in found] == ["classic", "paged-2d", "tiny-vllm", "smallest"]
    assert not any(entry.upstream for entry in found)


places = st.tuples(st.sampled_from("ab"), st.integers(1, 30), st.integers(0, 6)).map(
    lambda p: PortLines(f"{p[0]}.py", p[1], p[1] + p[2], "x")
)


@given(st.lists(places, max_size=12))
def test_runs_hold_the_same_lines_apart_from_each_other(found: list[PortLines]) -> None:
    joined = runs(found)
    lines = {(it.path, n) for it in found for n in range(it.first, it.last + 1)}
    assert {(run.path, n) for run in joined for n in range(run.first, run.last + 1)} == lines
    assert sum(run.last - run.first + 1 for run in joined) == len(lines)
    for before, after in itertools.pairwise(joined):
        assert before.path != after.path or before.last + 1 < after.first
    assert list(dict.fromkeys(run.path for run in joined)) == list(dict.fromkeys(it.path for it in found))


def test_lines_are_named_by_file() -> None:
    found = [PortLines("b.py", 9, 9, "x"), PortLines("b.py", 3, 5, "y"), PortLines("a.py", 1, 2, "x")]
    assert named(found) == {"b.py": "3-5, 9", "a.py": "1-2"}
    assert runs(found) == (Run("b.py", 3, 5), Run("b.py", 9, 9), Run("a.py", 1, 2))

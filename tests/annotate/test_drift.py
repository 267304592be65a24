"""Reading many releases, on a source of our own: one that fails hurts no other, and the cache never lies."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

import annotate.drift as module
from annotate.concepts import Place
from annotate.drift import Reading, delta, diff, load, save, survey, with_deltas
from annotate.errors import AnnotateError, DownloadFailed, ReleaseUnreadable
from annotate.history import lanes
from annotate.sourcetree import Pin, SourceTree, install
from annotate.tracks import Track

ONE = """
__global__ void fill(float* out, int count) {
  for (int i = threadIdx.x; i < count; i += blockDim.x) {
    out[i] = 0.f;
  }
}
"""
TWO = ONE.replace("__global__", "// All of it.\n__global__").replace("out[i] = 0.f", "out[i]  =  0.f")
THREE = """
__global__ void fill(float* out, int count, float value) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) {
    out[i] = value;
  }
}
"""
TEXTS = {
    "1.0": {"k.cu": ONE},
    "1.2": {"k.cu": TWO},
    "1.10": {"far/k.cu": TWO},
    "2.0": {"far/k.cu": THREE},
    "2.1": {"n.cu": "int x;\n"},
}
TRACKS = {
    "fill": Track("fill", "fill", {"toy@1.2": Place("fill")}),
    "loop": Track("loop", "loop", {"toy@1.2": Place("fill", "for(i)")}),
}


def pin_of(source: str) -> Pin:
    return Pin(
        source,
        "toy",
        source.partition("@")[2],
        "sdist",
        "a test",
        f"sha256:{source}",
        "MIT",
        ("**/*.cu", "*.cu"),
        "x/{path}",
    )


class World:
    """Every release in a cache of its own; counts what is opened, and fails where it is told to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.opened: list[str] = []
        self.failing: dict[str, BaseException] = {}
        for revision, texts in TEXTS.items():
            self.put(revision, texts)

    def put(self, revision: str, texts: dict[str, str]) -> SourceTree:
        staged = self.folder / "staging" / f"{revision}.x"
        for path, text in texts.items():
            (staged / "tree" / path).parent.mkdir(parents=True, exist_ok=True)
            (staged / "tree" / path).write_text(text)
        return install(pin_of(f"toy@{revision}"), staged, self.folder, marked_copy=False)

    def open(self, pin: Pin) -> SourceTree:
        from annotate.sourcetree import opened

        self.opened.append(pin.revision)
        if pin.id in self.failing:
            raise self.failing[pin.id]
        return opened(pin, self.folder)

    def survey(self, *revisions: str, cache: bool = False) -> dict[str, Reading | AnnotateError]:
        pins = [pin_of(f"toy@{revision}") for revision in revisions or TEXTS]
        return survey(pins, self.open, chosen=TRACKS, cache=self.folder / "drift" if cache else None)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(module, "pin_of", pin_of)
    return World(tmp_path)


def readings(found: dict[str, Reading | AnnotateError]) -> dict[str, Reading]:
    return {name: entry for name, entry in found.items() if isinstance(entry, Reading)}


def test_a_history_of_five_releases(world: World) -> None:
    found = readings(world.survey())
    told = lanes(with_deltas(found.values()), {"fill": "toy@1.2", "loop": "toy@1.2"})
    assert [cell.verdict for cell in told["fill"].cells] == [None, "reformatted", "moved", "changed", "gone"]
    assert [cell.verdict for cell in told["loop"].cells] == [None, "reformatted", "moved", "gone", None]
    assert [cell.as_written for cell in told["fill"].cells] == ["reformatted", "same", "moved", "changed", "gone"]
    assert told["fill"].gone_at == "toy@2.1"
    change = told["fill"].at("toy@2.0")
    assert change is not None
    assert change.delta is not None
    assert "for(i by blockDim.x)" in change.delta.old
    assert "param(value)" in change.delta.new
    assert change.delta.since == "toy@1.10"
    hunks = diff(found["toy@1.10"], found["toy@2.0"], "fill")
    assert (change.delta.came, change.delta.went) == (sum(len(h.new) for h in hunks), sum(len(h.old) for h in hunks))
    assert any("value" in hunk.new for hunk in hunks)
    assert diff(found["toy@2.0"], found["toy@2.1"], "fill") == []


def test_the_order_of_reading_and_the_other_releases_do_not_matter(world: World) -> None:
    together = readings(world.survey())
    for revision in reversed(TEXTS):
        (alone,) = readings(world.survey(revision)).values()
        assert alone == together[f"toy@{revision}"]


def test_one_release_that_fails_is_reported_and_the_rest_answered(world: World) -> None:
    world.failing = {
        "toy@1.10": DownloadFailed("toy@1.10", "no network"),
        "toy@2.0": RecursionError("too deep"),
        "toy@1.0": PermissionError(13, "Permission denied"),
    }
    found = world.survey()
    assert isinstance(found["toy@1.10"], DownloadFailed)
    assert isinstance(found["toy@2.0"], ReleaseUnreadable)
    assert "too deep" in str(found["toy@2.0"])
    assert isinstance(found["toy@1.0"], ReleaseUnreadable)
    assert [*readings(found)] == ["toy@1.2", "toy@2.1"]
    told = lanes(with_deltas(readings(found).values()))
    assert [cell.verdict for cell in told["fill"].cells] == [None, "gone"]


def test_without_the_anchors_own_release_nothing_can_be_said(world: World) -> None:
    world.failing = {"toy@1.2": DownloadFailed("toy@1.2", "no network")}
    assert readings(world.survey()) == {}


@pytest.mark.parametrize("depth", [1_000, 40_000])
def test_nesting_without_end_is_an_error_and_not_a_crash(world: World, depth: int) -> None:
    """Release text is not trusted: this one drives a recursive reader out of its stack."""
    body = "if (count) {" * depth + "out[0] = 0.f;" + "}" * depth
    world.put("2.0", {"k.cu": "__global__ void fill(float* out, int count) {\n" + body + "\n}\n"})
    found = world.survey()
    assert isinstance(found["toy@2.0"], ReleaseUnreadable)
    assert isinstance(found["toy@2.1"], Reading)
    assert isinstance(found["toy@1.0"], Reading)


def test_what_the_parser_gives_up_on_is_not_said_to_be_gone(world: World) -> None:
    """The symbol is not seen, but its name stands in lines that could not be read."""
    world.put("2.0", {"k.cu": "void other( { ) }\n__global__ @@ fill ((float* out, int count) { out[0] = 1;\n"})
    state = readings(world.survey())["toy@2.0"].facts.states["fill"]
    assert state is not None
    assert (state.how, state.digest, state.symbol) == ("unreadable", "", "k.cu")
    told = lanes(with_deltas(readings(world.survey("1.10", "2.0")).values()))["fill"]
    assert [cell.verdict for cell in told.cells] == [None, None]


# -- the cache -----------------------------------------------------------


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The releases that are really read."""
    done: list[str] = []
    real = module.read

    def counting(source: str, *args: object) -> Reading:
        done.append(source)
        return real(source, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "read", counting)
    return done


def test_a_second_survey_reads_nothing(world: World, reads: list[str]) -> None:
    first = world.survey(cache=True)
    assert len(reads) == len(TEXTS)
    again = world.survey(cache=True)
    assert len(reads) == len(TEXTS)
    assert readings(again).keys() == readings(first).keys()
    for name, entry in readings(first).items():
        other = readings(again)[name]
        assert dict(other.facts.states) == dict(entry.facts.states)
        assert (other.tokens, other.items) == (entry.tokens, entry.items)


@pytest.mark.parametrize("what", ["text", "base", "anchor", "code"])
def test_whatever_a_reading_depends_on_makes_it_stale(
    world: World, reads: list[str], monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    world.survey(cache=True)
    reads.clear()
    everything = [f"toy@{revision}" for revision in TEXTS]
    if what == "text":
        world.put("2.0", {"far/k.cu": THREE + "\n"})
        expected = ["toy@2.0"]
    elif what == "base":
        world.put("1.2", {"k.cu": TWO + "\n"})
        expected = everything
    elif what == "anchor":
        reworded = dataclasses.replace(TRACKS["loop"], places={"toy@1.2": Place("fill", "for(i)#1")})
        monkeypatch.setitem(TRACKS, "loop", reworded)
        expected = everything
    else:
        monkeypatch.setattr(module, "_code", lambda: "other code")
        expected = everything
    world.survey(cache=True)
    assert reads == expected


@pytest.mark.parametrize(
    "damage", ["", "{", "[]", '{"key": 1}', "null", '{"key": "k", "facts": "{}", "tokens": {}, "items": {}}']
)
def test_a_damaged_cache_is_read_anew(tmp_path: Path, damage: str) -> None:
    (tmp_path / "r.json").write_text(damage)
    assert load(tmp_path / "r.json", "k") is None
    assert load(tmp_path / "none.json", "k") is None


def test_a_reading_survives_the_cache(world: World, tmp_path: Path) -> None:
    entry = readings(world.survey("2.0"))["toy@2.0"]
    save(tmp_path / "r.json", "k", entry)
    again = load(tmp_path / "r.json", "k")
    assert again is not None
    assert (again.tokens, again.items) == (dict(entry.tokens), dict(entry.items))
    assert again.facts == entry.facts or dict(again.facts.states) == dict(entry.facts.states)
    assert load(tmp_path / "r.json", "other") is None
    assert json.loads((tmp_path / "r.json").read_text())["key"] == "k"


def test_much_that_came_is_told_in_short(world: World) -> None:
    many = (
        "__global__ void fill(float* out, int count) {\n" + "".join(f"  int v{n} = {n};\n" for n in range(20)) + "}\n"
    )
    world.put("2.0", {"far/k.cu": many})
    found = readings(world.survey("1.10", "2.0"))
    change = delta(found["toy@1.10"], found["toy@2.0"], "fill")
    assert len(change.new) == 13
    assert change.new[-1] == "8 more"
    assert change.old[0] == "for(i by blockDim.x)"

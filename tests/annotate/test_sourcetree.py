"""Pins, links, and a cache that notices what was edited."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest

from annotate.errors import DigestMismatch, RangeOutside, SourceUnavailable, UnknownName
from annotate.sourcetree import (
    Pin,
    SourceTree,
    cache_dir,
    every_pin,
    install,
    open_tree,
    opened,
    pin_of,
    pins,
    release_pin,
)

PIN = Pin(
    id="toy@1",
    name="toy",
    revision="1",
    kind="sdist",
    origin="nowhere",
    digest="sha256:00",
    licence="Apache-2.0",
    files=("LICENSE", "src/**/*.cu", "*.py"),
    permalink="https://example.org/toy/blob/1/{path}",
)


@pytest.fixture
def tree(tmp_path: Path) -> SourceTree:
    staged = tmp_path / "staging" / "toy@1.x"
    (staged / "tree/src/a b").mkdir(parents=True)
    (staged / "tree/src/a b/k.cu").write_bytes(b"one\ntwo\nthree")
    (staged / "tree/m.py").write_bytes(b"x = 1\n")
    return install(PIN, staged, tmp_path, marked_copy=False)


def test_the_pins_are_those_of_the_facts() -> None:
    found = {pin.id: (pin.revision, pin.digest, pin.size, pin.optional) for pin in pins().values()}
    assert found == {
        "vllm@0.24.0": (
            "0.24.0",
            "sha256:0862453adc1f3339f1a0c9dca1179c34d6ed6e118f87b6e5bddd120af614ac66",
            37236989,
            False,
        ),
        "vllm@0.26.0": (
            "0.26.0",
            "sha256:23e9fa19d7e20ce7dcc1c074d41503e2116d23f19e688f5d5ea91b741f958502",
            38353572,
            False,
        ),
        "tiny-vllm@e25bf19": ("e25bf19", "git:e25bf1994efa90bc98b721ba7c527402f86fbeaf", None, True),
    }
    assert all(pin.licence == "Apache-2.0" for pin in pins().values())


def test_the_releases_that_only_drift_looks_into() -> None:
    drift = {pin.revision: pin for pin in every_pin().values() if pin.drift}
    assert [*drift] == (
        [
            "0.6.6.post1",
            "0.9.2",
            "0.11.0",
            "0.11.2",
            "0.14.1",
            "0.20.2",
            "0.22.1",
            "0.23.0",
            "0.25.0",
            "0.31.0",
            "0.32.0",
            "0.33.0",
        ]
    )
    facts = {
        "0.33.0": ("sha256:f4c33c2503d52bb411146afa9618a4f48bed68912f617e6803ac8d76e4c74112", 47101396),
        "0.6.6.post1": ("sha256:d9035954a2028fd7efb2c37e137d69b568d80f193b6a8748f885676292a43a95", 4871419),
    }
    assert {revision: (drift[revision].digest, drift[revision].size) for revision in facts} == facts
    assert len({pin.digest for pin in every_pin().values()}) == len(every_pin())
    for pin in drift.values():
        assert re.fullmatch(r"sha256:[0-9a-f]{64}", pin.digest)
        assert pin.size
        assert f"/blob/v{pin.revision}/csrc/x.cu#L3-L4" in pin.link("csrc/x.cu", 3, 4)
        assert set(pins()["vllm@0.24.0"].files) < set(pin.files)
    assert not drift.keys() & {pin.revision for pin in pins().values()}
    assert pin_of("vllm@0.9.2") is every_pin()["vllm@0.9.2"]


def test_a_release_of_a_source_that_is_not_followed() -> None:
    with pytest.raises(UnknownName, match="vllm"):
        release_pin("vlm", "1.0", "sha256:00")


def test_an_unknown_pin_gets_the_nearest() -> None:
    with pytest.raises(UnknownName, match=r"vllm@0\.24\.0"):
        pin_of("vllm@0.24.1")
    with pytest.raises(UnknownName):
        open_tree("vllm")


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("LICENSE", True),
        ("src/k.cu", True),
        ("src/a/b/k.cu", True),
        ("m.py", True),
        ("x/m.py", False),
        ("src/k.cuh", False),
        ("other/src/k.cu", False),
        ("LICENSE.txt", False),
    ],
)
def test_globs(path: str, wanted: bool) -> None:
    assert PIN.wants(path) is wanted


def test_links_are_quoted_and_name_their_lines(tree: SourceTree) -> None:
    base = "https://example.org/toy/blob/1/src/a%20b/k.cu"
    assert tree.permalink("src/a b/k.cu") == base
    assert tree.permalink("src/a b/k.cu", 2) == f"{base}#L2"
    assert tree.permalink("src/a b/k.cu", 2, 2) == f"{base}#L2"
    assert tree.permalink("src/a b/k.cu", 1, 3) == f"{base}#L1-L3"


@pytest.mark.parametrize(("first", "last"), [(0, 2), (3, 2), (1, 4), (4, 9)])
def test_a_link_to_lines_that_are_not_there_is_refused(tree: SourceTree, first: int, last: int) -> None:
    with pytest.raises(RangeOutside, match="3 lines"):
        tree.permalink("src/a b/k.cu", first, last)


def test_what_is_installed_can_be_opened_and_read(tree: SourceTree, tmp_path: Path) -> None:
    again = opened(PIN, tmp_path)
    assert again.paths() == ("m.py", "src/a b/k.cu")
    assert again.read("m.py") == b"x = 1\n"
    assert again.marked_copy is False
    assert list((tmp_path / "staging").iterdir()) == []


def test_installing_again_replaces_all_of_it(tree: SourceTree, tmp_path: Path) -> None:
    staged = tmp_path / "staging" / "toy@1.y"
    (staged / "tree").mkdir(parents=True)
    (staged / "tree/m.py").write_bytes(b"x = 2\n")
    new = install(PIN, staged, tmp_path, marked_copy=True)
    assert (new.paths(), new.read("m.py"), new.marked_copy) == (("m.py",), b"x = 2\n", True)
    assert list((tmp_path / "staging").iterdir()) == []


def test_a_failed_rename_puts_the_old_source_back(
    tree: SourceTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    staged = tmp_path / "staging" / "toy@1.y"
    (staged / "tree").mkdir(parents=True)
    (staged / "tree/m.py").write_bytes(b"x = 2\n")
    real = Path.replace

    def refusing(self: Path, target: Path) -> Path:
        if self == staged:
            raise OSError(13, "Permission denied")
        return real(self, target)

    monkeypatch.setattr(Path, "replace", refusing)
    with pytest.raises(OSError, match="Permission"):
        install(PIN, staged, tmp_path, marked_copy=False)
    assert opened(PIN, tmp_path).read("m.py") == b"x = 1\n"


def test_an_edited_file_is_noticed(tree: SourceTree, tmp_path: Path) -> None:
    (tmp_path / "sources/toy@1/tree/m.py").write_bytes(b"x = 3\n")
    with pytest.raises(DigestMismatch, match=r"m\.py in the cache"):
        tree.read("m.py")


def test_a_file_that_is_not_kept_gets_the_nearest(tree: SourceTree) -> None:
    with pytest.raises(SourceUnavailable, match=r"Near it: m\.py"):
        tree.read("n.py")


def test_a_file_that_is_gone_makes_the_source_unavailable(tree: SourceTree, tmp_path: Path) -> None:
    (tmp_path / "sources/toy@1/tree/m.py").unlink()
    with pytest.raises(SourceUnavailable):
        tree.read("m.py")
    with pytest.raises(SourceUnavailable, match=r"m\.py is gone"):
        opened(PIN, tmp_path)


def test_what_belongs_to_another_pin_is_not_used(tree: SourceTree, tmp_path: Path) -> None:
    for changed in ({"digest": "sha256:01"}, {"files": ("LICENSE",)}):
        with pytest.raises(SourceUnavailable, match="another pin"):
            opened(dataclasses.replace(PIN, **changed), tmp_path)  # type: ignore[arg-type]


@pytest.mark.parametrize("manifest", ["", "{", "[]", json.dumps({"schema": 2})])
def test_a_broken_manifest_is_no_crash(tree: SourceTree, tmp_path: Path, manifest: str) -> None:
    (tmp_path / "sources/toy@1/manifest.json").write_text(manifest)
    with pytest.raises(SourceUnavailable):
        opened(PIN, tmp_path)


def test_where_the_cache_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGEWALK_CACHE", str(tmp_path / "named"))
    assert cache_dir() == tmp_path / "named"
    assert cache_dir(tmp_path) == tmp_path
    monkeypatch.delenv("PAGEWALK_CACHE")
    assert cache_dir().name == "pagewalk"


def test_what_is_kept_beside_is_not_followed() -> None:
    pin = dataclasses.replace(PIN, files=("src/*.cu",), beside=("docs/*.md",))
    assert [pin.wants(path) for path in ("src/a.cu", "docs/a.md", "a.py")] == [True, True, False]
    assert [pin.follows(path) for path in ("src/a.cu", "docs/a.md")] == [True, False]
    tree = SourceTree(pin, Path("nowhere"), False, {"src/a.cu": "1", "docs/a.md": "2"})
    assert tree.followed().paths() == ("src/a.cu",)
    assert tree.paths() == ("src/a.cu", "docs/a.md")

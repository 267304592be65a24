"""The offline copy: its settings, and a zip that is whole, sorted and the same each time."""

from __future__ import annotations

import json
import os
import subprocess
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotate.sources import pins
from walkthroughs.export import offline

ROOT = Path(__file__).resolve().parents[3]


def site(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return folder


FILES = {
    "index.html": "home",
    "b/z.html": "z",
    "assets/a.js": "a();",
    "assets/a.js.map": "map",
    "404.html": "gone",
    "sitemap.xml": "today",
    "search/search_index.js": "var __index = {}",
}
KEPT = ["LICENSE.txt", "README.txt", "assets/a.js", "b/z.html", "index.html", "search/search_index.js"]


def test_the_zip_holds_what_a_copy_needs_under_one_folder(tmp_path: Path) -> None:
    target = tmp_path / "out" / "copy.zip"
    packed = offline.pack(site(tmp_path / "site", FILES), target, "read me", "licence")
    with zipfile.ZipFile(target) as archive:
        assert archive.testzip() is None
        assert archive.namelist() == [f"pagewalk-site/{name}" for name in KEPT]
        assert archive.read("pagewalk-site/README.txt") == b"read me"
        assert archive.read("pagewalk-site/LICENSE.txt") == b"licence"
        assert archive.read("pagewalk-site/b/z.html") == b"z"
        for entry in archive.infolist():
            assert entry.date_time == (1980, 1, 1, 0, 0, 0)
            assert entry.external_attr >> 16 == 0o644
    assert packed == offline.Packed(len(KEPT), target.stat().st_size)
    assert [path.name for path in target.parent.iterdir()] == ["copy.zip"]


def test_the_same_site_gives_the_same_bytes(tmp_path: Path) -> None:
    one = site(tmp_path / "one", FILES)
    two = site(tmp_path / "two", dict(reversed(FILES.items())))
    for path in two.rglob("*"):
        os.utime(path, (1, 1))
    (two / "index.html").chmod(0o600)
    for number, folder in enumerate((one, two)):
        offline.pack(folder, tmp_path / f"{number}.zip", "r", "l")
    assert (tmp_path / "0.zip").read_bytes() == (tmp_path / "1.zip").read_bytes()


@given(
    st.dictionaries(st.from_regex(r"[a-z]{1,3}(/[a-z]{1,3})?\.(html|js|map|xml)", fullmatch=True), st.text(max_size=9))
)
def test_every_file_of_a_site_is_in_the_zip_as_it_is(files: dict[str, str]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "site").mkdir()
        site(folder / "site", files)
        offline.pack(folder / "site", folder / "a.zip", "r", "l")
        with zipfile.ZipFile(folder / "a.zip") as archive:
            found = {n.removeprefix("pagewalk-site/"): archive.read(n) for n in archive.namelist()}
        on_disk = {name: (folder / "site" / name).read_bytes() for name in files if not name.endswith(".map")}
    assert found == {**on_disk, "README.txt": b"r", "LICENSE.txt": b"l"}


def test_a_failed_write_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "copy.zip"
    target.write_bytes(b"old")

    def broken(*args: object, **kwargs: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(zipfile.ZipFile, "writestr", broken)
    with pytest.raises(OSError, match="disk full"):
        offline.pack(site(tmp_path / "site", FILES), target, "r", "l")
    assert target.read_bytes() == b"old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy.zip", "site"]


def test_the_settings_lie_over_the_projects_own(tmp_path: Path) -> None:
    from mkdocs.config import load_config

    (tmp_path / "docs").mkdir()
    laid = load_config(str(offline.configure(tmp_path, tmp_path / "docs", tmp_path / "site")))
    own = load_config(str(ROOT / "mkdocs.yml"))
    assert laid.use_directory_urls is False
    assert not laid.site_url
    assert list(laid.plugins) == [*own.plugins, "material/offline"]
    for name in ("nav", "extra_css", "extra_javascript", "markdown_extensions", "validation", "site_name"):
        assert laid[name] == own[name], name
    instant = [feature for feature in own.theme["features"] if feature.startswith("navigation.instant")]
    assert instant
    assert laid.theme["features"] == [feature for feature in own.theme["features"] if feature not in instant]
    assert {**laid.theme, "features": []} == {**own.theme, "features": []}
    assert laid.extra == {**own.extra, "polyfills": [offline.SHIM]}
    assert laid.hooks == {}


def test_the_shim_is_where_the_settings_say_and_the_plugin_knows_it_by_its_name() -> None:
    assert (ROOT / "docs" / offline.SHIM).is_file()
    assert "iframe-worker" in offline.SHIM


def test_the_readme_says_what_it_is_of_which_revision_and_under_which_licence() -> None:
    first, *rest = pins().values()
    said = offline.readme("commit abc", [first], rest)
    for part in ("index.html", "commit abc", f"{first.name} {first.revision}", first.licence, first.link(""), "MIT"):
        assert part in said
    for pin in rest:
        assert f"No line of {pin.name} {pin.revision} is in this copy" in said
    assert max(map(len, said.splitlines())) <= 120


def git(folder: Path, *args: str) -> str:
    who = ("-c", "user.name=t", "-c", "user.email=t@example.invalid")
    done = subprocess.run(["git", *who, *args], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_the_revision_is_the_commit_and_says_when_it_was_changed(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    (tmp_path / "a").write_text("1")
    git(tmp_path, "add", "a")
    git(tmp_path, "commit", "--quiet", "-m", "one")
    commit = git(tmp_path, "rev-parse", "HEAD")
    assert offline.revision(tmp_path) == f"commit {commit}"
    (tmp_path / "a").write_text("2")
    assert offline.revision(tmp_path) == f"commit {commit}, with changes that are not committed"


def test_without_git_the_revision_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert "unknown" in offline.revision(tmp_path)


def test_the_sources_that_are_here_are_told_from_those_that_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAGEWALK_CACHE", str(tmp_path))
    shown, absent = offline.here()
    assert shown == []
    assert [pin.id for pin in absent] == list(pins())


def test_what_is_laid_over_has_no_hooks(tmp_path: Path) -> None:
    settings = json.loads(offline.configure(tmp_path, tmp_path, tmp_path).read_text("utf-8"))
    assert settings.keys() == {
        "INHERIT", "docs_dir", "site_dir", "site_url", "use_directory_urls", "plugins", "extra", "watch",
    }  # fmt: skip
    assert Path(settings["INHERIT"]).is_absolute()


@pytest.mark.parametrize("end", ["\n", "  \n"])
def test_only_instant_navigation_is_taken_out(tmp_path: Path, end: str) -> None:
    features = ["navigation.instant", "navigation.instant.progress", "navigation.top"]
    base = tmp_path / "own.yml"
    base.write_text("theme:\n  features:\n" + "".join(f"    - {name}{end}" for name in features), "utf-8")
    offline.configure(tmp_path, tmp_path, tmp_path, base)
    kept = (tmp_path / "base.yml").read_text("utf-8")
    assert "navigation.top" in kept
    assert "navigation.instant\n" not in kept
    assert "progress" not in kept

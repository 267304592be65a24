"""`pagewalk site build` and `serve`: a failing step, a busy port, and a server that stops."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]


def test_a_step_that_does_not_pass_stops_the_build(monkeypatch: pytest.MonkeyPatch) -> None:
    from click.testing import CliRunner

    from walkthroughs.commands import site
    from walkthroughs.evidence import Evidence

    record = Evidence("w/broken", "error", "sim", "SIMT machine", "", {}, "2026-01-01", 0, {}, (), 0.1, "no")
    monkeypatch.setattr(site, "run_all", lambda backend: [record])
    monkeypatch.setattr(site, "missing", list)
    monkeypatch.setattr(subprocess, "run", lambda *args, **kwargs: pytest.fail("mkdocs was called"))
    result = CliRunner().invoke(site.site_command, ["build"])
    assert result.exit_code == 1
    assert "w/broken" in result.output


@pytest.mark.parametrize(("code", "status"), [(0, "passed"), (1, "failed")])
def test_build_reports_what_mkdocs_said(monkeypatch: pytest.MonkeyPatch, code: int, status: str) -> None:
    from click.testing import CliRunner

    from walkthroughs.commands import site

    commands = []

    def run(command: list[str], **kwargs: object) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return subprocess.CompletedProcess(command, code)

    monkeypatch.setattr(site, "prepare", lambda backend: None)
    monkeypatch.setattr(site, "missing", list)
    monkeypatch.setattr(subprocess, "run", run)
    result = CliRunner().invoke(site.site_command, ["build", "--json", "--backend", "sim"])
    assert result.exit_code == code
    row = json.loads(result.stdout)["sites"][0]
    assert row["status"] == status
    # The server is told what the build ran on: it never opens a GPU itself.
    assert (row["path"], row["backend"], row["device"]) == (str(ROOT / "site"), "sim", "SIMT machine")
    assert commands == [[sys.executable, "-m", "mkdocs", "build", "--strict"]]


def test_another_folder_and_address_are_the_only_changes(tmp_path: Path) -> None:
    from mkdocs.config import load_config

    from walkthroughs.commands.site import configuration

    ours = load_config(str(ROOT / "mkdocs.yml"))
    theirs = load_config(str(configuration(tmp_path, tmp_path / "a b", "http://127.0.0.1:8123/")))
    assert theirs["site_dir"] == str(tmp_path / "a b")
    assert theirs["site_url"] == "http://127.0.0.1:8123/"
    same = (
        "site_name",
        "docs_dir",
        "nav",
        "extra_css",
        "extra_javascript",
        "markdown_extensions",
        "strict",
        "not_in_nav",
    )
    assert {name: str(theirs[name]) for name in same} == {name: str(ours[name]) for name in same}


def test_into_another_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from click.testing import CliRunner

    from walkthroughs.commands import site

    seen = []

    def run(command: list[str], **kwargs: object) -> subprocess.CompletedProcess[str]:
        seen.append((command[:-1], Path(command[-1]).read_text("utf-8")))
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(site, "prepare", lambda backend: None)
    monkeypatch.setattr(site, "missing", list)
    monkeypatch.setattr(subprocess, "run", run)
    result = CliRunner().invoke(site.site_command, ["build", "--into", str(tmp_path / "out"), "--backend", "sim"])
    assert result.exit_code == 0, result.output
    ((command, text),) = seen
    assert command == [sys.executable, "-m", "mkdocs", "build", "--strict", "-f"]
    assert json.dumps(str(tmp_path / "out")) in text
    assert "site_url" not in text


def fake_builds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: str) -> Any:
    """`Builds` whose build is a program of the test's own, in place of minutes of work."""
    from walkthroughs.commands import site

    real = subprocess.Popen

    def popen(command: list[str], **kwargs: Any) -> Any:
        return real([sys.executable, "-c", code, *command[3:]], **kwargs)

    monkeypatch.setattr(subprocess, "Popen", popen)
    monkeypatch.setattr(site, "WATCHED", ())
    return site.Builds(tmp_path, "http://127.0.0.1:1/", "sim")


def test_a_build_answers_with_its_folder_and_device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    code = "import json, sys; print(json.dumps({'sites': [{'args': sys.argv[1:]}]}))"
    builds = fake_builds(monkeypatch, tmp_path, code)
    first, second = builds.build(), builds.build()
    address = ["--address", "http://127.0.0.1:1/"]
    assert first["args"] == ["site", "build", "--json", "--backend", "sim", "--into", str(tmp_path / "0"), *address]
    assert str(tmp_path / "1") in second["args"]


def test_a_build_that_fails_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert fake_builds(monkeypatch, tmp_path, "raise SystemExit(1)").build() is None


def test_a_build_that_is_stopped_ends_with_all_that_it_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """mkdocs, and the workers that run steps, are processes of the build."""
    pids = tmp_path / "pids"
    code = (
        "import os, subprocess, sys, pathlib\n"
        "inner = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"pathlib.Path({str(pids)!r}).write_text(f'{{os.getpid()}} {{inner.pid}} ')\n"
        "inner.wait()"
    )
    builds = fake_builds(monkeypatch, tmp_path, code)
    stop = threading.Event()
    threading.Thread(target=lambda: (written(pids), stop.set())).start()
    assert builds.build(stop) is None
    for pid in map(int, pids.read_text().split()):
        for _ in range(200):
            if not alive(pid):
                break
            time.sleep(0.05)
        assert not alive(pid)


def written(path: Path) -> None:
    for _ in range(600):
        if path.exists() and path.read_text().endswith(" "):
            return
        time.sleep(0.05)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.source
def test_serve_answers_and_stops(vllm_024: object, vllm_026: object, tmp_path: Path) -> None:
    """`make serve` after its set-up: another port is found, a page comes, a step runs, a signal ends it."""
    program = Path(sys.executable).with_name("pagewalk")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        log = tmp_path / "log"
        with log.open("w") as stream:
            process = subprocess.Popen(
                [str(program), "site", "serve", "--backend", "sim", "--json", "--port", str(port)],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=stream,
                text=True,
            )
        try:
            assert process.stdout is not None
            answer = json.loads(process.stdout.readline() or "null")
            assert answer, log.read_text()
            url = answer["sites"][0]["url"]
            assert url.startswith("http://127.0.0.1:")
            assert url != f"http://127.0.0.1:{port}/"
            page = patiently(url, process, log)
            assert "Pagewalk" in page
            assert run_a_step(url, page)[-1]["reason"] == "finished"
            site_map = patiently(f"{url}sitemap.xml", process, log)
            assert f"<loc>{url}</loc>" in site_map
        finally:
            process.terminate()
            process.wait(timeout=60)
            if process.stdout is not None:
                process.stdout.close()
    assert f"Port {port} is in use" in log.read_text()
    with pytest.raises(OSError, match=r"refused|closed|urlopen"):
        urllib.request.urlopen(url, timeout=5)


def run_a_step(url: str, page: str) -> list[dict[str, Any]]:
    """What a page does when its Run button is pressed."""
    found = re.search(r'<meta name="pagewalk-live" content="([^"]+)">', page)
    assert found
    request = urllib.request.Request(
        f"{url}-/live/runs",
        json.dumps({"step": "vllm-classic/slots"}).encode(),
        {"Content-Type": "application/json", "Origin": url.rstrip("/"), "X-Pagewalk-Token": found[1]},
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=120) as answer:
        return [json.loads(line) for line in answer]


def patiently(url: str, process: subprocess.Popen[str], log: Path) -> str:
    """Ask until the page comes or the server ends."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while process.poll() is None:
        try:
            with opener.open(url, timeout=60) as answer:
                text: str = answer.read().decode()
                return text
        except OSError:
            time.sleep(0.3)
    pytest.fail(f"the server ended with {process.returncode}:\n{log.read_text()}")

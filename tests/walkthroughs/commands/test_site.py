"""`pagewalk site build` and `serve`: a failing step, a busy port, and a server that stops."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def test_free_port_steps_aside() -> None:
    from walkthroughs.commands.site import free_port

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert free_port(port) != port
    assert free_port(port) == port


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
    result = CliRunner().invoke(site.site_command, ["build", "--json"])
    assert result.exit_code == code
    assert json.loads(result.stdout)["sites"][0]["status"] == status
    assert commands == [[sys.executable, "-m", "mkdocs", "build", "--strict"]]


@pytest.mark.source
def test_serve_answers_and_stops(vllm_024: object, vllm_026: object, tmp_path: Path) -> None:
    """`make serve` after its set-up: the port is taken, another is found, a page comes, a signal ends it."""
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
        finally:
            process.terminate()
            process.wait(timeout=60)
            if process.stdout is not None:
                process.stdout.close()
    assert f"Port {port} is in use" in log.read_text()
    with pytest.raises(OSError, match=r"refused|closed|urlopen"):
        urllib.request.urlopen(url, timeout=5)


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

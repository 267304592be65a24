"""A real server, a real socket, real children: every refusal, a flood, a kill in mid-run, two clients."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

HERE = Path(__file__).parent


def _helpers() -> Any:
    """The names of conftest.py; the tests are no package."""
    return next(
        module for module in sys.modules.values() if getattr(module, "__file__", "") == str(HERE / "conftest.py")
    )


Reader = Any
RUNS = "-/live/runs"


def kinds(events: list[dict[str, Any]]) -> list[str]:
    return [event["event"] for event in events]


def until(true: Callable[[], bool]) -> None:
    """Wait for something that will be so; the test's own time-out ends it otherwise."""
    for _ in range(600):
        if true():
            return
        time.sleep(0.05)
    raise AssertionError("it never came")


def busy_with(
    reader: Reader, stack: contextlib.ExitStack, step: str = "test/slow"
) -> tuple[str, Iterator[dict[str, Any]]]:
    """Start a run and read it to its first check: (its id, the rest of its events)."""
    response, events = stack.enter_context(reader.open(step))
    assert response.status_code == 200
    for event in events:
        if event["event"] == "check":
            return event["run"], events
    raise AssertionError("it ended before its first check")


def works(reader: Reader) -> None:
    """The server lives, and runs what it is asked to."""
    events = reader.run("test/sound")
    assert [event["status"] for event in events if event["event"] == "verdict"] == ["passed"]
    assert events[-1]["reason"] == "finished"


# -- what it is for


def test_a_run_is_streamed_from_place_to_verdict(server: Reader) -> None:
    events = server.run("test/sound")
    assert kinds(events) == [
        "queued", "started", "running", "launch", "check", "check", "measured", "verdict", "ended",
    ]  # fmt: skip
    assert len({event["run"] for event in events}) == 1
    assert events[2]["device"] == "SIMT machine"


def test_events_come_while_it_runs(server: Reader) -> None:
    """The first checks are here long before the run could end: the answer is a stream, not a collection."""
    with contextlib.ExitStack() as stack:
        run, events = busy_with(server, stack)
        assert next(events)["name"] == "round 1"
        assert server.cancel(run).status_code == 200
        assert list(events)[-1]["reason"] == "cancelled"


def test_a_changed_case_runs_the_kernel_of_the_step(server: Reader) -> None:
    events = server.run("test/sound", {"seq_len": 30, "block_size": 8, "head_size": 16, "seed": 5, "order": "reversed"})
    names = [event["name"] for event in events if event["event"] == "check"]
    assert names == ["physical blocks walked", "m after each token", "l after each token", "output"]
    assert next(event for event in events if event["event"] == "verdict")["seed"] == 5
    walked = next(event["observed"] for event in events if event["event"] == "check")
    assert walked == "[6, 5, 4, 3]"


def test_the_page_learns_what_can_be_run(server: Reader) -> None:
    with server.client() as client:
        body = client.get("-/live/steps").json()
    assert body["device"] == "SIMT machine"
    assert body["steps"]["test/sound"] == "kernels/gather.py"
    assert body["steps"]["test/slow"] is None
    assert set(body["offers"]) == {"kernels/gather.py", "kernels/vllm/cache.py"}


def test_pages_have_the_token_and_files_do_not(server: Reader) -> None:
    with httpx.Client(base_url=server.url, trust_env=False) as browser:
        for path in ("", "deep/", "nowhere/at/all"):
            page = browser.get(path)
            assert f'content="{server.token}"' in page.text
            assert page.headers["cache-control"] == "no-store"
            assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
        assert server.token not in browser.get("a.js").text
        assert "server" not in page.headers


# -- refusals


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE", "OPTIONS"])
def test_a_foreign_origin(server: Reader, method: str) -> None:
    with server.client() as client:
        answer = client.request(method, RUNS, headers={"Origin": "http://evil.example"}, json={"step": "test/sound"})
    assert answer.status_code == 403
    assert "Origin" in answer.json()["error"]
    assert not any(name.startswith("access-control") for name in answer.headers)


def test_a_foreign_host(server: Reader) -> None:
    with server.client() as client:
        for path in ("", "deep/", "-/live/steps"):
            answer = client.get(path, headers={"Host": "evil.example"})
            assert answer.status_code == 403
            assert server.token not in answer.text
        answer = client.post(RUNS, headers={"Host": "evil.example:80"}, json={"step": "test/sound"})
        assert answer.status_code == 403
        forwarded = {"Host": "evil.example", "X-Forwarded-Host": server.url, "Forwarded": f"host={server.url}"}
        assert client.get("", headers=forwarded).status_code == 403


@pytest.mark.parametrize("token", [None, "", "wrong"])
def test_no_token(server: Reader, token: str | None) -> None:
    headers = {"Origin": server.url.rstrip("/"), **({} if token is None else {"X-Pagewalk-Token": token})}
    with httpx.Client(base_url=server.url, headers=headers, trust_env=False) as client:
        for answer in (
            client.post(RUNS, json={"step": "test/sound"}),
            client.post(RUNS, json={"step": "test/sound"}, params={"X-Pagewalk-Token": server.token}),
            client.post(RUNS, json={"step": "test/sound", "token": server.token}),
            client.post(RUNS, json={"step": "test/sound"}, headers={"Cookie": f"X-Pagewalk-Token={server.token}"}),
            client.delete(f"{RUNS}/abc"),
            client.get("-/live/steps"),
        ):
            assert answer.status_code == 403
            assert "token" in answer.json()["error"].lower()


@pytest.mark.parametrize(
    "step",
    ["test/nothing-of-that-name", "", "test", "../../etc/passwd", "os.system", 7, None, ["test/sound"], {"a": 1}, True],
)
def test_an_unknown_step(server: Reader, step: Any) -> None:
    with server.client() as client:
        answer = client.post(RUNS, json={"step": step})
    assert answer.status_code == 404
    assert "no such step" in answer.json()["error"]


GOOD = {"seq_len": 9, "block_size": 4, "head_size": 8, "seed": 1, "order": "shuffled"}


OUTSIDE: list[tuple[dict[str, Any], str]] = [
    *(({"seq_len": value}, "seq_len") for value in (0, 257, -1, 10**30, "9", 9.0, True, None, [9])),
    *(({"block_size": value}, "block_size") for value in (5, 0, "4", 4.0)),
    *(({"order": value}, "order") for value in ("sorted", "__import__('os')", 0)),
    ({"seed": 2**31}, "seed"),
    # What belongs to the request, or to the server, is no parameter.
    ({"step": "x"}, ""),
    ({"backend": "cuda"}, ""),
]


@pytest.mark.parametrize(("change", "field"), OUTSIDE)
def test_a_parameter_out_of_range(server: Reader, change: dict[str, Any], field: str) -> None:
    with server.client() as client:
        answer = client.post(RUNS, json={"step": "test/sound", "parameters": {**GOOD, **change}})
    assert answer.status_code == 422
    assert answer.json()["field"] == field
    assert len(answer.json()["error"]) < 300


def test_a_missing_parameter_and_no_object(server: Reader) -> None:
    with server.client() as client:
        for given in ({}, {"seq_len": 9}, [], "", 0, False):
            answer = client.post(RUNS, json={"step": "test/sound", "parameters": given})
            assert answer.status_code == 422, given
        answer = client.post(RUNS, json={"step": "test/slow", "parameters": GOOD})
        assert answer.status_code == 422
        assert "only be run as it is" in answer.json()["error"]


JSON = "application/json"
SOUND = b'{"step": "test/sound"}'
BODIES: list[tuple[bytes, str, int]] = [
    *((body, JSON, 400) for body in (b"", b"{", b"[]", b"null", b"{}", b"\xff\xfe", b"[" * 4000, b"1" * 4000)),
    (b'{"step": "test/sound", "code": "1"}', JSON, 400),
    (b'{"step": "test/sound", "parameters": {"seed": NaN}}', JSON, 400),
    *((SOUND, kind, 415) for kind in ("text/plain", "application/x-www-form-urlencoded", "application/jsonp", "")),
    (b" " * 5000 + SOUND, JSON, 413),
    (b'{"step": "' + b"x" * 100_000 + b'"}', JSON, 413),
]


@pytest.mark.parametrize(("body", "kind", "status"), BODIES)
def test_a_body_that_is_none(server: Reader, body: bytes, kind: str, status: int) -> None:
    with server.client() as client:
        answer = client.post(RUNS, content=body, headers={"Content-Type": kind} if kind else {})
    assert answer.status_code == status
    assert answer.json()["error"]


def test_a_body_without_an_end_is_cut_off(server: Reader) -> None:
    def endless() -> Iterator[bytes]:
        for _ in range(1000):
            yield b" " * 1000

    with server.client() as client:
        answer = client.post(RUNS, content=endless(), headers={"Content-Type": "application/json"})
    assert answer.status_code == 413


def test_other_methods_and_places(server: Reader) -> None:
    with server.client() as client:
        assert client.get(RUNS).status_code == 404
        assert client.put(RUNS, json={}).status_code == 405
        assert client.delete(f"{RUNS}/no-such-run").status_code == 404
        assert client.get("-/live/nothing").status_code == 404
        assert client.post("", json={}).status_code == 405


# -- many at once, and ends


def test_a_flood(server: Reader) -> None:
    """One runs, four wait, the others are told so; afterwards everything is as before."""
    with contextlib.ExitStack() as stack:
        first, events = busy_with(server, stack)
        waiting = []
        for place in range(1, 5):
            response, others = stack.enter_context(server.open("test/sound"))
            assert response.status_code == 200
            assert next(others)["place"] == place
            waiting.append(others)
        with server.client() as client:
            for _ in range(40):
                answer = client.post(RUNS, json={"step": "test/sound"})
                assert answer.status_code == 429
                assert answer.headers["retry-after"] == "5"
                assert "4 runs are waiting already" in answer.json()["error"]
        server.cancel(first)
        assert list(events)[-1]["reason"] == "cancelled"
        for others in waiting:
            assert list(others)[-1]["reason"] == "finished"
    works(server)


def test_connections_that_do_nothing_are_bounded(server: Reader) -> None:
    host, port = server.url.removeprefix("http://").rstrip("/").split(":")
    with contextlib.ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(contextlib.closing(socket.create_connection((host, int(port)))))
        with server.client() as client:
            assert client.get("").status_code == 503
    until(lambda: _status(server) == 200)
    works(server)


def _status(reader: Reader) -> int:
    with reader.client() as client:
        return int(client.get("").status_code)


@pytest.mark.parametrize("step", ["test/crash", "test/leaves", "test/raises", "test/long-line"])
def test_a_run_that_dies_takes_nothing_with_it(server: Reader, step: str) -> None:
    events = server.run(step)
    assert kinds(events)[-1] == "ended"
    assert kinds(events).count("check") == 1
    if step == "test/crash":
        assert events[-1]["message"] == "The run's process was ended by SIGABRT. The server goes on."
    works(server)


def test_a_child_killed_from_outside_in_mid_run(server: Reader) -> None:
    """As the system does when memory is short."""
    assert server.process is not None
    with contextlib.ExitStack() as stack:
        _, events = busy_with(server, stack)
        (child,) = _helpers().children_of(server.process.pid)
        os.kill(child, signal.SIGKILL)
        last = list(events)[-1]
    assert last["reason"] == "crashed"
    assert "SIGKILL" in last["message"]
    works(server)


def test_cancelled_in_mid_run_nothing_is_left(server: Reader) -> None:
    assert server.process is not None
    with contextlib.ExitStack() as stack:
        run, events = busy_with(server, stack, "test/parent")
        (child,) = _helpers().children_of(server.process.pid)
        grandchildren = _helpers().children_of(child)
        assert server.cancel(run).json() == {"cancelled": True}
        assert list(events)[-1]["reason"] == "cancelled"
        assert server.cancel(run).status_code == 404
    until(lambda: not any(map(_helpers().alive, [child, *grandchildren])))
    works(server)


def test_a_reader_who_leaves_ends_the_run(server: Reader) -> None:
    assert server.process is not None
    with contextlib.ExitStack() as stack:
        # Kept: a stream that nobody holds is closed.
        _, events = busy_with(server, stack, "test/deaf")
        (child,) = _helpers().children_of(server.process.pid)
        assert next(events)["event"] == "check"
    until(lambda: not _helpers().alive(child))
    works(server)


def test_a_reader_who_leaves_the_queue_is_forgotten(server: Reader) -> None:
    with contextlib.ExitStack() as stack:
        first, events = busy_with(server, stack)
        with server.open("test/crash") as (_, waiting):
            assert next(waiting)["place"] == 1
        with server.open("test/sound") as (_, waiting):
            until(lambda: next(waiting)["place"] == 1)
            server.cancel(first)
            assert list(waiting)[-1]["reason"] == "finished"
        assert list(events)[-1]["reason"] == "cancelled"


def test_two_clients_take_turns_and_see_their_own(server: Reader) -> None:
    """Each gets its own run, whole; one waits for the other; neither can be told of the other's run."""
    seen: dict[str, list[dict[str, Any]]] = {}

    def client(name: str, length: int) -> None:
        seen[name] = server.run("test/sound", {**GOOD, "seq_len": length})

    with contextlib.ExitStack() as stack:
        first, events = busy_with(server, stack)
        threads = [threading.Thread(target=client, args=pair) for pair in (("one", 8), ("two", 200))]
        for thread in threads:
            thread.start()
        time.sleep(0.3)
        server.cancel(first)
        list(events)
        for thread in threads:
            thread.join(60)
    runs = {name: {event["run"] for event in events} for name, events in seen.items()}
    assert len(runs["one"]) == len(runs["two"]) == 1
    assert runs["one"] != runs["two"]
    for name, blocks in (("one", 2), ("two", 50)):
        walked = next(event["observed"] for event in seen[name] if event["event"] == "check")
        assert walked.count(",") == min(blocks, 9) - 1
        assert seen[name][-1]["reason"] == "finished"
    assert {events[0]["place"] for events in seen.values()} == {1, 2}


def test_two_clients_never_run_at_once(server: Reader) -> None:
    assert server.process is not None
    done = threading.Event()
    most = []

    def count() -> None:
        while not done.wait(0.02):
            most.append(len(_helpers().children_of(server.process.pid)))

    counting = threading.Thread(target=count)
    counting.start()
    threads = [threading.Thread(target=works, args=(server,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    done.set()
    counting.join()
    assert max(most) == 1


# -- limits and the end of the server


def test_the_limits_of_a_server_hold(start: Callable[..., Reader]) -> None:
    hasty, small = start("seconds=4"), start(f"memory={700 << 20}")
    assert hasty.run("test/deaf")[-1]["reason"] == "time"
    assert small.run("test/hog")[-1]["reason"] == "memory"
    works(small)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_end_of_the_server_ends_the_run(start: Callable[..., Reader], number: signal.Signals) -> None:
    reader = start()
    with contextlib.ExitStack() as stack:
        _, events = busy_with(reader, stack, "test/parent")
        (child,) = _helpers().children_of(reader.process.pid)
        grandchildren = _helpers().children_of(child)
        _, waiting = stack.enter_context(reader.open("test/sound"))
        assert next(waiting)["place"] == 1
        reader.process.send_signal(number)
        for ends in (list(events)[-1], list(waiting)[-1]):
            assert (ends["reason"], ends["message"]) == ("stopping", "The server is stopping.")
    assert reader.process.wait(timeout=30) == 0
    until(lambda: not any(map(_helpers().alive, [child, *grandchildren])))
    with pytest.raises(httpx.ConnectError), reader.client() as client:
        client.get("")


def test_a_server_that_is_killed_leaves_no_run_behind(start: Callable[..., Reader]) -> None:
    reader = start()
    with contextlib.ExitStack() as stack:
        _, events = busy_with(reader, stack, "test/slow")
        (child,) = _helpers().children_of(reader.process.pid)
        assert next(events)["event"] == "check"
        reader.process.kill()
        until(lambda: not _helpers().alive(child))
        with contextlib.suppress(httpx.HTTPError):
            stack.close()


def test_it_listens_on_loopback_only(server: Reader) -> None:
    port = int(server.url.rstrip("/").rsplit(":", 1)[1])
    listening = {
        line.split()[1].split(":")[0]
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
        if line.split()[1].endswith(f":{port:04X}") and line.split()[3] == "0A"
    }
    assert listening == {"0100007F"}


def test_there_is_no_way_to_ask_for_another_address(run_cli: Callable[..., Any]) -> None:
    done = run_cli("site", "serve", "--host", "0.0.0.0")
    assert done.returncode == 2
    assert "no such option" in done.stderr.lower()


def test_no_registry_comes_from_outside(server: Reader) -> None:
    """A server of the catalog knows no test step, whatever the environment says."""
    from walkthroughs.server.app import Registry
    from walkthroughs.server.process import COMMAND
    from walkthroughs.step import steps

    registry = Registry.of_catalog()
    assert set(registry.ports) == set(steps())
    assert registry.command == COMMAND == (sys.executable, "-m", "walkthroughs.server.child")
    assert not any(step.startswith("test/") for step in registry.ports)
    folder = Path(importlib.util.find_spec("walkthroughs.server").submodule_search_locations[0])  # type: ignore[union-attr, index]
    for path in folder.glob("*.py"):
        text = path.read_text("utf-8")
        assert "getenv" not in text
        assert text.count("environ") == (1 if path.name == "process.py" else 0)


def test_the_answer_is_one_json_object_a_line(server: Reader) -> None:
    with server.client() as client, client.stream("POST", RUNS, json={"step": "test/sound"}) as response:
        assert response.headers["content-type"].startswith("application/x-ndjson")
        assert response.headers["cache-control"] == "no-store"
        lines = list(response.iter_lines())
    assert all(isinstance(json.loads(line), dict) for line in lines)

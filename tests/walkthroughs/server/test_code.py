"""Code typed into a page, on a real server: who may send it, what is taken of it, and that nothing of it is left.

The program that runs it is a stand-in, `coding.py`: it executes the text, whatever that is.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
CODE = "-/live/code"
KEY = "X-Pagewalk-Key"
FINE = "check('sum', 3, 3)"
FIRST = {"drill": "fix/one", "text": FINE}
Reader = Any


def _helpers() -> Any:
    """The names of conftest.py; the tests are no package."""
    return next(
        module for module in sys.modules.values() if getattr(module, "__file__", "") == str(HERE / "conftest.py")
    )


def until(true: Callable[[], bool]) -> None:
    for _ in range(600):
        if true():
            return
        time.sleep(0.05)
    raise AssertionError("it never came")


def kinds(events: list[dict[str, Any]]) -> list[str]:
    return [event["event"] for event in events]


def ends(events: list[dict[str, Any]]) -> tuple[str, str]:
    assert kinds(events).count("ended") == 1
    return events[-1]["reason"], events[-1]["message"]


def observed(events: list[dict[str, Any]], name: str) -> str:
    return next(event["observed"] for event in events if event["event"] == "check" and event["name"] == name)


def works(reader: Reader) -> None:
    assert ends(reader.code(FINE)) == ("finished", "")


@pytest.fixture(scope="module")
def desk(site: Path) -> Iterator[Reader]:
    """A server that was started with --allow-code."""
    with _helpers().started(site, "code=stand-in") as reader:
        yield reader


# -- off by default


def test_without_the_option_nothing_runs_and_the_reader_is_told_why(server: Reader) -> None:
    with server.client() as client:
        for headers in ({}, {KEY: "guessed"}):
            answer = client.post(CODE, json=FIRST, headers=headers)
            assert answer.status_code == 403
            assert "pagewalk site serve --allow-code" in answer.json()["error"]
        # Not even looked at.
        assert client.post(CODE, content=b"{", headers={"Content-Type": "text/plain"}).status_code == 403
        about = client.get(CODE).json()
    assert (about["allowed"], about["key"]) == (False, False)
    assert "--allow-code" in about["why"]
    assert _helpers().children_of(server.process.pid) == []


def test_steps_take_no_code_either_way(desk: Reader, server: Reader) -> None:
    for reader in (desk, server):
        with reader.client() as client:
            for body in (FIRST, {"step": "test/sound", "text": FINE}, {**FIRST, "step": "test/sound"}):
                assert client.post("-/live/runs", json=body).status_code == 400


def test_settings_allow_no_code_unless_they_say_so() -> None:
    from walkthroughs.server.app import Settings

    assert Settings.__dataclass_fields__["code"].default is None


# -- who may send it


def test_the_reader_with_the_key_may(desk: Reader) -> None:
    with desk.client() as client:
        about = client.get(CODE).json()
    assert about == {
        "allowed": True, "key": True, "why": "", "backend": "sim", "device": "SIMT machine", "most": 65536,
    }  # fmt: skip
    events = desk.code(FINE)
    assert kinds(events) == ["queued", "started", "running", "check", "verdict", "ended"]
    assert len({event["run"] for event in events}) == 1


@pytest.mark.parametrize("key", [None, "", "wrong", "x" * 43, "\xe9" * 43])
def test_one_of_our_pages_without_the_key_may_not(desk: Reader, key: str | None) -> None:
    """Whoever has an account on this machine can open the pages, and finds the token there."""
    headers = {"Origin": desk.url.rstrip("/"), "X-Pagewalk-Token": desk.token}
    sent = {} if key is None else {KEY: key.encode("latin-1")}
    with httpx.Client(base_url=desk.url, headers=headers, trust_env=False) as client:
        for answer in (
            client.post(CODE, json=FIRST, headers=sent),
            client.post(CODE, json=FIRST, headers=sent, params={"key": desk.key, KEY: desk.key}),
            client.post(CODE, json={**FIRST, "key": desk.key}, headers=sent),
            client.post(CODE, json=FIRST, headers={**sent, "Cookie": f"{KEY}={desk.key}"}),
        ):
            assert answer.status_code == 403
            assert "the address that the terminal shows" in answer.json()["error"]
        about = client.get(CODE, headers=sent).json()
        assert (about["allowed"], about["key"]) == (True, False)
        assert "terminal" in about["why"]
    assert _helpers().children_of(desk.process.pid) == []


def test_the_key_comes_once(desk: Reader) -> None:
    headers = [("Origin", desk.url.rstrip("/")), ("X-Pagewalk-Token", desk.token), (KEY, desk.key), (KEY, desk.key)]
    with httpx.Client(base_url=desk.url, headers=headers, trust_env=False) as client:
        assert client.post(CODE, json=FIRST).status_code == 403


def test_no_page_and_no_file_has_the_key(desk: Reader) -> None:
    with desk.client() as client:
        for path in ("", "deep/", "a.js", "nowhere", "-/live/steps", CODE):
            answer = client.get(path)
            assert desk.key not in answer.text
            assert desk.key not in str(answer.headers)
        assert desk.token in client.get("").text


REFUSED = [
    ({"Origin": "http://evil.example"}, "Origin"),
    ({"Origin": "null"}, "Origin"),
    ({"Origin": "http://127.0.0.1:1"}, "Origin"),
    ({"Host": "evil.example"}, "Host"),
    ({"X-Pagewalk-Token": "wrong"}, "X-Pagewalk-Token"),
    ({"X-Pagewalk-Token": ""}, "X-Pagewalk-Token"),
    ({"Sec-Fetch-Site": "cross-site"}, "Sec-Fetch-Site"),
    ({"Sec-Fetch-Site": "same-site"}, "Sec-Fetch-Site"),
    ({"Sec-Fetch-Site": "none"}, "Sec-Fetch-Site"),
]


@pytest.mark.parametrize(("change", "words"), REFUSED)
def test_another_site_may_not_even_with_the_key(desk: Reader, change: dict[str, str], words: str) -> None:
    with desk.client() as client:
        answer = client.post(CODE, json=FIRST, headers=change)
    assert answer.status_code == 403
    assert words in answer.json()["error"]


def test_without_an_origin_nothing_is_sent(desk: Reader) -> None:
    headers = {"X-Pagewalk-Token": desk.token, KEY: desk.key}
    with httpx.Client(base_url=desk.url, headers=headers, trust_env=False) as client:
        assert client.post(CODE, json=FIRST).status_code == 403


def test_what_a_form_of_another_site_can_send_is_no_request(desk: Reader) -> None:
    """A form sends no header of its own and no JSON; each of the two is enough to stop it."""
    body = json.dumps(FIRST).encode()
    with desk.client() as client:
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
            answer = client.post(CODE, content=body, headers={"Content-Type": kind} if kind else {})
            assert answer.status_code == 415


def test_the_policy_of_a_page_is_the_same(desk: Reader, server: Reader) -> None:
    policies = []
    for reader in (desk, server):
        with reader.client() as client:
            policies.append(client.get("").headers["content-security-policy"])
    assert policies[0] == policies[1]
    assert "unsafe-eval" not in policies[0]
    assert "'unsafe-inline'" not in policies[0].split("script-src")[1].split(";")[0]


def test_other_methods_do_not_run_it(desk: Reader) -> None:
    with desk.client() as client:
        for method in ("PUT", "PATCH", "DELETE"):
            assert client.request(method, CODE, json=FIRST).status_code == 405


# -- what is taken


@pytest.mark.parametrize(
    "drill", ["fix/three", "", "one", "../fix/one", "/etc/passwd", "fix/one\0", "fix/../fix/one", 1, None, ["fix/one"]]
)
def test_an_unknown_drill(desk: Reader, drill: Any) -> None:
    with desk.client() as client:
        answer = client.post(CODE, json={"drill": drill, "text": FINE})
    assert answer.status_code == 404
    assert "no such drill" in answer.json()["error"]
    assert len(answer.json()["error"]) < 200


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[]", 400),
        (b'"fix/one"', 400),
        (b"{}", 400),
        (b'{"drill": "fix/one"}', 400),
        (b'{"drill": "fix/one", "text": "", "file": "kernels/gather.py"}', 400),
        (b'{"drill": "fix/one", "text": "", "backend": "cuda"}', 400),
        (b'{"drill": "fix/one", "text": "", "seeds": [1]}', 400),
        (b'{"drill": "fix/one", "text": "\xff\xfe"}', 400),
        ('{"drill": "fix/one", "text": ""}'.encode("utf-16"), 400),
        (b'{"drill": "fix/one", "text": NaN}', 400),
        (b'{"drill": "fix/one", "text": 7}', 422),
        (b'{"drill": "fix/one", "text": ["x"]}', 422),
        (b'{"drill": "fix/one", "text": "\\u0000"}', 422),
        (b'{"drill": "fix/one", "text": "\\ud800"}', 422),
        (b"[" * 100_000, 400),
    ],
)
def test_a_body_that_is_none(desk: Reader, body: bytes, status: int) -> None:
    with desk.client() as client:
        answer = client.post(CODE, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]
    works(desk)


def test_a_text_has_its_size(desk: Reader) -> None:
    padding = "#" * (65536 - len(FINE.encode()) - 1)
    assert ends(desk.code(f"{FINE}\n{padding}"))[0] == "finished"
    # JSON may spell it with six characters each.
    short = "é" * ((65536 - len(FINE.encode()) - 2) // 2)
    body = json.dumps({"drill": "fix/one", "text": f"{FINE}\n#{short}"}, ensure_ascii=True)
    headers = {"Content-Type": "application/json"}
    with desk.client() as client, client.stream("POST", CODE, content=body, headers=headers) as response:
        assert response.status_code == 200
        assert json.loads([*response.iter_lines()][-1])["reason"] == "finished"
    with desk.client() as client:
        for text in (f"{FINE}\n{padding}#", "é" * 32769, "x" * 1_000_000):
            answer = client.post(CODE, json={"drill": "fix/one", "text": text})
            assert answer.status_code == 413, len(text)


RECEIVED = {"text": "request['text']", "rest": "sorted(request)", "seeds": "request['seeds']"}


def test_the_text_arrives_as_it_was_typed_and_nothing_else_of_the_request_does(desk: Reader) -> None:
    text = "".join(f"check('{name}', {value}, 0)\n" for name, value in RECEIVED.items()) + "#é⋯\t\r\n"
    events = desk.code(text, "fix/two")
    assert observed(events, "text") == text
    assert observed(events, "rest") == "['backend', 'drill', 'memory', 'seconds', 'seeds', 'text']"
    others = [observed(desk.code(text), "seeds") for _ in range(2)]
    assert len({observed(events, "seeds"), *others}) == 3, "nobody can know the seeds before"


def test_it_works_in_a_folder_of_its_own_that_goes_with_it(desk: Reader) -> None:
    text = "import os, kernels\nopen('left.txt', 'w').write('x')\ncheck('at', os.getcwd(), 0)\n"
    events = desk.code(text + "check('ours', kernels.__file__, 0)")
    folder = Path(observed(events, "at"))
    assert not folder.is_relative_to(ROOT)
    assert not folder.exists()
    assert Path(observed(events, "ours")).is_relative_to(ROOT)
    assert not (ROOT / "left.txt").exists()


# -- turns


def test_code_and_steps_wait_for_each_other(desk: Reader) -> None:
    with contextlib.ExitStack() as stack:
        response, events = stack.enter_context(desk.open_code("import time\ncheck('begun', 1, 1)\ntime.sleep(600)"))
        assert response.status_code == 200
        first = next(event["run"] for event in events if event["event"] == "check")
        waiting = []
        for place, opened in enumerate([desk.open("test/sound"), desk.open_code(FINE), desk.open_code(FINE)], start=1):
            _, others = stack.enter_context(opened)
            assert next(others)["place"] == place
            waiting.append(others)
        _, last = stack.enter_context(desk.open_code(FINE))
        assert next(last)["place"] == 4
        with desk.client() as client:
            answer = client.post(CODE, json=FIRST)
            assert answer.status_code == 429
            assert "waiting already" in answer.json()["error"]
        assert desk.cancel(first).json() == {"cancelled": True}
        assert ends(list(events)) == ("cancelled", "The run was cancelled.")
        for others in [*waiting, last]:
            assert list(others)[-1]["reason"] == "finished"


def test_two_never_run_at_once(desk: Reader) -> None:
    done, most = threading.Event(), []

    def count() -> None:
        while not done.wait(0.02):
            most.append(len(_helpers().children_of(desk.process.pid)))

    counting = threading.Thread(target=count)
    counting.start()
    threads = [threading.Thread(target=works, args=(desk,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    done.set()
    counting.join()
    assert max(most) == 1

"""What is refused before anything is done: a foreign Host, a foreign Origin, no token; asked of the guard alone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from walkthroughs.server.guards import Guard, hosts_of

PORT = 8123
TOKEN = "t0ken-of-this-server"
HOST = f"127.0.0.1:{PORT}"
ORIGIN = f"http://{HOST}"
RUN = "/-/live/runs"


class Behind:
    """What the guard protects: it counts how often it is reached."""

    def __init__(self) -> None:
        self.reached = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.reached += 1
        if scope["type"] == "http":
            await PlainTextResponse("reached")(scope, receive, send)


def ask(method: str, path: str, headers: list[tuple[str, str]], kind: str = "http") -> tuple[int, str, int]:
    """(status or close code, body, times that the app behind was reached) for one request."""
    behind = Behind()
    guard = Guard(behind, hosts=hosts_of(PORT), token=TOKEN)
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    raw = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    scope = {"type": kind, "method": method, "path": path, "headers": raw, "query_string": b""}
    asyncio.run(guard(scope, receive, send))
    if not sent:
        return 0, "", behind.reached
    body = b"".join(message.get("body", b"") for message in sent)
    return sent[0].get("status") or sent[0]["code"], body.decode(), behind.reached


def own(**more: str) -> list[tuple[str, str]]:
    """The headers of a page of this server; a header of `more` takes the place of its own one, an empty one goes."""
    base = {"Host": HOST, "Origin": ORIGIN, "X-Pagewalk-Token": TOKEN, "Sec-Fetch-Site": "same-origin"}
    return [
        (name, value) for name, value in {**base, **{k.replace("_", "-"): v for k, v in more.items()}}.items() if value
    ]


@pytest.mark.parametrize("host", hosts_of(PORT))
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_a_page_of_this_server_is_let_through(host: str, method: str) -> None:
    assert ask(method, RUN, own(Host=host, Origin=f"http://{host}")) == (200, "reached", 1)
    assert ask("GET", "/", [("Host", host)]) == (200, "reached", 1)


# Another name, another port, another spelling, and what only looks like ours.
FOREIGN = [
    *(
        "evil.example",
        "127.0.0.1",
        "localhost.evil.example",
        "127.0.0.2",
        "0.0.0.0",
        "[::1]",
        "2130706433",
        "LOCALHOST",
    ),
    *("", " 127.0.0.1", "evil@127.0.0.1"),
]
HOSTS = [
    *(f"{name}:{PORT}" for name in FOREIGN if name != "127.0.0.1"),
    *FOREIGN,
    "127.0.0.1:80",
    f"{HOST}/",
    f"{HOST}.evil.example",
]


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("path", ["/", "/-/live/steps", RUN])
def test_a_foreign_host_is_refused_everywhere(host: str, path: str) -> None:
    """Also for pages: they hold the token, and a name that was made to point here would let a site read them."""
    for method in ("GET", "POST"):
        status, body, reached = ask(method, path, own(Host=host))
        assert (status, reached) == (403, 0)
        assert "Host" in body
        assert TOKEN not in body


def test_two_hosts_are_none() -> None:
    status, body, reached = ask("GET", "/", [("Host", HOST), ("Host", HOST)])
    assert (status, reached) == (403, 0)
    assert "answers to" in body


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example", "null", f"https://{HOST}", "http://127.0.0.1", f"http://127.0.0.1:{PORT + 1}", f"http://{HOST}.evil.example",
        f"http://evil.example/{ORIGIN}", f"{ORIGIN}/", "http://localhost", "file://", f"{ORIGIN} http://evil.example",
    ],
)  # fmt: skip
@pytest.mark.parametrize("path", ["/", "/-/live/steps", RUN])
def test_a_foreign_origin_is_refused_even_with_the_token(origin: str, path: str) -> None:
    for method in ("GET", "POST", "DELETE", "OPTIONS"):
        status, body, reached = ask(method, path, own(Origin=origin))
        assert (status, reached) == (403, 0)
        assert "Origin" in body


def test_what_changes_something_needs_an_origin() -> None:
    for method in ("POST", "DELETE", "PUT", "PATCH"):
        status, body, reached = ask(method, RUN, own(Origin=""))
        assert (status, reached) == (403, 0)
        assert "no Origin" in body
    assert ask("GET", "/-/live/steps", own(Origin=""))[2] == 1


@pytest.mark.parametrize("said", ["cross-site", "same-site", "none", "", "SAME-ORIGIN"])
def test_the_browser_itself_may_say_that_a_request_is_foreign(said: str) -> None:
    headers = [*own(Sec_Fetch_Site=""), ("Sec-Fetch-Site", said)]
    assert ask("POST", RUN, headers)[::2] == (403, 0)
    # A link elsewhere may lead to a page: the reader sees it, no script does.
    assert ask("GET", "/", [("Host", HOST), ("Sec-Fetch-Site", said)])[2] == 1


@pytest.mark.parametrize("token", ["", "wrong", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), f" {TOKEN}", "\xff"])
@pytest.mark.parametrize("path", ["/-/live/steps", "/-/live/build", RUN, f"{RUN}/abc", "/-/anything"])
def test_without_the_token_nothing_is_told(token: str, path: str) -> None:
    for method in ("GET", "POST", "DELETE"):
        status, body, reached = ask(method, path, own(X_Pagewalk_Token=token))
        assert (status, reached) == (403, 0)
        assert "reload the page" in body
        assert TOKEN not in body


def test_two_tokens_are_none() -> None:
    assert ask("POST", RUN, [*own(), ("X-Pagewalk-Token", TOKEN)])[::2] == (403, 0)


def test_a_token_in_the_address_is_no_token() -> None:
    assert ask("GET", f"/-/live/steps?X-Pagewalk-Token={TOKEN}", own(X_Pagewalk_Token=""))[::2] == (403, 0)


def test_other_kinds_of_connection_are_closed() -> None:
    assert ask("GET", RUN, own(), "websocket")[::2] == (1008, 0)
    assert ask("GET", RUN, own(), "something-new")[::2] == (0, 0)
    assert ask("GET", "", [], "lifespan")[2] == 1


@given(
    host=st.sampled_from([HOST, "evil.example", ""]) | st.text(st.characters(max_codepoint=255), max_size=12),
    origin=st.sampled_from([ORIGIN, "null", ""]) | st.text(st.characters(max_codepoint=255), max_size=12),
    token=st.sampled_from([TOKEN, ""]) | st.text(st.characters(max_codepoint=255), max_size=12),
    method=st.sampled_from(["GET", "POST", "DELETE"]),
)
def test_only_the_one_combination_comes_through(host: str, origin: str, token: str, method: str) -> None:
    status, _, reached = ask(method, RUN, own(Host=host, Origin=origin, X_Pagewalk_Token=token))
    fine = host in hosts_of(PORT) and token == TOKEN
    fine = fine and (origin == ORIGIN or origin == f"http://localhost:{PORT}" or (origin == "" and method == "GET"))
    assert (status, reached) == ((200, 1) if fine else (403, 0))

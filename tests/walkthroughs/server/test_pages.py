"""Pages as they are served: the token in the head, a policy that names the inline scripts, files as they were built."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import re
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from walkthroughs.server.pages import Pages, policy, with_token

HTML = (
    '<!doctype html><html><head lang="en"><title>x</title><script>first()</script></head>'
    "<body><p>Text with &lt;head&gt;</p>"
    '<script src="a.js"></script><script type="application/json">{"no": "code"}</script>'
    "<SCRIPT type='module'>\nsecond()\n</SCRIPT ></body></html>"
)


def digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def directives(rules: str) -> dict[str, list[str]]:
    return {name: values for name, *values in (part.split() for part in rules.split("; "))}


def get(pages: Pages, path: str, method: str = "GET") -> httpx.Response:
    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app=Starlette(routes=[Mount("/", pages)]))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:1") as client:
            return await client.request(method, path)

    return asyncio.run(ask())


def test_the_token_goes_into_the_head_once() -> None:
    page = with_token(HTML, 'a"b<c', 4)
    assert page.count("pagewalk-live") == 1
    assert (
        '<head lang="en"><meta name="pagewalk-live" content="a&quot;b&lt;c"><meta name="pagewalk-build" content="4">'
        in page
    )
    assert page.replace(re.search(r"<meta.*?4\">", page)[0], "") == HTML  # type: ignore[index]
    assert "pagewalk-build" not in with_token(HTML, "t")


def test_a_backslash_in_a_token_is_no_pattern() -> None:
    assert r'content="\1\g<0>"' in with_token("<head></head>", r"\1\g<0>").replace("&lt;", "<").replace("&gt;", ">")


def test_inline_scripts_are_allowed_by_digest_only() -> None:
    rules = directives(policy(HTML))
    assert set(rules["script-src"]) == {"'self'", digest("first()"), digest("\nsecond()\n")}
    assert "'unsafe-inline'" not in rules["script-src"]
    assert "'unsafe-eval'" not in policy(HTML)
    assert rules["default-src"] == ["'none'"]
    assert rules["connect-src"] == ["'self'"]
    assert rules["frame-ancestors"] == ["'none'"]
    assert "http" not in policy(HTML)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    site = tmp_path / "site"
    (site / "deep").mkdir(parents=True)
    (site / "index.html").write_text(HTML, "utf-8")
    (site / "deep" / "index.html").write_text(HTML.replace("first", "other"), "utf-8")
    (site / "404.html").write_text(HTML, "utf-8")
    (site / "a.js").write_text("// pagewalk\n", "utf-8")
    (tmp_path / "secret.txt").write_text("not for you", "utf-8")
    (site / "link.txt").symlink_to(tmp_path / "secret.txt")
    return site


def test_html_is_never_kept_and_files_stay_as_built(folder: Path) -> None:
    pages = Pages(folder, "the-token")
    for path, status in (("/", 200), ("/index.html", 200), ("/deep/", 200), ("/nowhere", 404)):
        page = get(pages, path)
        assert page.status_code == status
        assert page.headers["cache-control"] == "no-store"
        assert page.text.count('content="the-token"') == 1
        assert digest("other()" if "deep" in path else "first()") in page.headers["content-security-policy"]
        assert "etag" not in page.headers
    script = get(pages, "/a.js")
    assert script.content == (folder / "a.js").read_bytes()
    assert script.headers["cache-control"] == "no-cache"
    assert "the-token" not in script.text
    assert (folder / "index.html").read_text("utf-8") == HTML
    for answer in (script, get(pages, "/")):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"


@pytest.mark.parametrize(
    "path", ["/../secret.txt", "/%2e%2e/secret.txt", "/..%2fsecret.txt", "/deep/../../secret.txt", "/link.txt", "/%00"]
)
def test_nothing_outside_the_folder_is_served(folder: Path, path: str) -> None:
    answer = get(Pages(folder, "t"), path)
    assert answer.status_code == 404
    assert "not for you" not in answer.text


def test_another_method_is_no_way_to_a_file(folder: Path) -> None:
    assert get(Pages(folder, "t"), "/a.js", "PUT").status_code == 405


def test_a_folder_without_its_slash_is_sent_on_to_this_server(folder: Path) -> None:
    answer = get(Pages(folder, "t"), "/deep")
    assert answer.status_code in (302, 307)
    assert answer.headers["location"] == "http://127.0.0.1:1/deep/"


def test_a_new_build_takes_the_place_of_the_old_one(folder: Path, tmp_path: Path) -> None:
    pages = Pages(folder, "t", rebuilds=True)
    assert 'name="pagewalk-build" content="0"' in get(pages, "/").text
    newer = tmp_path / "newer"
    newer.mkdir()
    (newer / "index.html").write_text(HTML.replace("Text", "News"), "utf-8")
    pages.replace(newer)
    page = get(pages, "/").text
    assert "News" in page
    assert 'name="pagewalk-build" content="1"' in page


def test_a_page_that_changed_on_the_disk_is_read_again(folder: Path) -> None:
    pages = Pages(folder, "t")
    assert "Text" in get(pages, "/").text
    (folder / "index.html").write_text(HTML.replace("Text", "News").replace("first", "fresh"), "utf-8")
    os.utime(folder / "index.html", ns=(1, 1))
    page = get(pages, "/")
    assert "News" in page.text
    assert digest("fresh()") in page.headers["content-security-policy"]

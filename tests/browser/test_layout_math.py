"""The page's arithmetic against `kernels.explorer`: thousands of random points, both ways, in one call; errors too."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from kernels.errors import ArgumentError
from kernels.explorer import DTYPES, KERNELS, LAYOUTS, Geometry, cache_bytes, explain, locate

pytestmark = pytest.mark.browser
SCRIPTS = Path(__file__).resolve().parents[2] / "docs" / "assets" / "js"
POINTS = 4000
Question = dict[str, Any]
LARGEST = {"block_size": 256, "head_size": 1024, "num_heads": 1024, "num_kv_heads": 1024}

# Answers every question, or says which argument was refused and why.
ASK = """
text => JSON.stringify(JSON.parse(text).map(q => {
  const m = window.pagewalkLayout, given = [q.geometry, q.table];
  try {
    if (q.byte === undefined) return m.explain(q.kernel, ...given, q.token, q.head, q.channel);
    return { located: m.locate(q.layout, ...given, q.byte), bytes: m.cacheBytes(q.layout, ...given) };
  } catch (error) {
    if (!(error instanceof m.LayoutError)) throw error;
    return { argument: error.argument, must: error.must };
  }
}))
"""


def ask(page: Page, questions: list[Question]) -> list[dict[str, Any]]:
    """The page's answers, all in one call; as text, since the driver's own way of passing values is slow."""
    answers: list[dict[str, Any]] = json.loads(page.evaluate(ASK, json.dumps(questions)))
    return answers


@pytest.fixture(scope="module")
def page(browser: Browser) -> Iterator[Page]:
    opened = browser.new_page()
    for name in ("layout-math.js", "layout-lanes.js"):
        opened.add_script_tag(path=SCRIPTS / name)
    yield opened
    opened.close()


def geometries(rng: random.Random) -> dict[str, Any]:
    kv_heads = rng.choice([1, 2, 3, 4, 8, 40, 64])
    return {
        "block_size": rng.choice([1, 4, 8, 16, 16, 32, 48, 64, 96, 128, 256, rng.randrange(1, 257)]),
        "head_size": rng.choice([16, 32, 64, 80, 96, 120, 128, 256, 8 * rng.randrange(1, 40)]),
        "num_heads": kv_heads * rng.choice([1, 2, 4, 7]),
        "num_kv_heads": kv_heads,
        "dtype": rng.choice(list(DTYPES)),
    }


def table(rng: random.Random) -> list[int]:
    top = rng.choice([8, 40, 5000, 2**20])
    return rng.sample(range(top), rng.randrange(1, 8))


def question(rng: random.Random) -> Question:
    """A point or a byte; now and then one that is a little outside."""
    given, blocks = geometries(rng), table(rng)
    over = 1 + (rng.random() < 0.03)
    if rng.random() < 0.6:
        return {
            "kernel": rng.choice(list(KERNELS)),
            "geometry": given,
            "table": blocks,
            "token": rng.randrange(len(blocks) * given["block_size"] * over),
            "head": rng.randrange(given["num_kv_heads"] * over),
            "channel": rng.randrange(given["head_size"] * over),
        }
    layout = rng.choice(list(LAYOUTS))
    held = 2 * (max(blocks) + 1) * given["block_size"] * given["num_kv_heads"] * given["head_size"] * 4
    with suppress(ArgumentError):
        held = cache_bytes(layout, Geometry(**given), blocks)
    return {"layout": layout, "geometry": given, "table": blocks, "byte": rng.randrange(held * over)}


def answer(asked: Question) -> dict[str, Any]:
    """What Python says, as JSON gives it back."""
    try:
        geometry, blocks = Geometry(**asked["geometry"]), asked["table"]
        if "byte" in asked:
            found = {
                "located": asdict(locate(asked["layout"], geometry, blocks, asked["byte"])),
                "bytes": cache_bytes(asked["layout"], geometry, blocks),
            }
        else:
            found = asdict(explain(asked["kernel"], geometry, blocks, asked["token"], asked["head"], asked["channel"]))
    except ArgumentError as error:
        found = {"argument": error.argument, "must": error.must}
    answered: dict[str, Any] = json.loads(json.dumps(found))
    return answered


def test_thousands_of_random_points_are_the_same_in_the_page_and_in_python(page: Page) -> None:
    rng = random.Random(20261130)
    asked = [question(rng) for _ in range(POINTS)]
    found = ask(page, asked)
    met: Counter[str] = Counter()
    for one, got in zip(asked, found, strict=True):
        wanted = answer(one)
        assert got == wanted, one
        met["refused" if "must" in wanted else one.get("kernel") or one["layout"]] += 1
        met[one["geometry"]["dtype"]] += 1
        met["nobody"] += any(load["missing"] for load in wanted.get("loads", ()))
        met["no token"] += "located" in wanted and wanted["located"]["token"] is None
        met["token"] += "located" in wanted and wanted["located"]["token"] is not None
    for name in (*KERNELS, *LAYOUTS, *DTYPES, "refused", "nobody", "no token", "token"):
        assert met[name] >= 30, (name, met)


def wrong(**changes: Any) -> Question:
    base: Question = {
        "kernel": "classic-v1",
        "geometry": {"block_size": 16, "head_size": 128, "num_heads": 32, "num_kv_heads": 8, "dtype": "float16"},
        "table": [7, 2, 5],
        "token": 20,
        "head": 3,
        "channel": 10,
    }
    base["geometry"].update(changes.pop("geometry", {}))
    return base | changes


@pytest.mark.parametrize(
    "asked",
    [
        wrong(geometry={"block_size": 0}),
        wrong(geometry={"block_size": 257}),
        wrong(geometry={"block_size": 24}),
        wrong(geometry={"block_size": 96}),
        wrong(geometry={"block_size": 4, "head_size": 24}),
        wrong(geometry={"head_size": 100}),
        wrong(geometry={"head_size": 2048}),
        wrong(geometry={"num_heads": 33}),
        wrong(geometry={"num_kv_heads": 0}),
        wrong(geometry={"dtype": "float64"}),
        wrong(geometry={"dtype": "fp8", "head_size": 24}),
        wrong(kernel="classic"),
        wrong(table=[]),
        wrong(table=[1, -1]),
        wrong(table=[1, 2**31]),
        wrong(table=[1, 4, 1]),
        wrong(table=[2**31 - 1], geometry=LARGEST),
        wrong(token=48),
        wrong(token=-1),
        wrong(head=8),
        wrong(channel=128),
        {**wrong(), "layout": "classic", "byte": 0},
        {**wrong(), "layout": "tiny", "byte": -1},
        {**wrong(), "layout": "nhd-k", "byte": 2**40},
    ],
    ids=str,
)  # fmt: skip
def test_both_refuse_the_same_in_the_same_words(page: Page, asked: Question) -> None:
    (found,) = ask(page, [asked])
    assert set(found) == {"argument", "must"}
    assert found == answer(asked)


def test_blocks_at_the_edge_of_exact_numbers(page: Page) -> None:
    """The largest block that the limit allows, and one more: no offset may have lost its last bit."""
    given = LARGEST | {"dtype": "float32"}
    most = 2**53 // (2 * 256 * 1024 * 1024 * 4) - 1
    last = wrong(geometry=given, table=[most], token=255, head=1023, channel=1023, kernel="tiny-vllm")
    over = wrong(geometry=given, table=[most + 1], token=0, kernel="tiny-vllm")
    end = {**last, "layout": "side-nhd", "byte": 2**53 - 1}
    found = ask(page, [last, over, end])
    assert found == [answer(last), answer(over), answer(end)]
    assert found[0]["places"][-1]["last"] == 2**53 - 1
    assert found[1]["argument"] == "block_table[0]"
    assert found[2]["located"]["inside"] == 3

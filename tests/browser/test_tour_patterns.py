"""The patterns of tours as CodeTour reads them: by JavaScript, `m` for many lines, and the first match counts."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser

from annotate.sources import SourceTree
from walkthroughs.export import tour
from walkthroughs.step import registry

SEARCH = """([files, wanted]) => wanted.map(([key, pattern]) => {
    const at = files[key].match(new RegExp(pattern, "m"));
    return at ? files[key].slice(0, at.index).split("\\n").length : -1;
})"""


@pytest.mark.source
@pytest.mark.browser
def test_javascript_finds_the_lines(browser: Browser, vllm_024: SourceTree, vllm_026: SourceTree) -> None:
    files, wanted = {}, []
    for tree in (vllm_024, vllm_026):
        for made in tour.tours(list(registry().values()), source=tree.pin.id):
            for step in made.data["steps"]:
                key = f"{made.source} {step['file']}"
                files[key] = tree.read(step["file"]).decode("utf-8")
                wanted.append([key, step["pattern"], step["line"]])
    page = browser.new_page()
    found = page.evaluate(SEARCH, [files, wanted])
    page.close()
    assert len(found) > 100
    assert found == [line for _, _, line in wanted]

"""What names a sentence's claim or step, on the page: a small link, in a step's prose and in an introduction."""

from __future__ import annotations

import re
from dataclasses import replace
from types import ModuleType

import markdown
from bs4 import BeautifulSoup

from walkthroughs import naming
from walkthroughs.site import render
from walkthroughs.site.loader import project_data
from walkthroughs.step import registry

PROSE = "It reads 8 bytes [L1-18], and\nmeets [vllm-classic/v2-max].\n\n```\na [L1-18]\n```"


def page(lines: list[str]) -> BeautifulSoup:
    text = "\n".join(line for line in lines if not line.startswith("<"))
    return BeautifulSoup(markdown.markdown(text, extensions=["attr_list", "fenced_code", "md_in_html"]), "html.parser")


def test_a_name_is_a_small_link_in_prose_and_introduction(sample: ModuleType) -> None:
    view = sample.WALKTHROUGHS["alpha"]
    step = replace(view.steps[0], prose=PROSE, claims=())
    for lines in (
        render.step_lines(step, "..", lambda html: ""),
        render.walkthrough_lines(replace(view, intro=PROSE, steps=()), "..", lambda html: ""),
    ):
        found = page(lines)
        links = [(link.text, link["href"], link["title"]) for link in found.select("a.pw-ref")]
        assert links == [
            ("L1-18", "../claims.md#L1-18", "Checked as the claim L1-18"),
            ("v2-max", "../walkthroughs/vllm-classic.md#step-v2-max", "Shown by the step vllm-classic/v2-max"),
        ]
        assert [code.text for code in found.select("pre code")] == ["a [L1-18]\n"]
        assert "8 bytesL1-18, and" in found.text


def test_lists_of_walkthroughs_show_no_marks() -> None:
    shown = project_data().walkthroughs()
    assert any(naming.names(walk.intro.strip().split("\n\n")[0]) for walk in registry().values())
    for summary in shown.values():
        assert naming.names(summary.text) == ()


def test_a_mark_never_ends_a_sentence_from_behind() -> None:
    """A mark stands before the full stop, or it would belong to the next sentence."""
    for walkthrough in registry().values():
        for text in (walkthrough.intro, *(step.prose for step in walkthrough.steps)):
            assert re.findall(rf"[.!?] *\n? *\[(?:{naming.CLAIM}|{naming.STEP})\]", text) == []

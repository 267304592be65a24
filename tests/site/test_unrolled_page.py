"""The text that is compiled, on the page: it is what `unroll` makes, whole, and it can be compiled."""

from __future__ import annotations

import ast

import markdown
import pytest
from bs4 import BeautifulSoup

from kernels.tuned import ring
from kernels.unroll import unroll
from walkthroughs.site import unrolled_page
from walkthroughs.site.errors import UnknownPageItem


def test_the_page_has_the_whole_text() -> None:
    lines = unrolled_page.project_lines("ring")
    extensions = ["md_in_html", "fenced_code", "attr_list"]
    page = BeautifulSoup(markdown.markdown("\n".join(lines), extensions=extensions), "html.parser")
    code = page.select_one("details.pw-fold pre code")
    summary = page.select_one("summary")
    assert code is not None
    assert summary is not None
    text = code.get_text().rstrip("\n")
    assert text == unrolled_page.written("ring")
    assert f"{len(text.splitlines())} lines for heads of 32" in summary.get_text()


def test_nothing_is_left_to_be_written_out() -> None:
    text = unrolled_page.written("ring")
    called = {
        node.func.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call) and hasattr(node.func, "id")
    }
    assert {"mma", "ldmatrix_x4", "ask"} <= called
    assert not called & {"unrolled", "registers", "fixed"}
    # Two steps of sixteen elements, four sums each.
    assert "acc_7" in text
    assert "acc_8" not in text


def test_it_is_what_runs() -> None:
    made = unroll(ring.paged_decode_ring, **unrolled_page.SMALL)
    names = set(made.fn.__code__.co_varnames)
    assigned = {
        node.id
        for node in ast.walk(ast.parse(unrolled_page.written("ring")))
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    assert assigned <= names


def test_another_rung_is_refused() -> None:
    with pytest.raises(UnknownPageItem, match="grouped"):
        unrolled_page.project_lines("grouped")

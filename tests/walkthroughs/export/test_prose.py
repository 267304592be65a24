"""Prose that leaves the site: no marks, no directives, no relative links, and code as it was."""

from __future__ import annotations

import dataclasses
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walkthroughs import evidence, naming
from walkthroughs.export import prose
from walkthroughs.site.model import Row
from walkthroughs.step import Step, get, registry, steps

RECORDS = evidence.load_committed()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("It is so [L1-18].", "It is so."),
        ("It is so\n[L1-18]. Yes [vllm-classic/grid].", "It is so. Yes."),
        ("See [the pool](../pool.md#x) now.", "See the pool now."),
        ("See [the pool](https://example.invalid/a) now.", "See [the pool](https://example.invalid/a) now."),
        ("![A pool](../pool.svg)", "A pool"),
        ("`[a](b)` and `[L1-18]`", "`[a](b)` and `[L1-18]`"),
        ("One.\n\n::: svg pool A pool\n\nTwo.", "One.\n\nTwo."),
        ("[Start](a.md){ .md-button .pw-start } here", "Start here"),
        ("A set {1, 2} and `{ .x }`", "A set {1, 2} and `{ .x }`"),
        ("```python\nx = [L1-18](a)\n::: no\n```\nend [L1-18].", "```python\nx = [L1-18](a)\n::: no\n```\nend."),
        ("~~~~\n```\n[L1-18]\n~~~~", "~~~~\n```\n[L1-18]\n~~~~"),
    ],
)
def test_words(text: str, said: str) -> None:
    assert prose.words(text) == said


@given(
    st.lists(st.sampled_from(("word", "[L1-18]", "`[C-01]`", "\n", ".", "```", "[x](y.md)", " ", "[a/b]")), max_size=30)
)
def test_words_twice_are_words_once(parts: list[str]) -> None:
    once = prose.words(" ".join(parts).replace(" \n ", "\n"))
    assert prose.words(once) == once


@pytest.mark.parametrize("step", steps().values(), ids=lambda step: step.id)
def test_no_step_keeps_a_mark_or_a_relative_link(step: Step) -> None:
    said = prose.words(step.prose)
    bare = re.sub(r"`[^`\n]*`", "", said)
    assert naming.names(said) == ()
    assert ":::" not in bare
    assert all(address.startswith("https://") for address in re.findall(r"\]\(([^)]*)\)", bare))
    assert len(said) > 0.7 * len(step.prose) - 120


def test_what_a_mark_said_is_said_at_the_end() -> None:
    said = prose.proven_by(get("vllm-classic/block-ranges"))
    assert said == ["Its sentences rest on the claims L1-29, D-01 (`pagewalk claims --id L1-29`)."]
    assert prose.proven_by(get("paged-reference/slots")) == []
    both = prose.proven_by(get("paged-reference/online-softmax"))[0]
    assert "L1-09" in both
    assert "`vllm-live/max`" in both


@pytest.mark.parametrize("step", steps().values(), ids=lambda step: step.id)
def test_every_claim_and_step_that_is_named_is_named_again(step: Step) -> None:
    said = " ".join(prose.proven_by(step))
    assert all(name in said for name in naming.names(step.prose) if name != step.id)


def test_places_are_the_spans_of_what_a_step_reads_each_once() -> None:
    from annotate import spans

    for step in steps().values():
        found = [(span.path, span.first, span.last) for span in prose.places(step)]
        assert len(set(found)) == len(found)
        table = spans.spans(step.source) if "@" in step.source else {}
        wanted = {(s.path, s.first, s.last) for name in step.reads for s in table.get(name, ())}
        assert set(found) == wanted


def test_a_link_is_permanent_and_names_its_lines() -> None:
    span = prose.places(get("vllm-classic/block-ranges"))[0]
    said = prose.link(span)
    assert f"#L{span.first}" in said
    assert "/blob/v0.24.0/" in said
    assert f"line{'s' if span.last > span.first else ''} {span.first}" in said


def test_standing_of_a_fresh_a_stale_and_no_record() -> None:
    step = get("vllm-classic/gqa")
    record = RECORDS[step.id]
    assert evidence.fresh(record, step)
    fresh = prose.standing(step, record)
    assert fresh.words[0].startswith(f"validated on {record.device}")
    assert [row.name for row in fresh.rows] == [check.name for check in record.checks]
    stale = prose.standing(step, dataclasses.replace(record, digests={"port": "0"}))
    assert stale.words[0].startswith("stale")
    assert {row.verdict for row in stale.rows} == {"stale"}
    assert prose.standing(step, None).words == ("not yet validated on a GPU",)
    assert prose.standing(step, dataclasses.replace(record, status="failed")).rows == ()


def test_a_table_escapes_what_would_break_it() -> None:
    row = Row("a|b", "[1, 2]", "*", "0", "0", "passed", note="<n>")
    lines = prose.table([row])
    assert lines[2] == r"| a&#124;b (&#60;n&#62;) | \[1, 2\] | \* | passed |"
    assert prose.table([]) == []


def test_every_walkthrough_has_an_introduction_that_stands_alone() -> None:
    for walkthrough in registry().values():
        assert naming.names(prose.words(walkthrough.intro)) == ()

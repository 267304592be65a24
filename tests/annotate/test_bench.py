"""The benchmark of drift: that it spreads its releases and prints each count. No times."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from annotate import bench
from annotate.releases import releases
from annotate.sourcetree import open_tree

if TYPE_CHECKING:
    from annotate.sources import SourceTree


def test_releases_are_taken_evenly() -> None:
    pins = releases()
    assert bench._spread(pins, 14) == pins
    four = [pin.revision for pin in bench._spread(pins, 4)]
    assert four == ["0.6.6.post1", "0.11.2", "0.23.0", "0.26.0"]
    assert bench._spread(pins, 99) == pins
    assert bench._spread([], 4) == []


@pytest.mark.source
def test_a_line_a_count(
    vllm_024: SourceTree, vllm_026: SourceTree, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pins = [vllm_024.pin, vllm_026.pin]
    bench.report(pins, lambda pin: open_tree(pin.id), tmp_path, (1, 2))
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["releases", "read,", "s", "CPU,", "s", "CPU,", "s", "a", "release", "cached,", "s"]
    assert [int(line.split()[0]) for line in lines] == [1, 2]
    assert all(re.fullmatch(r"\s*\d+(\s+\d+\.\d\d){4}", line) for line in lines)
    assert sorted(path.name for path in (tmp_path / "2").iterdir()) == ["vllm@0.24.0.json", "vllm@0.26.0.json"]

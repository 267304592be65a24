"""Machine-code records: their JSON, what makes one damaged, when one is stale, and lines that move with comments."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from walkthroughs import digest, machine_compile, machine_parse, machine_record, machine_subjects
from walkthroughs.evidence import EvidenceError
from walkthroughs.machine_record import NOWHERE, SIDES

ROOT = Path(__file__).resolve().parents[2]


def _sample() -> ModuleType:
    name = "pagewalk_machine_sample"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name("machine_sample.py"))
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


sample = _sample()
RECORD = sample.record()


def test_what_is_dumped_is_read_back() -> None:
    data = sample.record()
    found = machine_record.parse(machine_record.dump(data))
    assert json.loads(machine_record.dump(data)) == data
    (code,) = found.kernels
    for side in SIDES:
        assert [list(row) for row in code.rows[side]] == data["kernels"][0][side]
    assert [list(line) for line in code.lines] == data["kernels"][0]["lines"]
    assert found.device == "Some <GPU>"


def test_an_instruction_is_a_line_of_the_file() -> None:
    """A change can be read in a diff, and nothing is folded away."""
    text = machine_record.dump(sample.record())
    rows = [line for line in text.splitlines() if line.startswith('["')]
    expected = sum(len(sample.ROWS[side]) for side in SIDES)
    assert sum(line.count("LDG") + line.count("ld.global") for line in rows) == 6
    assert len(rows) == expected + len(sample.record()["kernels"][0]["lines"])


def test_every_line_is_in_the_ports_closure_and_the_rows_of_a_line_are_those_given() -> None:
    found = machine_record.parse(machine_record.dump(sample.record()))
    (code,) = found.kernels
    for side in SIDES:
        lines = [None if at == NOWHERE else code.lines[at][:2] for _, at in code.rows[side]]
        expected = [(sample.PORT, line) if line else None for _, line in sample.ROWS[side]]
        assert lines == expected
    assert {file for file, _, _ in code.lines} <= set(machine_record.closure(found.port))


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        ([], None),
        ([("/elsewhere/numba/x.py", 3)], None),
        ([("/elsewhere/numba/x.py", 3), (str(ROOT / "kernels/vector.py"), 5)], ("kernels/vector.py", 5)),
        ([(str(ROOT / "kernels/loads.py#barrier"), 7)], ("kernels/loads.py", 7)),
        ([(str(ROOT / "kernels/vector.py"), 5), (str(ROOT / "kernels/loads.py"), 7)], ("kernels/vector.py", 5)),
        ([(str(ROOT / "kernels/kernel.py"), 5), (str(ROOT / "kernels/loads.py"), 7)], ("kernels/loads.py", 7)),
        ([(str(ROOT / "kernels/simt/machine.py"), 5)], None),
        ([(str(ROOT / "walkthroughs/digest.py"), 5)], None),
    ],
)
def test_the_innermost_line_of_the_port_is_taken(places: list[Any], expected: tuple[str, int] | None) -> None:
    table = machine_record.LineTable("kernels/loads.py")
    at = table.index(places)
    assert (tuple(table.rows[at][:2]) if at != NOWHERE else None) == expected
    assert table.index(places) == at, "a line has one number"


DAMAGE = {
    "no JSON": lambda d: None,
    "another schema": lambda d: d.update(schema=99),
    "no kernel": lambda d: d.update(kernels=[]),
    "a field too many": lambda d: d.update(colour="red"),
    "no rows": lambda d: d["kernels"][0].update(ptx=[], counts={**d["kernels"][0]["counts"], "ptx": {}}),
    "a row of a line that is not there": lambda d: d["kernels"][0]["sass"][0].__setitem__(1, 99),
    "a row of line -2": lambda d: d["kernels"][0]["sass"][0].__setitem__(1, -2),
    "a row that is no pair": lambda d: d["kernels"][0]["sass"].append(["EXIT"]),
    "a load that is not counted": lambda d: d["kernels"][0]["sass"].append(["LDG.E R1, x", -1]),
    "a load too few": lambda d: d["kernels"][0]["ptx"].pop(1),
    "rows that are none": lambda d: d["kernels"][0].update(ptx=7),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_a_damaged_record_is_refused(tmp_path: Path, what: str) -> None:
    data = sample.record()
    DAMAGE[what](data)
    text = json.dumps(data) if what != "no JSON" else machine_record.dump(data)[:-40]
    (tmp_path / "k-load.json").write_text(text, "utf-8")
    with pytest.raises(EvidenceError, match=r"machine/k-load\.json"):
        machine_record.load("k-load", tmp_path)


@given(st.data())
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_record_without_one_of_its_fields_is_refused(data: st.DataObject) -> None:
    record = sample.record()
    inside = data.draw(st.booleans())
    fields = record["kernels"][0] if inside else record
    del fields[data.draw(st.sampled_from(sorted(fields)))]
    with pytest.raises(EvidenceError):
        machine_record.parse(json.dumps(record))


def test_a_record_under_another_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "v-load.json").write_text(machine_record.dump(sample.record()), "utf-8")
    with pytest.raises(EvidenceError, match="it is of k-load"):
        machine_record.load("v-load", tmp_path)
    assert machine_record.load("gather", tmp_path) is None


def test_freshness_is_the_digests() -> None:
    assert machine_record.fresh(machine_record.parse(machine_record.dump(sample.record())))
    for changes in ({"digest": "0" * 16}, {"kernel": "no-such-kernel"}):
        assert not machine_record.fresh(machine_record.parse(machine_record.dump({**sample.record(), **changes})))


def test_the_digest_sees_the_port_and_the_case(monkeypatch: pytest.MonkeyPatch) -> None:
    names = machine_subjects.names()
    digests = {name: machine_record.digest_of(name) for name in names}
    assert len(set(digests.values())) == len(names), "one file, other constants: another digest"
    launches = machine_compile.launches
    monkeypatch.setattr(
        machine_compile, "launches",
        lambda run, backend: [replaced_block(launch) for launch in launches(run, backend)],
    )  # fmt: skip
    assert machine_record.digest_of.__wrapped__("gather") != digests["gather"]


def replaced_block(launch: machine_compile.Launch) -> machine_compile.Launch:
    return machine_compile.Launch(launch.kernel, launch.grid, (7, 1, 1), launch.shared, launch.types)


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the port in a checkout of its own, which a test may edit."""
    (tmp_path / "kernels").mkdir()
    shutil.copy(ROOT / sample.PORT, tmp_path / sample.PORT)
    monkeypatch.setattr(digest, "ROOT", tmp_path)
    monkeypatch.setattr(machine_record, "fresh", lambda record: True)
    machine_record.node_lines.cache_clear()
    yield tmp_path / sample.PORT
    machine_record.node_lines.cache_clear()


def test_lines_are_found_again_when_only_comments_change(copy: Path) -> None:
    found = machine_record.parse(machine_record.dump(RECORD))
    (code,) = found.kernels
    before = machine_record.present_lines(found, code)
    assert [(file, line) for file, line, _ in code.lines] == before
    text = copy.read_text("utf-8")
    old = text.splitlines()
    # Before each line that starts a statement of its own a comment, after the module's docstring a longer one.
    new: list[str] = []
    for line in old:
        bare = line.strip()
        if bare.startswith(("k_vec =", "out[", "physical_block_number =", "for ", "def ")):
            new += [f"{line[: len(line) - len(line.lstrip())]}# a remark"] * 2
        new.append(line)
    copy.write_text("\n".join(new).replace('"""The loads', '"""A longer text.\n\nThe loads', 1) + "\n", "utf-8")
    machine_record.node_lines.cache_clear()
    after = machine_record.present_lines(found, code)
    lines = copy.read_text("utf-8").splitlines()
    assert after != before
    assert [lines[line - 1].strip() for _, line in after] == [old[line - 1].strip() for _, line in before]


def test_a_stale_records_lines_are_those_of_then(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_record, "fresh", lambda record: False)
    found = machine_record.parse(machine_record.dump(RECORD))
    copy.write_text("# all new\n" + copy.read_text("utf-8"), "utf-8")
    then = [(file, line) for file, line, _ in found.kernels[0].lines]
    assert machine_record.present_lines(found, found.kernels[0]) == then
    assert len(then) == 3


def test_counts_name_only_known_kinds() -> None:
    for side in (*SIDES, "launched"):
        assert set(sample.record()["kernels"][0]["counts"][side]) <= set(machine_parse.KINDS)

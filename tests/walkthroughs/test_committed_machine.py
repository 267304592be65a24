"""What is committed under docs/evidence/machine/: every kernel was built on a GPU, and is what is launched today."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from walkthroughs import digest, machine_compile, machine_parse, machine_reads, machine_record, machine_subjects
from walkthroughs.machine_record import NOWHERE, SIDES, MachineRecord

NAMES = machine_subjects.names()
RECORD_IT = "run `make gpu-records` on a machine with a GPU"
DATE = re.compile(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ")
LIMIT, OF_ALL = 450_000, 2_000_000


@pytest.fixture(scope="module")
def committed() -> dict[str, MachineRecord]:
    found = {name: machine_record.load(name) for name in NAMES}
    assert all(found.values()), f"no record of {', '.join(n for n, r in found.items() if r is None)}: {RECORD_IT}"
    return {name: record for name, record in found.items() if record}


@pytest.mark.parametrize("name", NAMES)
def test_every_kernel_has_a_fresh_gpu_record(name: str, committed: dict[str, MachineRecord]) -> None:
    record = committed[name]
    assert machine_record.fresh(record), f"{name}: the record is stale: {RECORD_IT}"
    assert record.backend == "cuda"
    assert record.device
    assert re.match(r"\d+\.\d+", record.driver)
    assert {"python", "numpy", "numba", "numba-cuda", "nvvm", "ptxas", "nvdisasm"} <= set(record.versions)
    assert all(record.versions.values())
    assert DATE.fullmatch(record.date)
    assert (record.title, record.port) == (machine_subjects.subject(name).title, machine_subjects.subject(name).port)


@pytest.mark.parametrize("name", NAMES)
def test_the_kernels_are_those_that_the_case_launches(name: str, committed: dict[str, MachineRecord]) -> None:
    launches = machine_compile.launches(machine_subjects.subject(name).run, "sim")
    for code, launch in zip(committed[name].kernels, launches, strict=True):
        assert code.name == launch.kernel.name
        assert (code.grid, code.block, code.dynamic_shared) == (launch.grid, launch.block, launch.shared)
        assert code.arguments == tuple(zip(launch.arguments, map(str, launch.types), strict=True))
        assert 0 < code.registers <= 255
        assert code.unlike_launched <= len(code.rows["sass"])
        assert (code.unlike_launched == 0) <= (code.counts["launched"] == code.counts["sass"])


@pytest.mark.parametrize("name", NAMES)
def test_every_line_is_one_of_the_port_and_is_there(name: str, committed: dict[str, MachineRecord]) -> None:
    record = committed[name]
    closure = machine_record.closure(record.port)
    for code in record.kernels:
        places = machine_record.present_lines(record, code)
        for file, line in places:
            assert file in closure
            assert (digest.ROOT / file).read_text("utf-8").splitlines()[line - 1].strip(), f"{file}:{line} is empty"
        used = {at for side in SIDES for _, at in code.rows[side]} - {NOWHERE}
        assert used == set(range(len(places))), "each line is that of a row"
        # Most instructions know their line, or the pages would show little.
        for side in SIDES:
            rows = [at for text, at in code.rows[side] if machine_parse.mnemonic(text)]
            assert sum(at != NOWHERE for at in rows) > len(rows) / 2


@pytest.mark.parametrize("name", NAMES)
def test_loads_and_stores_of_one_width_are_as_many_in_both_languages(
    name: str, committed: dict[str, MachineRecord]
) -> None:
    """Neither language splits or merges an access to global memory: the two listings are of the same code."""
    for code in committed[name].kernels:
        for kind in ("global loads", "global stores"):
            widths = [
                Counter(machine_parse.load_bits(machine_parse.mnemonic(text)) for text, _ in code.rows[side]
                        if machine_parse.kind_of(text) == kind)
                for side in SIDES
            ]  # fmt: skip
            assert widths[0] == widths[1]


def test_what_the_caches_loads_became(committed: dict[str, MachineRecord]) -> None:
    """The ports move one element at a time; the two bare loads are vectors of the classic kernel's widths."""

    def loads(name: str) -> dict[str, tuple[int, ...]]:
        (code,) = committed[name].kernels[:1]
        found = machine_reads.accesses(code, machine_record.present_lines(committed[name], code))
        return {access.what: access.bits for access in found if access.kind == "read"}

    assert loads("classic-v1") == loads("classic-v2") == loads("paged-2d") == {"K": (32,), "V": (32,)}
    assert loads("k-load") == {"K": (64,)}
    assert loads("v-load") == {"V": (128,)}
    assert loads("reshape-and-cache") == {}


def test_no_file_is_left_over_large_or_of_this_machine(committed: dict[str, MachineRecord]) -> None:
    files = sorted(machine_record.FOLDER.iterdir())
    assert [path.name for path in files] == sorted(f"{name}.json" for name in committed)
    sizes = [path.stat().st_size for path in files]
    assert max(sizes) < LIMIT
    assert sum(sizes) < OF_ALL
    for path in files:
        text = path.read_text("utf-8")
        assert not re.search(r'"/|\.\./|/home/|/root/|/tmp/', text), path.name
        assert "_ZN" not in text, f"{path.name}: a mangled name"

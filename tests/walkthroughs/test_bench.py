"""`python -m walkthroughs.bench`: a dry run from end to end, what it refuses, its digest, and what is committed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kernels.kernel import cuda_unavailable
from kernels.tuned import bench_record, shapes
from kernels.tuned.bench_record import LEFT, MEASURED, WRONG, Record
from walkthroughs import bench, digest, evidence

ROOT = digest.ROOT
no_gpu = pytest.mark.skipif(cuda_unavailable() is None, reason="there is a GPU")
OWN = """
import torch

class Unsupported(Exception):
    pass

def right(case):
    out = torch.empty_like(case.query)
    def call():
        for seq in range(case.batch):
            out[seq : seq + 1] = case.truth(seq).to(out.dtype)
    call.out = out
    return call

def wrong(case):
    call = right(case)
    def lazy():
        call.out.zero_()
    lazy.out = call.out
    return lazy

def refuses(case):
    raise Unsupported(f"{case.batch} sequences, {case.heads}/{case.kv_heads} heads of {case.head_size}, {case.dtype}")

PEERS = {"right": right, "refuses": refuses}
VERSIONS = {"right": "made for a test"}
"""


def dry(out: Path, *more: str) -> int:
    return bench.main(["--backend", "sim", "--out", str(out), *more], say=lambda line: None)


def test_a_dry_run_goes_all_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "peers_of_a_test.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    said: list[str] = []
    args = ["--backend", "sim", "--out", str(tmp_path / "out"), "--set", "tiny", "--only", "4/1-32", "--rung", "ring"]
    args += ["--plans", "1x2x2,2x1x2", "--without", "torch-flex", "--also", "peers_of_a_test"]
    assert bench.main(args, say=said.append) == 0
    assert bench.main(["--backend", "sim", "--out", str(tmp_path / "out"), "--set", "writer"], say=said.append) == 0
    record = bench.load(tmp_path / "out")
    assert list(record.sets) == ["tiny", "writer"]
    made = record.sets["tiny"]
    assert (made.backend, made.device) == ("sim", "SIMT machine")
    assert made.digest == bench.bench_digest()
    assert made.words == {"right": "made for a test"}
    assert "torch" in made.versions
    (cell,) = made.cells
    rows = {row.who: row for row in cell.rows}
    assert list(rows) == ["ring", "torch-sdpa", "flashinfer", "flashinfer-tc", "vllm-v1", "vllm-v2", "right", "refuses"]
    assert rows["ring"].state == rows["right"].state == MEASURED
    assert rows["ring"].how == "sim"
    assert len(rows["ring"].tries) == 2
    assert rows["refuses"].reason == "2 sequences, 4/1 heads of 32, bfloat16"
    text = "\n".join(said)
    assert "the times mean nothing" in text
    assert "refuses          refused: 2 sequences" in text
    assert "not measured FlashInfer with tensor cores" in text


def test_a_wrong_kernel_fails_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wrong_peers_of_a_test.py").write_text(OWN + 'PEERS = {"wrong": wrong}\n')
    monkeypatch.syspath_prepend(tmp_path)
    args = ["--set", "tiny", "--only", "4/1-32", "--rung", "tensor-cores", "--peer", "wrong"]
    args += ["--also", "wrong_peers_of_a_test"]
    assert dry(tmp_path / "out", *args) == 1
    (cell,) = bench.load(tmp_path / "out").sets["tiny"].cells
    assert {row.who: row.state for row in cell.rows} == {"tensor-cores": MEASURED, "wrong": WRONG}


def test_when_the_time_is_up_the_rest_is_recorded_so(tmp_path: Path) -> None:
    assert dry(tmp_path, "--set", "tiny", "--set", "writer", "--seconds", "0") == 0
    record = bench.load(tmp_path)
    assert [len(made.cells) for made in record.sets.values()] == [len(shapes.TINY), len(shapes.TINY_WRITES)]
    assert {row.state for made in record.sets.values() for cell in made.cells for row in cell.rows} == {LEFT}


def test_the_record_is_kept_after_every_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    write = bench_record.write

    def watched(path: Path, record: Record) -> None:
        seen.append(len(record.sets["tiny"].cells))
        write(path, record)

    monkeypatch.setattr(bench_record, "write", watched)
    assert dry(tmp_path, "--set", "tiny", "--seconds", "0") == 0
    assert seen == [1, 2]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--backend", "sim"], "dry run: name another folder"),
        (["--backend", "sim", "--out", "OUT", "--set", "all"], "set = all: must be one of facts"),
        (["--backend", "sim", "--out", "OUT", "--rung", "top"], "rungs = top"),
        (["--backend", "sim", "--out", "OUT", "--plans", "4x4"], "plans = 4x4"),
        (["--backend", "sim", "--out", "OUT", "--also", "no_such_module"], "No module named"),
        pytest.param(["--out", "OUT"], "--backend cuda: ", marks=no_gpu),
    ],
)
def test_wrong_use(args: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main([str(tmp_path) if part == "OUT" else part for part in args]) == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_damaged_record_is_not_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / bench.FILE).write_text("{}")
    assert dry(tmp_path, "--set", "tiny") == 2
    assert "no benchmark record" in capsys.readouterr().err
    assert (tmp_path / bench.FILE).read_text() == "{}"


def test_the_digest_is_of_every_rung_and_of_how_they_are_timed() -> None:
    files = set(digest.port_files(bench.RUNGS_FILE))
    for name in ("ring", "tensor_cores", "token_loop", "wide_loads", "grouped", "online", "split"):
        assert f"kernels/tuned/{name}.py" in files
    for file in (bench.WRITER_FILE, *bench.HOW_MEASURED):
        assert (ROOT / file).is_file()


def test_it_needs_nothing_of_the_site() -> None:
    """As on a bare GPU machine: numba-cuda, NumPy and torch, and the rest refused."""
    code = (
        "import sys, builtins\n"
        "real = builtins.__import__\n"
        "site = ('click', 'rich', 'markdown', 'mkdocs', 'tree_sitter', 'requests', 'platformdirs', 'greenlet')\n"
        "def guard(name, *rest, **more):\n"
        "    if name.split('.')[0] in site:\n"
        "        raise ImportError(name)\n"
        "    return real(name, *rest, **more)\n"
        "builtins.__import__ = guard\n"
        "from walkthroughs import bench\n"
        "from kernels.tuned import bench as driver\n"
        "print(bench.bench_digest() != '', len(driver.SETS))\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert found.stdout.split() == ["True", "6"], found.stderr


# What is committed


def test_a_committed_record_is_of_a_gpu_and_of_nothing_wrong() -> None:
    record = bench.load()
    assert bool(record.sets) == (evidence.EVIDENCE / bench.FILE).exists()
    for made in record.sets.values():
        assert made.backend == "cuda"
        assert made.id in ("facts", "matrix", "goals", "writer", "host")
        ours = [row for cell in made.cells for row in cell.rows if row.kind == bench_record.RUNG]
        assert ours
        assert not [row for row in ours if row.state == WRONG]

"""`python -m walkthroughs.machine_code`: what is compiled and recorded, and its exit codes; compilers stand in."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernels.kernel import Backend
from walkthroughs import hardware_tools, launchables, machine_code, machine_compile, machine_record, machine_subjects
from walkthroughs.hardware_tools import ToolError
from walkthroughs.machine_compile import Launch, Listing

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "kernels/loads.py"


@pytest.mark.parametrize("name", machine_subjects.names())
def test_every_launchable_kernel_is_a_subject_and_its_launches_are_noted(name: str) -> None:
    subject = machine_subjects.subject(name)
    found = machine_compile.launches(subject.run, "sim")
    assert found
    assert len({launch.kernel.fn for launch in found}) == len(found), "the first launch of each kernel"
    for launch in found:
        assert len(launch.types) == len(launch.arguments)
        assert machine_record.relative(launch.kernel.fn.__code__.co_filename.split("#")[0]) in machine_record.closure(
            subject.port
        )
        names = machine_compile.parameter_names(launch)
        arrays = [kind for kind in launch.types if str(kind).startswith("array")]
        assert len(names) == len(set(names)) == len(launch.types) + sum(4 + 2 * kind.ndim for kind in arrays)


def test_all_launchables_are_there_and_v2_is_two_kernels() -> None:
    assert set(launchables.names()) < set(machine_subjects.names())
    found = machine_compile.launches(machine_subjects.subject("classic-v2").run, "sim")
    assert [launch.kernel.name for launch in found] == ["paged_attention_v2_kernel", "paged_attention_v2_reduce_kernel"]


def test_noting_launches_runs_nothing_and_leaves_launching_as_it_was() -> None:
    case = launchables.launchable("gather").case()

    def run(backend: Backend) -> None:
        outputs.append(case.run(backend)["out"])

    outputs: list[Any] = []
    machine_compile.launches(run, "sim")
    case.run(Backend("sim"))
    run(Backend("sim"))
    assert np.isnan(outputs[0]).all()
    assert np.isfinite(outputs[1]).all()


def test_the_types_are_those_of_a_launch() -> None:
    """float32 stays float32, a Python number is 64 bits, and an array that is read-only here is a copy there."""
    (launch,) = machine_compile.launches(machine_subjects.subject("classic-v1").run, "sim")
    types = dict(zip(launch.arguments, map(str, launch.types), strict=True))
    assert types["k_cache"] == "array(float32, 1d, C)"
    assert types["block_tables"] == "array(int32, 1d, C)"
    assert types["scale"] == "float32"
    assert types["num_kv_heads"] == "int64"


RESOURCES = {"registers": 8, "shared": 0, "local": 16}


def listing(lines: bool = True) -> Listing:
    """What the compilers would answer: two instructions, of line 12 of the port or, without `lines`, of none."""
    ptx = (
        ".target sm_90a\n.visible .entry k(\n)\n{\n"
        + ("\t.loc\t1 12 1\n" if lines else "")
        + f'\tld.global.u16 \t%rs1, [_ZN1k_param_4];\n\tret;\n}}\n\t.file\t1 "{FILE}"\n'
    )
    sass = (
        f'\t.target\tsm_90a\n//--------------------- .text.k ----\n\t//## File "{FILE}", line 12\n'
        "        /*0000*/  LDG.E.U16 R1, desc[UR4][R2.64] ;\n        /*0010*/  EXIT ;\n"
    )
    return Listing(ptx, sass, "numba-cuda", sass, RESOURCES)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Launch]:
    """A stand-in for the compilers and the GPU; what was to be compiled."""
    seen: list[Launch] = []

    def compile_launch(launch: Launch, *, on_gpu: bool) -> Listing:
        seen.append(launch)
        return listing()

    monkeypatch.setattr(machine_compile, "compile_launch", compile_launch)
    monkeypatch.setattr(machine_compile, "tool_version", lambda tool: "V13.0.1")
    return seen


def test_a_record_has_what_was_compiled(compiled: list[Launch], tmp_path: Path) -> None:
    made = machine_code.record(machine_subjects.subject("k-load"), (9, 0))
    size = machine_code.write(tmp_path, made)
    assert size == (tmp_path / "k-load.json").stat().st_size
    found = machine_record.load("k-load", tmp_path)
    assert found is not None
    assert machine_record.fresh(found)
    assert (found.backend, found.compute_capability, found.device) == ("compiled", "9.0", "")
    assert found.versions["nvdisasm"] == "V13.0.1"
    (code,) = found.kernels
    assert code.name == "k_load"
    assert code.rows["ptx"] == (("ld.global.u16 %rs1, [out.data]", 0), ("ret", 0))
    assert code.rows["sass"] == (("LDG.E.U16 R1, desc[UR4][R2.64]", 0), ("EXIT", 0))
    assert code.lines[0][:2] == ("kernels/loads.py", 12)
    assert (code.registers, code.local, code.unlike_launched) == (8, 16, 0)
    assert code.counts["launched"] == code.counts["sass"] == {"global loads": {"LDG.E.U16": 1}}
    assert str(ROOT) not in (tmp_path / "k-load.json").read_text("utf-8")


def test_both_kernels_of_v2_are_in_one_record(compiled: list[Launch]) -> None:
    made = machine_code.record(machine_subjects.subject("classic-v2"), (9, 0))
    assert [code["name"] for code in made["kernels"]] == [launch.kernel.name for launch in compiled]
    assert len(made["kernels"]) == 2


@pytest.mark.parametrize(
    ("ours", "launched", "number"),
    [
        ([], [], 0),
        (["a", "b"], ["a", "b"], 0),
        (["a", "b", "c"], ["a", "x", "c"], 1),
        (["a", "b"], ["x", "a", "b"], 1),
        (["a", "b", "c", "d"], ["c", "d"], 2),
        (["a"], ["b", "c"], 2),
    ],
)
def test_rows_that_the_launch_has_otherwise_are_counted(ours: list[str], launched: list[str], number: int) -> None:
    assert machine_code.unlike(ours, launched) == number


def test_each_kernel_is_written_and_a_failure_is_told(
    compiled: list[Launch], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    inner = machine_compile.compile_launch

    def fails(launch: Launch, *, on_gpu: bool) -> Listing:
        if launch.kernel.name == "gather_kernel":
            raise ToolError("it would not link")
        return inner(launch, on_gpu=on_gpu)

    monkeypatch.setattr(machine_compile, "compile_launch", fails)
    monkeypatch.setattr(machine_compile, "without_gpu", lambda cc: __import__("contextlib").nullcontext())
    monkeypatch.setattr(hardware_tools, "find", lambda tool: tool)
    dry = ["--compile-only", "--cc", "9.0", "--out", str(tmp_path), "--jobs", "1"]
    assert machine_code.main([*dry, "--only", "scatter", "--only", "gather"]) == 1
    out = capsys.readouterr().out
    assert "FAILED  gather: it would not link" in out
    assert "2 kernels in" in out
    assert "1 of them failed" in out
    assert [path.name for path in tmp_path.iterdir()] == ["scatter.json"]
    assert machine_code.main([*dry, "--only", "scatter"]) == 0
    assert "scatter_kernel 2 PTX, 2 SASS rows, 8 registers" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--compile-only"], "--compile-only and --cc 9.0 go together"),
        (["--cc", "9.0"], "go together"),
        (["--compile-only", "--cc", "9.0"], "holds whole GPU records only"),
        (["--only", "gather"], "holds whole GPU records only"),
        (["--compile-only", "--cc", "nine", "--out", "x"], "--cc nine: must be two numbers"),
        (["--compile-only", "--cc", "9", "--out", "x"], "--cc 9: must be two numbers"),
        (["--only", "gathr", "--out", "x"], "--only gathr: must be one of classic-v1"),
        (["--jobs", "0"], "--jobs 0: must be 1 or more"),
    ],
)
def test_wrong_use_is_refused(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert machine_code.main(arguments) == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_without_a_gpu_it_says_so_and_writes_nothing(tmp_path: Path) -> None:
    from kernels.kernel import cuda_unavailable

    if cuda_unavailable() is None:
        pytest.skip("there is a GPU")
    done = subprocess.run(
        [sys.executable, "-m", "walkthroughs.machine_code", "--out", str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "GPU" in done.stderr
    assert not list(tmp_path.iterdir())


def test_the_next_way_is_tried_and_the_first_complaint_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    (launch,) = machine_compile.launches(machine_subjects.subject("k-load").run, "sim")
    answers = iter([listing(lines=False), listing()])
    current: list[Listing] = []

    class Library:
        _lto = True

        def get_lto_ptx(self) -> str:
            current[:] = [next(answers)]
            return current[0].ptx

        def get_cubin(self) -> Any:
            return type("Cubin", (), {"code": b""})

    built = type("Built", (), {"_codelibrary": Library()})
    monkeypatch.setattr(machine_compile, "_built", lambda dispatcher, types: built)
    monkeypatch.setattr(machine_compile, "compile_cuda", lambda kernel: None)
    monkeypatch.setattr(machine_compile, "disassemble", lambda cubin: current[0].sass if current else "")
    monkeypatch.setattr(machine_compile, "_by_ptxas", lambda ptx: (ptx, b""))
    found = machine_compile.compile_launch(launch, on_gpu=False)
    assert found.how == "ptxas, from numba-cuda's PTX"
    assert found.notes == ("numba-cuda: ToolError: its listings name no lines",)
    assert found.resources is None
    answers = iter([listing(lines=False)] * 4)
    with pytest.raises(ToolError, match=r"k_load: numba-cuda: .*; ptxas"):
        machine_compile.compile_launch(launch, on_gpu=False)


@pytest.mark.gpu
def test_on_a_gpu_a_record_is_made_and_the_launch_runs_its_instructions(tmp_path: Path) -> None:
    assert machine_code.main(["--only", "v-load", "--only", "gather", "--out", str(tmp_path), "--jobs", "1"]) == 0
    for name in ("v-load", "gather"):
        data = json.loads((tmp_path / f"{name}.json").read_text("utf-8"))
        assert data["backend"] == "cuda"
        found = machine_record.load(name, tmp_path)
        assert found is not None
        assert machine_record.fresh(found)
    loads = json.loads((tmp_path / "v-load.json").read_text("utf-8"))["kernels"][0]["counts"]["ptx"]["global loads"]
    assert any(".v4." in name for name in loads)

"""Deliberate faults: each is noticed, a sound kernel never is, and a mutant that does not even run proves nothing."""

from __future__ import annotations

import ast
import inspect
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from annotate.regions import regions
from kernels import simt
from kernels.errors import ArgumentError
from kernels.kernel import Backend, Kernel
from kernels.vllm import attention_kernels, attention_utils, classic_v1
from walkthroughs import mutations
from walkthroughs.mutations import MUTATIONS, Mutation, MutationError, caught_by, control, is_report, mutant
from walkthroughs.step import steps

ROOT = Path(__file__).resolve().parents[2]
BY_ID = {mutation.id: mutation for mutation in MUTATIONS}
EPSILON, GROUP_SUM, RESCALE = (BY_ID[name] for name in ("epsilon", "group-sum", "rescale"))


# -- the list


def test_there_are_enough_of_every_kind() -> None:
    assert len(MUTATIONS) >= 12
    assert len(BY_ID) == len(MUTATIONS), "ids are unique"
    assert len({(m.file, m.region, m.old, m.nth) for m in MUTATIONS}) == len(MUTATIONS)
    barriers = [m for m in MUTATIONS if m.old == mutations.BARRIER]
    masks = [m for m in MUTATIONS if "mask" in m.id or "guard" in m.id]
    assert len(barriers) >= 4
    assert len(masks) >= 4
    assert {m.file for m in MUTATIONS} >= {
        "kernels/vllm/attention_kernels.py", "kernels/vllm/attention_utils.py", "kernels/vllm/cache.py",
        "kernels/gather.py",
    }  # fmt: skip


def test_every_barrier_of_the_ports_but_the_last_is_taken_out_once() -> None:
    for file in ("kernels/vllm/attention_kernels.py", "kernels/vllm/attention_utils.py"):
        present = (ROOT / file).read_text("utf-8").count(mutations.BARRIER)
        taken = [m for m in MUTATIONS if m.file == file and m.old == mutations.BARRIER]
        # The barrier that ends a round of the tournament guards the next round's writes, by warps that only read.
        assert len(taken) >= present - 1


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: m.id)
def test_a_mutation_is_one_line_of_its_region_and_names_real_steps(mutation: Mutation) -> None:
    assert mutation.steps
    assert set(mutation.steps) <= set(steps())
    assert mutation.what
    assert "\n" not in mutation.old + mutation.new
    before = (ROOT / mutation.file).read_text("utf-8").splitlines()
    after = mutations._changed(mutation).splitlines()
    different = [number for number, (a, b) in enumerate(zip(before, after, strict=True), 1) if a != b]
    assert len(different) == 1
    assert any(span.first <= different[0] <= span.last for span in regions(ROOT / mutation.file)[mutation.region])
    assert ast.dump(ast.parse("\n".join(before))) != ast.dump(ast.parse("\n".join(after))), "not only a comment"


# -- each is noticed


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: m.id)
def test_every_mutation_is_caught_on_the_machine(mutation: Mutation) -> None:
    caught = caught_by(mutation, "sim")
    assert caught is not None, f"{mutation.what}: nobody noticed"
    step, said = caught
    assert step in mutation.steps
    assert said


def test_sound_kernels_pass_under_every_order_of_warps() -> None:
    assert control("sim") == []
    assert [bench.backend.schedule for bench in mutations.benches("sim")] == ["in-order", "reversed", "random:1"]
    assert [bench.sleepy_warp for bench in mutations.benches("cuda")] == [None, 0, 1, 3]


def test_control_names_a_step_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    real = mutations.runner.run
    monkeypatch.setattr(
        mutations.runner,
        "run",
        lambda step, bench: replace(real(step, bench), status="failed" if step.slug == "exp-sum" else "passed"),
    )
    monkeypatch.setattr(mutations, "MUTATIONS", (BY_ID["block-sum-barrier"], EPSILON))
    assert [line.split(" on ")[0] for line in control("sim")] == ["vllm-classic/exp-sum"] * 3


@pytest.mark.parametrize("mutation", [EPSILON, RESCALE], ids=lambda m: m.id)
def test_a_change_that_changes_nothing_survives(mutation: Mutation) -> None:
    harmless = replace(mutation, id="harmless", new=f"({mutation.old})")
    assert caught_by(harmless, "sim") is None


# -- what is no proof


@pytest.mark.parametrize(
    "changes",
    [{"old": "no such text"}, {"nth": 99}, {"region": "alibi"}, {"region": "dense-attention"}],
)
def test_a_mutation_whose_text_is_gone_is_an_error(changes: dict[str, object]) -> None:
    gone = replace(EPSILON, **changes)  # type: ignore[arg-type]
    for call in (mutant, lambda mutation: caught_by(mutation, "sim")):
        with pytest.raises(MutationError, match=r"^epsilon: .* is not in region"):
            call(gone)


def test_a_mutant_that_does_not_compile_is_not_caught() -> None:
    with pytest.raises(SyntaxError):
        caught_by(replace(EPSILON, id="typo", new="exp_sum +"), "sim")


@pytest.mark.parametrize("new", ["exp_summ", "exp_sum + 'one'", "exp_sum.lost", "cuda.lost(exp_sum)"])
def test_a_mutant_that_does_not_run_is_not_caught(new: str) -> None:
    with pytest.raises(
        MutationError, match=r"broken: vllm-classic/normalise did not run: (Name|UFuncType|Attribute|NotModelled)\w*"
    ):
        caught_by(replace(EPSILON, id="broken", new=new), "sim")


def test_is_report() -> None:
    for kind in (simt.UninitialisedRead, simt.OutOfBounds, simt.BarrierDivergence, simt.ShuffleError):
        assert is_report(f"{kind.__name__}: shared array[3] (kernels/x.py:1)")
    for message in ("NotModelled: cuda.lost", "BadLaunch: block", "OutsideLaunch: cuda.*"):
        assert not is_report(message), "it did not run"
    for message in ("NameError: x", "ArgumentError: a = 1: no", "launch: x", "cuda", "", "SyntaxError: invalid"):
        assert not is_report(message)
    assert not is_report(str(ArgumentError("a", 1, "OutOfBounds: no")))


# -- the mutant itself


def test_a_mutant_keeps_its_lines_and_leaves_the_module_alone() -> None:
    before = classic_v1.paged_attention_v1_kernel.fn, attention_kernels.paged_attention_kernel.fn
    wrong = mutant(EPSILON)
    assert isinstance(wrong, Kernel)
    assert (classic_v1.paged_attention_v1_kernel.fn, attention_kernels.paged_attention_kernel.fn) == before
    inner = wrong.fn.__globals__["paged_attention_kernel"].fn
    assert inner.__code__.co_firstlineno == before[1].__code__.co_firstlineno
    assert inner.__code__.co_filename == f"{attention_kernels.__file__}#epsilon"
    lines, _ = inspect.getsourcelines(inner)
    assert "1e-6" not in "".join(lines)
    assert "1e-6" in inspect.getsource(before[1])


def test_a_fault_in_a_helper_reaches_the_kernel_through_every_file() -> None:
    wrong = mutant(GROUP_SUM)
    body = wrong.fn.__globals__["paged_attention_kernel"].fn
    helper = body.__globals__["qk_dot"].fn
    assert helper.__code__.co_filename.endswith("attention_utils.py#group-sum")
    assert "mask >= 2" in inspect.getsource(helper)
    assert "mask >= 2" not in inspect.getsource(attention_utils.qk_dot.fn)
    # What the mutation does not touch is what it was.
    assert body.__globals__["block_sum"].fn.__code__.co_code == attention_utils.block_sum.fn.__code__.co_code


def test_a_mutant_computes_something_else() -> None:
    from kernels import cases
    from kernels.gather import gather, gather_kernel

    case = cases.lesson_case("float64")
    pools = cases.unpack_keys(case.k_cache)[:, :, 0].copy(), cases.unpack_values(case.v_cache)[:, :, 0].copy()
    outs = []
    for entry in (gather_kernel, mutant(RESCALE)):
        out = np.full(4, np.nan)
        gather(out, case.q[0, 0], *pools, case.block_tables[0], 6, 0.5, entry=entry, backend=Backend("sim"))
        outs.append(out)
    assert tuple(outs[0].round(6)) == (0.363083, 0.449897, 0.392487, 0.386499)
    assert np.abs(outs[0] - outs[1]).max() > 1e-3


# -- on a GPU


@pytest.mark.gpu
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: m.id)
def test_gpu_every_mutation_is_caught(mutation: Mutation) -> None:
    assert caught_by(mutation, "cuda") is not None, f"{mutation.what}: nobody noticed"

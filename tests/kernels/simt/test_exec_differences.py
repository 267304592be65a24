"""The table of `differences.py`: the machine's column by running it, Numba's where a GPU is there."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
try:
    import differences
finally:
    sys.path.pop(0)

RULES = {rule.id: rule for rule in differences.RULES}


def same(got, expected):
    """Equal in value and kind; two NaN are."""
    return type(got) is type(expected) and (got == expected or (got != got and expected != expected))


def test_every_rule_has_a_name_of_its_own_and_three_answers():
    assert len(RULES) == len(differences.RULES) > 50
    for rule in differences.RULES:
        kind = float if rule.out.startswith("float") else int
        for answer in (rule.cpp, rule.numba, rule.machine):
            assert isinstance(answer, kind | str), rule.id


def test_the_table_holds_differences_and_agreements():
    differ = {rule.id for rule in differences.RULES if not same(rule.numba, rule.machine)}
    assert {"int32 * int32", "float32 * 0.1", "max(NaN, 1)", "x * x - y"} <= differ
    assert {"int32 of NaN", "fmaxf(NaN, 1)", "-7 // 2", "popc(ballot)"}.isdisjoint(differ)
    for name in differ:  # a reader must learn what to write, or that it is the kind of number
        assert RULES[name].note or RULES[name].machine == RULES[name].cpp or isinstance(RULES[name].machine, str | int)


@pytest.mark.parametrize("name", RULES)
def test_the_machine(name):
    assert same(RULES[name].run("sim"), RULES[name].machine)


def test_as_a_program_it_says_that_there_is_no_gpu(capsys, monkeypatch):
    monkeypatch.setattr(differences, "cuda_unavailable", lambda: "no driver")
    assert differences.main() == 2
    assert capsys.readouterr().err == "no GPU: no driver\n"


def test_an_error_is_given_by_its_name():
    rule = RULES["thread index // 0"]
    assert rule.run("sim") == "ZeroDivisionError"
    assert differences.Rule("x", "x.nothing", rule.x, rule.y, "int64", 0, 0, 0).run("sim") == "AttributeError"


@pytest.mark.gpu
@pytest.mark.parametrize("name", RULES)
def test_numba_on_the_gpu(name):
    assert same(RULES[name].run("cuda"), RULES[name].numba)

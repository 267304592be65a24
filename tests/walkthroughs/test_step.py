"""Steps and walkthroughs: ids, defaults, the registry, and what an unknown id is answered with."""

from __future__ import annotations

import pytest

from walkthroughs import step as module
from walkthroughs.step import Step, UnknownStep, Walkthrough, get, registry, select, steps
from walkthroughs.workbench import Workbench


def small() -> Walkthrough:
    return Walkthrough("tour", "A tour", "Hello.", source="vllm@0.24.0", port="kernels/a.py")


def test_the_decorator_registers_in_order_and_fills_in_what_is_not_said() -> None:
    tour = small()

    @tour.step("one", title="First", reads=("qk-dot",))
    def first(bench: Workbench) -> None:
        """
        First line.

            kept indent
        """

    @tour.step("two", title="Second", reads=(), source="kernels/b.py", port="kernels/c.py")
    def second(bench: Workbench) -> None:
        """One line."""

    assert [step.id for step in tour.steps] == ["tour/one", "tour/two"]
    one, two = tour.steps
    assert (one.source, one.port) == ("vllm@0.24.0", "kernels/a.py")
    assert (two.source, two.port) == ("kernels/b.py", "kernels/c.py")
    assert (one.walkthrough, one.slug, one.title, one.reads) == ("tour", "one", "First", ("qk-dot",))
    assert one.run is first, "the function itself stays callable"
    assert one.prose == "First line.\n\n    kept indent"
    assert two.prose == "One line."
    assert Step("a/b", "", (), "", "", lambda bench: None).prose == ""


def test_two_walkthroughs_do_not_share_steps() -> None:
    one, two = small(), small()
    one.step("s", title="S", reads=())(lambda bench: None)
    assert (len(one.steps), len(two.steps)) == (1, 0)


def test_the_registry_is_ordered_and_whole() -> None:
    found = registry()
    assert list(found)[:2] == ["paged-reference", "vllm-classic"]
    assert all(walkthrough.id == name for name, walkthrough in found.items())
    listed = [step for walkthrough in found.values() for step in walkthrough.steps]
    assert list(steps()) == [step.id for step in listed]
    assert list(steps().values()) == listed
    assert [step.slug for step in found["vllm-classic"].steps][:3] == ["slots", "writer-threads", "write-keys"]
    assert found["vllm-classic"].steps[-1].slug == "fp8-write"


def test_asking_twice_does_not_register_twice() -> None:
    before = list(steps())
    registry()
    assert list(steps()) == before


def test_get() -> None:
    assert get("vllm-classic/qk-dot").title == steps()["vllm-classic/qk-dot"].title


@pytest.mark.parametrize(
    ("asked", "near"),
    [("vllm-classic/qkdot", "vllm-classic/qk-dot"), ("paged-refrence/slots", "paged-reference/slots"),
     ("vllm-clasic", "vllm-classic"), ("paged_reference", "paged-reference")],
)  # fmt: skip
def test_an_unknown_id_is_answered_with_the_nearest(asked: str, near: str) -> None:
    for call in (get, lambda name: select([name])):
        with pytest.raises(UnknownStep, match="did you mean") as caught:
            call(asked)
        assert near in caught.value.nearest
        assert near in str(caught.value)
        assert repr(asked) in str(caught.value)
        assert isinstance(caught.value, LookupError)


def test_an_id_like_no_other_is_answered_with_the_list() -> None:
    with pytest.raises(UnknownStep, match=r"no step or walkthrough is called 'zzzzzz'; see `pagewalk list`$") as caught:
        get("zzzzzz")
    assert caught.value.nearest == []
    with pytest.raises(UnknownStep):
        get("vllm-classic")  # a walkthrough is no step


def test_select_keeps_reading_order_and_takes_each_step_once() -> None:
    names = ["vllm-classic/output", "vllm-classic/slots", "paged-reference/tail", "vllm-classic/slots"]
    assert [step.id for step in select(names)] == ["paged-reference/tail", "vllm-classic/slots", "vllm-classic/output"]
    whole = select(["paged-reference", "paged-reference/tail"])
    assert whole == registry()["paged-reference"].steps
    assert select(list(registry())) == list(steps().values())
    assert select([]) == []


def test_one_unknown_name_spoils_a_selection() -> None:
    with pytest.raises(UnknownStep):
        select(["paged-reference", "nothing/like-it"])


def test_modules_without_a_walkthrough_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    import types

    real = module.importlib.import_module
    plain = types.ModuleType("plain")
    monkeypatch.setattr(
        module.importlib, "import_module", lambda name: plain if name.endswith("paged_reference") else real(name)
    )
    assert "paged-reference" not in registry()
    assert "vllm-classic" in registry()

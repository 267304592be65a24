"""The call into vLLM: its file stands alone, asks for what it needs, and hands the arrays on in the op's order."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernels import cases
from kernels.vllm import theirs

ROOT = Path(__file__).resolve().parents[3]
FILE = ROOT / "kernels" / "vllm" / "theirs.py"
CASE = cases.write_case(2, 3, 32, 8, "float16", seed=5)
CALL = (CASE.key, CASE.value, CASE.k_cache, CASE.v_cache, CASE.slot_mapping)


def fake(monkeypatch: pytest.MonkeyPatch, op: Any, version: str = "0.99.0") -> None:
    """A vLLM in this process whose `_custom_ops` holds `op`."""
    package, ops = types.ModuleType("vllm"), types.ModuleType("vllm._custom_ops")
    package.__version__ = version  # type: ignore[attr-defined]
    package.__spec__ = importlib_spec("vllm")
    if op is not None:
        ops.reshape_and_cache = op  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm", package)
    monkeypatch.setitem(sys.modules, "vllm._custom_ops", ops)


def importlib_spec(name: str) -> Any:
    from importlib.machinery import ModuleSpec

    return ModuleSpec(name, None)


def test_it_needs_nothing_of_ours_and_no_library_to_be_imported() -> None:
    """Another Python reads this file: what stands at its top must be everywhere."""
    tree = ast.parse(FILE.read_text("utf-8"), feature_version=(3, 10))
    top = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {a.name for node in top if isinstance(node, ast.Import) for a in node.names}
    names |= {str(node.module) for node in top if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in names} <= sys.stdlib_module_names
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert not str(node.module).startswith(("kernels", "annotate", "walkthroughs"))


PEERS = ROOT / "kernels" / "tuned" / "peers.py"
# Run by the Python of the live lab, never by ours.
LAB = ROOT / "walkthroughs" / "lab" / "engine.py"
"""The benchmark measures vLLM's ops where they are installed; it is asked for by name, inside a function."""


def test_no_other_file_names_vllms_modules_as_imports() -> None:
    for package in ("annotate", "kernels", "walkthroughs"):
        for path in (ROOT / package).rglob("*.py"):
            if path not in (FILE, PEERS, LAB):
                text = path.read_text("utf-8")
                assert "import vllm" not in text, path
                assert 'import_module("vllm' not in text, path


def test_nothing_of_ours_imports_what_the_labs_python_runs() -> None:
    for package in ("annotate", "kernels", "walkthroughs"):
        for path in (ROOT / package).rglob("*.py"):
            text = path.read_text("utf-8")
            assert "lab.engine import" not in text, path
            assert "lab import engine" not in text, path


def test_the_benchmark_imports_vllm_only_when_it_measures_it() -> None:
    text = PEERS.read_text("utf-8")
    assert "import vllm" not in text
    assert text.count('import_module("vllm') == 1
    found = [
        node for node in ast.parse(text).body if 'import_module("vllm' in (ast.get_source_segment(text, node) or "")
    ]
    assert [type(node) for node in found] == [ast.FunctionDef]


def test_the_call_has_the_ops_arguments_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    seen: list[Any] = []

    def op(
        key: Any, value: Any, key_cache: Any, value_cache: Any, slot_mapping: Any,
        kv_cache_dtype: str, k_scale: Any, v_scale: Any,
    ) -> None:  # fmt: skip
        seen.append((key, value, slot_mapping, kv_cache_dtype, k_scale, v_scale))
        key_cache.fill_(2)
        value_cache.fill_(3)

    fake(monkeypatch, op)
    about, found = theirs.reshape_and_cache([CALL, CALL], device="cpu")
    assert about == {"vllm": "0.99.0", "torch": str(torch.__version__), "device": "CPU"}
    assert len(seen) == len(found) == 2
    key, value, slots, kind, *scales = seen[0]
    np.testing.assert_array_equal(key.numpy(), CASE.key)
    np.testing.assert_array_equal(value.numpy(), CASE.value)
    np.testing.assert_array_equal(slots.numpy(), CASE.slot_mapping)
    assert kind == "auto"
    assert [(float(scale), scale.dtype) for scale in scales] == [(1.0, torch.float32)] * 2
    for keys, values in found:
        assert keys.shape == CASE.k_cache.shape
        assert values.shape == CASE.v_cache.shape
        assert (keys == 2).all()
        assert (values == 3).all()
    assert np.isnan(CASE.k_cache).all(), "the caller's caches are not touched"


@pytest.mark.parametrize(
    ("op", "said"),
    [
        (None, "has no reshape_and_cache"),
        (lambda key, value: None, "takes other arguments"),
        (lambda a, b, c, d, e, f, g, h: getattr(object(), "op"), "has no compiled"),  # noqa: B009
    ],
)
def test_an_op_that_is_not_there(monkeypatch: pytest.MonkeyPatch, op: Any, said: str) -> None:
    fake(monkeypatch, op)
    with pytest.raises(theirs.Unavailable, match=f"vLLM 0.99.0 .*{said}|of vLLM 0.99.0 {said}") as caught:
        theirs.reshape_and_cache([CALL], device="cpu")
    assert list(caught.value.lacking) == ["op"]


def test_one_more_argument_with_a_default_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[bool] = []
    fake(monkeypatch, lambda a, b, c, d, e, f, g, h, interleaved_v=False: calls.append(interleaved_v))
    theirs.reshape_and_cache([CALL], device="cpu")
    assert calls == [False]


def test_an_op_that_does_not_tell_its_arguments_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent:
        called = 0

        @property
        def __signature__(self) -> Any:
            raise ValueError("no signature")

        def __call__(self, *arguments: Any) -> None:
            Silent.called += len(arguments)

    fake(monkeypatch, Silent())
    theirs.reshape_and_cache([CALL], device="cpu")
    assert Silent.called == 8


def test_missing_names_every_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    real = theirs.importlib.util.find_spec
    gone = {"vllm", "torch"}
    monkeypatch.setattr(theirs.importlib.util, "find_spec", lambda name: None if name in gone else real(name))
    assert theirs.missing() == {"vllm": "vLLM is not installed", "torch": "PyTorch is not installed"}
    gone.remove("torch")
    assert list(theirs.missing("cpu")) == ["vllm"]
    with pytest.raises(theirs.Unavailable, match="vLLM is not installed"):
        theirs.reshape_and_cache([CALL], device="cpu")


def test_a_pytorch_that_does_not_load_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch, None)
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(theirs.importlib.util, "find_spec", importlib_spec)
    ((kind, said),) = theirs.missing().items()
    assert kind == "torch"
    assert said.startswith("PyTorch is installed but cannot be imported")


def test_a_bare_python_is_told_what_it_lacks(tmp_path: Path) -> None:
    """Not even NumPy: the script answers in its folder, and names vLLM."""
    done = subprocess.run(
        [sys.executable, "-S", str(FILE), str(tmp_path), "cpu"], capture_output=True, text=True, check=False, env={}
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    answer = json.loads((tmp_path / theirs.ANSWER).read_text())
    lacking = {"vllm": "vLLM is not installed", "torch": "PyTorch is not installed"}
    assert answer == {"status": "unavailable", "lacking": lacking}
    assert not (tmp_path / theirs.OUTPUT).exists()

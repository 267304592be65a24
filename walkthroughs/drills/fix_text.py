"""From a text to kernels: loads a file that a reader has changed, and hands its functions to the files that call them.

The text is executed. Only `fix_run`, a process of its own, may do that with what a reader wrote.
"""

from __future__ import annotations

import importlib
import linecache
import sys
import types
from dataclasses import replace
from typing import Any

from kernels.kernel import Device, Kernel
from walkthroughs.drills import fix, fix_cut, fix_errors
from walkthroughs.drills.errors import DrillError
from walkthroughs.drills.fix import Task
from walkthroughs.drills.fix_cut import ROOT

TAG = "fix"
BODY, UTILS, V1, V2 = (
    f"kernels/vllm/{name}.py" for name in ("attention_kernels", "attention_utils", "classic_v1", "classic_v2")
)
CALLERS = {UTILS: (BODY, V1, V2), BODY: (V1, V2)}
"""The files that are loaded anew after a changed one, since they hold on to its functions."""


def kernels(task: Task, text: str) -> tuple[Kernel, ...]:
    """Every kernel of the task's file, and of the files that call it, made of `text`; raises Unreadable."""
    if left := fix_cut.blanks(text):
        raise fix_errors.blank(task, text, left[0])
    try:
        compile(text, task.file, "exec", dont_inherit=True)  # what is no Python is said first
        fix.excerpt(task, text)
        scope = load(task.file, text)
    except DrillError as error:
        raise fix_errors.fences(error) from error
    except SyntaxError as error:
        raise fix_errors.syntax(task, text, error) from error
    except BaseException as error:
        raise fix_errors.loading(task, text, error) from error
    _all_there(task, scope)
    changed = _own(scope)
    found = {name: value for name, value in scope.items() if isinstance(value, Kernel)}
    for file in CALLERS.get(task.file, ()):
        scope = load(file, (ROOT / file).read_text("utf-8"))
        # The kernel keeps the function that computes its constants from when it was made.
        made = {name: value for name, value in scope.items() if isinstance(value, Kernel)}
        scope.update({name: value for name, value in changed.items() if name in scope})
        changed |= _own(scope)
        found |= {name: _with_constants(kernel, changed) for name, kernel in made.items()}
    return tuple(found.values())


def _all_there(task: Task, scope: dict[str, Any]) -> None:
    """Raise Unreadable where a kernel or a function of the port is gone: the port's own would run in its place."""
    port = importlib.import_module(_module_name(task.file))
    for name, value in vars(port).items():
        if _home(value) != port.__name__:
            continue
        made = scope.get(name)
        if type(made) is not type(value) or _home(made) != scope["__name__"] or _called(made) != _called(value):
            what = "@kernel or @device line" if isinstance(value, Kernel | Device) else "def"
            raise fix_errors.Unreadable(f"{name} is gone from {task.name}.py: its name and its {what} must stay")


def _home(value: Any) -> str:
    """The module that a kernel, a device function or a plain function was written in; "" for anything else."""
    fn = value.fn if isinstance(value, Kernel | Device) else value
    return fn.__module__ if isinstance(fn, types.FunctionType) else ""


def _called(value: Any) -> str:
    return str((value.fn if isinstance(value, Kernel | Device) else value).__name__)


def _module_name(file: str) -> str:
    return file.removesuffix(".py").replace("/", ".")


def load(file: str, text: str) -> dict[str, Any]:
    """Execute a port's text as a module of its own; the text stays findable for `inspect`."""
    module_name = _module_name(file)
    importlib.import_module(module_name)
    filename, name = f"{ROOT / file}#{TAG}", f"{module_name}#{TAG}"
    module = types.ModuleType(name)
    module.__file__ = filename
    sys.modules[name] = module
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    exec(compile(text, filename, "exec", dont_inherit=True), module.__dict__)
    return module.__dict__


def _own(scope: dict[str, Any]) -> dict[str, Any]:
    """What other files hold on to: device functions, and the functions that choose among them."""
    own = scope["__name__"]
    return {name: value for name, value in scope.items() if not isinstance(value, Kernel) and _home(value) == own}


def _with_constants(kernel: Kernel, changed: dict[str, Any]) -> Kernel:
    name = getattr(kernel.constexpr, "__name__", "")
    return replace(kernel, constexpr=changed[name]) if name in changed else kernel

"""Digests: what changes one and what does not, on copies of the real files; and alike on every Python."""

from __future__ import annotations

import ast
import hashlib
import io
import keyword
import shutil
import subprocess
import sys
import tokenize
import types
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotate import spans
from walkthroughs import digest
from walkthroughs.step import Step, get, steps

ROOT = Path(__file__).resolve().parents[2]
V1, BODY, UTILS = (f"kernels/vllm/{name}.py" for name in ("classic_v1", "attention_kernels", "attention_utils"))
FIRST, SECOND = (f"walkthroughs/catalog/vllm_classic_{part}.py" for part in ("1_write", "2_keys"))
STEPS = ("vllm-classic/slots", "vllm-classic/grid", "vllm-classic/qk-dot", "paged-reference/tail")
EVERY_PORT, EVERY_STEP = ({(name.split("/")[1], key) for name in STEPS} for key in ("port", "step"))
V1_STEPS = {("grid", "port"), ("qk-dot", "port")}
CLASSIC = {("slots", "step"), ("grid", "step"), ("qk-dot", "step")}
Digests = dict[str, dict[str, str]]

# Whatever a Python version might spell in its own way.
SNIPPET = '''
"""Module docstring."""
from __future__ import annotations
import os.path as p, sys
type_hint: dict[str, int | None] = {"a": 1, **{}}

@decorated(1.5, -0.0, 1e-06, 0xFF, 1_000, b"bytes", "it's", ...)
async def waits(a, /, b: int = 2, *args, c, d=None, **kw) -> list[str]:
    "docstring"
    async with a as x, b: await x
    return [i async for i in a if (n := i) > 1]

def f(a):
    """Docstring."""
    text = f"{a!r:>{10}} {a=} {{x}} {a:.2f}" "joined" f"{a}"
    match a:
        case {"k": [1, *rest], **other} if rest: pass
        case Point(x=0, y=-1) | None: return lambda q=1: not q
        case _: raise ValueError from None
    try: del a[1:2, ::3]
    except (OSError, KeyError) as error: global g
    else: assert a, "no"
    finally: yield from a
    while a < b <= c != d is not e not in f: break
    for x, *y in z: continue
    return a if b else c, (yield), {1, 2}, {k: v for k, v in z}, a @ b ** -c // d
'''
SNIPPET_SHA256 = "f135022eef7285536b836fc5a38c088e32f39270dbe994a6b12c0087854bb197"


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of our Python files that the digests are made of; the caches start and end empty."""
    for package in ("kernels", "walkthroughs"):
        for path in (ROOT / package).rglob("*.py"):
            target = tmp_path / path.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    monkeypatch.setattr(digest, "ROOT", tmp_path)
    forget()
    yield tmp_path
    forget()


def forget() -> None:
    digest._module.cache_clear()
    digest.port_files.cache_clear()


def there(step: Step, root: Path) -> Step:
    """The step as if its function came from the copy."""
    path = Path(step.run.__code__.co_filename).relative_to(ROOT)
    code = step.run.__code__.replace(co_filename=str(root / path))
    return replace(step, run=types.FunctionType(code, step.run.__globals__))


def now(root: Path) -> Digests:
    forget()
    return {name: digest.of_step(there(get(name), root)) for name in STEPS}


def edit(root: Path, path: str, old: str, new: str) -> None:
    text = (root / path).read_text("utf-8")
    assert old in text, f"{path} has no {old!r} any more"
    (root / path).write_text(text.replace(old, new, 1), "utf-8")


def changed(before: Digests, after: Digests) -> set[tuple[str, str]]:
    """(slug, which digest) of everything that differs."""
    return {
        (name.split("/")[1], key) for name in before for key in before[name] if before[name][key] != after[name][key]
    }


# -- on copies of the real files


def test_a_copy_has_the_same_digests(copied: Path) -> None:
    found = now(copied)
    assert all(set(row) == {"port", "step", "anchors"} for row in found.values())
    assert all(len(value) == 16 for row in found.values() for value in row.values())
    copies = found
    digest.ROOT = ROOT  # the fixture's monkeypatch puts it back
    forget()
    assert copies == {name: digest.of_step(get(name)) for name in STEPS}


def test_comments_docstrings_and_white_space_do_not_count(copied: Path) -> None:
    before = now(copied)
    for path in (V1, BODY, UTILS, "kernels/vllm/cache.py", "kernels/oracle.py", FIRST, SECOND, "kernels/reference.py"):
        text = (copied / path).read_text("utf-8")
        head, quotes, rest = text.partition('"""')
        text = f"# a comment\n{head}{quotes}Another docstring. {rest}".replace("\n\n\n", "\n\n\n\n# more\n")
        lines = [line if '"' in line else line.replace(", ", " ,  ") for line in text.splitlines(keepends=True)]
        (copied / path).write_text("".join(lines).replace("  # ", "  # said otherwise: "), "utf-8")
    edit(copied, SECOND, "Each thread of the group multiplies", "Every thread of a group multiplies")
    edit(copied, FIRST, "This is the kernel that made", "That is the kernel that made")
    assert ast.parse((copied / BODY).read_text("utf-8"))
    assert changed(before, now(copied)) == set()


@pytest.mark.parametrize(
    ("path", "old", "new", "expected"),
    [
        # The first part of vllm-classic calls v1's host function, so its own steps depend on v1 too.
        (BODY, "qk_max = float32(-FLT_MAX)", "qk_max = float32(FLT_MAX)", V1_STEPS | CLASSIC),
        (UTILS, "even = a[0] * b[0]", "even = a[0] * b[1]", V1_STEPS | CLASSIC),
        (V1, "grid = (num_heads, num_seqs, 1)", "grid = (num_heads, num_seqs, 2)", V1_STEPS | CLASSIC),
        ("kernels/vllm/cache.py", "slot_idx < 0", "slot_idx < 1", {("slots", "port")}),
        ("kernels/gather.py", "token_idx >= seq_len", "token_idx > seq_len", {("tail", "port")}),
        ("kernels/layout.py", "VECTOR_BYTES = 16", "VECTOR_BYTES = 32", EVERY_PORT | CLASSIC),
        ("kernels/oracle.py", "1e-6", "1e-7", {("qk-dot", "step"), ("tail", "step")}),
        ("kernels/cases.py", "GROUP_BYTES = 16", "GROUP_BYTES = 8", EVERY_STEP),
        ("walkthroughs/workbench.py", "error <= tolerance", "error < tolerance", EVERY_STEP),
        (SECOND, "head_idx == 3 and token_idx", "head_idx == 2 and token_idx", {("qk-dot", "step")}),
        (SECOND, "SCORE = 3e-6", "SCORE = 3e-5", {("qk-dot", "step")}),
        (FIRST, "seed=1", "seed=2", {("slots", "step"), ("grid", "step"), ("qk-dot", "step")}),
        (FIRST, '"cells of the grid', '"all cells of the grid', {("grid", "step")}),
        ("kernels/reference.py", "math.exp", "math.exp2", {("tail", "anchors"), ("tail", "step")}),
        # What launches and watches a kernel is no part of it, nor is what shows it.
        ("kernels/kernel.py", "MAX_THREADS = 1024", "MAX_THREADS = 512", set()),
        ("kernels/probe.py", "KEYS = 4", "KEYS = 5", set()),
        ("kernels/simt/schedule.py", "preempts = True", "preempts = False", set()),
        ("walkthroughs/runner.py", "SIM_DEVICE", "SIM_NAME", set()),
    ],
)  # fmt: skip
def test_one_token_changes_what_depends_on_it(
    copied: Path, path: str, old: str, new: str, expected: set[tuple[str, str]]
) -> None:
    before = now(copied)
    edit(copied, path, old, new)
    assert changed(before, now(copied)) == expected


def test_anchors_follow_the_upstream_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    step = get("vllm-classic/qk-dot")
    before = digest.of_step(step)
    real = spans.digest_of
    monkeypatch.setattr(spans, "digest_of", lambda source, concept: real(source, concept) + "x" * (concept == "qk-dot"))
    after = digest.of_step(step)
    assert {key for key in before if before[key] != after[key]} == {"anchors"}
    monkeypatch.undo()
    assert digest.of_step(step) == before
    assert digest.of_step(replace(step, reads=("qk-dot",)))["anchors"] != before["anchors"]


def test_port_files_are_the_port_and_what_it_imports() -> None:
    host = {
        "kernels/layout.py", "kernels/numbers.py", "kernels/vllm/check.py", "kernels/vllm/dtypes.py",
        "kernels/vllm/strided.py",
    }  # fmt: skip
    assert set(digest.port_files(V1)) == {V1, BODY, UTILS, *host}
    assert digest.port_files(V1)[0] == V1, "the port itself comes first"
    assert set(digest.port_files("kernels/vllm/cache.py")) == {"kernels/vllm/cache.py", *host}
    for step in steps().values():
        assert digest.port_files(step.port)[0] == step.port


def test_of_files_is_over_names_and_contents_in_any_order(copied: Path) -> None:
    one, two = "kernels/layout.py", "kernels/cases.py"
    assert digest.of_files([one, two]) == digest.of_files([two, one])
    assert len({digest.of_files([one]), digest.of_files([two]), digest.of_files([one, two])}) == 3
    before = digest.of_files([one, two])
    shutil.copyfile(copied / one, copied / two)
    forget()
    assert digest.of_files([one, two]) != before
    assert digest.of_files([one]) != digest.of_files([two]), "the same text under another name"


# -- canonical


def names_and_numbers(text: str) -> list[tokenize.TokenInfo]:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return [
        t for t in tokens if t.type == tokenize.NUMBER or (t.type == tokenize.NAME and not keyword.iskeyword(t.string))
    ]


PORT = (ROOT / BODY).read_text("utf-8")
TOKENS = names_and_numbers(PORT)
PORT_DIGEST = digest.canonical(ast.parse(PORT))


@settings(max_examples=60)
@given(st.sampled_from(range(len(TOKENS))))
def test_no_name_and_no_number_of_a_port_may_change_unseen(number: int) -> None:
    token = TOKENS[number]
    new = f"({token.string} + 1)" if token.type == tokenize.NUMBER else token.string + "_"
    lines = PORT.splitlines(keepends=True)
    line = lines[token.start[0] - 1]
    lines[token.start[0] - 1] = line[: token.start[1]] + new + line[token.end[1] :]
    assert digest.canonical(ast.parse("".join(lines))) != PORT_DIGEST


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("a = 1", "a = 1.0"), ("a = 'b'", "a = b'b'"), ("a", "a()"), ("return_ = None", "return_ = 0"),
        ("def f(): return", "def f(): return None"), ("a < b", "a <= b"), ("a - b", "b - a"), ("if a: b", "while a: b"),
        ("x = [1]", "x = (1,)"), ("def f(a, /): pass", "def f(a): pass"), ("f(*a)", "f(a)"), ("a.b", "a.c"),
        ("x: int", "x: str"), ("f'{a}'", "f'{a!r}'"), ("f'{a:1}'", "f'{a:2}'"),
        ("for i in a: b", "for i in a:\n b\nelse: c"),
        ("x = True", "x = 1"), ("from a import b", "from .a import b"), ("del x", "x"), ("x = []", "x = [[]]"),
        ("x = {**a}", "x = {None: a}"), ("lambda: 0", "lambda x: 0"),
    ],
)  # fmt: skip
def test_different_programs_differ(one: str, two: str) -> None:
    assert digest.canonical(ast.parse(one)) != digest.canonical(ast.parse(two))


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("a=1", "a  =  1  # one"), ("x = 'a'", 'x = "a"'), ("x = (1)", "x = 1"), ("f(1,)", "f(1)"),
        ("def f():\n 'doc'\n return 1", "def f():\n    return 1"), ("class A:\n 'doc'\n x = 1", "class A:\n x = 1"),
        ("'doc'\nx", "x"), ("x = 1_000", "x = 1000"), ("x = 'a' 'b'", "x = 'ab'"), ("a; b", "a\nb"),
        ("x = u'a'", "x = 'a'"), ("def f(): ...", "def f():\n\n\n  ..."),
    ],
)  # fmt: skip
def test_the_same_program_is_the_same(one: str, two: str) -> None:
    assert digest.canonical(ast.parse(one)) == digest.canonical(ast.parse(two))


def test_canonical_written_down() -> None:
    tree = ast.parse("def f(a: int = 2) -> None:\n    'doc'\n    return f'{a!r}' if (b := a) else -1.5\n")
    assert digest.canonical(tree) == (
        "Module(body=[FunctionDef(name='f',args=arguments(args=[arg(arg='a',annotation=Name(id='int'))],"
        "defaults=[Constant(value=2)]),body=[Return(value=IfExp(test=NamedExpr(target=Name(id='b'),value=Name(id='a')),"
        "body=JoinedStr(values=[FormattedValue(value=Name(id='a'),conversion=114)]),"
        "orelse=UnaryOp(op=USub(),operand=Constant(value=1.5))))],returns=Constant())])"
    )
    assert hashlib.sha256(digest.canonical(ast.parse(SNIPPET)).encode()).hexdigest() == SNIPPET_SHA256


def other_pythons() -> dict[str, str]:
    """Interpreters on this machine that are of another minor version than ours, 3.11 or newer."""
    found: dict[str, str] = {}
    for minor in range(11, 16):
        places = [
            shutil.which(f"python3.{minor}"),
            *sorted((Path.home() / ".pyenv/versions").glob(f"3.{minor}.*/bin/python")),
        ]
        for place in filter(None, places):
            asked = subprocess.run(
                [str(place), "-c", "import sys; print(sys.version_info[1])"],
                capture_output=True,
                text=True,
                check=False,
            )
            if asked.returncode == 0 and asked.stdout.strip() == str(minor) != str(sys.version_info[1]):
                found[f"3.{minor}"] = str(place)
    return found


def test_every_python_here_gives_the_same_digests(tmp_path: Path) -> None:
    # Without another Python this still compares with what is written down above.
    (tmp_path / "snippet.py").write_text(SNIPPET, "utf-8")
    code = (
        "import ast, hashlib, pathlib; from walkthroughs import digest\n"
        f"snippet = pathlib.Path({str(tmp_path / 'snippet.py')!r}).read_text('utf-8')\n"
        "print(hashlib.sha256(digest.canonical(ast.parse(snippet)).encode()).hexdigest())\n"
        f"print(digest.of_files({[V1, BODY, FIRST, SECOND, 'walkthroughs/workbench.py', 'kernels/cases.py']!r}))\n"
    )
    answers = {}
    for name, python in {"ours": sys.executable, **other_pythons()}.items():
        done = subprocess.run(
            [python, "-B", "-c", code],
            cwd=ROOT,
            env={"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{name}: {done.stderr}"
        answers[name] = done.stdout.split()
    print(f"compared: {', '.join(answers)}")
    assert answers["ours"][0] == SNIPPET_SHA256
    assert all(answer == answers["ours"] for answer in answers.values()), answers

from __future__ import annotations

from pathlib import Path

from walkthroughs.site import architecture


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def test_each_module_speaks_for_itself(tmp_path: Path) -> None:
    write(tmp_path, "annotate/__init__.py", '"""Reads sources."""\n')
    write(tmp_path, "annotate/b.py", '"""First line,\nsecond line.\n\nMore."""\n')
    write(tmp_path, "annotate/silent.py", "x = 1\n")
    write(tmp_path, "kernels/vllm/a.py", '"""A `port` with [brackets]."""\nraise SystemExit("never run")\n')
    assert architecture.lines(tmp_path) == [
        "",
        "## `annotate/` {#annotate}",
        "",
        "* Reads sources.",
        "* `b.py`: First line, second line.",
        "",
        "## `kernels/vllm/` {#kernels-vllm}",
        "",
        "* `a.py`: A `port` with \\[brackets\\].",
        "",
    ]


def test_a_folder_has_one_heading_even_where_its_files_sort_around_a_subfolder(tmp_path: Path) -> None:
    for name in ("a.py", "b/c.py", "d.py"):
        write(tmp_path, f"walkthroughs/{name}", '"""Text."""')
    lines = [line for line in architecture.lines(tmp_path) if line]
    assert lines == [
        "## `walkthroughs/` {#walkthroughs}",
        "* `a.py`: Text.",
        "* `d.py`: Text.",
        "## `walkthroughs/b/` {#walkthroughs-b}",
        "* `c.py`: Text.",
    ]


def test_our_own_modules_all_have_a_header() -> None:
    known = {path for path, _ in architecture.modules()}
    files = {
        path.relative_to(architecture.ROOT).as_posix()
        for package in architecture.PACKAGES
        for path in (architecture.ROOT / package).rglob("*.py")
    }
    assert files - known == set()

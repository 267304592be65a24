"""The machine-code pages: what the compiler made of each port, beside the port's lines and upstream's.

A page says first what the record shows, in sentences computed from it; a record that no longer matches is shown and
called stale; without one the page says how to make it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache

from annotate.errors import AnnotateError
from walkthroughs import machine_reads, machine_record, machine_subjects
from walkthroughs.machine_parse import KINDS
from walkthroughs.machine_record import Code, MachineRecord
from walkthroughs.machine_subjects import Subject

from . import machine_panes
from .errors import UnknownPageItem
from .inline import label, plain
from .render import Stash, names_html, record_html

FOLDER = "machine"
MAKE_IT = "`make gpu-records`, on a machine with a GPU, makes it: `python -m walkthroughs.machine_code` alone does too."
NONE = "–"
HINT = (
    "Hover over a line, or tap it: the instructions that it became light up, and upstream's lines of the same concept. "
    "With the keyboard: Tab to a line, up and down move, Enter keeps it lit, Escape lets go. "
    "Instructions without a number belong to no line: the compiler moved or merged them, or they are its own."
)
_LOADS_SOURCE = "vllm@0.24.0"


def stubs() -> dict[str, str]:
    """The committed stubs of these pages by their path under `docs`: a page a kernel, and the index."""
    note = "# Written by walkthroughs/site/pages.py; edit walkthroughs/machine_subjects.py instead."
    intro = (
        "# Machine code\n\nWhat the compiler made of each port on a GPU: PTX, the compiler's own language, and SASS, "
        "which the GPU runs. Each instruction is tied to the port's line that it came from, and so to upstream's.\n\n"
        "One load moves most where each thread asks for 16 bytes: in PTX that is a load of four words, `ld.global.v4`. "
        "The table says what each kernel's reads of the caches became.\n\n::: machines\n"
    )
    pages = {f"{FOLDER}/index.md": f"---\n{note}\ntitle: Machine code\n---\n{intro}"}
    for name in machine_subjects.names():
        head = f"---\n{note}\ntitle: {json.dumps(f'Machine code: {name}')}\nhide: [navigation, toc]\n---\n"
        pages[f"{FOLDER}/{name}.md"] = f"{head}::: machine {name} root=..\n"
    return pages


@cache
def _record(name: str) -> MachineRecord | None:
    return machine_record.load(name)


def page_lines(name: str, root: str, stash: Stash) -> list[str]:
    """The page of one kernel; raises UnknownPageItem for an unknown one, EvidenceError for a damaged record."""
    try:
        subject = machine_subjects.subject(name)
    except AnnotateError as error:
        raise UnknownPageItem("kernel with machine code", name, machine_subjects.names()) from error
    return lines(subject, _record(name), source_of(name), root, stash)


def lines(subject: Subject, record: MachineRecord | None, source: str, root: str, stash: Stash) -> list[str]:
    """The page of a kernel and its record."""
    title = f"# Machine code: {plain(subject.name)} {{#{subject.name}}}"
    case = plain(record.case_title if record else subject.case_title)
    out = [title, "", _way(subject.name), "{ .pw-hint .pw-way }", ""]
    out += [f"{label(subject.title)} Compiled for one case: {case}.", ""]
    if record is None:
        return [*out, f"○ **Not yet recorded.** {MAKE_IT}", ""]
    found = machine_panes.columns(record, source)
    folded = record_html(_facts(record)).replace("this run", "this build")
    return [
        *out, _where(record, machine_record.fresh(record)), "", *_summary(record), "", HINT, "{ .pw-hint }", "",
        stash(found.html), "", *_concepts(found.concepts, root), "## Instructions by kind {#kinds}", "",
        "As the listings have them: the copies of an unrolled loop all count.", "", *_table(record),
        stash(names_html(found.names)), "", stash(folded), "",
    ]  # fmt: skip


def source_of(name: str) -> str:
    """The pin of a kernel's upstream side, or empty: that of its film, which a reader steps through."""
    from walkthroughs.stepper.films import films

    if name in machine_subjects.LOADS:
        return _LOADS_SOURCE
    return next((film.source for film in films().values() if film.kernel == name), "")


def _way(name: str) -> str:
    names = machine_subjects.names()
    at = names.index(name)
    parts = ["[All kernels](index.md)"]
    parts += [f"← [{plain(names[at - 1])}]({names[at - 1]}.md)"] if at else []
    parts += [f"[{plain(names[at + 1])}]({names[at + 1]}.md) →"] if at + 1 < len(names) else []
    return " · ".join(parts)


def _where(record: MachineRecord, fresh: bool) -> str:
    """Where and when it was built, with the sign of a badge: the line that says whether it can be believed."""
    if record.backend != "cuda":
        return f"⚠ **Compiled for {plain(record.compute_capability)} without a GPU:** nothing was launched."
    built = f"{plain(record.device)}, {record.date[:10]}"
    if fresh:
        return f"✔ **Built and launched on {built}.** The record matches the port as it is now."
    return f"⚠ **Stale:** the port has changed since the build on {built}. The lines below are those of then."


def _summary(record: MachineRecord) -> list[str]:
    out: list[str] = []
    for code in record.kernels:
        if len(record.kernels) > 1:
            out += ["", f"**`{code.name}`**", ""]
        out += [f"* {_capital(machine_reads.said(access))}" for access in _accesses(record, code)]
        said = (_nothing_read(record, code), _unplaced(record, code), _needs(code), _like(code))
        out += [f"* {sentence}" for sentence in said if sentence]
    return out


def _accesses(record: MachineRecord, code: Code) -> list[machine_reads.Access]:
    found = machine_reads.accesses(code, machine_record.present_lines(record, code))
    return sorted(found, key=lambda access: (access.kind != "read", access.file, access.line))


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _nothing_read(record: MachineRecord, code: Code) -> str:
    if any(access.kind == "read" for access in _accesses(record, code)):
        return ""
    loads = [name for name in code.counts["ptx"].get("global loads", {}) if ".v4." in name]
    return f"It reads no cache. {'Some' if loads else 'None'} of its other global loads is a `{machine_reads.VECTOR}`."


def _unplaced(record: MachineRecord, code: Code) -> str:
    """Loads without a line, where a line that reads a cache has none of its own."""
    if all(access.ptx for access in _accesses(record, code)):
        return ""
    named = " and ".join(f"{number} × `{name}`" for name, number in machine_reads.unplaced(code, "read").items())
    return f"Loads that belong to no line: {named}." if named else ""


def _needs(code: Code) -> str:
    """Registers, memory, and how often the warp's lanes talk to each other."""
    kinds = {kind: sum(code.counts["sass"].get(kind, {}).values()) for kind in ("shuffles", "barriers", "fma")}
    local = f"{code.local} bytes of local memory a thread" if code.local else "nothing spilt to local memory"
    return (
        f"{code.registers} registers a thread, {code.shared + code.dynamic_shared:,} bytes of shared memory a block, "
        f"{local}; in the machine code {_many(kinds['shuffles'], 'shuffle')}, {_many(kinds['barriers'], 'barrier')} "
        f"and {kinds['fma']} fma."
    )


def _many(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


def _like(code: Code) -> str:
    if not code.unlike_launched:
        return "The launch runs exactly these instructions: keeping the line numbers changed none."
    same = code.counts["launched"] == code.counts["sass"]
    kinds = "are the same" if same else "differ too"
    return (
        f"What the launch runs differs in {code.unlike_launched:,} of {len(code.rows['sass']):,} rows: with line "
        f"numbers the compiler chose other registers or another order. The counts by kind {kinds}."
    )


def _table(record: MachineRecord) -> list[str]:
    """What each kernel needs, and its instructions by kind; unrolled copies count."""
    out: list[str] = []
    for code in record.kernels:
        head = f"`{code.name}`" if len(record.kernels) > 1 else "Kind"
        out += [f"| {head} | PTX | SASS |", "| --- | --- | --- |"]
        kinds = [k for k in KINDS if k in code.counts["ptx"] or k in code.counts["sass"]]
        out += [f"| {kind} | {_names(code, 'ptx', kind)} | {_names(code, 'sass', kind)} |" for kind in kinds]
        shared = f"{code.shared:,} bytes static, {code.dynamic_shared:,} at the launch"
        out += [
            f"| registers a thread | {NONE} | {code.registers} |",
            f"| shared memory a block | {NONE} | {shared} |",
            f"| local memory a thread | {NONE} | {code.local} bytes{'' if code.local else ': nothing is spilt'} |",
            "",
        ]
    return out


def _names(code: Code, side: str, kind: str) -> str:
    return ", ".join(f"{n} `{name}`" for name, n in code.counts[side].get(kind, {}).items()) or "0"


def _concepts(names: Sequence[str], root: str) -> list[str]:
    from annotate.concepts import concept

    if not names:
        return []
    links = " ".join(f"[{label(concept(name).title)}]({root}/concepts/{name}.md){{ .pw-chip }}" for name in names)
    return [f"Concepts: {links}", "{ .pw-chips }", ""]


def _facts(record: MachineRecord) -> list[tuple[str, str]]:
    facts = [
        ("Device", record.device or "none"), ("Driver", record.driver or "none"),
        ("Compute capability", record.compute_capability), ("Built", record.date), ("Case", record.case),
        *((name, version) for name, version in record.versions.items()), ("Digest", record.digest),
    ]  # fmt: skip
    for code in record.kernels:
        arguments = ", ".join(f"{name}: {kind}" for name, kind in code.arguments)
        facts += [
            (code.name, f"grid {tuple(code.grid)}, block {tuple(code.block)}, {code.target}, by {code.how}"),
            ("Arguments", arguments),
            *(("Not possible", note) for note in code.notes),
        ]
    return facts


def index_lines() -> list[str]:
    """A row a kernel: what its loads of a cache are, what it needs, and whether the record is fresh."""
    out = ["", "| Kernel | Reads of a cache | Registers | Instructions | Record |", "| --- | --- | --- | --- | --- |"]
    for name in machine_subjects.names():
        record = _record(name)
        if record is None:
            out.append(f"| [{plain(name)}]({name}.md) | {NONE} | {NONE} | {NONE} | ○ not yet recorded |")
            continue
        for code in record.kernels:
            shown = f"[{plain(name)}]({name}.md)" + (f", `{code.name}`" if len(record.kernels) > 1 else "")
            loads = "; ".join(_loads(_accesses(record, code))) or NONE
            rows = sum(not text.endswith(":") for text, _ in code.rows["sass"])
            out.append(f"| {shown} | {loads} | {code.registers} | {rows:,} | {_state(record)} |")
    return [*out, ""]


def _loads(accesses: Sequence[machine_reads.Access]) -> list[str]:
    found: dict[str, Mapping[str, int]] = {}
    for access in accesses:
        if access.kind == "read":
            found[access.what] = {**found.get(access.what, {}), **access.ptx}
    return [f"{what}: {', '.join(f'`{name}`' for name in names) or 'merged'}" for what, names in found.items()]


def _state(record: MachineRecord) -> str:
    if record.backend != "cuda":
        return "⚠ compiled without a GPU"
    return f"✔ {record.date[:10]}" if machine_record.fresh(record) else "⚠ stale"

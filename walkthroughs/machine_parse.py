"""Reads PTX and SASS listings: instructions as rows of text, each with the line of the port that it came from.

Pure text in, rows out: no compiler and no GPU is needed. What carries no instruction (addresses, encodings, debug
sections, register declarations) is left out; names that Numba made of whole signatures are cut to the function's own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

Place = tuple[str, int]
"""A file, as the listing names it, and a line."""


class ListingError(ValueError):
    """A listing that cannot be read: says what was looked for."""


@dataclass(frozen=True)
class Row:
    """One instruction, label or declaration. `places`: the innermost line first, then where it was inlined."""

    text: str
    places: tuple[Place, ...] = ()


_LOC = re.compile(r"\.loc\s+(\d+)\s+(\d+)\s+\d+(?:.*inlined_at\s+(\d+)\s+(\d+)\s+\d+)?")
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"', re.MULTILINE)
_PTX_FUNCTION = re.compile(r"^[ \t]*(?:\.visible[ \t]+|\.weak[ \t]+)?\.(entry|func)\b[^{;]*?\{", re.MULTILINE)
_MANGLED_PARAM = re.compile(r"_ZN\w+?_(param_\d+)\b")
_DEBUG_LABEL = re.compile(r"\$L__(tmp|func_begin|func_end|info_string)\w*:")
_HEADER = re.compile(r"^// Cuda compilation tools, (.+)$", re.MULTILINE)


def ptx_rows(listing: str) -> list[Row]:
    """The bodies of every function of a PTX listing, in order; raises ListingError where there is none."""
    files = {int(number): name for number, name in _FILE.findall(listing)}
    rows: list[Row] = []
    bodies = list(_ptx_bodies(listing))
    for name, body in bodies:
        # One function, the kernel, is the rule: then its name says nothing.
        rows += [Row(f"{name}:")] if len(bodies) > 1 else []
        rows += _ptx_body(body, files)
    if not rows:
        raise ListingError("no function was found in the PTX")
    return _shared_in_order(rows)


def _shared_in_order(rows: Sequence[Row]) -> list[Row]:
    """Shared arrays numbered as they occur: Numba numbers them over everything that a process has compiled."""
    numbers: dict[str, str] = {}

    def name(found: re.Match[str]) -> str:
        return numbers.setdefault(found.group(0), f"smem_{len(numbers)}")

    return [Row(re.sub(r"\b_cudapy_smem_\d+\b", name, row.text), row.places) for row in rows]


def _ptx_bodies(listing: str) -> Iterator[tuple[str, str]]:
    for found in _PTX_FUNCTION.finditer(listing):
        depth, end = 1, found.end()
        while depth and end < len(listing):
            depth += {"{": 1, "}": -1}.get(listing[end], 0)
            end += 1
        names = re.findall(r"[\w$]+(?=\s*\()", found.group(0).replace("\n", " "))
        yield short_name(names[-1] if names else found.group(1)), listing[found.end() : end - 1]


def _ptx_body(body: str, files: Mapping[int, str]) -> Iterator[Row]:
    places: tuple[Place, ...] = ()
    pending = ""
    for line in body.splitlines():
        text = line.split("//")[0].strip()
        if not text or text.startswith(".reg ") or _DEBUG_LABEL.match(text) or text in ("{", "}"):
            continue
        if text.startswith(".loc"):
            places = _ptx_places(text, files)
        elif text.endswith(":"):
            yield Row(text)
        else:
            pending = f"{pending} {text}".strip()
            if pending.endswith((";", '"')) or pending.startswith(".pragma"):
                yield Row(_tidy_ptx(pending), () if pending.startswith(".") else places)
                pending = ""


def _ptx_places(text: str, files: Mapping[int, str]) -> tuple[Place, ...]:
    found = _LOC.match(text)
    if not found:
        raise ListingError(f"a line mark that is none: {text!r}")
    numbers = [int(number) for number in found.groups() if number is not None]
    return _known([(files.get(file, ""), line) for file, line in zip(numbers[::2], numbers[1::2], strict=True)])


def _known(places: Sequence[Place]) -> tuple[Place, ...]:
    """The places, or none: line 0 says that the compiler merged code of several lines, so that it belongs to none."""
    return tuple(places) if places and places[0][1] else ()


def _tidy_ptx(text: str) -> str:
    return shorten(" ".join(text.removesuffix(";").split()))


_SASS_TEXT = re.compile(r"^\t?\.section\s+\.text\.(\S+?),", re.MULTILINE)
_SASS_FILE = re.compile(r'^\s*//## File "([^"]*)", line (\d+)(.*)$')
_SASS_ROW = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(.+?)\s*;")
_SASS_LABEL = re.compile(r"^(\.L_x_\d+|\$[\w$]+):$")
_PADDING = ("NOP",)
SYSTEM_SHARED = 1024


def sass_rows(listing: str) -> list[Row]:
    """The instructions of an `nvdisasm -gi` listing, without the padding at its end; raises ListingError."""
    rows: list[Row] = []
    sections = listing.split("//--------------------- ")
    for section in sections:
        if section.startswith(".text."):
            rows += _sass_section(section)
    while rows and (rows[-1].text in _PADDING or _ends_with_dead_label(rows)):
        rows.pop()
    if not rows:
        raise ListingError("no instruction was found in the SASS")
    return rows


def _ends_with_dead_label(rows: Sequence[Row]) -> bool:
    """The last label only marks the end of the code: nothing jumps there."""
    name = rows[-1].text.removesuffix(":")
    return rows[-1].text.endswith(":") and not any(name in row.text for row in rows[:-1])


def _sass_section(section: str) -> Iterator[Row]:
    places: list[Place] = []
    gathering = False
    for line in section.splitlines():
        if mark := _SASS_FILE.match(line):
            # A block of marks stands before the instructions it is for, the innermost line first.
            places, gathering = places if gathering else [], True
            places.append((mark.group(1), int(mark.group(2))))
        elif label := _SASS_LABEL.match(line.strip()):
            # A helper of the compiler's own begins: no line of ours is in it until a mark says so.
            places = [] if label.group(1).startswith("$") else places
            yield Row(shorten(label.group(1)) + ":")
        elif found := _SASS_ROW.match(line):
            gathering = False
            yield Row(shorten(" ".join(found.group(1).split())), _known(places))


def shorten(text: str) -> str:
    """An instruction's text without the signatures that Numba puts into names."""
    text = _MANGLED_PARAM.sub(r"\1", text)
    text = re.sub(r"`\(([^)]*)\)", lambda found: short_name(found.group(1)), text)
    return re.sub(r"\$?_ZN[\w$.]*", lambda found: short_name(found.group(0)), text)


def named(text: str, names: Sequence[str]) -> str:
    """A PTX row whose parameters are called by what they are: `[k_cache.data]` in place of `[param_18]`."""

    def name(found: re.Match[str]) -> str:
        number = int(found.group(1))
        return names[number] if number < len(names) else found.group(0)

    return re.sub(r"\bparam_(\d+)\b", name, text)


def short_name(name: str) -> str:
    """The readable part of a mangled name: the function's own name, or what the compiler's helper is called."""
    if "$__" in name:
        return "$__" + name.rsplit("$__", 1)[1]
    if not name.startswith("_ZN"):
        return name
    parts, rest = [], name[3:]
    while (found := re.match(r"(\d+)", rest)) is not None:
        start, size = found.end(), int(found.group(1))
        parts.append(rest[start : start + size])
        rest = rest[start + size :]
    return parts[-1] if parts else name


def compiler_of(ptx: str) -> str:
    """What the PTX says of the compiler that wrote it; an empty string where it says nothing."""
    found = _HEADER.search(ptx)
    return found.group(1).strip() if found else ""


def assembler_of(sass: str) -> tuple[str, str]:
    """What the machine code says of its assembler and of its target; empty strings where it says nothing."""
    tool = re.search(r'\.string\s+"Cuda compilation tools, ([^"]+)"', sass)
    target = re.search(r"^\s*\.target\s+(sm_\w+)", sass, re.MULTILINE)
    return (tool.group(1) if tool else "", target.group(1) if target else "")


def resources_of(sass: str) -> dict[str, int]:
    """Registers a thread, bytes of static shared memory a block, and bytes of local memory a thread."""
    words = {
        kind: [int(value, 16) for value in re.findall(_nvinfo(kind), sass)]
        for kind in ("EIATTR_REGCOUNT", "EIATTR_FRAME_SIZE")
    }
    shared = sum(map(int, re.findall(r"^\.nv\.shared\.(?!reserved)\S+:\n\s*\.zero\s+(\d+)", sass, re.MULTILINE)))
    # From Hopper on each block has 1 KiB for the system, which the section holds and the driver does not count.
    system = SYSTEM_SHARED if shared and "__nv_reservedSMEM_offset_0_alias" in sass else 0
    return {
        "registers": max(words["EIATTR_REGCOUNT"], default=0),
        "shared": shared - system,
        "local": max(words["EIATTR_FRAME_SIZE"], default=0),
    }


def _nvinfo(kind: str) -> str:
    return rf"nvinfo : {kind}\n(?:.*\n){{2,8}}?.*\.word\s+index@.*\n.*\.word\s+0x([0-9a-f]+)"


KINDS = ("global loads", "global stores", "generic accesses", "local accesses", "shared loads", "shared stores",
         "shuffles", "barriers", "fma", "atomics", "calls")  # fmt: skip
_PTX_KINDS = (
    ("global loads", r"ld\.(volatile\.|relaxed\.\w+\.)?global"), ("global stores", r"st\.(volatile\.)?global"),
    ("local accesses", r"(ld|st)\.local"), ("shared loads", r"ld\.(volatile\.)?shared"),
    ("shared stores", r"st\.(volatile\.)?shared"), ("generic accesses", r"(ld|st)\.(volatile\.)?([vufsb]\d|pred)"),
    ("shuffles", r"shfl"), ("barriers", r"bar(rier)?\."), ("fma", r"fma"), ("atomics", r"(atom|red)\."),
    ("calls", r"call"),
)  # fmt: skip
_SASS_KINDS = (
    ("global loads", r"LDG"), ("global stores", r"STG"), ("local accesses", r"LDL|STL"), ("shared loads", r"LDS"),
    ("shared stores", r"STS"), ("generic accesses", r"LD|ST"), ("shuffles", r"SHFL"), ("barriers", r"BAR"),
    ("fma", r"FFMA|HFMA2|DFMA"), ("atomics", r"ATOM|ATOMG|ATOMS|RED|REDG"), ("calls", r"CALL"),
)  # fmt: skip


def mnemonic(text: str) -> str:
    """The instruction's name, without its predicate; an empty string for a label or a declaration."""
    words = text.split()
    if words and words[0].startswith("@"):
        words = words[1:]
    return "" if not words or words[0].endswith(":") or words[0].startswith(".") else words[0]


def kind_of(text: str) -> str | None:
    """Which of KINDS an instruction is, PTX or SASS; None for all others."""
    name = mnemonic(text)
    if name[:1].isupper():
        return next((kind for kind, pattern in _SASS_KINDS if re.fullmatch(pattern, name.split(".")[0])), None)
    return next((kind for kind, pattern in _PTX_KINDS if re.match(pattern, name)), None)


def count(texts: Iterable[str]) -> dict[str, dict[str, int]]:
    """How many instructions of each kind there are, by their full names: widths are part of those."""
    found: dict[str, Counter[str]] = {}
    for text in texts:
        if kind := kind_of(text):
            found.setdefault(kind, Counter())[mnemonic(text)] += 1
    return {kind: dict(sorted(found[kind].items())) for kind in KINDS if kind in found}


def load_bits(name: str) -> int:
    """How many bits a load or store moves for one thread, from its full name."""
    if name[:1].isupper():
        for part in name.split(".")[1:]:
            if part.isdecimal() or (part[0] in "US" and part[1:].isdecimal()):
                return int(part.lstrip("US"))
        return 32
    bits = re.search(r"\.[usbf](\d+)$", name)
    vector = re.search(r"\.v(\d)\b", name)
    return (int(bits.group(1)) if bits else 32) * (int(vector.group(1)) if vector else 1)

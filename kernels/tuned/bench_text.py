"""A benchmark record in words: a row as it comes, whole tables, and a shape as people write it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kernels.tuned.bench_record import FAILED, MEASURED, Cell, Record, Row, Set
from kernels.tuned.goals import FLASHINFER, OURS


def line(row: Row) -> str:
    """A row for a terminal."""
    if row.state != MEASURED or row.us is None:
        return f"  {row.who:16} {row.state}: {row.reason}"
    parts = [f"  {row.who:16} {row.us:10.2f} us [{row.least:.2f} to {row.most:.2f}]"]
    parts += [f"{row.tbs:5.2f} TB/s"] if row.tbs is not None else []
    parts += [f"{row.share:4.0%} of the limit"] if row.share is not None else []
    parts += [f"error {row.error:.1e}"] if row.error is not None else []
    parts += [f"{row.registers} registers, {row.local_bytes} local"] if row.registers is not None else []
    parts += [_plan(row.plan)] if row.plan else []
    parts += [row.how] if row.how != "graph" else []
    parts += [f"{row.sets} sets only"] if row.sets else []
    more = [f"      {_plan(each)}: {_time(each)}" for each in row.tries]
    return "\n".join(["  ".join(parts), *more])


def _plan(plan: Mapping[str, Any]) -> str:
    return " ".join(f"{key}={value}" for key, value in plan.items() if key not in ("us", "best", "reason"))


def _time(each: Mapping[str, Any]) -> str:
    return f"{each['us']:.2f} us{' (best)' if each['best'] else ''}" if each["us"] else str(each.get("reason", FAILED))


def shape(cell: Cell) -> str:
    """A cell's shape in words: `64 x 4096, 28/4, 128`, and what is unusual about it."""
    data = cell.shape
    if "tokens" in data:
        return (
            f"{data['tokens']:,} tokens, {data['heads']} heads of {data['head_size']}, blocks of {data['block_size']}"
        )
    lengths = data["context"]
    batch = sum(count for _, count in lengths)
    longest = max(length for length, _ in lengths)
    spread = f"{longest}" if len(lengths) == 1 else f"up to {longest}"
    parts = [f"{batch} x {spread}", f"{data['heads']}/{data['kv_heads']}", f"{data['head_size']}"]
    parts += [f"blocks of {data['block_size']}"] if data["block_size"] != 16 else []
    parts += [data["dtype"]] if data["dtype"] != "bfloat16" else []
    parts += [data["kv_cache_dtype"].replace("_", " ")] if data["kv_cache_dtype"] != "auto" else []
    parts += [f"{data['query_len']} queries"] if data["query_len"] > 1 else []
    return ", ".join(parts)


def size(moved: int) -> str:
    """Bytes as people say them."""
    for unit, many in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if moved >= many:
            return f"{moved / many:.3g} {unit}"
    return f"{moved} bytes"


def table(record: Record, stale: Mapping[str, bool]) -> Iterator[str]:
    """Every set and every cell. `stale`: for each set whether the code has changed since."""
    for made in record.sets.values():
        old = "  STALE: the code has changed since" if stale.get(made.id) else ""
        yield f"{made.id}: {made.device}, {made.driver}, {made.date[:10]}, {len(made.cells)} cells{old}"
        yield from (line(row) for row in (made.copy, made.floor) if row)
        yield from _cells(made)
        yield ""


def _cells(made: Set) -> Iterator[str]:
    for cell in made.cells:
        moved = f"{size(cell.moved)}, {cell.sets} sets" if cell.moved else ""
        yield "  ".join(part for part in (f"{cell.name}:" if cell.name else "", shape(cell), moved) if part)
        yield from (line(row) for row in (cell.limit, *cell.rows) if row)
        if ratio := cell.ratio(OURS, FLASHINFER):
            yield f"    {OURS} is {ratio:.2f} times as fast as {FLASHINFER}"

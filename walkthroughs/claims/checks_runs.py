"""The kinds of checks that look at runs and at arithmetic: steps, the hardware record, layout, other releases.

A record counts only while it describes the present code; the context sees to that.
"""

from __future__ import annotations

from typing import Any

from walkthroughs import evidence
from walkthroughs.claims import releases
from walkthroughs.claims.arithmetic import evaluate
from walkthroughs.claims.context import Context
from walkthroughs.claims.kinds import Kind, Params, words
from walkthroughs.claims.model import CheckError, Finding, RunRef


def layout(context: Context, source: str, params: Params) -> Finding:
    """The value of the expression `is` equals `equals` (true, where that is left out)."""
    value = evaluate(params["is"])
    wanted = params.get("equals", True)
    close = abs(value - wanted) <= 1e-9 * abs(wanted) if isinstance(wanted, float) else value == wanted
    return Finding(bool(close), f"{params['is']} = {_shown(value)}")


def step(context: Context, source: str, params: Params) -> Finding:
    """A step's check `named` passed, and observed `observed` (as its table shows it), if that is given."""
    record, run = context.record(params["step"])
    checks = {check.name: check for check in record.checks}
    seen = []
    good = record.status == "passed"
    for name in words(params["named"]):
        if name not in checks:
            raise CheckError(f"step {params['step']} has no check {name!r}; it has {', '.join(checks)}")
        seen.append(f"{name}: {checks[name].observed}")
        good = good and checks[name].passed
        if "observed" in params:
            good = good and checks[name].observed == params["observed"]
    return Finding(good, "; ".join(seen), runs=(run,))


def tool(context: Context, source: str, params: Params) -> Finding:
    """A row of the hardware record: the GPU's tool and the SIMT machine both `finds` this."""
    rows = [r for r in context.hardware["verdicts"] if (r["id"], r["tool"]) == (params["row"], params["tool"])]
    if not rows:
        raise CheckError(f"the hardware record has no row {params['row']!r} of {params['tool']}")
    row, data = rows[0], context.hardware
    good = row["gpu"] == row["machine"] == params["finds"] and row["result"] == "agree"
    run = RunRef(f"{params['row']} under {params['tool']}", data["device"], data["date"], "hardware")
    return Finding(good, f"{params['tool']} says {row['gpu']}, the SIMT machine {row['machine']}", runs=(run,))


def sectors(context: Context, source: str, params: Params) -> Finding:
    """In the hardware record, loads of row `row` touch fewer 32-byte sectors than those of row `fewer-than`."""
    data = context.hardware
    rows = {row["id"]: row["gpu"]["ld_sectors"] for row in data["memory"]}
    mine, other = rows[params["row"]], rows[params["fewer-than"]]
    run = RunRef(f"{params['row']} under ncu", data["device"], data["date"], "hardware")
    return Finding(mine < other, f"{mine} sectors against {other}", runs=(run,))


def no_record(context: Context, source: str, params: Params) -> Finding:
    """No committed record measures `of`: the word stands in no file of docs/evidence."""
    files = sorted(evidence.EVIDENCE.glob("*.json"))
    with_it = [path.name for path in files if any(w in path.read_text("utf-8") for w in words(params["of"]))]
    seen = f"{', '.join(with_it)} has it" if with_it else f"in none of the {len(files)} files of docs/evidence"
    return Finding(not with_it, seen)


def release(context: Context, source: str, params: Params) -> Finding:
    """What drift recorded of vLLM `at`: a `file`, or a `concept`, by itself, `same-as` or `since` another release."""
    if "file" in params:
        return releases.has_file(context, params)
    if "concept" not in params:
        raise CheckError("a release check asks for a file or a concept")
    if "since" in params:
        return releases.changes(context, params)
    return (releases.same_concept if "same-as" in params else releases.has_concept)(context, params)


def _shown(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


RUN_KINDS: dict[str, Kind] = {
    "layout": Kind(layout, frozenset({"is", "equals"}), frozenset({"is"})),
    "step": Kind(step, frozenset({"step", "named", "observed"}), frozenset({"step", "named"})),
    "tool": Kind(tool, frozenset({"row", "tool", "finds"}), frozenset({"row", "tool", "finds"})),
    "sectors": Kind(sectors, frozenset({"row", "fewer-than"}), frozenset({"row", "fewer-than"})),
    "no-record": Kind(no_record, frozenset({"of"}), frozenset({"of"})),
    "release": Kind(
        release,
        frozenset({"at", "file", "exists", "concept", "same-as", "same", "since", "came", "went"}),
        frozenset({"at"}),
    ),
}

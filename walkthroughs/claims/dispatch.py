"""The dispatch table of checks, and the one place where a check is carried out.

A fact is true, false, or None with the reason where what it needs is not on this machine. A place that is gone makes it
false; a place that is ambiguous or unreadable is an error, because then nothing was learnt.
"""

from __future__ import annotations

from annotate.errors import AnchorNotFound
from walkthroughs.claims.checks import SOURCE_KINDS
from walkthroughs.claims.checks_runs import RUN_KINDS
from walkthroughs.claims.context import Context, recorded_places
from walkthroughs.claims.kinds import Kind, Params, words
from walkthroughs.claims.model import CheckError, Finding, NotHere

KINDS: dict[str, Kind] = {**SOURCE_KINDS, **RUN_KINDS}


def carry_out(context: Context, source: str, kind: str, params: Params) -> Finding:
    """Carry out one check. Raises CheckError for an unknown kind or parameters that it does not take.

    Also lets through the AnnotateErrors that mean that nothing was learnt (ambiguous, unreadable).
    """
    if kind not in KINDS:
        raise CheckError(f"no kind of check is called {kind!r}; there are {', '.join(sorted(KINDS))}")
    wrong = (params.keys() - KINDS[kind].takes) | (KINDS[kind].needs - params.keys())
    if wrong:
        raise CheckError(
            f"check {kind!r} takes {', '.join(sorted(KINDS[kind].takes))}: look at {', '.join(sorted(wrong))}"
        )
    where = params.get("source", source)
    try:
        return KINDS[kind].run(context, where, params)
    except NotHere as error:
        known = [place for at in words(params.get("at", [])) for place in recorded_places(where, at)]
        return Finding(None, str(error), tuple(known))
    except AnchorNotFound as error:
        return Finding(False, f"no longer there: {error.looked_for}")

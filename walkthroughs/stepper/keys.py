"""The stepper's keys: one table for the bindings, the list that `?` shows, and the printed help."""

from __future__ import annotations

from typing import NamedTuple

LAST = 10**9
"""More moments than any film has: a move beyond the end leads to the end."""


class Key(NamedTuple):
    """A key or several with one action. `short`: for the foot of the screen, or empty."""

    keys: str
    shown: str
    action: str
    text: str
    short: str = ""


KEYS = (
    Key("right", "→", "move('forward')", "one moment on", "←→ moment"),
    Key("left", "←", "move('backward')", "one moment back"),
    Key("right_square_bracket", "]", "move('next_line')", "next line, over the functions that it calls", "[] line"),
    Key("left_square_bracket", "[", "move('previous_line')", "the line before"),
    Key("i", "i", "move('next_iteration')", "next iteration: the next time that this line runs", "i again"),
    Key("I", "I", "move('next_iteration', True)", "the last time that this line ran"),
    Key("b", "b", "move('next_barrier')", "next barrier", "b barrier"),
    Key("g", "g", "ask_line", "run to a line: a number, FILE:LINE or a concept; or click on it", "g go"),
    Key("home", "Home", "move('go', 0)", "the start of the run"),
    Key("end", "End", f"move('go', {LAST})", "its end"),
    Key("r", "r", "to_start", "back to where this step begins"),
    Key("t", "t", "ask_thread", "choose thread and block"),
    Key("w", "w", "ask_watch", "watch a variable, or no longer"),
    Key("v", "v", "ask_subject", "choose what the lanes show; empty: what happens"),
    Key("n", "n", "step(1)", "next step of the walkthrough", "n p step"),
    Key("p", "p", "step(-1)", "the step before"),
    Key("l", "l", "list", "list of all steps", "l list"),
    Key("h", "h", "hint", "hint: what to look at here, and what was checked", "h hint"),
    Key("o", "o", "other", "another upstream file of this step, where it has several"),
    Key("1", "1 … 6", "pane('story')", "story, upstream, port, values, lanes, memory"),
    Key("2", "", "pane('upstream')", ""),
    Key("3", "", "pane('port')", ""),
    Key("4", "", "pane('values')", ""),
    Key("5", "", "pane('lanes')", ""),
    Key("6", "", "pane('memory')", ""),
    Key("tab", "Tab", "focus_next", "the next pane; ↑ ↓ PgUp PgDn scroll it"),
    Key("shift+tab", "", "focus_previous", ""),
    Key("up", "", "scroll(-1)", ""),
    Key("down", "", "scroll(1)", ""),
    Key("pageup", "", "scroll(-10)", ""),
    Key("pagedown", "", "scroll(10)", ""),
    Key("d", "d", "day", "dark or light"),
    Key("question_mark", "?", "keys", "this list", "? keys"),
    Key("q", "q", "quit", "quit; the place is kept", "q quit"),
)
HELP = tuple((key.shown, key.text) for key in KEYS if key.shown)
GAP = "  "
SPARE = ("g go", "[] line", "b barrier", "i again", "l list", "h hint", "n p step", "←→ moment")
"""What the foot leaves out where it is narrow, in this order."""


def foot(width: int) -> str:
    """The most needed keys in one line, as many as `width` columns take; the list of keys is always among them."""
    found = [key.short for key in KEYS if key.short]
    for spare in SPARE:
        if len(GAP.join(found)) > width:
            found.remove(spare)
    return GAP.join(found)

"""The command line: `pagewalk COMMAND`.

Only names and one-line helps live here. A command's module is imported when it is used, so that
`pagewalk --help` answers at once and a missing library stops only the commands that need it.
"""

from __future__ import annotations

import importlib
import sys

import click

# Command -> module under walkthroughs.commands, and the help line, in the order that a reader meets them.
COMMANDS = {
    "doctor": ("doctor", "Say what this machine has, and what is missing."),
    "sources": ("sources", "List the pinned upstream sources, and whether they are here."),
    "fetch": ("sources", "Fetch the pinned upstream sources, and verify them."),
    "anchors": ("anchors", "Resolve the anchors into the sources."),
    "drift": ("drift", "Say what became of the anchored code from release to release."),
    "read": ("read", "Show one concept: upstream lines and the port's, side by side."),
    "list": ("steps", "List the walkthroughs and their steps."),
    "run": ("steps", "Run steps and check what they observe."),
    "walk": ("walk", "Step through a walkthrough: code, values, the warp and the pool."),
    "trace": ("trace", "Record chosen threads of a kernel, line by line."),
    "layout": ("layout", "Say where an element of the KV cache lies, and which lane loads it."),
    "sanitize": ("sanitize", "Look for races, bad accesses and bank conflicts in a kernel."),
    "bench": ("bench", "Measure the ladder and its peers on a GPU, or show the record."),
    "lab": ("lab", "Predict the blocks of a real vLLM engine, then watch it."),
    "claims": ("claims", "Check the claims and show their verdicts."),
    "drill": ("drill", "Be asked as in an interview, and graded by running code."),
    "export": ("export", "Take it along: tours for an editor, notebooks, the site on a stick."),
    "site": ("site", "Build the site, or serve it."),
}


class LazyGroup(click.Group):
    """A group that knows its commands' names and imports a command's module only on use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, in the order of `COMMANDS`."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one command, or None for an unknown name."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"walkthroughs.commands.{COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, f"{cmd_name}_command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Refuse an unknown command with the nearest names (exit 2)."""
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            from walkthroughs.commands.output import did_you_mean

            ctx.fail(f"No such command {args[0]!r}.{did_you_mean(args[0], COMMANDS)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the command list from `COMMANDS`, importing nothing."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="pagewalk", prog_name="pagewalk")
def cli() -> None:
    """Read PagedAttention kernels line by line, beside ports that run.

    Exit codes: 0 fine, 1 a check failed, 2 wrong use. Every command takes --json.
    """


def main() -> None:
    """Run the command line; a broken pipe (`pagewalk list | head`) ends it quietly."""
    try:
        cli(prog_name="pagewalk")
    except BrokenPipeError:
        # Python would complain again when it flushes stdout at exit.
        sys.stderr.close()
        sys.exit(1)


if __name__ == "__main__":
    main()

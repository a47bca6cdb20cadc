"""The table of commands: what `exo --help` lists, in its order. Importing it imports no command."""

from typing import NamedTuple


class Row(NamedTuple):
    """A command: its name, what its help line says, and where it is (`module:attribute`, a typer app)."""

    name: str
    summary: str
    target: str


TABLE = (
    Row("node", "Start, stop and look at nodes", "exo_cli.commands.node:app"),
    Row("place", "Put a model on machines and wait until it is ready", "exo_cli.commands.place:app"),
    Row("delete", "Take instances off their machines", "exo_cli.commands.delete:app"),
    Row("runners", "Look at the runner processes and their states", "exo_cli.commands.runners:app"),
    Row("chat", "Talk to a model", "exo_cli.commands.chat:app"),
    Row("replay", "Fold a recorded event log and say what it shows", "exo_cli.commands.replay:app"),
    Row("completion", "Print the completion script of a shell", "exo_cli.commands.completion:app"),
    Row("plugin", "Look at the commands that other packages add", "exo_cli.commands.plugin:app"),
)

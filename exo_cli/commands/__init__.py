"""The table of commands: what `exo --help` lists, in its order. Importing it imports nothing else: a TAB does it."""


class Row:
    """A command: its name, what its help line says, and where it is (`module:attribute`, a typer app)."""

    __slots__ = ("name", "summary", "target")

    def __init__(self, name: str, summary: str, target: str) -> None:
        """Take the three."""
        self.name, self.summary, self.target = name, summary, target


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

"""`exo completion SHELL`: print the shell's completion script."""

import sysconfig
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from exo_cli.api import Host
from exo_cli.engine.core.errors import NotFoundError

app = typer.Typer(rich_markup_mode=None, add_completion=False)


class Shell(StrEnum):
    """The shells that have a script."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


# Where the wheel puts each script under the prefix, and its name in the checkout's completions/.
PLACES = {
    Shell.BASH: ("share/bash-completion/completions/exo", "exo.bash"),
    Shell.ZSH: ("share/zsh/site-functions/_exo", "_exo"),
    Shell.FISH: ("share/fish/vendor_completions.d/exo.fish", "exo.fish"),
}


@app.command()
def completion(
    ctx: typer.Context, shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")]
) -> None:
    """Print the completion script of a shell.

    bash: exo completion bash > ~/.local/share/bash-completion/completions/exo

    zsh: exo completion zsh > a folder of your fpath, as _exo

    fish: exo completion fish > ~/.config/fish/completions/exo.fish
    """
    installed, name = PLACES[shell]
    package = Path(__file__).parents[1]
    for path in (package.parent / "completions" / name, Path(sysconfig.get_path("data")) / installed):
        if path.is_file():
            Host.of(ctx).console.text(path.read_text())
            return
    raise NotFoundError(
        f"the script for {shell} is not installed beside this program", "pip install --force-reinstall exo-cli"
    )

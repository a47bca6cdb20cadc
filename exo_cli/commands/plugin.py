"""`exo plugin`: the commands that other packages add; which are there, and whether they work."""

import json
import subprocess
import sys
from typing import Annotated, Any

import typer

from exo_cli.api import HeadersOption, Host, OutputOption
from exo_cli.console import MACHINE, Table
from exo_cli.engine.core.errors import NotFoundError

app = typer.Typer(
    help="Look at the commands that other packages add.",
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=True,
)
LOAD_SECONDS = 10.0
SLOW_MS = 200.0

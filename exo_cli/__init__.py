"""exo: run large language models on the machines you have, from the shell."""

__version__ = "0.1.0"

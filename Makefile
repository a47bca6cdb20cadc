# make chat talks to a small model; make test runs the quick tests. Both make what they need first.
# PYTHON=/path/to/python3.12 chooses the Python, BACKEND=cuda the CUDA build of MLX on Linux.

export PYTHON BACKEND

.PHONY: env

env:
	@sh tools/env.sh

# "make chat" talks to a small model, "make test" runs the quick tests. Both make first what they need.
#
#   PYTHON=/path/to/python3.12   the Python to use (else the first on PATH from 3.11 to 3.14)
#   BACKEND=cuda                 the CUDA build of MLX on Linux (else the CPU build; macOS always has Metal)
#   PROMPT="..."                 what "make chat" asks
#   ISSUE=A                      which tests/accept/*.py "make accept" runs
#   SEEDS=200                    how many seeds "make sim" runs

PROMPT ?= What is the capital of France? Answer in one sentence.
SEEDS ?= 200

export PYTHON BACKEND

# The prompt reaches the shell through the environment, as it was written: no quote, dollar or backtick in it is read
# by make or by the shell.
unexport PROMPT
export CHAT_PROMPT := $(value PROMPT)

.PHONY: help env ready chat test check lock bench accept docs sim clean

help:
	@echo "make env      make .venv from the lock"
	@echo "make chat     ask the small model something: make chat PROMPT=\"...\""
	@echo "make test     the quick tests"
	@echo "make check    all that .ci/run does, but without installing system packages"
	@echo "make accept   the long tests: make accept ISSUE=A"
	@echo "make sim      the cluster under faults: make sim SEEDS=200"
	@echo "make bench    measure"
	@echo "make docs     write man pages and completions anew"
	@echo "make lock     write requirements/ anew; UPGRADE=1 takes newer versions"
	@echo "make clean    remove all that make made"

env:
	@sh tools/env.sh

ready:
	@sh tools/env.sh quiet

chat: ready
	@.venv/bin/exo chat --temperature 0 --no-stdin -- "$$CHAT_PROMPT"

test: ready
	@.venv/bin/pytest -q -n 3 --dist loadfile --no-loadscope-reorder -m "not system and not long and not accept"

check:
	@.ci/run --without-packages

accept: ready
	@test -f "tests/accept/$(ISSUE).py" || { echo "usage: make accept ISSUE=..., one of:" tests/accept/*.py; exit 2; }
	@.venv/bin/pytest --timeout 7200 -m accept "tests/accept/$(ISSUE).py"

sim: ready
	@.venv/bin/python -m tests.sim --seeds $(SEEDS)

bench: ready
	@.venv/bin/python -m bench

docs: ready
	@.venv/bin/python -m exo_cli.manual write

lock:
	@sh tools/lock.sh

clean:
	rm -rf .venv .uv .uv-cache .env-lock build dist
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find exo_cli tests bench tools -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

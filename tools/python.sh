#!/bin/sh
# Prints a Python that can run the project: $PYTHON if set, else the first on PATH that is 3.11 to 3.14, else any
# Python at all, so that the preflight can say what is wrong with it.
set -eu

fits() {
    "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' >/dev/null 2>&1
}

if [ -n "${PYTHON:-}" ]; then
    command -v "$PYTHON" && exit 0
    echo "error: PYTHON=$PYTHON is not a program: name a Python 3.11 to 3.14" >&2
    exit 1
fi
for name in python3 python3.13 python3.12 python3.14 python3.11 python; do
    if fits "$name"; then
        command -v "$name"
        exit 0
    fi
done
for name in python3 python; do
    if "$name" --version >/dev/null 2>&1; then
        command -v "$name"
        exit 0
    fi
done
echo "error: there is no Python on PATH: install Python 3.11 to 3.14, or name one with PYTHON=/path/to/python" >&2
exit 1

#!/bin/sh
# Writes requirements/: exact versions with hashes, no addresses. "make lock" calls it; UPGRADE=1 takes newer versions.
set -eu
cd "$(dirname "$0")/.."

compile() {
    sh tools/uv.sh pip compile --quiet --universal --python-version 3.11 --generate-hashes \
        --no-emit-index-url --no-emit-find-links --no-header --no-annotate ${UPGRADE:+--upgrade} "$@"
}

compile pyproject.toml --extra cpu --group dev --output-file requirements/lock.txt
# The same versions, but for the backend.
compile pyproject.toml --extra cuda --group dev --constraints requirements/lock.txt \
    --output-file requirements/lock-cuda.txt
echo "uv==$(sh tools/uv.sh --version | cut -d ' ' -f 2)" |
    compile - --output-file requirements/uv.txt

if grep -lE '[a-z]+://' requirements/*.txt; then
    echo "error: the files above hold an address of a package registry" >&2
    exit 1
fi

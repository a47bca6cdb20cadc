#!/bin/sh
# Prints the path of a uv: the one on PATH, else one installed into .uv/ from PyPI at the version and hash in
# requirements/uv.txt.
set -eu
cd "$(dirname "$0")/.."

if command -v uv >/dev/null 2>&1 && uv --version >/dev/null 2>&1; then
    command -v uv
    exit 0
fi
key=$(cksum <requirements/uv.txt)
if [ "$(cat .uv/key 2>/dev/null)" = "$key" ] && .uv/bin/uv --version >/dev/null 2>&1; then
    echo .uv/bin/uv
    exit 0
fi
python=$(sh tools/python.sh)
rm -rf .uv
if ! "$python" -m venv .uv >.uv-error 2>&1; then
    rm -rf .uv
    if "$python" -c 'import ensurepip' 2>/dev/null; then
        cat .uv-error >&2
    else
        echo "error: $python cannot make a virtual environment: install it with \"apt install python3-venv\"," \
            "or put uv on PATH" >&2
    fi
    rm -f .uv-error
    exit 1
fi
rm -f .uv-error
.uv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/uv.txt >&2
printf '%s\n' "$key" >.uv/key
echo .uv/bin/uv

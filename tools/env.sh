#!/bin/sh
# Makes .venv hold exactly what the lock says, and this project on top. "make env" calls it.
# Does nothing when nothing changed. PYTHON names the Python to use, BACKEND=cuda takes the CUDA lock on Linux.
set -eu
cd "$(dirname "$0")/.."

case "${BACKEND:-cpu}" in
    cpu) lock=requirements/lock.txt ;;
    cuda) lock=requirements/lock-cuda.txt ;;
    *) echo "error: BACKEND=$BACKEND is unknown: take cpu or cuda" >&2; exit 1 ;;
esac

# The folder is part of the key, because the scripts in .venv hold its path.
key=$(printf '%s\n' "$PWD" "${PYTHON:-}" "$lock" && cat "$lock" pyproject.toml tools/env.sh | cksum)
if [ "$(cat .venv/key 2>/dev/null)" = "$key" ] && [ -x .venv/bin/python ]; then
    [ "${1:-}" = quiet ] || echo "ok  .venv is up to date"
    exit 0
fi

python=$(sh tools/python.sh)
"$python" tools/preflight.py

# Without a home, uv has no place for its downloads.
if [ -z "${HOME:-}" ] || [ ! -d "$HOME" ]; then
    export UV_CACHE_DIR="${UV_CACHE_DIR:-$PWD/.uv-cache}"
fi
export UV_PYTHON_DOWNLOADS=never
uv=$(sh tools/uv.sh)

# One at a time: two terminals may call this at once.
tries=0
until mkdir .env-lock 2>/dev/null; do
    tries=$((tries + 1))
    if [ "$tries" -ge 600 ]; then
        echo "error: another \"make env\" holds .env-lock for ten minutes; if none runs: rmdir .env-lock" >&2
        exit 1
    fi
    sleep 1
done
trap 'rmdir .env-lock' EXIT
trap 'exit 130' INT TERM HUP

same_python='import sys; print(sys.version_info[:3], sys.base_prefix)'
if [ "$(.venv/bin/python -c "$same_python" 2>/dev/null)" != "$("$python" -c "$same_python")" ] ||
    [ "$(head -n 1 .venv/key 2>/dev/null)" != "$PWD" ]; then
    "$uv" venv --quiet --clear --no-project --python "$python" .venv
fi
rm -f .venv/key
"$uv" pip sync --quiet --python .venv/bin/python --require-hashes "$lock"
# The build backend comes from the lock too.
"$uv" pip install --quiet --python .venv/bin/python --no-deps --no-build-isolation --editable .
printf '%s\n' "$key" >.venv/key
echo "ok  .venv is ready: $(.venv/bin/python --version)"

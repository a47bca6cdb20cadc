#!/bin/sh
# Makes .venv hold exactly what the lock says, and this project on top; does nothing when nothing changed.
# PYTHON names the Python to use, BACKEND=cuda takes the CUDA lock on Linux; unsaid, both stay as .venv has them.
set -eu
cd "$(dirname "$0")/.."

# .venv/key has three lines: this folder (the scripts in .venv hold its path), the lock, and a sum over what decides
# the content of .venv. It is written last, so a .venv without it is unfinished.
key_line() {
    sed -n "$1p" .venv/key 2>/dev/null || true
}

case "${BACKEND:-}" in
    "") lock=$(key_line 2) && lock=${lock:-requirements/lock.txt} ;;
    cpu) lock=requirements/lock.txt ;;
    cuda) lock=requirements/lock-cuda.txt ;;
    *) echo "error: BACKEND=$BACKEND is unknown: take cpu or cuda" >&2 && exit 2 ;;
esac
sum=$(cat "$lock" pyproject.toml tools/env.sh | cksum)

identity() {
    "$1" -c 'import sys; print(sys.version_info[:3], sys.base_prefix)' 2>/dev/null || true
}

right_python() {
    [ "$(key_line 1)" = "$PWD" ] && [ -x .venv/bin/python ] &&
        { [ -z "${PYTHON:-}" ] || [ "$(identity .venv/bin/python)" = "$(identity "$PYTHON")" ]; }
}

up_to_date() {
    [ "$(key_line 2)" = "$lock" ] && [ "$(key_line 3)" = "$sum" ] && right_python
}

say_up_to_date() {
    [ "${1:-}" = quiet ] || echo "ok  .venv is up to date"
}

if up_to_date; then
    say_up_to_date "$@"
    exit 0
fi

if right_python; then
    python=.venv/bin/python
else
    python=$(sh tools/python.sh)
fi
"$python" tools/preflight.py

# Two terminals may come here at once: one works, the other waits.
until mkdir .env-lock 2>/dev/null; do
    holder=$(cat .env-lock/pid 2>/dev/null || true)
    if [ -n "$holder" ] && ! kill -0 "$holder" 2>/dev/null; then
        rm -rf .env-lock
    else
        sleep 1
    fi
done
trap 'rm -rf .env-lock' EXIT
trap 'exit 130' INT TERM HUP
echo $$ >.env-lock/pid
if up_to_date; then
    say_up_to_date "$@"
    exit 0
fi

right_python || sh tools/uv.sh venv --quiet --clear --no-project --python "$python" .venv
rm -f .venv/key
sh tools/uv.sh pip sync --quiet --python .venv/bin/python --require-hashes "$lock"
# The build backend comes from the lock too.
sh tools/uv.sh pip install --quiet --python .venv/bin/python --no-deps --no-build-isolation --editable .
printf '%s\n' "$PWD" "$lock" "$sum" >.venv/key
echo "ok  .venv is ready: $(.venv/bin/python --version)"

#!/bin/sh
# Runs uv with the arguments given: the one on PATH, else one installed into .uv/ from PyPI at the version and hash
# in requirements/uv.txt.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)

install_uv() {
    key=$(cksum <"$root/requirements/uv.txt")
    if [ "$(cat "$root/.uv/key" 2>/dev/null)" = "$key" ] && "$root/.uv/bin/uv" --version >/dev/null 2>&1; then
        return
    fi
    python=$(sh "$root/tools/python.sh")
    rm -rf "$root/.uv"
    if ! said=$("$python" -m venv "$root/.uv" 2>&1); then
        rm -rf "$root/.uv"
        if "$python" -c 'import ensurepip' 2>/dev/null; then
            printf '%s\n' "$said" >&2
        else
            echo "error: $python cannot make a virtual environment: apt install python3-venv (or put uv on PATH)" >&2
        fi
        exit 1
    fi
    "$root/.uv/bin/python" -m pip install --quiet --disable-pip-version-check \
        --require-hashes -r "$root/requirements/uv.txt" >&2
    printf '%s\n' "$key" >"$root/.uv/key"
}

uv=$(command -v uv || true)
if [ -z "$uv" ] || ! "$uv" --version >/dev/null 2>&1; then
    install_uv
    uv=$root/.uv/bin/uv
fi

export UV_PYTHON_DOWNLOADS=never
# Without a home, uv has no place for its downloads.
if [ -z "${HOME:-}" ] || [ ! -d "$HOME" ]; then
    export UV_CACHE_DIR="${UV_CACHE_DIR:-$root/.uv-cache}"
fi
# Trust whom the machine trusts, where it says whom: a proxy may sign for the registry.
if [ -s /etc/ssl/certs/ca-certificates.crt ] || [ -s /etc/pki/tls/certs/ca-bundle.crt ] || [ "$(uname)" = Darwin ]; then
    export UV_SYSTEM_CERTS="${UV_SYSTEM_CERTS:-1}"
fi
exec "$uv" "$@"

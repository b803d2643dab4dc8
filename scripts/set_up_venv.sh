#!/bin/sh
# Makes $VENV (default .venv) with this project, editable, and the tools of its `dev` group. Quick when nothing changed:
# a stamp inside names the pyproject.toml it was made for.
set -eu
cd "$(dirname "$0")/.."
venv=${VENV:-.venv}

say() { printf 'setup: %s\n' "$*" >&2; }

is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

find_python() {
    # A shim may be on PATH and still run nothing, so each is tried.
    for name in ${PYTHON:-} python3 python3.13 python3.12 python3.11 python3.14; do
        if is_new_enough "$name"; then
            command -v "$name"
            return
        fi
    done
    say "no Python 3.11 or newer was found (tried \$PYTHON, python3, python3.11 to python3.14)"
    say "install one, e.g. apt-get install python3 python3-venv, or name one: make PYTHON=/path/to/python3.12 ..."
    exit 1
}

make_venv() {
    python=$(find_python)
    say "making $venv with $python"
    if "$python" -m venv --clear "$venv" >/tmp/llmgw-venv.$$ 2>&1; then
        rm -f /tmp/llmgw-venv.$$
        return
    fi
    # Debian and Ubuntu keep ensurepip in a package of its own.
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        say "installing python3-venv"
        apt-get update -qq >/dev/null || true
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3-venv >/dev/null || true
        if "$python" -m venv --clear "$venv"; then
            rm -f /tmp/llmgw-venv.$$
            return
        fi
    fi
    cat /tmp/llmgw-venv.$$ >&2
    rm -f /tmp/llmgw-venv.$$
    say "$python cannot make virtual environments; on Debian and Ubuntu: apt-get install python3-venv"
    exit 1
}

wanted=$(cat pyproject.toml scripts/set_up_venv.sh | cksum | tr -d ' ')
stamp=$venv/.llmgw-setup
if [ -x "$venv/bin/python" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then
    exit 0
fi
is_new_enough "$venv/bin/python" || make_venv
requirements=$venv/requirements-dev.txt
"$venv/bin/python" scripts/list_requirements.py dev >"$requirements"
say "installing llmgw and its tools into $venv (about a minute the first time)"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --editable . --requirement "$requirements"
printf '%s\n' "$wanted" >"$stamp"

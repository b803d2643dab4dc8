"""The tables of flags against the engines' own parsers, at the versions that can be installed here."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from llmgw_core.domain.engine import EngineKind
from llmgw_core.planning.engines.flag_rules import VALUED_FLAGS, check_flags
from llmgw_core.planning.engines.flag_table import load_flags
from llmgw_core.planning.versions import parse_version
from tests.support.plans import planned, request

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

_DUMP = """
import json
print()
print(json.dumps({
    name: [str(value) for value in action.choices or ()]
    for action in parser._actions for name in action.option_strings
}))
"""
_TRY = """
import json
print()
codes = []
for words in lines:
    try:
        parser.parse_args(words)
        codes.append(0)
    except SystemExit as end:
        codes.append(end.code)
print(json.dumps(codes))
"""
PARSERS = {
    EngineKind.VLLM: "from vllm.entrypoints.launchers.cli_args import make_arg_parser\n"
    "from vllm.utils.argparse_utils import FlexibleArgumentParser\n"
    "parser = make_arg_parser(FlexibleArgumentParser(prog='vllm serve'))\n",
    EngineKind.SGLANG: "import argparse\n"
    "from sglang.srt.server_args import ServerArgs\n"
    "parser = argparse.ArgumentParser()\n"
    "ServerArgs.add_cli_args(parser)\n",
}
VERSIONS = {EngineKind.VLLM: "0.32.0", EngineKind.SGLANG: "0.5.23"}


def run_parser(venv: Path, engine: EngineKind, code: str) -> subprocess.CompletedProcess[str]:
    """Some code after the engine's parser was built, by the real packages."""
    folder = Path(f"{venv}.sglang")
    if engine is EngineKind.SGLANG and not (folder / ".llmgw-done").exists():
        pytest.skip("no SGLang here: make test-real installs it")
    path = str(folder) if engine is EngineKind.SGLANG else ""
    return subprocess.run(
        [str(venv / "bin/python"), "-c", PARSERS[engine] + code],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": path, "VLLM_TARGET_DEVICE": "cpu"},
    )


@pytest.mark.parametrize("engine", list(EngineKind))
def test_table_has_the_flags_of_the_real_parser_and_no_others(
    vllm_venv: Path, engine: EngineKind
) -> None:
    ran = run_parser(vllm_venv, engine, _DUMP)
    assert ran.returncode == 0, ran.stderr
    real: dict[str, list[str]] = json.loads(ran.stdout.splitlines()[-1])
    known = load_flags(engine).list_known(parse_version(VERSIONS[engine]))

    flags = {name for name in real if not name.startswith("--no-")} - {"--help", "-h"}
    values = {f"{name}={value}" for name in VALUED_FLAGS for value in real[name]}

    assert {name for name in known if "=" not in name and not name.startswith("--no-")} == flags
    assert values <= known


@pytest.mark.parametrize("engine", list(EngineKind))
def test_command_line_of_a_plan_is_taken_by_the_real_parser(
    vllm_venv: Path, engine: EngineKind
) -> None:
    asked = request(
        engine=engine,
        tensor_parallel=2,
        pipeline_parallel=2,
        quantization="fp8",
        dtype="bfloat16",
        kv_cache_dtype="fp8_e4m3",
        max_model_len=4096,
        gpu_memory_fraction=0.8,
        served_model_name="m",
    )
    argv = planned(asked).ranks[0].argv
    words = argv[2:] if engine is EngineKind.VLLM else argv[3:]

    ran = run_parser(vllm_venv, engine, f"print(parser.parse_args({list(words)!r}))")

    assert ran.returncode == 0, ran.stderr


REFUSED = {
    EngineKind.VLLM: (("--swap-space", "4"), ("--enforce-eeger",), ("--max-num", "4"), ("-zz",)),
    EngineKind.SGLANG: (
        ("--pp", "2"),
        ("--cuda-graph-max-bs", "8"),
        ("--tp_size", "2"),
        ("--quantization", "int3"),
    ),
}


@pytest.mark.parametrize("engine", list(EngineKind))
def test_what_the_real_parser_refuses_is_refused_before(
    vllm_venv: Path, engine: EngineKind
) -> None:
    model = [] if engine is EngineKind.VLLM else ["--model-path", "m"]
    lines = [[*model, *words] for words in REFUSED[engine]]

    ran = run_parser(vllm_venv, engine, f"lines = {lines!r}\n{_TRY}")
    ours = [list(check_flags(engine, words, VERSIONS[engine], {})) for words in REFUSED[engine]]

    assert json.loads(ran.stdout.splitlines()[-1]) == [2] * len(lines), ran.stderr
    assert [[finding.severity.value for finding in found] for found in ours] == [
        ["error"] for _ in lines
    ]

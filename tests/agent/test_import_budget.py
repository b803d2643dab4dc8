"""What must start fast or stay small does not load what it does not need."""

import importlib.util
import subprocess
import sys

import pytest

HEAVY = ("textual", "asyncssh", "pydantic", "rich", "ClusterShell")


def loaded_by(code: str) -> set[str]:
    """Top-level and llmgw modules that are loaded once the code has run, in a Python of its own."""
    ran = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print('|'.join(sys.modules))"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return set(ran.stdout.splitlines()[-1].split("|"))


@pytest.mark.parametrize(
    "module",
    [
        "llmgw_core.agent.daemon",
        "llmgw_core.agent.proxy",
        "llmgw_core.agent.local",
        "llmgw_core.cli.main",
    ],
)
def test_module_loads_nothing_heavy(module: str) -> None:
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not there yet")

    assert loaded_by(f"import {module}") & set(HEAVY) == set()


def test_inventory_of_this_machine_loads_nothing_heavy_and_no_event_loop() -> None:
    modules = loaded_by("import llmgw_core.agent.local, llmgw_core.agent.inventory")

    assert modules & {*HEAVY, "asyncio"} == set()


def test_shim_loads_the_shim_alone() -> None:
    code = "import sys; sys.argv=['x']; from llmgw_core.agent import __main__, shim"

    ours = {name for name in loaded_by(code) if name.startswith("llmgw_core.")}

    assert ours <= {
        f"llmgw_core.agent{name}"
        for name in (
            "",
            ".__main__",
            ".shim",
            ".cgroups",
            ".exits",
            ".pump",
            ".durable",
            ".procfs",
            ".logtext",
        )
    }


def test_proxy_loads_neither_the_daemon_nor_the_domain() -> None:
    ours = {name for name in loaded_by("import llmgw_core.agent.proxy") if "llmgw" in name}

    assert not {
        name for name in ours if name.startswith(("llmgw_core.domain.la", "llmgw_core.agent.su"))
    }
    assert "llmgw_core.agent.daemon" not in ours

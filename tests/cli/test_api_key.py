"""The API key of a launch: asked for by the engine, given by one command, and seen nowhere else."""

import json
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from llmgw_core.demo.cluster import write_toy_venv
from llmgw_core.fleet.config import Target
from llmgw_core.fleet.fleet import Fleet
from llmgw_core.fleet.restarting import restart_engine
from tests.support.engines import free_port
from tests.support.operator_here import OperatorHere

pytestmark = pytest.mark.slow


def launch_toy(operator: OperatorHere, engine: str, *more: str, **env: str) -> str:
    """Launch a toy engine and wait until it is ready. Returns its URL."""
    venv = write_toy_venv(operator.home.root / "toy-venv", load_s=0.2)
    words = ("launch", "--name", "chat", "--engine", engine, "--model", "demo/toy")
    port = ("--port", str(free_port()))
    told = operator.run(
        *words, "--gpu-count", "0", "--venv", str(venv), *port, *more, status=0, **env
    )
    return told.stdout.decode().split()[2]


def ask(url: str, key: str | None) -> int:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        with urllib.request.urlopen(
            urllib.request.Request(f"{url}/v1/models", headers=headers), timeout=10
        ) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def read_process(pid: int, name: str) -> bytes:
    return Path(f"/proc/{pid}/{name}").read_bytes()


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_engine_refuses_strangers_and_the_key_is_seen_nowhere(
    operator: OperatorHere, engine: str
) -> None:
    url = launch_toy(operator, engine)
    key = operator.run("key", "chat").stdout.decode().strip()

    assert len(key) >= 32
    assert (ask(url, None), ask(url, "wrong"), ask(url, key)) == (401, 401, 200)
    status = operator.run("status", "--json").stdout
    (found,) = json.loads(status)["engines"]
    assert found["ready"]
    shown = [
        status,
        operator.run("status").stdout,
        operator.run("logs", "chat", "-n", "all", "--raw").stdout,
        operator.run("inventory", "--json").stdout,
        read_process(found["pid"], "cmdline"),
    ]
    assert not [text for text in shown if key.encode() in text]
    holders = [
        path
        for path in operator.home.root.rglob("*")
        if path.is_file() and key.encode() in path.read_bytes()
    ]
    by_file = {"api-key.yaml"} if engine == "sglang" else set()
    assert {path.name for path in holders} == {"secrets.json", *by_file}
    assert {path.stat().st_mode & 0o777 for path in holders} == {0o600}


def test_engine_may_be_launched_without_a_key(operator: OperatorHere) -> None:
    url = launch_toy(operator, "vllm", "--no-api-key")

    assert ask(url, None) == 200
    assert b"asks for no API key" in operator.run("key", "chat", status=2).stderr


def test_key_of_the_operator_is_kept(operator: OperatorHere) -> None:
    launch_toy(operator, "vllm", "--env-from", "VLLM_API_KEY", VLLM_API_KEY="sesame")

    assert operator.run("key", "chat").stdout == b"sesame\n"


async def test_restart_keeps_the_key_that_callers_have(operator: OperatorHere) -> None:
    launch_toy(operator, "sglang")
    key = operator.run("key", "chat").stdout
    async with Fleet([Target("n1", env=operator.home.env)]) as fleet:
        await fleet.settle(30.0)
        (old,) = await fleet.client("n1").engines()
        await restart_engine(fleet, [("n1", old.id)], "cafe0001" + "0" * 24, {})
        again = await fleet.client("n1").read_api_key("chat-cafe0001")

    assert f"{again}\n".encode() == key

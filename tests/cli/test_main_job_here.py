"""Launch, watch, read, stop: on this machine, with commands as processes of their own."""

import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.agents import wait_for
from tests.support.engines import free_port
from tests.support.operator_here import OperatorHere

pytestmark = pytest.mark.slow


def test_engine_is_launched_watched_read_stopped_and_forgotten(operator: OperatorHere) -> None:
    port = str(free_port())
    words = operator.launch_words("chat", "--port", port, "--env-from", "HF_TOKEN")

    launched = operator.run(*words, HF_TOKEN="hf_hush")  # noqa: S106 - a test's own
    told = launched.stderr.decode()
    assert launched.stdout.decode().split()[1:] == ["ready", f"http://127.0.0.1:{port}"]
    assert ": ready" in told.splitlines()[-1]
    assert "hf_hush" not in told

    status = json.loads(operator.run("status", "--json").stdout)
    (engine,) = status["engines"]
    assert (engine["name"], engine["state"], engine["ready"]) == ("chat", "ready", True)
    (alone,) = json.loads(operator.run("status", "chat", "--json").stdout)["engines"]
    assert alone["id"] == engine["id"]
    operator.run("status", "nobody", status=8)
    raw = operator.run("logs", "chat", "--raw", "-n", "all").stdout
    assert b"\r" in raw
    assert b"not text: \xff\xfe\n" in raw
    plain = operator.run("logs", "chat", "-n", "all").stdout.splitlines()
    assert b"Loading safetensors checkpoint shards: 100% Completed | 4/4 [00:00<00:00]" in plain
    assert b"secret seen: True" in plain
    assert operator.run("logs", "chat", "-n", "1").stdout.count(b"\n") == 1
    assert b"stopped" in operator.run("stop", "chat", "--grace", "2").stdout
    assert b"forgotten" in operator.run("forget", "chat").stdout
    assert b"no engine chat" in operator.run("logs", "chat", status=8).stderr


def test_failed_launch_ends_with_its_diagnosis(operator: OperatorHere) -> None:
    words = operator.launch_words("chat", "--json", "--", "--enforce-eager")

    done = operator.run(*words, status=7)

    (engine,) = json.loads(done.stdout)["engines"]
    assert engine["state"] == "failed"
    assert engine["diagnosis"]["code"] in done.stderr.decode()
    assert "llmgw logs chat" in done.stderr.decode()


def test_interrupted_wait_leaves_the_engine_and_says_how_to_watch_it(
    operator: OperatorHere, tmp_path: Path
) -> None:
    told = tmp_path / "stderr"
    with told.open("wb") as sink:
        waiting = subprocess.Popen(
            operator.argv(*operator.launch_words("chat", "--port", str(free_port()))),
            env=operator.env(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=sink,
        )
    wait_for(lambda: b"started chat" in told.read_bytes(), "the engine is started")

    waiting.send_signal(signal.SIGINT)

    assert waiting.wait(20) in (0, 130)  # 0: it was ready before
    if waiting.returncode:
        assert b"llmgw logs chat -f" in told.read_bytes()
        assert b"Traceback" not in told.read_bytes()
    (engine,) = json.loads(operator.run("status", "--json").stdout)["engines"]
    assert engine["state"] in ("starting", "loading", "ready", "unready")


def test_followed_log_ends_when_the_engine_does(operator: OperatorHere) -> None:
    operator.run(*operator.launch_words("chat", "--port", str(free_port()), "--no-wait"))
    following = subprocess.Popen(
        operator.argv("logs", "chat", "-f", "-n", "all"),
        env=operator.env(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert following.stdout is not None
    with following.stdout:
        first = following.stdout.readline()
        operator.run("stop", "chat", "--grace", "2")
        following.stdout.read()

    assert b"Starting to load model" in first
    assert following.wait(20) == 0


def test_two_launches_without_a_port_get_two(operator: OperatorHere) -> None:
    for name in ("a", "b"):
        operator.run(*operator.launch_words(name, "--no-wait"))

    engines = json.loads(operator.run("status", "--json").stdout)["engines"]

    assert len({engine["url"] for engine in engines}) == 2


def test_plan_and_launch_run_the_same_command(operator: OperatorHere) -> None:
    words = operator.launch_words("chat", "--format", "json")[1:]

    plan = json.loads(operator.run("plan", *words).stdout)

    assert plan["ranks"][0]["argv"][:3] == [f"{operator.venv}/bin/vllm", "serve", "org/model"]
    assert plan["schema"] == "llmgw.plan/1"


def test_plan_that_is_refused_prints_no_script(operator: OperatorHere) -> None:
    words = operator.launch_words("chat", "--port", "0", "--format", "sh")[1:]

    done = operator.run("plan", *words, status=5)

    assert done.stdout == b""
    assert b"port-range" in done.stderr


def test_executable_that_is_missing_is_found_before_the_launch(operator: OperatorHere) -> None:
    words = (*operator.launch_words("chat"), "--venv", "/nonexistent")

    assert b"executable-missing" in operator.run(*words, status=5).stderr


def test_secret_that_is_not_set_is_named(operator: OperatorHere) -> None:
    done = operator.run(*operator.launch_words("chat", "--env-from", "HF_TOKEN"), status=2)

    assert b"HF_TOKEN is not set" in done.stderr


def test_what_was_reviewed_is_what_is_launched(operator: OperatorHere) -> None:
    words = operator.launch_words("chat", "--port", str(free_port()))
    asked = words[words.index("launch") + 1 :]

    made = json.loads(operator.run("plan", "--json", *asked).stdout)
    checked = json.loads(operator.run("preflight", "--json", *asked).stdout)
    assert checked["plan"] == made["hash"]
    assert (checked["launchable"], checked["nodes"]) == (True, [made["ranks"][0]["node"]])
    assert b"can start on" in operator.run("preflight", *asked).stdout

    refused = operator.run(*words, "--plan", "0123456789ab", status=5).stderr
    assert made["hash"].encode() in refused
    assert json.loads(operator.run("status", "--json").stdout)["engines"] == []

    assert made["hash"].encode() in operator.run(*words, "--plan", made["hash"]).stderr
    assert b"name-taken" in operator.run("preflight", *asked, status=5).stdout

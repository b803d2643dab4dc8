"""A launch spec: what it says, and what is said about one that does not fit."""

from pathlib import Path

import pytest

from llmgw_core.domain.engine import EngineKind
from llmgw_core.domain.launch import LaunchRequest
from llmgw_core.errors import SpecError
from llmgw_core.fleet.spec_file import load_request

GOOD = 'name = "chat"\nengine = "vllm"\nmodel = "/m"\n'


def load(tmp_path: Path, text: str, **flags: object) -> LaunchRequest:
    path = tmp_path / "launch.toml"
    path.write_text(text, "utf-8")
    return load_request(path, flags)


def test_spec_becomes_a_request(tmp_path: Path) -> None:
    asked = load(tmp_path, GOOD + 'gpus = [0, 1]\ngrace_seconds = 5\n[env]\nA = "1"\n')

    assert asked == LaunchRequest(
        "chat", EngineKind.VLLM, "/m", gpus=(0, 1), grace_seconds=5.0, env={"A": "1"}
    )


def test_flags_win_over_the_spec_and_environments_are_merged(tmp_path: Path) -> None:
    text = GOOD + 'port = 1\n[env]\nA = "1"\nB = "1"\n'

    asked = load(tmp_path, text, port=2, env={"B": "2"}, node=None)

    assert asked.port == 2
    assert asked.env == {"A": "1", "B": "2"}
    assert asked.node is None


def test_flags_alone_are_enough() -> None:
    flags = {"name": "chat", "engine": "sglang", "model": "/m"}

    assert load_request(None, flags).engine is EngineKind.SGLANG


@pytest.mark.parametrize(
    ("text", "place", "hint"),
    [
        (GOOD + "tensor_paralel = 2\n", ":4: tensor_paralel", "did you mean tensor_parallel?"),
        (GOOD + 'port = "8000"\n', ":4: port", "a whole number"),
        (GOOD + "port = true\n", ":4: port", "a whole number"),
        (GOOD + "verify = 1\n", ":4: verify", "true or false"),
        (GOOD + 'args = "--x"\n', ":4: args", "a list of texts"),
        (GOOD + 'gpus = [0, "1"]\n', ":4: gpus (1)", "a list of whole numbers"),
        (GOOD + "workdir = 2020-01-01\n", ":4: workdir", "a text in quotes"),
        (GOOD + "[env]\nA = 1\n", ":4: env (A)", "a table of texts"),
        (GOOD + '[env]\nport = "x"\n[port]\nx = 1\n', ":6: port", "a whole number"),
        (GOOD.replace("vllm", "vlm"), ":2: engine", "did you mean vllm?"),
        ("name = \n", ":1 is not TOML", ""),
        ('name = "x"\n', "has no engine", "add engine"),
    ],
)
def test_what_does_not_fit_is_told_with_file_line_key_and_what_is_allowed(
    tmp_path: Path, text: str, place: str, hint: str
) -> None:
    with pytest.raises(SpecError) as caught:
        load(tmp_path, text)

    assert place in caught.value.what
    assert str(tmp_path / "launch.toml") in caught.value.what
    assert hint in caught.value.fix


def test_value_of_the_environment_is_never_told(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        load(tmp_path, GOOD + "[env]\nHF_TOKEN = 4711\n")

    assert "4711" not in str(caught.value)


def test_file_that_is_not_there_is_told() -> None:
    with pytest.raises(SpecError, match="cannot be read"):
        load_request(Path("/nonexistent/launch.toml"), {})


def test_file_that_is_not_text_is_told(tmp_path: Path) -> None:
    path = tmp_path / "launch.toml"
    path.write_bytes(b"\xff\xfe")

    with pytest.raises(SpecError, match="not UTF-8"):
        load_request(path, {})

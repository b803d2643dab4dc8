"""stdout, stderr and exit statuses of the commands that need no engine."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llmgw_core.cli import main as cli
from llmgw_core.cli.logs import LineFilter
from llmgw_core.cli.output import clean, render_duration, render_table
from llmgw_core.cli.parser import build_parser
from llmgw_core.domain.hardware import Host
from llmgw_core.domain.wire import dump_json
from llmgw_core.planning.fabrics import build_inventory
from tests.support.hardware import ib_port, smi_gpu, write_nvidia_smi, write_sysfs
from tests.support.operator_here import OperatorHere
from tests.support.plans import four

HEAVY = {"asyncio", "asyncssh", "pydantic", "textual", "rich", "ClusterShell"}


@pytest.mark.slow
def test_inventory_of_this_machine_is_the_document(operator: OperatorHere) -> None:
    write_sysfs(operator.home.root / "sys", [ib_port()])
    write_nvidia_smi(Path(operator.home.env["LLMGW_NVIDIA_SMI"]), [smi_gpu(0)])

    done = operator.run("inventory", "--json")

    document = json.loads(done.stdout)
    (node,) = document["nodes"]
    assert document["schema"] == "llmgw.inventory/1"
    assert [gpu["class"] for gpu in node["gpus"]] == ["h100-80g"]
    assert [port["hca"] for port in node["ports"]] == ["mlx5_0"]
    assert done.stdout == json.dumps(document, sort_keys=True, indent=2).encode() + b"\n"
    assert done.stderr == b""


@pytest.mark.slow
def test_inventory_for_a_person_has_a_line_for_the_node(operator: OperatorHere) -> None:
    header, row, *_ = operator.run("inventory").stdout.decode().splitlines()

    assert header.split()[:2] == ["NODE", "STATE"]
    assert row.split()[1] == "ok"


@pytest.mark.slow
def test_agent_inventory_is_one_element_of_nodes(operator: OperatorHere) -> None:
    node = json.loads(operator.run("agent", "inventory", "--json").stdout)

    assert {"name", "gpus", "ports", "engines", "host"} <= set(node)


@pytest.mark.slow
def test_silent_nodes_are_in_the_document_and_in_the_status(operator: OperatorHere) -> None:
    # Port 1 of this machine: refused at once.
    done = operator.run("inventory", "--json", "--nodes", "127.0.0.1:1", status=4)

    (node,) = json.loads(done.stdout)["nodes"]
    assert node["reachable"] is False
    assert node["error"]["code"]
    assert b"127.0.0.1" in done.stderr


@pytest.mark.slow
def test_status_of_silent_nodes_is_4_and_a_launch_there_is_not_tried(
    operator: OperatorHere,
) -> None:
    operator.run("status", "--nodes", "127.0.0.1:1", status=4)
    operator.run("--nodes", "127.0.0.1:1", *operator.launch_words("chat"), status=6)


@pytest.mark.parametrize(
    "words",
    [
        ("unknown",),
        ("inventory", "--timeout", "-1"),
        ("inventory", "--cluster", "/nonexistent.toml"),
        ("launch", "/nonexistent.toml"),
        ("launch", "--name", "x"),
        ("launch", "--name", "x", "--engine", "vlm", "--model", "m"),
        ("launch", "--nam", "x"),
        ("status", "--", "x"),
        (),
    ],
)
def test_wrong_words_are_2_and_nothing_is_on_stdout(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status = cli.main(words)
    except SystemExit as ending:
        status = int(ending.code or 0)

    assert status == 2
    assert capsys.readouterr().out == ""


@pytest.mark.slow
def test_reader_that_has_had_enough_is_no_error(operator: OperatorHere) -> None:
    read, write = os.pipe()
    os.close(read)

    done = subprocess.run(
        operator.argv("inventory", "--json"),
        env=operator.env(),
        stdout=write,
        stderr=subprocess.PIPE,
        timeout=30,
        check=False,
    )
    os.close(write)

    assert done.stderr == b""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "allowed"), [(["--help"], set()), (["inventory", "--json"], set())]
)
def test_command_loads_nothing_heavy(
    operator: OperatorHere, words: list[str], allowed: set[str]
) -> None:
    code = (
        "import sys\nfrom llmgw_core.cli.main import main\n"
        f"try:\n    main({words!r})\nexcept SystemExit:\n    pass\n"
        "sys.stderr.write('|'.join(sys.modules))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env=operator.env(),
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )

    assert set(ran.stderr.split("|")) & HEAVY == allowed


def test_unexpected_error_is_one_line_and_a_hint(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("LLMGW_DEBUG", raising=False)
    monkeypatch.setattr(cli, "_dispatch", _stumble)

    status = cli.main(["status"])

    assert status == 1
    assert capsys.readouterr().err.splitlines() == [
        "llmgw: an error of llmgw itself: ZeroDivisionError: of a test",
        "  → set LLMGW_DEBUG=1 to see where, and report it",
    ]


def test_interrupt_is_130(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "_dispatch", _interrupt)

    assert cli.main(["status"]) == 130


def _stumble(_: object) -> int:
    raise ZeroDivisionError("of a test")


def _interrupt(_: object) -> int:
    raise KeyboardInterrupt


@pytest.mark.parametrize("words", [["--nodes", "a", "status"], ["status", "--nodes", "a"]])
def test_nodes_are_named_before_or_after_the_verb(words: list[str]) -> None:
    assert build_parser("0").parse_args(words).nodes == "a"


def test_nodes_after_the_verb_win() -> None:
    args = build_parser("0").parse_args(["--nodes", "a", "status", "--nodes", "b"])

    assert args.nodes == "b"


def test_bar_is_shown_in_its_last_state_whatever_pieces_it_comes_in() -> None:
    text = b"a\r 10%\r 90%\nplain\r\nrest\r1\r2"
    whole, pieces = LineFilter(), LineFilter()

    at_once = whole.feed(text) + whole.flush()
    in_pieces = b"".join(pieces.feed(bytes([byte])) for byte in text) + pieces.flush()

    assert at_once == in_pieces == b" 90%\nplain\n2"


def test_table_is_as_wide_as_its_cells() -> None:
    assert render_table(("A", "B"), [("long", None), ("x", 1)]) == "A     B\nlong  -\nx     1"


def test_a_nodes_words_do_not_move_the_cursor() -> None:
    assert clean("a\x1b[2Jb\nc") == "a�[2Jb c"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (59, "59s"), (190, "3m10s"), (7500, "2h05m"), (800_000, "9d06h"), (-5, "0s")],
)
def test_durations_are_two_units(seconds: float, text: str) -> None:
    assert render_duration(seconds) == text


def test_a_plan_can_be_made_again_from_its_own_document(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = [replace(four(name), host=Host(hostname=name)) for name in ("n1", "n2", "n3")]
    words = ["plan", "--name", "chat", "--engine", "vllm", "--model", "org/m", "--tp", "8"]
    words += ["--fabric", "tcp", "--json", "--inventory"]

    def make(inventory: str) -> dict[str, Any]:
        saved = tmp_path / "inventory.json"
        saved.write_text(inventory, "utf-8")
        assert cli.main([*words, str(saved)]) == 0
        return dict(json.loads(capsys.readouterr().out))

    first = make(dump_json(build_inventory(nodes, "2026-01-01T00:00:00Z")))
    assert [node["name"] for node in first["inventory"]["nodes"]] == ["n1", "n2"]
    second = make(json.dumps(first["inventory"]))

    assert second["hash"] == first["hash"]
    assert second["ranks"][1]["argv"] == first["ranks"][1]["argv"]

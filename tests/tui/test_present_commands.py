"""The table of commands: what is understood, what is said of the rest, what may be completed."""

import pytest

from llmgw_tui.present.commands import Call, complete, make_commands, parse_command

COMMANDS = make_commands(("cluster", "gpus", "fabric"))
WORDS = {
    "nodes": ("gpu1", "gpu10", "gpu2", "head"),
    "themes": ("llmgw", "llmgw-light"),
    "columns": ("node", "held-by"),
    "ways": ("up", "down"),
}


def parsed(text: str) -> tuple[str, tuple[str, ...]]:
    found = parse_command(text, COMMANDS, WORDS)
    assert isinstance(found, Call), found
    return found.command.name, found.words


@pytest.mark.parametrize(
    ("text", "name", "words"),
    [
        ("gpus", "gpus", ()),
        ("gp", "gpus", ()),
        ("nodes", "cluster", ()),
        ("q", "quit", ()),
        ("  node   gpu1 ", "node", ("gpu1",)),
        ("node GPU2", "node", ("gpu2",)),
        ("node he", "node", ("head",)),
        ("launch", "launch", ("",)),
        ("filter h100  state:ok", "filter", ("h100  state:ok",)),
        ("filter", "filter", ("",)),
        ("sort held-by down", "sort", ("held-by", "down")),
        ("sort held-by", "sort", ("held-by", "")),
    ],
)
def test_what_is_typed_is_understood(text: str, name: str, words: tuple[str, ...]) -> None:
    assert parsed(text) == (name, words)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "type a command; tab completes, :help lists them all"),
        ("gpuz", "there is no command :gpuz; did you mean :gpus?"),
        ("xyzzy", "there is no command :xyzzy; :help lists them all"),
        ("re", ":re may be :restart or :related or :refresh"),
        ("node", ":node needs a NAME: gpu1, gpu10, gpu2, head"),
        ("node gpu", "'gpu' may be gpu1, gpu10, gpu2"),
        ("node gpx1", "'gpx1' is no NAME here: gpu1, gpu10"),
        ("gpus now", ":gpus does not take 'now'; it is :gpus"),
        ("sort held-by sideways", "'sideways' is no up|down here: up, down"),
    ],
)
def test_what_is_not_understood_is_told_with_what_would_be(text: str, said: str) -> None:
    assert parse_command(text, COMMANDS, WORDS) == said


def test_of_many_names_an_error_shows_a_few_and_their_number() -> None:
    words = {"nodes": [f"n{place}" for place in range(1024)]}

    assert parse_command("node", COMMANDS, words) == ":node needs a NAME: n0, n1, n2, n3 … (1024)"


@pytest.mark.parametrize(
    ("text", "candidates"),
    [
        ("fi", ("filter ",)),
        ("node", ("node ", "cluster")),
        ("node ", ("node gpu1", "node gpu10", "node gpu2", "node head")),
        ("node gpu1", ("node gpu1", "node gpu10")),
        ("no", ("node ", "cluster")),
        ("theme light", ("theme llmgw-light",)),
        ("sort node d", ("sort node down",)),
        ("filter h", ()),
        ("sort node up more", ()),
        ("what gpu", ()),
    ],
)
def test_a_line_is_completed(text: str, candidates: tuple[str, ...]) -> None:
    assert tuple(each.text for each in complete(text, COMMANDS, WORDS)) == candidates


def test_every_completion_of_an_empty_line_is_a_command() -> None:
    found = complete("", COMMANDS, WORDS, most=100)

    assert {each.text.strip() for each in found} == {each.name for each in COMMANDS}


def test_no_name_or_alias_stands_for_two_commands() -> None:
    names = [name for each in COMMANDS for name in (each.name, *each.aliases)]

    assert len(names) == len(set(names))

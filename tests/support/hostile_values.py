"""What a node that means harm puts into answers that are well formed: words a terminal obeys, numbers nobody expects."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from llmgw_core.domain.engine import Diagnosis, EngineState
from llmgw_core.domain.hardware import GpuProcess
from llmgw_core.domain.inventory import Node
from llmgw_core.domain.wire import to_jsonable
from llmgw_core.errors import ProtocolError
from llmgw_core.fleet.schema import parse_reply
from tests.support.fleets import make_engine, make_gpu, make_node

ESCAPES = "\x1b]0;pwned\x07\x1b[2J\x1b[31m\x9b1m\u202edlrow\r\nforged: line\x00\x08\x7f"
LIMIT = (1 << 63) - 1
NUMBERS = (0, -1, LIMIT, -LIMIT)
Json = Any  # Any: a tree of JSON values


def full_node(name: str = "n1") -> Node:
    """A node with something in most fields."""
    diagnosis = Diagnosis("oom", "out of memory", "use fewer sequences")
    engines = (
        make_engine("chat", phase="serving", progress=0.5),
        make_engine("coder", EngineState.FAILED, diagnosis=diagnosis, gpus=(2,)),
    )
    process = GpuProcess(pid=4711, name="python3", user="ann", memory_mib=100, command="p x")
    gpus = tuple(make_gpu(index, processes=(process,)) for index in range(2))
    return make_node(name, engines=engines, gpus=gpus)


def leaves(tree: Json, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Json]]:
    """Every value that is no list and no object, with its path."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from leaves(value, (*path, key))
    elif isinstance(tree, list):
        for place, value in enumerate(tree):
            yield from leaves(value, (*path, place))
    else:
        yield path, tree


def with_value(tree: Json, path: tuple[Any, ...], value: Json) -> Json:
    """The tree with another value at that path."""
    if not path:
        return value
    copy = dict(tree) if isinstance(tree, dict) else list(tree)
    copy[path[0]] = with_value(tree[path[0]], path[1:], value)
    return copy


def everywhere(kind: type, tree: Json, change: Callable[[Json], Json]) -> Json:
    """The tree with each leaf changed, as far as the console still takes it for a `kind`."""
    for path, value in leaves(tree):
        changed = with_value(tree, path, change(value))
        try:
            parse_reply(kind, changed, "test", "n1")
        except ProtocolError:
            continue
        tree = changed
    return tree


def add_escapes(value: Json) -> Json:
    """A text with hostile words behind it; other values as they are."""
    return f"{value}{ESCAPES}" if isinstance(value, str) else value


def hostile_node(name: str = "n1") -> Node:
    """A node with terminal escapes in every text in which the console takes them."""
    tree = everywhere(Node, to_jsonable(full_node(name)), add_escapes)
    return replace(parse_reply(Node, tree, "test", name), name=name)


def control_characters(text: str) -> list[str]:
    """What a terminal would obey, line ends apart."""
    return sorted({repr(char) for char in text if not char.isprintable() and char != "\n"})

"""How a state looks: glyph, word and tone."""

from dataclasses import replace

import pytest

from llmgw_core.domain.engine import EngineState
from llmgw_core.domain.findings import Severity
from llmgw_core.domain.hardware import Gpu, GpuHealth
from llmgw_core.domain.inventory import (
    Contact,
    Node,
    NodeFault,
)
from llmgw_tui.present.states import (
    engine_cell,
    engine_state,
    gpu_state,
    gpu_strip,
    node_state,
    seen_state,
)
from llmgw_tui.present.text import plain
from tests.support.fleets import (
    make_busy_gpu,
    make_engine,
    make_gpu,
    make_held_gpu,
    make_node,
    make_view,
)


@pytest.mark.parametrize("state", list(EngineState))
def test_every_engine_state_has_a_glyph_and_its_own_word(state: EngineState) -> None:
    look = engine_state(make_engine("e", state))

    assert (look.word, len(look.glyph)) == (state.value, 1)


@pytest.mark.parametrize(
    ("state", "word"),
    [
        (EngineState.READY, "was ready"),
        (EngineState.LOADING, "was loading"),
        (EngineState.FAILED, "failed"),
        (EngineState.STOPPED, "stopped"),
    ],
)
def test_on_a_node_that_is_away_an_engine_was_something(state: EngineState, word: str) -> None:
    assert seen_state(make_engine("e", state), Contact.UNREACHABLE).word == word


def test_a_loading_engine_says_how_far_it_is() -> None:
    engine = make_engine("e", EngineState.LOADING, progress=0.42)

    assert plain(engine_cell(engine, Contact.CONNECTED)) == "◐ loading 42 %"


@pytest.mark.parametrize(
    ("gpu", "shown"),
    [
        (make_gpu(0), "□ free"),
        (make_busy_gpu(0, "chat-1"), "■ engine"),
        (make_held_gpu(0), "▲ held"),
        (make_gpu(0, health=(GpuHealth("throttled", Severity.WARNING, "hot"),)), "▲ warning"),
        (make_gpu(0, health=(GpuHealth("gpu-lost", Severity.ERROR, "off the bus"),)), "✖ fault"),
        (Gpu(index=0), "? unknown"),
    ],
)
def test_gpu_states(gpu: Gpu, shown: str) -> None:
    assert plain(gpu_state(gpu).cell) == shown


def test_a_fault_on_an_engines_gpu_is_not_hidden_by_the_engine() -> None:
    lost = (GpuHealth("ecc-uncorrected", Severity.ERROR, "2 errors"),)

    assert gpu_state(replace(make_busy_gpu(0, "chat-1"), health=lost)).word == "fault"


def test_a_long_strip_counts_what_it_leaves_out() -> None:
    assert plain(gpu_strip(tuple(make_gpu(index) for index in range(20)))) == "□" * 16 + "+4"


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("timeout", "◌ timeout"),
        ("refused", "◌ refused"),
        ("dropped", "◌ dropped"),
        ("login-cut", "◌ login cut"),
        ("unreachable", "◌ unreachable"),
        ("host-key-unknown", "✖ host key?"),
        ("host-key-changed", "✖ host key!"),
        ("auth", "✖ no login"),
        ("no-python", "✖ no python"),
        ("disk-full", "✖ disk full"),
        ("home-unwritable", "✖ home r/o"),
        ("protocol", "✖ protocol"),
        ("dns", "✖ no such name"),
    ],
)
def test_a_node_that_is_away_says_why(code: str, shown: str) -> None:
    node = make_node("n1", error=NodeFault(code, "message", "hint"))

    assert plain(node_state(make_view(node, Contact.UNREACHABLE)).cell) == shown


@pytest.mark.parametrize(
    ("node", "shown"),
    [
        (make_node("n1"), "● up"),
        (make_node("n1", gpus=()), "● up"),
        (make_node("n1", gpus=(make_held_gpu(0),)), "▲ GPU held"),
        (make_node("n1", error=NodeFault("partial", "nvidia-smi hangs", "")), "▲ partial"),
        (
            make_node(
                "n1",
                gpus=(
                    make_held_gpu(0),
                    make_gpu(1, health=(GpuHealth("gpu-lost", Severity.ERROR, ""),)),
                ),
            ),
            "✖ GPU fault",
        ),
    ],
)
def test_a_node_that_answers_shows_its_worst(node: Node, shown: str) -> None:
    assert plain(node_state(make_view(node)).cell) == shown

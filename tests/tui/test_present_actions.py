"""Plans, stops and the launch form as the operator sees them."""

from dataclasses import replace

import pytest

from llmgw_core.domain.engine import EngineKind, EngineState
from llmgw_core.domain.findings import Finding, Severity
from llmgw_core.domain.inventory import Contact
from llmgw_core.domain.launch import LaunchPlan, LaunchRequest
from llmgw_core.domain.model import MemorySplit
from llmgw_tui.present.acts import Act, Ask, ask_about, refusal
from llmgw_tui.present.engines import EngineView, ranks_of
from llmgw_tui.present.launch_form import (
    LaunchForm,
    class_options,
    gpu_options,
    node_options,
    read_form,
)
from llmgw_tui.present.plan import argv_lines, is_launchable, plan_lines, verdict
from llmgw_tui.present.text import Line, plain
from tests.support.fleets import (
    NOW,
    make_cluster,
    make_engine,
    make_node,
    make_plan,
    make_snapshot,
    make_view,
)

REQUEST = LaunchRequest("demo", EngineKind.VLLM, "/models/demo", node="gpu1", tensor_parallel=2)
LAUNCH_ID = "2daf10d7" + "0" * 24
ERROR = Finding("port-taken", Severity.ERROR, "port 8002", "is bound by pid 99", "choose another")
WARNING = Finding("plain-tcp", Severity.WARNING, "fabric", "ranks talk over TCP")


def text_of(lines: tuple[Line, ...] | list[Line]) -> str:
    return "\n".join(plain(value) for value in lines)


# --- plan


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        (None, False),
        (make_plan(REQUEST, LAUNCH_ID), True),
        (make_plan(REQUEST, LAUNCH_ID, WARNING), True),
        (make_plan(REQUEST, LAUNCH_ID, ERROR), False),
        (replace(make_plan(REQUEST, LAUNCH_ID), ranks=()), False),
    ],
)
def test_what_may_be_launched(plan: LaunchPlan | None, expected: bool) -> None:
    assert is_launchable(plan) is expected


@pytest.mark.parametrize(
    ("findings", "text"),
    [
        ((), "● can be launched"),
        ((WARNING,), "▲ can be launched, with 1 warning"),
        ((ERROR, ERROR, WARNING), "✖ cannot be launched: 2 errors"),
    ],
)
def test_verdicts(findings: tuple[Finding, ...], text: str) -> None:
    assert plain(verdict(make_plan(REQUEST, LAUNCH_ID, *findings))) == text


def test_a_plan_without_ranks_says_that_no_node_fits() -> None:
    assert "no node fits" in plain(verdict(replace(make_plan(REQUEST, LAUNCH_ID), ranks=())))


@pytest.mark.parametrize(
    "text",
    [
        "✖ error: port 8002: is bound by pid 99  [port-taken]",
        "  → choose another",
        "node     gpu1",
        "address  127.0.0.1:8002",
        "CUDA_VISIBLE_DEVICES=2,3",
        "NCCL_IB_HCA==mlx5_0:1,mlx5_1:1",
        "HF_TOKEN=(yours, at launch; never shown)",
        "/opt/vllm/bin/vllm serve /models/demo \\",
        "    --tensor-parallel-size 2 \\",
        "    --port 8002",
    ],
)
def test_the_plan_is_shown_whole(text: str) -> None:
    assert text in text_of(plan_lines(make_plan(REQUEST, LAUNCH_ID, ERROR)))


def test_errors_stand_before_warnings() -> None:
    shown = text_of(plan_lines(make_plan(REQUEST, LAUNCH_ID, WARNING, ERROR)))

    assert shown.index("port-taken") < shown.index("plain-tcp")


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        (("vllm",), ["  vllm"]),
        (("vllm", "serve", "m"), ["  vllm serve m"]),
        (("vllm", "--a", "1", "--b"), ["  vllm \\", "    --a 1 \\", "    --b"]),
        (("vllm", "--a=1", "x"), ["  vllm \\", "    --a=1 x"]),
        (("vllm", "--t", "a b"), ["  vllm \\", "    --t 'a b'"]),
        (("vllm", "--j", '{"a": 1}'), ["  vllm \\", "    --j '{\"a\": 1}'"]),
    ],
)
def test_the_command_is_quoted_as_a_shell_takes_it(argv: tuple[str, ...], shown: list[str]) -> None:
    assert [plain(value) for value in argv_lines(argv)] == shown


# --- acts on engines


def make_item(state: EngineState, contact: Contact = Contact.CONNECTED) -> EngineView:
    return EngineView(make_engine("chat", state), make_view(make_node("gpu1"), contact))


def ask(act: Act, *items: EngineView) -> Ask:
    return ask_about(act, items, NOW)


@pytest.mark.parametrize(
    ("act", "state", "typed"),
    [
        (Act.STOP, EngineState.READY, "chat"),
        (Act.STOP, EngineState.UNREADY, "chat"),
        (Act.STOP, EngineState.LOADING, None),
        (Act.STOP, EngineState.STARTING, None),
        (Act.STOP, EngineState.STOPPING, None),
        (Act.STOP, EngineState.STUCK, None),
        (Act.STOP, EngineState.ORPHANS, None),
        (Act.RESTART, EngineState.READY, "chat"),
        (Act.RESTART, EngineState.FAILED, None),
        (Act.FORGET, EngineState.STOPPED, None),
    ],
)
def test_only_what_serves_asks_for_its_name(
    act: Act, state: EngineState, typed: str | None
) -> None:
    assert ask(act, make_item(state)).typed == typed


def test_several_engines_ask_for_their_number() -> None:
    other = EngineView(make_engine("coder", EngineState.LOADING), make_view(make_node("gpu2")))

    asked = ask(Act.STOP, make_item(EngineState.LOADING), other)

    assert (asked.typed, asked.title) == ("stop 2", "Stop 2 engines")
    assert "coder on gpu2  ◐ loading" in text_of(asked.lines)


def test_an_act_is_aimed_at_node_and_id() -> None:
    assert ask(Act.STOP, make_item(EngineState.READY)).targets == (("gpu1", "chat-0badcafe"),)


@pytest.mark.parametrize(
    ("act", "state", "text"),
    [
        (
            Act.STOP,
            EngineState.READY,
            "serves chat at http://127.0.0.1:8000: requests in flight are cut off",
        ),
        (Act.STOP, EngineState.READY, "pid      4000"),
        (Act.STOP, EngineState.READY, "state    ● ready"),
        (Act.STOP, EngineState.READY, "That frees gpu1 GPU 0, 1."),
        (Act.STOP, EngineState.LOADING, "what it loaded is lost"),
        (Act.STOP, EngineState.STUCK, "What is left of it is killed."),
        (Act.RESTART, EngineState.READY, "loads from the beginning"),
        (Act.RESTART, EngineState.FAILED, "It is over: nothing is lost."),
        (Act.FORGET, EngineState.FAILED, "its log and its diagnosis are removed"),
    ],
)
def test_an_act_says_what_is_lost(act: Act, state: EngineState, text: str) -> None:
    assert text in text_of(ask(act, make_item(state)).lines)


def test_an_act_on_a_node_that_is_away_warns() -> None:
    asked = ask(Act.STOP, make_item(EngineState.READY, Contact.UNREACHABLE))

    assert "▲ gpu1 does not answer now" in text_of(asked.lines)


@pytest.mark.parametrize(
    ("act", "items", "text"),
    [
        (Act.STOP, (), "No engine is selected"),
        (Act.STOP, (make_item(EngineState.STOPPED),), "over already"),
        (Act.STOP, (make_item(EngineState.FAILED),), "over already"),
        (Act.FORGET, (make_item(EngineState.READY),), "stop it first (X), then forget it"),
        (Act.RESTART, (make_item(EngineState.STUCK),), "stop it first (X), then launch it"),
        (
            Act.RESTART,
            (
                make_item(EngineState.READY),
                EngineView(make_engine("coder"), make_view(make_node("gpu2"))),
            ),
            "one engine at a time",
        ),
    ],
)
def test_what_cannot_be_done_says_why(act: Act, items: tuple[EngineView, ...], text: str) -> None:
    assert text in (refusal(act, items) or "")


@pytest.mark.parametrize(
    ("act", "state"),
    [
        (Act.STOP, EngineState.LOADING),
        (Act.RESTART, EngineState.READY),
        (Act.RESTART, EngineState.FAILED),
        (Act.FORGET, EngineState.STOPPED),
    ],
)
def test_what_can_be_done_is_not_refused(act: Act, state: EngineState) -> None:
    assert refusal(act, (make_item(state),)) is None


def test_the_ranks_of_an_engine_are_those_of_its_launch() -> None:
    ranks = [make_engine("big", id=f"big-0badcafe-r{n}", rank=n, ranks=2) for n in range(2)]
    older = make_engine("big", EngineState.STOPPED, id="big-00000000-r0", rank=0, ranks=2)
    snapshot = make_snapshot(
        make_view(make_node("n1", engines=(ranks[0], older))),
        make_view(make_node("n2", engines=(ranks[1],))),
    )
    item = EngineView(ranks[1], snapshot.nodes[1])

    assert [other.key for other in ranks_of(snapshot, item)] == [
        ("n1", "big-0badcafe-r0"),
        ("n2", "big-0badcafe-r1"),
    ]


# --- launch form


FORM = LaunchForm(name="demo", model="/models/demo")


@pytest.mark.parametrize(
    ("form", "field", "error"),
    [
        (LaunchForm(), "name", "needed"),
        (LaunchForm(), "model", "needed"),
        (replace(FORM, name="  "), "name", "needed"),
        (replace(FORM, port="http"), "port", "a whole number, 1 to 65535"),
        (replace(FORM, port="65536"), "port", "a whole number, 1 to 65535"),
        (replace(FORM, port="0"), "port", "a whole number, 1 to 65535"),
        (replace(FORM, gpu_count="-1"), "gpu_count", "a whole number, 0 or more"),
        (replace(FORM, gpu_count="²"), "gpu_count", "a whole number, 0 or more"),
        (replace(FORM, tensor_parallel="0"), "tensor_parallel", "a whole number, 1 or more"),
        (replace(FORM, tensor_parallel="1.5"), "tensor_parallel", "a whole number, 1 or more"),
        (
            replace(FORM, args="--a 'b"),
            "args",
            "cannot be split as a shell would: no closing quotation",
        ),
        (
            replace(FORM, gpus=(0, 1), gpu_count="4"),
            "gpu_count",
            "2 GPUs are picked below: leave this empty",
        ),
    ],
)
def test_a_field_that_cannot_be_read_says_what_is_allowed(
    form: LaunchForm, field: str, error: str
) -> None:
    reading = read_form(form)

    assert (reading.request, reading.errors[field]) == (None, error)


def test_all_errors_are_said_at_once() -> None:
    assert set(read_form(LaunchForm(port="x", args="'")).errors) == {
        "name",
        "model",
        "port",
        "args",
    }


@pytest.mark.parametrize(
    ("form", "attribute", "value"),
    [
        (FORM, "node", None),
        (FORM, "port", None),
        (FORM, "venv", None),
        (FORM, "verify", True),
        (FORM, "gpu_count", None),
        (FORM, "tensor_parallel", 1),
        (replace(FORM, name=" demo "), "name", "demo"),
        (replace(FORM, engine="sglang"), "engine", EngineKind.SGLANG),
        (replace(FORM, gpu_count="4"), "tensor_parallel", 4),
        (replace(FORM, gpu_count="4", tensor_parallel="2"), "tensor_parallel", 2),
        (replace(FORM, gpu_count="0"), "gpu_count", 0),
        (replace(FORM, gpu_count="0"), "tensor_parallel", 1),
        (replace(FORM, gpus=(3, 1)), "gpus", (1, 3)),
        (replace(FORM, gpus=(3, 1)), "tensor_parallel", 2),
        (replace(FORM, gpus=(3, 1), gpu_count="2"), "gpu_count", None),
        (replace(FORM, args="--a 'b c'"), "args", ("--a", "b c")),
        (replace(FORM, port=" 8010 "), "port", 8010),
        (replace(FORM, verify=False), "verify", False),
    ],
)
def test_what_is_typed_becomes_the_request(form: LaunchForm, attribute: str, value: object) -> None:
    assert getattr(read_form(form).request, attribute) == value


def test_only_nodes_that_answer_are_offered() -> None:
    assert [value for _, value in node_options(make_cluster())] == ["gpu1", "gpu2", "gpu3"]


def test_a_node_is_offered_with_its_free_gpus() -> None:
    assert node_options(make_cluster())[0][0] == "gpu1  2/4 GPUs free  up"


@pytest.mark.parametrize(
    ("node", "indices"), [("gpu1", [2, 3]), ("gpu2", [0, 3]), (None, []), ("gone", [])]
)
def test_only_free_gpus_are_offered(node: str | None, indices: list[int]) -> None:
    assert [value for _, value in gpu_options(make_cluster(), node)] == indices


@pytest.mark.parametrize(
    ("form", "attribute", "value"),
    [
        (replace(FORM, over="2"), "node_count", 2),
        (replace(FORM, over="n1, n2"), "nodes", ("n1", "n2")),
        (replace(FORM, gpu_class="h100-80g"), "gpu_class", "h100-80g"),
        (replace(FORM, settings="max_model_len=4096"), "max_model_len", 4096),
        (replace(FORM, settings="gpu_memory_fraction=0.8"), "gpu_memory_fraction", 0.8),
        (replace(FORM, settings="api_key=false"), "api_key", False),
        (replace(FORM, settings="env_from=HF_TOKEN,B"), "env_from", ("HF_TOKEN", "B")),
        (replace(FORM, settings="env.OMP_NUM_THREADS=8"), "env", {"OMP_NUM_THREADS": "8"}),
        (replace(FORM, settings="fabric=tcp"), "fabric", "tcp"),
        (replace(FORM, settings="workdir='/srv/a b'"), "workdir", "/srv/a b"),
    ],
)
def test_nodes_class_and_settings_become_fields(
    form: LaunchForm, attribute: str, value: object
) -> None:
    assert getattr(read_form(form).request, attribute) == value


@pytest.mark.parametrize(
    ("form", "field", "error"),
    [
        (replace(FORM, node="n1", over="2"), "over", "n1 is chosen above: leave one of them out"),
        (replace(FORM, over="0"), "over", "a whole number, 1 or more"),
        (replace(FORM, settings="max_model_len"), "settings", "max_model_len: write name=value"),
        (replace(FORM, settings="max_model_len=x"), "settings", "max_model_len: a whole number"),
        (replace(FORM, settings="verify=no"), "settings", "verify: no such setting"),
        (replace(FORM, settings="max_modellen=1"), "settings", "did you mean max_model_len?"),
        (replace(FORM, settings="api_key=no"), "settings", "api_key: true or false"),
        (replace(FORM, settings="'"), "settings", "No closing quotation"),
    ],
)
def test_nodes_and_settings_that_cannot_be_read_say_why(
    form: LaunchForm, field: str, error: str
) -> None:
    reading = read_form(form)

    assert reading.request is None
    assert error in reading.errors[field]


def test_classes_are_offered_with_what_is_free_of_each() -> None:
    offered = {value: text for text, value in class_options(make_cluster())}

    assert offered
    assert all(text.startswith(name) and text.endswith("free") for name, text in offered.items())


def test_plan_shows_whether_the_model_fits_and_why_variables_are_set() -> None:
    gib = 1 << 30
    split = MemorySplit(
        *("gpu1", 2, 80 * gib, 0.9, 72 * gib, 60 * gib, 4 * gib, 4096, 1024, False),
        *(5 * gib, 3 * gib),
    )
    plan = replace(
        make_plan(REQUEST, LAUNCH_ID),
        memory=(split,),
        reasons={"gpu1": {"CUDA_VISIBLE_DEVICES": "the GPUs of this rank"}},
    )
    shown = text_of(plan_lines(plan))

    assert "gpu1  ━━━━━━━━━━━━━━━━━━━━ 100%" in shown
    assert "weights 60 + KV 4.0 + other about 8.0 of 72 GiB, 90% of a GPU" in shown
    assert "CUDA_VISIBLE_DEVICES=2,3\n      the GPUs of this rank" in shown

"""Launches over several nodes: which nodes, which GPUs, and what each rank is told."""

from dataclasses import replace
from typing import Any

import pytest

from llmgw_core.domain.engine import EngineKind, EngineState
from llmgw_core.domain.hardware import Port, PortKind
from llmgw_core.domain.inventory import Fabric, Node
from llmgw_core.domain.launch import LaunchPlan, LaunchRequest
from llmgw_core.domain.reach import Reach
from llmgw_core.planning.interfaces import ChosenInterface
from llmgw_core.planning.launch import is_launchable, plan
from llmgw_core.planning.plan_hash import hash_plan
from llmgw_core.planning.ranks import Between
from llmgw_core.planning.shell_script import render_script
from tests.support.plans import LAUNCH_ID, codes, engine, four, gpu, node, request

IB = Port(
    "mlx5_0",
    1,
    link_layer="InfiniBand",
    kind=PortKind.INFINIBAND,
    state="ACTIVE",
    rate_gbps=400.0,
    fabric="ib-one",
    usable=True,
    pkeys=("0xffff",),
)
FABRICS = (Fabric("ib-one", "infiniband", ("n1", "n2", "n3"), verdict=Reach.PROVEN),)


def joined(name: str, *ports: Port, **more: Any) -> Node:
    """Four free H100 and a port of the fabric."""
    return four(name, **more) if not ports else replace(four(name), ports=ports)


def made(asked: LaunchRequest, *nodes: Node, fabrics: tuple[Fabric, ...] = FABRICS) -> LaunchPlan:
    links = {item.name: ChosenInterface("eth0", f"10.0.0.{item.name[1:]}", "x") for item in nodes}
    return plan(asked, nodes, LAUNCH_ID, {}, between=Between(fabrics, links=links))


def words_after(argv: tuple[str, ...], flag: str) -> str | None:
    return argv[argv.index(flag) + 1] if flag in argv else None


TWO = (joined("n1", IB), joined("n2", IB))


def test_spreads_by_itself_only_where_no_node_has_so_many() -> None:
    over = made(request(tensor_parallel=4, pipeline_parallel=2), *TWO)
    within = made(request(tensor_parallel=4), *TWO)

    assert [rank.node for rank in over.ranks] == ["n1", "n2"]
    assert [rank.gpus for rank in over.ranks] == [(0, 1, 2, 3), (0, 1, 2, 3)]
    assert over.fabric == "ib-one"
    assert len(within.ranks) == 1
    assert within.ranks[0].gang is None


def test_busy_node_is_not_a_reason_to_spread() -> None:
    busy = replace(
        TWO[0], gpus=tuple(replace(item, available=item.index < 2) for item in TWO[0].gpus)
    )
    idle = replace(
        TWO[1], gpus=tuple(replace(item, available=item.index < 2) for item in TWO[1].gpus)
    )
    refused = made(request(tensor_parallel=4), busy, idle)
    asked = made(request(tensor_parallel=4, node_count=2), busy, idle)

    assert codes(refused) == {"no-free-gpus": "error"}
    assert "--node-count 2" in refused.findings[0].fix
    assert [rank.gpus for rank in asked.ranks] == [(0, 1), (0, 1)]
    assert codes(asked) == {"tp-over-nodes": "warning"}


def test_vllm_ranks_meet_at_the_first() -> None:
    ranks = made(request(tensor_parallel=8), *TWO).ranks
    head, follower = ranks

    assert [rank.engine_id for rank in ranks] == ["chat-01234567-r0", "chat-01234567-r1"]
    for rank in ranks:
        assert words_after(rank.argv, "--nnodes") == "2"
        assert words_after(rank.argv, "--node-rank") == str(rank.rank)
        assert words_after(rank.argv, "--master-addr") == "10.0.0.1"
        assert words_after(rank.argv, "--master-port") == str(head.ports[0])
        assert words_after(rank.argv, "--tensor-parallel-size") == "8"
        assert rank.env["VLLM_HOST_IP"] == f"10.0.0.{rank.rank + 1}"
        assert rank.env["GLOO_SOCKET_IFNAME"] == "eth0"
        assert rank.env["NCCL_IB_HCA"] == "=mlx5_0:1"
        assert rank.gang is not None
        assert [item.address for item in rank.gang.members] == ["10.0.0.1", "10.0.0.2"]
    assert "--headless" in follower.argv
    assert "--headless" not in head.argv
    assert head.port == 8000
    assert follower.port is None
    assert "--port" not in follower.argv
    assert follower.ports == ()


def test_vllm_replicas_meet_by_their_own_address() -> None:
    head, follower = made(request(tensor_parallel=2, data_parallel=4), *TWO).ranks

    assert "--nnodes" not in head.argv
    assert words_after(head.argv, "--data-parallel-size") == "4"
    assert words_after(head.argv, "--data-parallel-size-local") == "2"
    assert words_after(follower.argv, "--data-parallel-start-rank") == "2"
    assert words_after(follower.argv, "--data-parallel-address") == "10.0.0.1"
    assert "--headless" in follower.argv


def test_sglang_follower_answers_on_a_port_of_its_own() -> None:
    asked = request(engine=EngineKind.SGLANG, tensor_parallel=8, host="10.0.0.1")
    head, follower = made(asked, *TWO).ranks

    assert words_after(follower.argv, "--dist-init-addr") == f"10.0.0.1:{head.ports[0]}"
    assert words_after(follower.argv, "--nnodes") == "2"
    assert words_after(follower.argv, "--host") == "127.0.0.1"
    assert words_after(follower.argv, "--port") == str(follower.ports[0])
    assert follower.port is None
    assert len(set(head.ports)) == len(head.ports) > 6
    assert not set(head.ports) & set(follower.ports)
    assert follower.env["SGLANG_HOST_IP"] == "10.0.0.2"


def test_sglang_replicas_over_nodes_need_its_own_way() -> None:
    asked = request(engine=EngineKind.SGLANG, tensor_parallel=4, data_parallel=2)

    assert codes(made(asked, *TWO))["sglang-dp-nodes"] == "error"
    assert is_launchable(made(replace(asked, args=("--enable-dp-attention",)), *TWO))


def test_only_nodes_of_one_fabric() -> None:
    alone = replace(TWO[1], name="n3", ports=(replace(IB, fabric="ib-two"),))
    refused = made(request(tensor_parallel=8), TWO[0], alone)
    three = made(request(tensor_parallel=8), TWO[0], alone, TWO[1])
    tcp = made(request(tensor_parallel=8, fabric="tcp"), TWO[0], alone)

    assert codes(refused) == {"no-common-fabric": "error"}
    assert [rank.node for rank in three.ranks] == ["n1", "n2"]
    assert is_launchable(tcp)
    assert codes(tcp) == {"plain-tcp": "warning", "tp-over-nodes": "warning"}
    assert tcp.ranks[0].env["NCCL_NET"] == "Socket"
    assert "NCCL_IB_HCA" not in tcp.ranks[0].env


def test_a_proven_fabric_goes_before_a_faster_one_that_is_not() -> None:
    fast = replace(IB, hca="mlx5_1", fabric="ib-two", rate_gbps=800.0)
    nodes = tuple(replace(item, ports=(IB, fast)) for item in TWO)
    fabrics = (*FABRICS, Fabric("ib-two", "infiniband", ("n1", "n2"), verdict=Reach.POSSIBLE))

    assert made(request(tensor_parallel=8), *nodes, fabrics=fabrics).fabric == "ib-one"
    untried = made(request(tensor_parallel=8, fabric="ib-two"), *nodes, fabrics=fabrics)
    assert untried.fabric == "ib-two"
    assert codes(untried)["fabric-unproven"] == "warning"


def test_named_nodes_in_their_order() -> None:
    ranks = made(request(tensor_parallel=8, nodes=("n2", "n1")), *TWO).ranks

    assert [(rank.node, rank.rank) for rank in ranks] == [("n2", 0), ("n1", 1)]
    assert ranks[1].gang is not None
    assert ranks[1].gang.members[0].address == "10.0.0.2"


def test_named_gpus_on_each_node() -> None:
    ranks = made(request(tensor_parallel=4, nodes=("n1", "n2"), gpus=(1, 3)), *TWO).ranks

    assert [rank.gpus for rank in ranks] == [(1, 3), (1, 3)]
    assert [rank.env["CUDA_VISIBLE_DEVICES"] for rank in ranks] == ["1,3", "1,3"]


def test_gpus_near_the_fabrics_adapter_come_first() -> None:
    far = [gpu(index, pci_bus_id=f"0000:0{index}:00.0") for index in range(4)]
    near = replace(IB, nearest_gpus=("0000:02:00.0", "0000:03:00.0"))
    nodes = [replace(node(name, *far), ports=(near,)) for name in ("n1", "n2")]

    ranks = made(request(tensor_parallel=4, node_count=2), *nodes).ranks

    assert [rank.gpus for rank in ranks] == [(2, 3), (2, 3)]


def test_cpu_engine_over_two_nodes_needs_no_fabric() -> None:
    asked = request(gpu_count=0, tensor_parallel=2, nodes=("n1", "n2"))
    cpu = made(asked, node("n1"), node("n2"))

    assert is_launchable(cpu)
    assert cpu.fabric is None
    assert all(not any(name.startswith("NCCL") for name in rank.env) for rank in cpu.ranks)
    assert cpu.ranks[0].env["GLOO_SOCKET_IFNAME"] == "eth0"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"node_count": 0}, "node-count"),
        ({"nodes": ("n1", "n1")}, "node-twice"),
        ({"nodes": ("n1", "n2"), "node": "n1"}, "node-twice"),
        ({"nodes": ("n1", "n2"), "node_count": 3}, "node-count"),
        ({"node": "n1", "node_count": 2}, "node-count"),
        ({"node": "n1", "fabric": "ib-one"}, "fabric-alone"),
        ({"node_count": 3, "tensor_parallel": 4}, "split"),
        ({"node_count": 4, "tensor_parallel": 4}, "too-few-nodes"),
        ({"nodes": ("n1", "n7"), "tensor_parallel": 2}, "node-unknown"),
        ({"node_count": 2, "tensor_parallel": 2, "fabric": "ib-none"}, "no-common-fabric"),
        (
            {"node_count": 2, "tensor_parallel": 2, "args": ("--distributed-executor-backend", "ray")},
            "ray-nodes",
        ),
        ({"node_count": 2, "tensor_parallel": 2, "args": ("-dpa", "x")}, "args-owned"),
        ({"node_count": 2, "tensor_parallel": 16}, "no-free-gpus"),
    ],
)  # fmt: skip
def test_refuses(changes: dict[str, Any], code: str) -> None:
    refused = made(request(**changes), *TWO)

    assert codes(refused).get(code) == "error"
    assert not is_launchable(refused)


def test_cards_of_two_classes_are_refused() -> None:
    other = replace(TWO[1], gpus=tuple(gpu(index, "l40s-45g", "8.9") for index in range(4)))
    refused = made(request(tensor_parallel=8, gpus=(0, 1, 2, 3), nodes=("n1", "n2")), TWO[0], other)

    assert codes(refused)["mixed-classes"] == "error"
    assert codes(made(request(tensor_parallel=8), TWO[0], other)) == {"no-free-gpus": "error"}


def test_drivers_that_differ_are_told() -> None:
    nodes = (replace(TWO[0], driver_version="550.1"), replace(TWO[1], driver_version="570.2"))

    assert codes(made(request(tensor_parallel=8), *nodes))["driver-differs"] == "warning"


def test_operators_own_network_variable_wins_and_is_told() -> None:
    own = made(request(tensor_parallel=8, env={"NCCL_IB_HCA": "mlx5"}), *TWO)

    assert own.ranks[0].env["NCCL_IB_HCA"] == "mlx5"
    assert own.reasons["n1"]["NCCL_IB_HCA"] == "asked for by the launch"
    assert codes(own)["network-env"] == "warning"


def test_every_variable_has_its_reason() -> None:
    plan_ = made(request(tensor_parallel=8, model="/m", env={"A": "b"}), *TWO)

    for rank in plan_.ranks:
        assert set(plan_.reasons[rank.node]) == set(rank.env)
        assert "set by llmgw" not in plan_.reasons[rank.node].values()


def test_the_same_request_gives_the_same_plan() -> None:
    first = made(request(tensor_parallel=8), *TWO)
    again = replace(made(request(tensor_parallel=8), *TWO), launch_id="f" * 32)

    assert hash_plan(first) == hash_plan(again)
    assert hash_plan(first) != hash_plan(made(request(tensor_parallel=8, nodes=("n2", "n1")), *TWO))


def test_an_address_that_nobody_knows_is_told() -> None:
    guessed = plan(request(tensor_parallel=8), TWO, LAUNCH_ID, {}, between=Between(FABRICS))

    assert codes(guessed)["address-unknown"] == "warning"


def test_script_has_a_block_for_each_rank() -> None:
    script = render_script(made(request(tensor_parallel=8), *TWO))

    assert "# rank 0 of 2 on n1" in script
    assert "# rank 1 of 2 on n2" in script


def test_a_rank_that_may_live_elsewhere_stops_a_launch_in_its_place() -> None:
    left = replace(engine("chat", EngineState.STOPPED), id="chat-00000009-r0", ranks=2)
    back = replace(left, id="chat-00000009-r1", rank=1)
    nodes = (replace(TWO[0], engines=(left,)), TWO[1], node("n3", reachable=False))
    asked = request(tensor_parallel=8)

    assert codes(made(asked, *nodes))["not-fenced"] == "error"
    assert is_launchable(made(replace(asked, overrides=("not-fenced",)), *nodes))
    # All of it is heard of, or no node is silent, or it is another's.
    assert is_launchable(made(asked, nodes[0], replace(TWO[1], engines=(back,)), nodes[2]))
    assert is_launchable(made(asked, *nodes[:2]))
    assert is_launchable(made(replace(asked, name="other"), *nodes))

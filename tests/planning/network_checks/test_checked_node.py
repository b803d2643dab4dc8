"""What a node grants the ranks of a launch, judged before it."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmgw_core.domain import network as net
from llmgw_core.domain.findings import Severity
from llmgw_core.domain.hardware import Port, PortKind, PortNote
from llmgw_core.domain.network import (
    Limit,
    NodeNetwork,
    SharedMemory,
)
from llmgw_core.planning.network_checks import run_checks
from llmgw_core.planning.network_checks.stacks import find_stacks
from llmgw_core.planning.network_checks.versions import find_nccl
from tests.support.situations import (
    CURED,
    ERROR,
    INFO,
    WARNING,
    facts,
    found,
    ib,
    launch,
    pair,
    roce,
    says,
    side,
)


def test_adapter_that_one_node_may_not_open_is_an_error() -> None:
    shut = ib("mlx5_1", 9, usable=False, uverbs="uverbs1", uverbs_access="EACCES")
    shut = replace(shut, excluded=PortNote("no-access", ""))
    alike = replace(shut, gid=None)

    uneven = launch(side("a", ib(number=1), ib("mlx5_1", 3)), side("b", ib(number=2), shut))
    even = launch(side("a", ib(number=1), alike), side("b", ib(number=2), shut))

    assert says(uneven, "uverbs-access") == [(ERROR, "b")]
    assert says(even, "uverbs-access") == [(WARNING, "a"), (WARNING, "b")]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"memlock": Limit(8 << 20, 8 << 20)}, [(ERROR, "a")]),
        ({"memlock": Limit(64 << 20, net.UNLIMITED), "container": "docker"}, [(ERROR, "a")]),
        ({"memlock": Limit(64 << 30, 64 << 30)}, [(WARNING, "a")]),
        ({"memlock": Limit(8 << 20, 8 << 20), "may_lock_memory": True}, []),
        ({"memlock": None}, []),
    ],
)
def test_locked_memory(changes: dict[str, object], expected: list[tuple[Severity, str]]) -> None:
    assert says(launch(*pair(**changes)), "memlock") == expected


@pytest.mark.parametrize(
    ("memory", "gpus", "expected"),
    [
        (SharedMemory(64 << 20, 64 << 20), 4, [(ERROR, "a")]),
        (SharedMemory(64 << 20, 64 << 20), 1, []),
        (SharedMemory(16 << 30, 1 << 20, 412), 8, [(ERROR, "a")]),
        (SharedMemory(16 << 30, 16 << 30, 3), 8, [(INFO, "a")]),
        (SharedMemory(768 << 20, 768 << 20), 8, [(WARNING, "a")]),
    ],
)
def test_shared_memory_matters_among_several_gpus(
    memory: SharedMemory, gpus: int, expected: list[tuple[Severity, str]]
) -> None:
    first, second = pair(shared_memory=memory)

    assert says(launch(replace(first, gpu_count=gpus), second), "shm") == expected


@pytest.mark.parametrize(
    ("peers", "nccl", "expected"),
    [
        (("nvidia_peermem 570.86.15",), (2, 22, 3), [(WARNING, "a")]),
        (("nvidia_peermem 570.86.15",), (2, 23, 4), []),
        ((), (2, 27, 3), [(INFO, "a")]),
    ],
)
def test_module_for_gpu_memory(
    peers: tuple[str, ...], nccl: tuple[int, ...], expected: list[tuple[Severity, str]]
) -> None:
    assert says(launch(*pair(peer_memory=peers), nccl=nccl), "gdr") == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"iommu_groups": {"DMA-FQ": 12}}, [(WARNING, "a")]),
        ({"iommu_groups": {"DMA-FQ": 12}, "virtual_machine": True}, []),
        ({"iommu_groups": {}}, []),
        ({"iommu_groups": None}, []),
    ],
)
def test_translating_iommu_on_bare_metal(
    changes: dict[str, object], expected: list[tuple[Severity, str]]
) -> None:
    assert says(launch(*pair(**changes)), "iommu-acs") == expected


def test_two_versions_of_nccl() -> None:
    case = launch(*pair(packages={"nvidia-nccl-cu12": "2.21.5", "torch": "2.5.1"}))

    (told,) = found(case, "nccl-version")

    assert told.severity is WARNING
    assert "2.21.5 on a; 2.27.3 on b" in told.what


def test_version_is_read_from_what_is_installed() -> None:
    assert find_nccl({"nvidia-nccl-cu12": "2.27.3", "torch": "2.8.0"}) == (2, 27, 3)
    assert find_nccl({"torch": "2.8.0"}) is None
    assert find_nccl(None) is None


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"verbs_library": False}, [(ERROR, "a")]),
        ({"verbs_providers": ("bnxt_re",)}, [(ERROR, "a")]),
        ({"verbs_library": None}, []),
    ],
)
def test_verbs_library_and_its_driver(
    changes: dict[str, object], expected: list[tuple[Severity, str]]
) -> None:
    assert says(launch(*pair(**changes)), "verbs-userland") == expected


def test_efa_without_its_plugin_would_go_by_tcp() -> None:
    port = Port("rdmap79s0", 1, "Unknown", PortKind.EFA, "ACTIVE")
    bare = launch(side("a", port), side("b", port), kind=None)
    fitted = [
        side(name, port, network=facts(net_plugins=("libnccl-net-ofi.so",))) for name in ("a", "b")
    ]

    assert says(bare, "efa-plugin") == [(ERROR, "a"), (ERROR, "b")]
    assert says(launch(*fitted, kind=None), "efa-plugin") == []
    alone = side("a", network=facts(net_plugins=("libnccl-net-ofi.so",)))
    assert says(launch(alone, is_single=True), "efa-plugin") == [(INFO, "a")]


def test_other_stacks_are_told_where_they_are_asked_for_and_not_set() -> None:
    wanted = {"wants_kv_transfer": True, "wants_deepep": True}
    told = {**CURED, "UCX_NET_DEVICES": "mlx5_0:1,eth0", "NVSHMEM_HCA_LIST": "mlx5_0:1"}

    assert (
        says(launch(*pair(), **wanted), "sibling-stacks")
        == [(WARNING, "a")] * 2 + [(WARNING, "b")] * 2
    )
    cured = [replace(one, env=told) for one in pair()]
    assert says(launch(*cured, **wanted), "sibling-stacks") == []


@pytest.mark.parametrize(
    ("args", "env", "expected"),
    [
        (("--kv-transfer-config", '{"kv_connector":"NixlConnector"}'), {}, (True, False)),
        (("--disaggregation-mode=prefill",), {}, (True, False)),
        (("--all2all-backend", "deepep_low_latency"), {}, (False, True)),
        (("--moe-a2a-backend", "deepep"), {}, (False, True)),
        (("--enable-deepep-moe",), {}, (False, True)),
        ((), {"VLLM_ALL2ALL_BACKEND": "deepep_high_throughput"}, (False, True)),
        (("--all2all-backend", "naive"), {}, (False, False)),
        (("--served-model-name", "deepep"), {}, (False, False)),
    ],
)
def test_which_stacks_a_request_asks_for(
    args: tuple[str, ...], env: dict[str, str], expected: tuple[bool, bool]
) -> None:
    assert find_stacks(args, env) == expected


def test_one_node_is_told_of_adapters_that_nccl_may_stumble_over() -> None:
    broken = roce(usable=False, excluded=PortNote("no-gid", "its GID table is empty"))

    assert says(launch(side("a", broken), is_single=True, kind=None), "single-node") == [
        (INFO, "a")
    ]


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.builds(NodeNetwork), st.dictionaries(st.sampled_from(sorted(CURED)), st.text()))
def test_no_word_of_a_node_breaks_a_check(network: NodeNetwork, env: dict[str, str]) -> None:
    one = side("a", roce(), ib("mlx5_2", 7), network=network, env=env, asked=frozenset(env))

    run_checks(launch(one, side("b", roce(ip=0x0A000002)), wants_kv_transfer=True))

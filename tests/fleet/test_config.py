"""cluster.toml and the choice between it, `--nodes` and this machine."""

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from llmgw_core.errors import ConfigError, UsageError
from llmgw_core.fleet.cluster_file import parse_cluster
from llmgw_core.fleet.config import Target, load_cluster, select_targets, targets_from_nodeset

CLUSTER = """\
[defaults]
user = "ops"   # everywhere
jump = "bastion"
env = { LLMGW_STATE_DIR = "/scratch/llmgw" }

[[nodes]]
name = "gpu[1-2,10]"
address = "{name}.rack1"
fabric = "rack1"

[[nodes]]
name = "store[1-2]"
address = "10.0.0.[7-8]"
port = 2222
user = "root"

[[nodes]]
name = "here"
transport = "local"
[nodes.env]
LLMGW_SYSFS_ROOT = "/x"
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.toml"
    path.write_text(CLUSTER, "utf-8")
    return path


def by_name(targets: tuple[Target, ...]) -> dict[str, Target]:
    return {target.name: target for target in targets}


def test_nodes_come_in_natural_order(cluster: Path) -> None:
    names = [target.name for target in load_cluster(cluster)]

    assert names == ["gpu1", "gpu2", "gpu10", "here", "store1", "store2"]


def test_address_template_and_address_set_are_expanded(cluster: Path) -> None:
    targets = by_name(load_cluster(cluster))

    assert (targets["gpu10"].address, targets["store2"].address) == ("gpu10.rack1", "10.0.0.8")


def test_a_table_wins_over_the_defaults(cluster: Path) -> None:
    targets = by_name(load_cluster(cluster))

    assert (targets["gpu1"].user, targets["store1"].user) == ("ops", "root")


def test_environments_of_defaults_and_table_are_merged(cluster: Path) -> None:
    targets = by_name(load_cluster(cluster))

    assert targets["here"].env == {
        "LLMGW_STATE_DIR": "/scratch/llmgw",
        "LLMGW_SYSFS_ROOT": "/x",
    }


def test_local_transport_has_no_address(cluster: Path) -> None:
    assert by_name(load_cluster(cluster))["here"].address is None


@pytest.mark.parametrize(
    ("text", "line", "key", "says"),
    [
        ('[[nodes]]\nname="a"\n\n[[nodes]]\nname="b"\nprot=1\n', 6, "nodes[1].prot", "no such key"),
        ('[defaults]\nusr="x"\n[[nodes]]\nname="a"\n', 2, "defaults.usr", "no such key"),
        ('[[nodes]]\nname="a"\n[site]\nx=1\n', 3, "site", "no such key"),
        ('[[nodes]]\nname="a"\nport="22"\n', 3, "nodes[0].port", "valid integer"),
        ('[[nodes]]\nname="a"\nport=70000\n', 3, "nodes[0].port", "65535"),
        ("[[nodes]]\nport=1\n", 1, "nodes[0].name", "required"),
        ("nodes=[]\n", 1, "nodes", "at least one"),
        ('[[nodes]]\nname="a["\n', 2, "nodes[0].name", "missing bracket"),
        ('[[nodes]]\nname="a"\n[[nodes]]\nname="[a]"\n', 4, "nodes[1].name", "bad range"),
        ('[[nodes]]\nname="a"\n[[nodes]]\nname="a"\n', 4, "nodes[1].name", "listed twice"),
        ('[[nodes]]\nname="a[1-2]"\naddress="b"\n', 3, "nodes[0].address", "1 addresses for 2"),
        ('[[nodes]]\nname="a"\naddress="-oX"\n', 3, "nodes[0].address", "dash"),
        ('[[nodes]]\nname="a"\nuser="-oX"\n', 3, "nodes[0].user", "dash"),
        ('[[nodes]]\nname="a"\n[nodes.env]\nHF_TOKEN="x"\n', 3, "nodes[0].env", "secret"),
        (
            '[[nodes]]\nname="a"\ntransport="pigeon"\n',
            3,
            "nodes[0].transport",
            "'openssh' or 'local'",
        ),
        (
            '[[nodes]]\nname="a"\ntransport="local"\naddress="b"\n',
            4,
            "nodes[0].address",
            "no address",
        ),
        ("[[nodes]\n", 1, "not TOML", "Expected"),
    ],
)
def test_a_mistake_is_named_with_its_line_and_key(
    text: str, line: int, key: str, says: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_cluster(text, "cluster.toml")

    said = str(caught.value)
    assert said.startswith(f"cluster.toml:{line}")
    assert key in said
    assert says in said


def test_an_unknown_key_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_cluster('[[nodes]]\nname="a"\nprot=1\n', "cluster.toml")

    assert "port" in caught.value.fix


def test_a_secret_in_the_file_is_not_repeated() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_cluster('[[nodes]]\nname="a"\nenv={HF_TOKEN="hf_123"}\n', "cluster.toml")

    assert "hf_123" not in str(caught.value)


def test_a_file_that_is_no_text_is_a_config_error(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_bytes(b"\xff\xfe\x00")

    with pytest.raises(ConfigError, match="cannot read"):
        load_cluster(path)


def test_without_file_and_nodes_it_is_this_machine(tmp_path: Path) -> None:
    targets = select_targets(None, None, {"HOME": str(tmp_path)})

    assert targets == (Target(platform.node()),)


def test_the_flag_wins_over_the_variable(cluster: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text('[[nodes]]\nname = "x"\n', "utf-8")

    targets = select_targets(other, None, {"LLMGW_CLUSTER": str(cluster)})

    assert [target.name for target in targets] == ["x"]


def test_the_file_in_the_home_is_found(tmp_path: Path) -> None:
    path = tmp_path / ".config/llmgw/cluster.toml"
    path.parent.mkdir(parents=True)
    path.write_text('[[nodes]]\nname = "x"\n', "utf-8")

    targets = select_targets(None, None, {"HOME": str(tmp_path)})

    assert targets == (Target("x", address="x"),)


def test_a_named_file_that_is_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="LLMGW_CLUSTER"):
        select_targets(None, None, {"LLMGW_CLUSTER": str(tmp_path / "none.toml")})


def test_nodes_that_the_file_knows_are_taken_as_it_says(cluster: Path) -> None:
    targets = by_name(select_targets(cluster, "gpu2,root@new:2200", {}))

    assert targets["gpu2"].address == "gpu2.rack1"
    assert targets["new"] == Target(
        "new",
        address="new",
        user="root",
        port=2200,
        jump="bastion",
        env={"LLMGW_STATE_DIR": "/scratch/llmgw"},
    )


def test_two_ports_of_one_host_are_two_nodes() -> None:
    targets = targets_from_nodeset("root@10.0.0.1:2201,root@10.0.0.1:2202")

    assert [(target.name, target.address, target.port) for target in targets] == [
        ("10.0.0.1:2201", "10.0.0.1", 2201),
        ("10.0.0.1:2202", "10.0.0.1", 2202),
    ]


def test_two_users_of_one_node_are_refused() -> None:
    with pytest.raises(UsageError, match="twice"):
        targets_from_nodeset("root@a,ops@a")


def test_this_machine_needs_neither_pydantic_nor_clustershell_nor_asyncssh() -> None:
    program = (
        "import sys; from llmgw_core.fleet.config import select_targets; select_targets(None, None, {});"
        "print([m for m in ('pydantic', 'ClusterShell', 'asyncssh', 'asyncio') if m in sys.modules])"
    )

    said = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )

    assert said.stdout.strip() == "[]"


def test_ports_left_out_are_those_of_the_defaults_and_of_the_node(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(
        '[defaults]\nexclude_ports = ["mlx5_9"]\n[[nodes]]\nname = "a"\nexclude_ports = ["mlx5_1:2", "mlx5_9"]\n',
        "utf-8",
    )

    (target,) = load_cluster(path)

    assert target.exclude_ports == ("mlx5_9", "mlx5_1:2")


@pytest.mark.parametrize("name", ["", "mlx5_0:", "mlx5_0:0", "=mlx5_0", "mlx5_0:1,mlx5_1"])
def test_what_is_no_port_is_refused_with_its_line(tmp_path: Path, name: str) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(f'[[nodes]]\nname = "a"\nexclude_ports = ["{name}"]\n', "utf-8")

    with pytest.raises(ConfigError, match=r"cluster\.toml:3"):
        load_cluster(path)


def test_cluster_addresses_are_as_many_as_nodes(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(
        '[defaults]\ninterface = "bond0"\n[[nodes]]\nname = "g[1-2]"\ncluster_address = "10.20.0.[7-8]"\n',
        "utf-8",
    )

    targets = load_cluster(path)

    found = [(target.cluster_address, target.interface) for target in targets]
    assert found == [("10.20.0.7", "bond0"), ("10.20.0.8", "bond0")]


@pytest.mark.parametrize(
    "line",
    [
        'cluster_address = "10.20.0.[7-9]"',
        'cluster_address = "gpu1.rack"',
        'interface = "=bond0"',
        'interface = "a,b"',
    ],
)
def test_odd_places_in_the_network_are_refused_with_their_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(f'[[nodes]]\nname = "a"\n{line}\n', "utf-8")

    with pytest.raises(ConfigError, match=r"cluster\.toml:3"):
        load_cluster(path)

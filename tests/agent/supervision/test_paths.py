"""Where records are kept, and that nobody else's directory is used for them."""

import os
import stat
from pathlib import Path

import pytest

from llmgw_core.agent.paths import (
    MAX_SOCKET_PATH_BYTES,
    is_engine_id,
    read_file_system,
    resolve_cache,
    resolve_instance,
)
from llmgw_core.errors import HomeUnwritable

MOUNTS = """\
36 35 98:0 / / rw,noatime - ext4 /dev/root rw
40 36 0:40 / /home rw - nfs4 server:/home rw
41 36 0:41 / /home/me/local\\040disk rw - xfs /dev/sdb rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/x", "ext4"),
        ("/home/me", "nfs4"),
        ("/home/me/local disk/a", "xfs"),
        ("/homework", "ext4"),
    ],
)
def test_file_system_is_that_of_the_deepest_mount(path: str, kind: str) -> None:
    assert read_file_system(Path(path), MOUNTS) == kind


def test_directories_are_private(tmp_path: Path) -> None:
    instance = resolve_instance({"LLMGW_STATE_DIR": str(tmp_path / "state")})

    for path in (tmp_path / "state", instance.root, instance.engines):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700


def test_simulated_nodes_on_one_machine_do_not_share_an_instance(tmp_path: Path) -> None:
    env = {"LLMGW_STATE_DIR": str(tmp_path)}

    roots = {resolve_instance({**env, "LLMGW_SYSFS_ROOT": root}).root for root in ("/a", "/b", "")}

    assert len(roots) == 3
    assert resolve_instance(env) == resolve_instance(dict(env))


def test_long_state_directory_gets_a_short_socket(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 120)

    instance = resolve_instance({"LLMGW_STATE_DIR": str(deep)})

    assert len(os.fsencode(instance.socket)) <= MAX_SOCKET_PATH_BYTES
    assert (instance.root / "socket").read_text("utf-8") == str(instance.socket)
    assert stat.S_IMODE(instance.socket.parent.stat().st_mode) == 0o700
    instance.socket.parent.rmdir()


def test_link_in_place_of_the_state_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "state").symlink_to(tmp_path / "real")

    with pytest.raises(HomeUnwritable, match="LLMGW_STATE_DIR"):
        resolve_instance({"LLMGW_STATE_DIR": str(tmp_path / "state")})


def test_file_in_the_way_of_the_state_directory_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", "utf-8")

    with pytest.raises(HomeUnwritable, match="file"):
        resolve_instance({"LLMGW_STATE_DIR": str(tmp_path / "file" / "state")})


def test_cache_is_where_it_is_told_to_be(tmp_path: Path) -> None:
    assert resolve_cache({"LLMGW_CACHE_DIR": str(tmp_path / "c")}) == tmp_path / "c"
    assert resolve_cache({"HOME": str(tmp_path)}) == tmp_path / ".cache/llmgw"


@pytest.mark.parametrize("text", ["", "..", "../x", "a/b", ".hidden", "a..b", "x" * 129, "a\n"])
def test_what_is_no_plain_file_name_is_no_engine_id(text: str) -> None:
    assert not is_engine_id(text)


def test_engine_id_of_a_gang_is_one() -> None:
    assert is_engine_id("llama-70b-0a1b2c3d-r1")

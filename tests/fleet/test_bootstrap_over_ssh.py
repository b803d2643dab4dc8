"""What a node's login, shell and Python can be like, over both ways of SSH: it works, or both say the same of it."""

import asyncio
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from llmgw_core.errors import NodeError
from llmgw_core.fleet.bootstrap import bootstrap
from llmgw_core.fleet.bundle import build_bundle
from llmgw_core.fleet.config import Target
from llmgw_core.fleet.openssh import OpenSshHops, OpenSshTransport
from llmgw_core.fleet.ssh import SshTransport
from llmgw_core.fleet.ssh_dial import JumpHosts
from llmgw_core.fleet.transport import Transport
from tests.support.sshd import MakeSshd, Sshd, ssh_environ

pytestmark = pytest.mark.slow
DEADLINE_S = 40.0
OLD_PYTHON = "#!/bin/sh\nprintf 3.6.8\n"
NEEDED = ("sh", "env", "timeout", "true")


def by_asyncssh(sshd: Sshd) -> Transport:
    return SshTransport(Target("n1", address="node"), ssh_environ(sshd.ssh_config), JumpHosts())


def by_openssh(sshd: Sshd) -> Transport:
    return OpenSshTransport(
        Target("n1", address="node"), ssh_environ(sshd.ssh_config), OpenSshHops()
    )


WAYS = pytest.mark.parametrize("reach", [by_asyncssh, by_openssh])
Reach = Callable[[Sshd], Transport]


async def start_agent(way: Transport) -> NodeError | None:
    """The error with which no agent comes about; None: it is there."""
    try:
        channel = await way.open_shell()
        async with asyncio.timeout(DEADLINE_S):
            agent = await bootstrap(channel, build_bundle(), None, (), "n1")
        await agent.close()
    except NodeError as error:
        return error
    finally:
        await way.close()
    return None


def force(folder: Path, script: str) -> str:
    """The sshd_config line by which every login runs this script instead of what it asked for."""
    path = folder / "forced"
    path.write_text(f"#!/bin/sh\n{script}\n", "utf-8")
    path.chmod(0o755)
    return f"ForceCommand {path}"


def only_tools(folder: Path, **more: str) -> Path:
    """A directory for PATH with what a shell needs and these programs."""
    folder.mkdir()
    for name in NEEDED:
        (folder / name).symlink_to(shutil.which(name) or name)
    for name, text in more.items():
        (folder / name).write_text(text, "utf-8")
        (folder / name).chmod(0o755)
    return folder


@WAYS
async def test_a_noisy_shell_is_passed_over(
    make_sshd: MakeSshd, tmp_path: Path, reach: Reach
) -> None:
    line = force(tmp_path, "echo Welcome; echo oh >&2; printf 'no end of line '; exec sh -s")

    assert await start_agent(reach(make_sshd(lines=[line]))) is None


@WAYS
@pytest.mark.parametrize(
    "script",
    ["echo This account is for backups only.; exit 1", "echo For backups only. >&2; exit 1"],
)
async def test_a_forced_command_is_quoted(
    make_sshd: MakeSshd, tmp_path: Path, reach: Reach, script: str
) -> None:
    error = await start_agent(reach(make_sshd(lines=[force(tmp_path, script)])))

    assert error is not None
    assert error.code == "bootstrap"
    assert "backups only" in error.why


@WAYS
async def test_no_python_is_told(make_sshd: MakeSshd, tmp_path: Path, reach: Reach) -> None:
    bare = only_tools(tmp_path / "bin")
    line = force(tmp_path, f"PATH={bare} exec sh -s")

    error = await start_agent(reach(make_sshd(lines=[line])))

    assert error is not None
    assert (error.code, error.why) == ("no-python", "none at all")


@WAYS
async def test_an_old_python_is_told(make_sshd: MakeSshd, tmp_path: Path, reach: Reach) -> None:
    old = only_tools(tmp_path / "bin", python3=OLD_PYTHON)
    line = force(tmp_path, f"PATH={old} exec sh -s")

    error = await start_agent(reach(make_sshd(lines=[line])))

    assert error is not None
    assert error.code == "no-python"
    assert f"{old}/python3 is 3.6.8" in error.why


@WAYS
async def test_no_space_is_told(make_sshd: MakeSshd, tmp_path: Path, reach: Reach) -> None:
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "llmgw-test", str(place)]
    process = await asyncio.create_subprocess_exec(*mount, stderr=subprocess.DEVNULL)
    if await process.wait() != 0:
        pytest.skip("a small file system needs root to mount it")
    try:
        error = await start_agent(reach(make_sshd(env={"LLMGW_CACHE_DIR": str(place)})))
    finally:
        done = await asyncio.create_subprocess_exec("umount", "-l", str(place))
        await done.wait()

    assert error is not None
    assert error.code == "disk-full"
    assert str(place) in error.why

"""SshTransport against a real sshd: what works, and what an operator is told where it does not."""

import asyncio
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, AsyncIterator

import pytest

from llmgw_core.errors import (
    AuthRefused,
    ConfigError,
    ConnectionDropped,
    ConnectRefused,
    ConnectTimeout,
    HostKeyChanged,
    HostKeyUnknown,
    LlmgwError,
    NameUnresolved,
    Unreachable,
)
from llmgw_core.fleet.config import Target
from llmgw_core.fleet.ssh import SshChannel, SshTransport
from llmgw_core.fleet.ssh_dial import JumpHosts
from llmgw_core.fleet.transport import shell_command
from tests.support.sshd import MakeSshd, Sshd, free_port, make_key, run_script, ssh_environ

pytestmark = pytest.mark.slow
DEADLINE_S = 20.0


def environ(sshd: Sshd, **more: str) -> dict[str, str]:
    return ssh_environ(sshd.ssh_config, **more)


def transport(sshd: Sshd, **options: Any) -> SshTransport:
    return SshTransport(Target("n1", address=sshd.alias, **options), environ(sshd), JumpHosts())


@asynccontextmanager
async def opened(way: SshTransport) -> AsyncIterator[SshChannel]:
    try:
        channel = await asyncio.wait_for(way.open_shell(), DEADLINE_S)
        yield channel
        await channel.close()
    finally:
        await way.close()


async def refusal(way: SshTransport) -> LlmgwError:
    """The error that opening a shell ends with."""
    try:
        with pytest.raises(LlmgwError) as caught:
            await asyncio.wait_for(way.open_shell(), DEADLINE_S)
    finally:
        await way.close()
    return caught.value


async def test_a_shell_reads_its_script_from_the_channel(make_sshd: MakeSshd) -> None:
    async with opened(transport(make_sshd())) as channel:
        said = await run_script(channel, "printf '%s\\n' \"a b\" $((6 * 7))")

    assert said == b"a b\n42\n"


async def test_bytes_that_are_no_text_pass_unchanged(make_sshd: MakeSshd) -> None:
    async with opened(transport(make_sshd())) as channel:
        said = await run_script(channel, "printf '\\377\\000\\376'")

    assert said == b"\xff\x00\xfe"


async def test_stderr_is_kept_apart(make_sshd: MakeSshd) -> None:
    async with opened(transport(make_sshd())) as channel:
        said = await run_script(channel, "echo trouble >&2; sleep 0.1; echo fine")

        assert (said, channel.stderr_tail()) == (b"fine\n", b"trouble\n")


async def test_more_than_a_window_of_stderr_does_not_stop_stdout(make_sshd: MakeSshd) -> None:
    async with opened(transport(make_sshd())) as channel:
        said = await run_script(channel, "head -c 5000000 /dev/zero >&2; echo fine")

    assert said == b"fine\n"


async def test_environment_of_the_target_reaches_the_shell(make_sshd: MakeSshd) -> None:
    way = transport(make_sshd(), env={"LLMGW_SYSFS_ROOT": "/a b/'c'"})

    async with opened(way) as channel:
        said = await run_script(channel, 'echo "$LLMGW_SYSFS_ROOT"')

    assert said == b"/a b/'c'\n"


def test_environment_is_set_in_a_way_every_login_shell_reads() -> None:
    assert shell_command({"A": "b c"}) == "env 'A=b c' sh -s"


@pytest.mark.faults
async def test_max_sessions_one_is_enough(make_sshd: MakeSshd) -> None:
    async with opened(transport(make_sshd(lines=["MaxSessions 1"]))) as channel:
        assert await run_script(channel, "echo fine") == b"fine\n"


async def test_a_node_that_allows_no_session_is_told_apart(make_sshd: MakeSshd) -> None:
    error = await refusal(transport(make_sshd(lines=["MaxSessions 0"])))

    assert isinstance(error, Unreachable)
    assert "MaxSessions" in error.fix


async def test_forwarding_is_not_needed(make_sshd: MakeSshd) -> None:
    sshd = make_sshd(lines=["DisableForwarding yes"])

    async with opened(transport(sshd)) as channel:
        assert await run_script(channel, "echo fine") == b"fine\n"


async def test_user_port_and_key_of_the_target_win_over_ssh_config(make_sshd: MakeSshd) -> None:
    sshd = make_sshd()
    config = sshd.ssh_config.read_text("utf-8")
    config = config.replace(f"Port {sshd.port}", "Port 9").replace(
        f"User {sshd.user}", "User nobody"
    )
    sshd.ssh_config.write_text(config.replace(str(sshd.client_key), "/nonexistent"), "utf-8")
    way = transport(sshd, user=sshd.user, port=sshd.port, identity_file=str(sshd.client_key))

    async with opened(way) as channel:
        assert await run_script(channel, "echo fine") == b"fine\n"


async def test_missing_files_and_comments_in_ssh_config_are_no_errors(make_sshd: MakeSshd) -> None:
    sshd = make_sshd()
    with sshd.ssh_config.open("a") as config:
        config.write("  IdentityFile /nonexistent/key # an old one\n  PKCS11Provider none\n")
        config.write("  ControlMaster auto\n  ControlPath /tmp/x-%C\n")

    async with opened(transport(sshd)) as channel:
        assert await run_script(channel, "echo fine") == b"fine\n"


async def test_without_an_openssh_client_ssh_config_is_read_all_the_same(
    make_sshd: MakeSshd,
) -> None:
    sshd = make_sshd()
    way = SshTransport(
        Target("n1", address=sshd.alias), environ(sshd, PATH="/nonexistent"), JumpHosts()
    )

    async with opened(way) as channel:
        assert await run_script(channel, "echo fine") == b"fine\n"


async def test_a_mistake_in_ssh_config_is_named_with_its_line(make_sshd: MakeSshd) -> None:
    sshd = make_sshd()
    sshd.ssh_config.write_text("Host *\n  Prot 22\n", "utf-8")

    error = await refusal(transport(sshd))

    assert isinstance(error, ConfigError)
    assert f"{sshd.ssh_config}: line 2" in error.why
    assert error.node == "n1"


async def test_an_unknown_host_key_is_refused_with_its_fingerprint(make_sshd: MakeSshd) -> None:
    sshd = make_sshd()
    sshd.known_hosts.unlink()

    error = await refusal(transport(sshd))

    assert isinstance(error, HostKeyUnknown)
    assert "SHA256:" in error.why
    assert "ssh node" in error.fix


@pytest.mark.parametrize("word", ["no", "accept-new"])
async def test_an_unknown_host_key_is_refused_even_where_ssh_config_would_take_it(
    make_sshd: MakeSshd, word: str
) -> None:
    sshd = make_sshd()
    sshd.known_hosts.unlink()
    with sshd.ssh_config.open("a") as config:
        config.write(f"  StrictHostKeyChecking {word}\n")

    error = await refusal(transport(sshd))

    assert isinstance(error, HostKeyUnknown)
    assert "is not followed" in error.why
    assert not sshd.known_hosts.exists()


@pytest.mark.faults
async def test_a_changed_host_key_is_never_offered_to_be_accepted(
    make_sshd: MakeSshd, tmp_path: Path
) -> None:
    sshd = make_sshd()
    other = make_key(tmp_path / "other").with_suffix(".pub").read_text("utf-8")
    sshd.known_hosts.write_text(f"[{sshd.address}]:{sshd.port} {other}", "utf-8")

    error = await refusal(transport(sshd))

    assert isinstance(error, HostKeyChanged)
    assert "CHANGED" in error.what
    assert f"ssh-keygen -R '[{sshd.address}]:{sshd.port}' -f {sshd.known_hosts}" in error.fix


async def test_a_revoked_host_key_is_refused(make_sshd: MakeSshd) -> None:
    sshd = make_sshd()
    sshd.known_hosts.write_text(f"@revoked {sshd.known_hosts.read_text('utf-8')}", "utf-8")

    error = await refusal(transport(sshd))

    assert isinstance(error, HostKeyChanged)
    assert "revoked" in error.why


async def test_a_malformed_line_costs_only_itself(make_sshd: MakeSshd) -> None:
    sshd = make_sshd()
    good = sshd.known_hosts.read_text("utf-8")
    sshd.known_hosts.write_text(f"torn\n@nonsense a b\n|1|x|y ssh-rsa z\n{good}", "utf-8")

    async with opened(transport(sshd)) as channel:
        assert await run_script(channel, "echo fine") == b"fine\n"


async def test_a_key_that_is_not_allowed_is_named(make_sshd: MakeSshd, tmp_path: Path) -> None:
    sshd = make_sshd()
    wrong = make_key(tmp_path / "wrong")
    sshd.ssh_config.write_text(
        sshd.ssh_config.read_text("utf-8").replace(str(sshd.client_key), str(wrong)), "utf-8"
    )

    error = await refusal(transport(sshd))

    assert isinstance(error, AuthRefused)
    assert str(wrong) in error.why
    assert "publickey" in error.why


async def test_a_key_with_a_passphrase_is_named(make_sshd: MakeSshd, tmp_path: Path) -> None:
    sshd = make_sshd()
    locked = make_key(tmp_path / "locked", passphrase="not used")  # noqa: S106 - a test's own key
    sshd.ssh_config.write_text(
        sshd.ssh_config.read_text("utf-8").replace(str(sshd.client_key), str(locked)), "utf-8"
    )

    error = await refusal(transport(sshd))

    assert isinstance(error, AuthRefused)
    assert f"{locked} needs a passphrase" in error.why


async def test_a_closed_port_is_refused(make_sshd: MakeSshd) -> None:
    error = await refusal(transport(make_sshd(), port=free_port()))

    assert isinstance(error, ConnectRefused)


async def test_a_name_that_does_not_resolve_is_named(make_sshd: MakeSshd) -> None:
    sshd = make_sshd()
    way = SshTransport(Target("n1", address="nowhere.invalid"), environ(sshd), JumpHosts())

    error = await refusal(way)

    assert isinstance(error, NameUnresolved)
    assert "nowhere.invalid" in error.what


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def cutting_port() -> Iterator[int]:
    """A port that cuts every connection at once."""
    server = socket.create_server(("127.0.0.1", 0))

    def cut() -> None:
        while True:
            try:
                server.accept()[0].close()
            except OSError:
                return

    thread = threading.Thread(target=cut)
    thread.start()
    with closing(server):
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
    thread.join()


async def test_a_silent_port_is_told_from_no_answer(make_sshd: MakeSshd, silent_port: int) -> None:
    sshd = make_sshd()
    with sshd.ssh_config.open("a") as config:
        config.write("  ConnectTimeout 1\n")

    error = await refusal(transport(sshd, port=silent_port))

    assert isinstance(error, ConnectTimeout)
    assert "does not speak SSH" in error.what


async def test_a_cut_before_login_is_told(make_sshd: MakeSshd, cutting_port: int) -> None:
    error = await refusal(transport(make_sshd(), port=cutting_port))

    assert "before login" in error.what


async def test_no_common_algorithm_is_told(make_sshd: MakeSshd) -> None:
    sshd = make_sshd(lines=["KexAlgorithms sntrup761x25519-sha512@openssh.com"])

    error = await refusal(transport(sshd))

    assert "no algorithm in common" in error.what


async def test_a_lost_connection_ends_the_read_with_an_error(make_sshd: MakeSshd) -> None:
    sshd = make_sshd()
    async with opened(transport(sshd)) as channel:
        await run_script(channel, "echo fine")

        sshd.drop_connections()

        with pytest.raises(ConnectionDropped):
            await asyncio.wait_for(channel.read(1), DEADLINE_S)


async def test_a_shell_that_ends_ends_the_read(make_sshd: MakeSshd) -> None:
    async with opened(transport(make_sshd(lines=["ForceCommand exit 3"]))) as channel:
        assert await asyncio.wait_for(channel.read(1), DEADLINE_S) == b""


@pytest.mark.faults
async def test_jump_host_is_shared_by_the_nodes_behind_it(make_sshd: MakeSshd) -> None:
    bastion, node = make_sshd(alias="bastion"), make_sshd()
    with node.ssh_config.open("a") as config:
        config.write("  ProxyJump bastion\n\n" + bastion.ssh_config.read_text("utf-8"))
    jumps = JumpHosts()
    ways = [
        SshTransport(Target(f"n{number}", address="node"), environ(node), jumps)
        for number in range(4)
    ]

    channels = await asyncio.gather(*(way.open_shell() for way in ways))
    said = await asyncio.gather(*(run_script(channel, "echo fine") for channel in channels))
    logins = bastion.log.count("Accepted publickey")
    for channel, way in zip(channels, ways, strict=True):
        await channel.close()
        await way.close()

    assert (said, logins) == ([b"fine\n"] * 4, 1)


async def test_what_is_wrong_with_a_jump_host_is_said_of_it(make_sshd: MakeSshd) -> None:
    bastion, node = make_sshd(alias="bastion"), make_sshd()
    bastion.known_hosts.unlink()
    with node.ssh_config.open("a") as config:
        config.write("\n" + bastion.ssh_config.read_text("utf-8"))

    error = await refusal(transport(node, jump="bastion"))

    assert isinstance(error, HostKeyUnknown)
    assert error.what.startswith("jump host bastion")
    assert error.node == "n1"


async def test_a_jump_host_that_may_not_forward_is_told(make_sshd: MakeSshd) -> None:
    bastion = make_sshd(alias="bastion", lines=["AllowTcpForwarding no"])
    node = make_sshd()
    with node.ssh_config.open("a") as config:
        config.write("\n" + bastion.ssh_config.read_text("utf-8"))

    error = await refusal(transport(node, jump="bastion"))

    assert "jump host bastion does not connect" in error.what


async def test_a_loop_of_jump_hosts_is_an_error(make_sshd: MakeSshd) -> None:
    sshd = make_sshd()
    sshd.ssh_config.write_text("Host a\n ProxyJump b\nHost b\n ProxyJump a\n", "utf-8")

    error = await refusal(SshTransport(Target("n1", address="a"), environ(sshd), JumpHosts()))

    assert isinstance(error, ConfigError)
    assert "form a loop" in error.what


@pytest.mark.faults
async def test_a_proxy_command_may_talk_on_stderr(make_sshd: MakeSshd) -> None:
    sshd = make_sshd()
    relay = "import socket,sys,os,threading; s=socket.create_connection((sys.argv[1],int(sys.argv[2])));"
    relay += "sys.stderr.write('noise');sys.stderr.flush();"
    relay += "t=threading.Thread(target=lambda:[os.write(1,b) for b in iter(lambda:s.recv(9999),b'')],daemon=True);t.start();"
    relay += "[s.sendall(b) for b in iter(lambda:os.read(0,9999),b'')]"
    script = sshd.root / "relay.py"
    script.write_text(relay, "utf-8")
    with sshd.ssh_config.open("a") as config:
        config.write(f"  ProxyCommand python3 {script} %h %p\n")

    async with opened(transport(sshd)) as channel:
        assert await run_script(channel, "echo fine") == b"fine\n"


async def test_the_last_words_of_a_proxy_command_are_told(make_sshd: MakeSshd) -> None:
    sshd = make_sshd()
    with sshd.ssh_config.open("a") as config:
        config.write("  ProxyCommand echo the gateway is closed >&2; exit 1\n")

    error = await refusal(transport(sshd))

    assert "the gateway is closed" in error.why


def test_no_warning_of_a_library_meets_the_operator() -> None:
    command = [sys.executable, "-c", "import llmgw_core.fleet.ssh"]

    assert subprocess.run(command, capture_output=True, check=True).stderr == b""

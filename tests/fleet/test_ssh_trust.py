"""Keys, agents, certificates and dead links: what SshTransport trusts and what it says when it does not."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from llmgw_core.errors import (
    AuthRefused,
    ConnectionDropped,
    HostKeyChanged,
    HostKeyUnknown,
    LlmgwError,
)
from llmgw_core.fleet import ssh_dial
from llmgw_core.fleet.config import Target
from llmgw_core.fleet.ssh import SshTransport
from llmgw_core.fleet.ssh_config import Destination, parse_jump, parse_ssh_g
from llmgw_core.fleet.ssh_dial import JumpHosts
from tests.support.sshd import MakeSshd, Sshd, make_key, ssh_environ, wait_until

DEADLINE_S = 20.0
RSA_KEY = (
    "ssh-rsa "
    "AAAAB3NzaC1yc2EAAAADAQABAAABAQCkkKfwWX2wuqZSW2ooQzuWkxS5eG+U1pRf5PI34oXoFtYBy5dI"
    "/Q6KMSGca/apZyI9BYcnkNYmdGUd45pRtg+XVF01qNMJePvY6qIesCXklaD6CU0eFBxABIF5356w18mk"
    "V4RZyn39kX5J5Mrhk/vMUGg7s3QUuKR6pmJjIFvdPWhwJSNb+kO5vKxx5gJpXOnXKrEt93JvSqOGmVZE"
    "yD5TJVjLJgrfM92ljPwp82mcKZBPVcG50VYqdUBbwxqQYp7qH/HZc2vMdzvWAOnROOlnejYUKnrRJZg8"
    "hjOGwRMEu4M9N8Tma8TzvJpx9e9lJhaKG5ah2VL7K9o2KqJL1GqF"
)


def transport(sshd: Sshd, **environ: str) -> SshTransport:
    return SshTransport(
        Target("n1", address=sshd.alias), ssh_environ(sshd.ssh_config, **environ), JumpHosts()
    )


async def outcome(way: SshTransport) -> LlmgwError | None:
    """The error that opening a shell ends with; None: it opens."""
    try:
        channel = await asyncio.wait_for(way.open_shell(), DEADLINE_S)
        await channel.close()
    except LlmgwError as error:
        return error
    finally:
        await way.close()
    return None


def change_config(sshd: Sshd, old: str, new: str) -> None:
    text = sshd.ssh_config.read_text("utf-8")
    assert old in text
    sshd.ssh_config.write_text(text.replace(old, new), "utf-8")


@pytest.fixture
def agent_socket(tmp_path: Path) -> Iterator[Path]:
    """The socket of an ssh-agent without keys."""
    socket = tmp_path / "agent"
    process = subprocess.Popen(["ssh-agent", "-D", "-a", str(socket)], stdout=subprocess.DEVNULL)
    yield socket
    process.terminate()
    process.wait()


def add_key(socket: Path, key: Path) -> None:
    wait_until(socket.exists, "the agent listens")
    environ = {**os.environ, "SSH_AUTH_SOCK": str(socket)}
    subprocess.run(["ssh-add", "-q", str(key)], env=environ, check=True, capture_output=True)


@pytest.mark.slow
async def test_a_key_that_only_the_agent_has_logs_in(
    make_sshd: MakeSshd, agent_socket: Path
) -> None:
    sshd = make_sshd()
    add_key(agent_socket, sshd.client_key)
    change_config(sshd, "IdentityAgent none", "IdentityAgent SSH_AUTH_SOCK")
    public = sshd.client_key.with_suffix(".pub")
    change_config(sshd, f"IdentityFile {sshd.client_key}", f"IdentityFile {public}")

    assert await outcome(transport(sshd, SSH_AUTH_SOCK=str(agent_socket))) is None


@pytest.mark.slow
async def test_a_dead_agent_does_not_keep_a_key_file_from_logging_in(
    make_sshd: MakeSshd, tmp_path: Path
) -> None:
    sshd = make_sshd()
    change_config(sshd, "IdentityAgent none", f"IdentityAgent {tmp_path / 'gone'}")

    assert await outcome(transport(sshd)) is None


@pytest.mark.slow
async def test_a_node_that_takes_passwords_alone_says_so(make_sshd: MakeSshd) -> None:
    sshd = make_sshd(lines=["PubkeyAuthentication no", "PasswordAuthentication yes"])

    error = await outcome(transport(sshd))

    assert isinstance(error, AuthRefused)
    assert "it offers password" in error.why
    assert "by key alone" in error.fix


@pytest.fixture
def certify(tmp_path: Path) -> Callable[[Path, str], Path]:
    """Signs a host key by an authority of the test's own; returns the authority's public key."""
    authority = make_key(tmp_path / "authority")

    def sign(host_key: Path, validity: str) -> Path:
        argv = ["ssh-keygen", "-q", "-s", str(authority), "-I", "node", "-h", "-n", "127.0.0.1"]
        public = str(host_key.with_suffix(".pub"))
        subprocess.run([*argv, "-V", validity, public], check=True, capture_output=True)
        return authority.with_suffix(".pub")

    return sign


def make_certified(make_sshd: MakeSshd, certify: Callable[[Path, str], Path], when: str) -> Sshd:
    """An sshd with a host certificate, and a known_hosts that trusts its authority alone."""
    sshd: Sshd = make_sshd()
    sshd.stop()
    authority = certify(sshd.host_key, when)
    with (sshd.root / "sshd_config").open("a") as config:
        config.write(f"HostCertificate {sshd.root / 'host_key-cert.pub'}\n")
    sshd.start()
    sshd.known_hosts.write_text(f"@cert-authority * {authority.read_text('utf-8')}", "utf-8")
    return sshd


@pytest.mark.slow
async def test_a_host_certificate_of_a_trusted_authority_is_taken(
    make_sshd: MakeSshd, certify: Callable[[Path, str], Path]
) -> None:
    assert await outcome(transport(make_certified(make_sshd, certify, "-1h:+1h"))) is None


@pytest.mark.slow
async def test_an_expired_host_certificate_is_refused_with_the_reason(
    make_sshd: MakeSshd, certify: Callable[[Path, str], Path]
) -> None:
    error = await outcome(transport(make_certified(make_sshd, certify, "-2h:-1h")))

    assert isinstance(error, HostKeyChanged)
    assert "expired" in error.why


@pytest.mark.slow
async def test_a_host_key_of_another_kind_than_recorded_has_changed(make_sshd: MakeSshd) -> None:
    sshd = make_sshd()
    sshd.known_hosts.write_text(f"[{sshd.address}]:{sshd.port} {RSA_KEY}\n", "utf-8")

    error = await outcome(transport(sshd))

    assert isinstance(error, HostKeyChanged)
    assert "ssh-ed25519 SHA256:" in error.why


@pytest.mark.slow
async def test_a_plain_key_where_an_authority_is_trusted_is_unknown(
    make_sshd: MakeSshd, tmp_path: Path
) -> None:
    sshd = make_sshd()
    authority = make_key(tmp_path / "authority").with_suffix(".pub").read_text("utf-8")
    sshd.known_hosts.write_text(f"@cert-authority * {authority}", "utf-8")

    error = await outcome(transport(sshd))

    assert isinstance(error, HostKeyUnknown)
    assert "authority" in error.why


def hash_entries(known_hosts: Path) -> None:
    argv = ["ssh-keygen", "-q", "-H", "-f", str(known_hosts)]
    subprocess.run(argv, check=True, capture_output=True)


@pytest.mark.slow
async def test_a_hashed_entry_of_known_hosts_is_found(make_sshd: MakeSshd) -> None:
    sshd = make_sshd()
    hash_entries(sshd.known_hosts)

    assert sshd.known_hosts.read_text("utf-8").startswith("|1|")
    assert await outcome(transport(sshd)) is None


@pytest.mark.slow
async def test_a_host_key_alias_is_looked_up_instead_of_the_address(make_sshd: MakeSshd) -> None:
    sshd = make_sshd()
    key = sshd.host_key.with_suffix(".pub").read_text("utf-8")
    sshd.known_hosts.write_text(f"[rack1-n1]:{sshd.port} {key}", "utf-8")
    with sshd.ssh_config.open("a") as config:
        config.write("  HostKeyAlias rack1-n1\n")

    assert await outcome(transport(sshd)) is None


@pytest.mark.slow
@pytest.mark.faults
async def test_a_frozen_node_is_noticed_by_its_silence(
    make_sshd: MakeSshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh_dial, "KEEPALIVE_S", 0.1)
    way = transport(make_sshd())
    channel = await way.open_shell()
    await channel.write(b"echo $PPID\n")
    session = int(await channel.read(20))

    os.kill(session, signal.SIGSTOP)

    with pytest.raises(ConnectionDropped, match="nothing came back"):
        await asyncio.wait_for(channel.read(1), DEADLINE_S)
    await channel.close()
    await way.close()


def test_tokens_of_ssh_config_are_expanded() -> None:
    said = (
        "hostname 10.0.0.7\nport 2222\nuser ops\nidentityfile ~/.ssh/%r@%h\n"
        "identityfile none\nproxycommand nc %h %p %%\nuserknownhostsfile ~/.ssh/kh_%k none\n"
        "identityagent ${AGENT}\nstricthostkeychecking accept-new\nconnecttimeout 3\n"
    )

    settings = parse_ssh_g(said, Destination("n7"), {"HOME": "/home/a", "AGENT": "/run/agent"})

    assert settings.identity_files == ("/home/a/.ssh/ops@10.0.0.7",)
    assert settings.proxy_command == "nc 10.0.0.7 2222 %"
    assert settings.known_hosts_files == ("/home/a/.ssh/kh_n7",)
    assert (settings.agent, settings.connect_timeout_s) == ("/run/agent", 3.0)


@pytest.mark.parametrize(
    ("text", "hops"),
    [
        ("bastion", (Destination("bastion"),)),
        ("a@b:3,c", (Destination("b", "a", 3), Destination("c"))),
        ("ssh://a@b:3", (Destination("b", "a", 3),)),
        ("a@[fd00::1]:3", (Destination("fd00::1", "a", 3),)),
    ],
)
def test_jump_hosts_are_read_as_ssh_reads_them(text: str, hops: tuple[Destination, ...]) -> None:
    assert parse_jump(text) == hops

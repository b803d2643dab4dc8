"""The system's `ssh` as a way to a node: the same bytes and the same messages as llmgw's own SSH, against a real sshd."""

import asyncio
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from llmgw_core.errors import LlmgwError
from llmgw_core.fleet.bootstrap import bootstrap
from llmgw_core.fleet.bundle import build_bundle
from llmgw_core.fleet.cluster_file import parse_cluster
from llmgw_core.fleet.config import Target
from llmgw_core.fleet.fleet import default_transport
from llmgw_core.fleet.openssh import OpenSshHops, OpenSshTransport
from llmgw_core.fleet.ssh import SshTransport
from llmgw_core.fleet.ssh_config import Destination, parse_ssh_g
from llmgw_core.fleet.ssh_dial import JumpHosts
from llmgw_core.fleet.transport import Transport
from tests.support.ports import answering, cut, say_nothing, speak_http
from tests.support.sshd import (
    MakeSshd,
    Sshd,
    free_port,
    make_key,
    run_script,
    ssh_environ,
    wait_until,
)

pytestmark = pytest.mark.slow
DEADLINE_S = 20.0


def openssh(sshd: Sshd, jumps: OpenSshHops | None = None, **options: object) -> OpenSshTransport:
    target = Target("n1", address=sshd.alias, **options)  # type: ignore[arg-type] # as given
    return OpenSshTransport(target, ssh_environ(sshd.ssh_config), jumps or OpenSshHops())


async def outcome(way: Transport) -> LlmgwError | None:
    """The error with which a shell does not come about; None: it answers, or ended by itself."""
    try:
        channel = await asyncio.wait_for(way.open_shell(), DEADLINE_S)
        await channel.write(b"echo\n")
        await asyncio.wait_for(channel.read(1), DEADLINE_S)
        await channel.close()
    except LlmgwError as error:
        return error
    finally:
        await way.close()
    return None


def add_config(sshd: Sshd, *lines: str) -> None:
    with sshd.ssh_config.open("a") as config:
        config.write("\n".join(lines) + "\n")


def change_config(sshd: Sshd, old: str, new: str) -> None:
    text = sshd.ssh_config.read_text("utf-8")
    assert old in text
    sshd.ssh_config.write_text(text.replace(old, new), "utf-8")


async def test_bytes_pass_unchanged_and_stderr_is_kept_apart(make_sshd: MakeSshd) -> None:
    way = openssh(make_sshd(), env={"A_B": "it's 1"})
    channel = await way.open_shell()

    said = await run_script(channel, 'echo oh >&2; sleep 0.1; printf "\\377\\000\\r~.$A_B"')

    assert (said, channel.stderr_tail()) == (b"\xff\x00\r~.it's 1", b"oh\n")
    await way.close()


async def test_the_agent_is_put_there_and_answers(make_sshd: MakeSshd) -> None:
    sshd = make_sshd()
    way = openssh(sshd)
    channel = await bootstrap(await way.open_shell(), build_bundle(), None, (), "n1")

    await channel.close()
    await way.close()

    assert list((sshd.root / "cache" / "agent").iterdir())


async def test_nothing_of_it_is_left_when_it_is_closed(
    make_sshd: MakeSshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    sshd = make_sshd()
    way = openssh(sshd)
    await run_script(await way.open_shell(), "true")

    await way.close()

    assert list(scratch.iterdir()) == []
    wait_until(lambda: sshd.pids() == [], "no session is left on the node")


# --- the same trouble, by both ways ---

Prepare = Callable[[MakeSshd, ExitStack, Path], Sshd]
SITUATIONS: dict[str, tuple[Prepare, str, str]] = {}


def situation(code: str, text: str) -> Callable[[Prepare], Prepare]:
    """Both ways shall fail with this code and these words."""

    def note(prepare: Prepare) -> Prepare:
        SITUATIONS[prepare.__name__] = (prepare, code, text)
        return prepare

    return note


def at_port(make: MakeSshd, port: int, *lines: str) -> Sshd:
    sshd: Sshd = make()
    change_config(sshd, f"Port {sshd.port}", f"Port {port}")
    add_config(sshd, *lines)
    return sshd


@situation("host-key-unknown", "ssh-ed25519 SHA256:")
def unknown_key(make: MakeSshd, _: ExitStack, __: Path) -> Sshd:
    sshd: Sshd = make()
    sshd.known_hosts.unlink()
    add_config(sshd, "  StrictHostKeyChecking no")
    return sshd


@situation("host-key-changed", "has CHANGED")
def changed_key(make: MakeSshd, _: ExitStack, path: Path) -> Sshd:
    sshd: Sshd = make()
    other = make_key(path / "other").with_suffix(".pub").read_text("utf-8")
    sshd.known_hosts.write_text(f"[{sshd.address}]:{sshd.port} {other}", "utf-8")
    return sshd


@situation("host-key-changed", "revoked")
def revoked_key(make: MakeSshd, _: ExitStack, __: Path) -> Sshd:
    sshd: Sshd = make()
    text = sshd.known_hosts.read_text("utf-8")
    sshd.known_hosts.write_text(f"{text}@revoked {text}", "utf-8")
    return sshd


@situation("auth", "tried ")
def refused_login_key(make: MakeSshd, _: ExitStack, __: Path) -> Sshd:
    sshd: Sshd = make()
    (sshd.root / "authorized_keys").write_text("", "utf-8")
    return sshd


@situation("auth", "there was no key to try")
def no_login_key(make: MakeSshd, _: ExitStack, __: Path) -> Sshd:
    sshd: Sshd = make()
    change_config(sshd, str(sshd.client_key), "/nowhere/key")
    return sshd


@situation("auth", "asks for nothing")
def passwords_alone(make: MakeSshd, _: ExitStack, __: Path) -> Sshd:
    sshd: Sshd = make(lines=["PubkeyAuthentication no", "PasswordAuthentication yes"])
    return sshd


@situation("timeout", "does not speak SSH")
def silent_port(make: MakeSshd, ending: ExitStack, _: Path) -> Sshd:
    port = ending.enter_context(answering(say_nothing))
    return at_port(make, port, "  ConnectTimeout 1")


@situation("timeout", "did not answer in 1 s")
def full_backlog(make: MakeSshd, ending: ExitStack, _: Path) -> Sshd:
    import socket

    # Connections beyond the backlog of a listener that accepts none are dropped, as a firewall drops them.
    server = ending.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
    for _each in range(3):
        filler = ending.enter_context(socket.socket())
        filler.setblocking(False)
        filler.connect_ex(server.getsockname())
    return at_port(make, server.getsockname()[1], "  ConnectTimeout 1")


@situation("refused", "nothing listens")
def closed_port(make: MakeSshd, _: ExitStack, __: Path) -> Sshd:
    return at_port(make, free_port())


@situation("dns", "nowhere.invalid")
def no_such_name(make: MakeSshd, _: ExitStack, __: Path) -> Sshd:
    sshd: Sshd = make()
    change_config(sshd, f"HostName {sshd.address}", "HostName nowhere.invalid")
    return sshd


@situation("login-cut", "before login")
def cutting_port(make: MakeSshd, ending: ExitStack, _: Path) -> Sshd:
    return at_port(make, ending.enter_context(answering(cut)))


@situation("login-cut", "before login")
def proxy_that_ends(make: MakeSshd, _: ExitStack, __: Path) -> Sshd:
    sshd: Sshd = make()
    add_config(sshd, "  ProxyCommand echo the gateway is closed >&2; exit 1")
    return sshd


@situation("unreachable", "no algorithm in common")
def no_common_algorithm(make: MakeSshd, _: ExitStack, __: Path) -> Sshd:
    sshd: Sshd = make(lines=["KexAlgorithms sntrup761x25519-sha512@openssh.com"])
    add_config(sshd, "  KexAlgorithms curve25519-sha256")
    return sshd


@situation("unreachable", "MaxSessions")
def no_sessions(make: MakeSshd, _: ExitStack, __: Path) -> Sshd:
    sshd: Sshd = make(lines=["MaxSessions 0"])
    return sshd


@situation("host-key-unknown", "jump host bastion")
def jump_host_with_unknown_key(make: MakeSshd, _: ExitStack, __: Path) -> Sshd:
    bastion, sshd = make(alias="bastion"), make()
    bastion.known_hosts.unlink()
    add_config(sshd, "  ProxyJump bastion", "", bastion.ssh_config.read_text("utf-8"))
    return sshd


@situation("refused", "jump host bastion")
def jump_host_that_is_down(make: MakeSshd, _: ExitStack, __: Path) -> Sshd:
    bastion, sshd = make(alias="bastion"), make()
    bastion.stop()
    add_config(sshd, "  ProxyJump bastion", "", bastion.ssh_config.read_text("utf-8"))
    return sshd


@situation("unreachable", "does not connect to")
def jump_host_that_may_not_forward(make: MakeSshd, _: ExitStack, __: Path) -> Sshd:
    bastion, sshd = make(alias="bastion", lines=["AllowTcpForwarding no"]), make()
    add_config(sshd, "  ProxyJump bastion", "", bastion.ssh_config.read_text("utf-8"))
    return sshd


@situation("config", "form a loop")
def loop_of_jump_hosts(make: MakeSshd, _: ExitStack, __: Path) -> Sshd:
    sshd: Sshd = make()
    sshd.ssh_config.write_text("Host node\n ProxyJump b\nHost b\n ProxyJump node\n", "utf-8")
    return sshd


@pytest.fixture
def ending() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.mark.parametrize("name", SITUATIONS)
async def test_both_ways_tell_the_same_trouble_in_the_same_words(
    make_sshd: MakeSshd, ending: ExitStack, tmp_path: Path, name: str
) -> None:
    prepare, code, text = SITUATIONS[name]
    sshd = prepare(make_sshd, ending, tmp_path)
    environ = ssh_environ(sshd.ssh_config)
    target = Target("n1", address=sshd.alias)

    own = await outcome(SshTransport(target, environ, JumpHosts()))
    system = await outcome(OpenSshTransport(target, environ, OpenSshHops()))

    assert own is not None
    assert system is not None
    assert (own.code, system.code) == (code, code), system.message
    assert system.what == own.what
    for error in (own, system):
        assert text in f"{error.what}; {error.why}; {error.fix}"
        assert error.node == "n1"


async def test_a_web_server_is_told_from_a_node(make_sshd: MakeSshd, ending: ExitStack) -> None:
    sshd = at_port(make_sshd, ending.enter_context(answering(speak_http)))

    error = await outcome(openssh(sshd))

    assert error is not None
    assert error.code == "login-cut"


async def test_a_shell_that_ends_by_itself_is_no_lost_connection(make_sshd: MakeSshd) -> None:
    assert await outcome(openssh(make_sshd(lines=["ForceCommand exit 255"]))) is None


async def test_a_node_cannot_forge_what_ssh_says(make_sshd: MakeSshd) -> None:
    lie = "echo Host key verification failed. >&2; exit 255"

    assert await outcome(openssh(make_sshd(lines=[f"ForceCommand {lie}"]))) is None


async def test_a_lost_connection_is_told(make_sshd: MakeSshd) -> None:
    sshd = make_sshd()
    way = openssh(sshd)
    channel = await way.open_shell()
    await run_script(channel, "true")

    sshd.drop_connections()

    with pytest.raises(LlmgwError) as caught:
        await asyncio.wait_for(channel.read(1), DEADLINE_S)
    assert caught.value.code == "dropped"
    await way.close()


async def test_jump_host_is_shared_by_the_nodes_behind_it_over_the_systems_ssh(
    make_sshd: MakeSshd,
) -> None:
    bastion, node = make_sshd(alias="bastion"), make_sshd()
    add_config(node, "  ProxyJump bastion", "", bastion.ssh_config.read_text("utf-8"))
    jumps = OpenSshHops()
    ways = [openssh(node, jumps) for _ in range(4)]

    channels = await asyncio.gather(*(way.open_shell() for way in ways))
    said = await asyncio.gather(*(run_script(channel, "echo fine") for channel in channels))
    logins = bastion.log.count("Accepted publickey")
    await asyncio.gather(*(way.close() for way in ways))

    assert (said, logins) == ([b"fine\n"] * 4, 1)
    wait_until(lambda: bastion.pids() == [], "the connection to the jump host ends with the last")


async def test_a_jump_host_that_went_is_dialled_anew(make_sshd: MakeSshd) -> None:
    bastion, node = make_sshd(alias="bastion"), make_sshd()
    add_config(node, "  ProxyJump bastion", "", bastion.ssh_config.read_text("utf-8"))
    jumps = OpenSshHops()
    first, second = openssh(node, jumps), openssh(node, jumps)
    channel = await first.open_shell()
    bastion.drop_connections()
    with pytest.raises(LlmgwError):
        await asyncio.wait_for(channel.read(1), DEADLINE_S)

    assert await outcome(second) is None
    await first.close()


def control(sshd: Sshd, *words: str) -> None:
    """What an operator does by hand; succeeds."""
    subprocess.run(
        ["ssh", "-F", str(sshd.ssh_config), *words, "node"],
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


async def test_the_operators_own_connection_is_shared_and_survives(
    make_sshd: MakeSshd, tmp_path: Path
) -> None:
    sshd = make_sshd()
    add_config(sshd, f"  ControlPath {tmp_path / 'cm'}", "  ControlMaster auto")
    control(sshd, "-fNM")
    (sshd.root / "authorized_keys").write_text("", "utf-8")  # no login by key from now on

    assert await outcome(openssh(sshd)) is None
    assert await outcome(openssh(sshd)) is None

    assert sshd.log.count("Accepted publickey") == 1
    control(sshd, "-O", "exit")


async def test_a_node_that_asks_for_more_is_told_how_to_share_a_connection(
    make_sshd: MakeSshd,
) -> None:
    sshd = make_sshd(lines=["PubkeyAuthentication no", "PasswordAuthentication yes"])

    own = await outcome(
        SshTransport(Target("n1", address="node"), ssh_environ(sshd.ssh_config), JumpHosts())
    )

    assert own is not None
    assert 'transport = "openssh"' in own.fix
    assert "ControlPersist" in own.fix


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("pkcs11provider /usr/lib/opensc-pkcs11.so", "PKCS#11"),
        ("gssapiauthentication yes", "GSSAPI"),
        ("controlpath /home/a/.ssh/cm-%C", "ControlPath"),
        ("identityfile {fido}", "FIDO"),
    ],
)
def test_what_only_openssh_can_do_is_named(tmp_path: Path, said: str, name: str) -> None:
    kerberos = tmp_path / "krb5.conf"
    kerberos.touch()
    (tmp_path / "yubi.pub").write_text("sk-ssh-ed25519@openssh.com AAAA me", "utf-8")
    environ = {"HOME": str(tmp_path), "KRB5_CONFIG": str(kerberos)}

    settings = parse_ssh_g(said.format(fido=tmp_path / "yubi"), Destination("n"), environ)

    assert [name in one for one in settings.only_openssh] == [True]


def test_gssapi_is_not_named_where_kerberos_was_never_set_up(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "KRB5_CONFIG": str(tmp_path / "none")}

    settings = parse_ssh_g("gssapiauthentication yes\n", Destination("n"), environ)

    assert settings.only_openssh == ()


def test_cluster_toml_chooses_the_transport_for_each_node() -> None:
    text = '[[nodes]]\nname = "a"\ntransport = "openssh"\n[[nodes]]\nname = "b"\n'

    ways = [default_transport(target) for target in parse_cluster(text, "c.toml").targets]

    assert [type(way).__name__ for way in ways] == ["OpenSshTransport", "SshTransport"]

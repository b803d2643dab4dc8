"""Bootstrap by real shells and real Pythons: from nothing to an agent that answers, or to one clear error."""

import asyncio
import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from llmgw_core.errors import BootstrapFailed, DiskFull, HomeUnwritable, NodeError, NoPython
from llmgw_core.fleet import bootstrap as module
from llmgw_core.fleet.bootstrap import bootstrap, make_script, read_program
from llmgw_core.fleet.bundle import build_bundle
from llmgw_core.fleet.client import AgentClient
from llmgw_core.fleet.local import LocalTransport
from llmgw_core.fleet.transport import Channel
from tests.support.agents import AgentHome, agent_home, wait_for
from tests.support.channels import CountingChannel, ScriptedChannel

pytestmark = pytest.mark.slow
SHELLS = {
    "sh": ["sh", "-s"],
    "dash": ["dash", "-s"],
    "bash": ["bash", "-s"],
    "bash --posix": ["bash", "--posix", "-s"],
    "zsh": ["zsh", "-s"],
    "busybox": ["busybox", "sh", "-s"],
    "ksh": ["ksh", "-s"],
}
OLD_PYTHON = "#!/bin/sh\nprintf 3.6.8\n"


@pytest.fixture
def home(tmp_path: Path) -> Iterator[AgentHome]:
    with agent_home(tmp_path / "home") as made:
        yield made


@asynccontextmanager
async def agent(
    home: AgentHome, shell: list[str] | None = None, python: str | None = None
) -> AsyncIterator[AgentClient]:
    """A client of the agent of that home, by way of a shell."""
    transport = LocalTransport(home.env, shell or ["sh", "-s"])
    channel = await transport.open_shell()
    client = None
    try:
        carrier = await bootstrap(channel, build_bundle(), python or sys.executable, (), "n07")
        client = AgentClient(carrier, "n07")
        await client.start()
        yield client
    finally:
        if client is not None:
            await client.close()
        await transport.close()


async def fail(home: AgentHome, shell: list[str] | None = None, **env: str) -> NodeError:
    """The error of a bootstrap that cannot work."""
    transport = LocalTransport({**home.env, **env}, shell or ["sh", "-s"])
    channel = await transport.open_shell()
    try:
        with pytest.raises(NodeError) as caught:
            await bootstrap(channel, build_bundle(), None, (), "n07")
    finally:
        await transport.close()
    return caught.value


def tools(folder: Path, **programs: str) -> str:
    """A directory for PATH that holds these scripts and nothing else."""
    folder.mkdir()
    for name, text in programs.items():
        path = folder / name.replace("_", ".")
        path.write_text(text, "utf-8")
        path.chmod(0o755)
    return str(folder)


def shelf(home: AgentHome) -> Path:
    return Path(home.env["LLMGW_CACHE_DIR"]) / "agent"


@pytest.mark.parametrize("name", SHELLS)
@pytest.mark.faults
async def test_agent_answers_by_way_of_this_shell(home: AgentHome, name: str) -> None:
    if shutil.which(SHELLS[name][0]) is None:
        pytest.skip(f"{name} is not installed here")

    async with agent(home, SHELLS[name]) as client:
        assert client.hello.bundle == build_bundle().hash
        assert (await client.inventory()).reachable


async def test_second_bootstrap_uploads_nothing(home: AgentHome) -> None:
    sent = []
    for _ in range(2):
        transport = LocalTransport(home.env)
        channel = CountingChannel(await transport.open_shell())
        await bootstrap(channel, build_bundle(), sys.executable, (), "n07")
        sent.append(channel.sent_bytes)
        await transport.close()

    assert sent[0] > len(build_bundle().data)
    assert sent[1] < 16_000


@pytest.mark.faults
async def test_proxy_ends_with_the_console_and_the_daemon_stays(home: AgentHome) -> None:
    async with agent(home) as client:
        pid = client.hello.pid

    assert home.daemon_pid == pid
    wait_for(lambda: proxies(home) == [], "the proxy is gone")


def proxies(home: AgentHome) -> list[str]:
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    own = str(shelf(home))
    return [line for line in listed.stdout.splitlines() if own in line and "proxy" in line]


async def test_noise_of_a_login_shell_is_passed_over(home: AgentHome) -> None:
    noisy = "echo 'Welcome!'; echo 'LLMGW1 wrong {\"ok\": false}'; printf 'no newline '; exec sh -s"

    async with agent(home, ["sh", "-c", noisy]) as client:
        assert client.hello.uid == os.getuid()


async def test_shell_that_is_none_is_quoted(home: AgentHome) -> None:
    nologin = "echo 'This account is currently not available.'; echo oops >&2; exit 1"

    error = await fail(home, ["sh", "-c", nologin])

    assert type(error) is BootstrapFailed
    assert "stdout: This account is currently not available." in error.why
    assert "stderr: oops" in error.why
    assert error.node == "n07"


async def test_shell_that_never_stops_printing_is_cut_off(home: AgentHome) -> None:
    error = await fail(home, ["sh", "-c", "while :; do echo spam spam spam spam spam; done"])

    assert error.what == "the node's login shell does not stop printing"


async def test_silent_node_is_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIND_TIMEOUT_S", 0.05)

    with pytest.raises(BootstrapFailed, match="did not get to a Python within"):
        await bootstrap(_Deaf(), build_bundle(), None, (), "n07")


class _Deaf(ScriptedChannel):
    async def write(self, data: bytes) -> None:
        """Take it and say nothing."""


@pytest.mark.faults
async def test_node_without_python_says_what_was_found(home: AgentHome, tmp_path: Path) -> None:
    path = tools(tmp_path / "bin", python3=OLD_PYTHON, python3_12="#!/bin/sh\nexit 127\n")

    error = await fail(home, [shutil.which("dash") or "/bin/sh", "-s"], PATH=path)

    assert isinstance(error, NoPython)
    assert f"{path}/python3.12 does not run" in error.why
    assert f"{path}/python3 is 3.6.8" in error.why
    assert "python" in error.fix


@pytest.mark.faults
@pytest.mark.parametrize("name", SHELLS)
async def test_python_that_hangs_is_passed_over(
    home: AgentHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    if shutil.which(SHELLS[name][0]) is None:
        pytest.skip(f"{name} is not installed here")
    monkeypatch.setattr(module, "CANDIDATE_TIMEOUT_S", 0.3)
    hanging = tmp_path / "python"
    hanging.write_text("#!/bin/sh\ntrap '' TERM\nexec sleep 600\n", "ascii")
    hanging.chmod(0o755)
    transport = LocalTransport(home.env, SHELLS[name])
    channel = await transport.open_shell()

    carrier = await bootstrap(channel, build_bundle(), str(hanging), [sys.executable], "n07")

    client = AgentClient(carrier, "n07")
    assert (await client.start()).hostname
    await client.close()
    await transport.close()


async def test_node_without_any_python_says_so(home: AgentHome, tmp_path: Path) -> None:
    path = tools(tmp_path / "bin")

    error = await fail(home, [shutil.which("dash") or "/bin/sh", "-s"], PATH=path)

    if "/usr/libexec/platform-python" not in error.why:
        assert error.why == "none at all"


async def test_python_of_an_engines_environment_is_taken_last(
    home: AgentHome, tmp_path: Path
) -> None:
    path = tools(tmp_path / "bin", python3=OLD_PYTHON)
    transport = LocalTransport({**home.env, "PATH": path}, [shutil.which("sh") or "sh", "-s"])
    channel = await transport.open_shell()

    carrier = await bootstrap(channel, build_bundle(), None, [sys.executable], "n07")

    client = AgentClient(carrier, "n07")
    hello = await client.start()
    await client.close()
    await transport.close()
    assert hello.python == ".".join(str(part) for part in sys.version_info[:3])


async def test_place_that_cannot_be_written_is_named(home: AgentHome, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")

    error = await fail(home, PATH=os.environ["PATH"], LLMGW_CACHE_DIR=str(tmp_path / "file/x"))

    assert isinstance(error, HomeUnwritable)
    assert f"{tmp_path / 'file/x'}: Not a directory" in error.why
    assert "LLMGW_CACHE_DIR" in error.fix


async def test_state_that_cannot_be_written_is_told_by_the_proxy(
    home: AgentHome, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    home.env["LLMGW_STATE_DIR"] = str(tmp_path / "file/x")
    try:
        with pytest.raises(HomeUnwritable, match="n07: there is no place for llmgw's records"):
            async with agent(home):
                pass
    finally:
        home.env["LLMGW_STATE_DIR"] = str(home.root / "state")


@contextmanager
def small_disk(place: Path) -> Iterator[None]:
    """A file system of 64 KiB."""
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "llmgw-test", str(place)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("a small file system cannot be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", str(place)], check=True)


@pytest.mark.faults
async def test_full_disk_is_told_and_leaves_nothing(home: AgentHome, tmp_path: Path) -> None:
    small = tmp_path / "small"
    with small_disk(small):
        error = await fail(home, LLMGW_CACHE_DIR=str(small))
        left = [item.name for item in (small / "agent").iterdir()]

    assert isinstance(error, DiskFull)
    assert f"{small}: No space left on device" in error.why
    assert left == []


async def test_consoles_that_bring_the_same_bundle_at_once_do_not_clash(home: AgentHome) -> None:
    async def come() -> str:
        async with agent(home) as client:
            return client.hello.bundle

    bundles = await asyncio.gather(*(come() for _ in range(6)))

    assert set(bundles) == {build_bundle().hash}
    assert [item.name for item in shelf(home).iterdir()] == [build_bundle().hash]


async def test_damaged_bundle_is_replaced(home: AgentHome) -> None:
    async with agent(home):
        pass
    victim = shelf(home) / build_bundle().hash / "llmgw_core/errors.py"
    victim.write_text("raise SystemExit('damaged')")

    async with agent(home) as client:
        assert (await client.engines()) == ()

    assert "damaged" not in victim.read_text("utf-8")


@contextmanager
def process_that_runs_from(place: Path) -> Iterator[None]:
    """A process with the path on its command line."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", str(place)])
    try:
        yield
    finally:
        process.kill()
        process.wait()


async def test_old_bundles_go_but_the_last_two_and_those_in_use(home: AgentHome) -> None:
    names = [f"{number:016x}" for number in range(5)]
    for age, name in enumerate(reversed(names), start=2):
        (shelf(home) / name).mkdir(parents=True)
        os.utime(shelf(home) / name, times=(time.time() - age * 86400,) * 2)
    with process_that_runs_from(shelf(home) / names[0]):
        async with agent(home):
            pass

    left = {item.name for item in shelf(home).iterdir()}
    assert left == {names[0], names[4], build_bundle().hash}


async def test_bundle_is_private(home: AgentHome) -> None:
    async with agent(home):
        pass

    modes = [stat.S_IMODE(path.stat().st_mode) for path in (shelf(home), *shelf(home).iterdir())]

    assert modes == [0o700, 0o700]


async def test_connection_that_breaks_midway_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    channel: Channel = _Broken()

    with pytest.raises(NodeError, match="broke while the agent was started"):
        await bootstrap(channel, build_bundle(), None, (), "n07")


class _Broken(ScriptedChannel):
    async def write(self, data: bytes) -> None:
        """Fail."""
        raise ConnectionResetError("reset by peer")

    async def read(self, n: int) -> bytes:
        """Fail too."""
        raise ConnectionResetError("reset by peer")


def test_script_ends_with_what_makes_the_shell_run_it() -> None:
    script = make_script("0" * 16, "1" * 16, "/odd path/it's", ["~/venv/bin/python"])

    assert script.endswith("}\n")
    assert "'/odd path/it'\"'\"'s'" in script
    assert '"$HOME"/venv/bin/python' in script
    assert len(script) < 16_000


@pytest.mark.parametrize("version", ["3.6", "3.8", "3.9"])
def test_program_is_understood_by_old_pythons(version: str) -> None:
    found = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    if not found:
        pytest.skip(f"no Python {version} here")

    ran = subprocess.run(
        [found[0], "-I", "-c", read_program(), "abc", "0" * 16],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.stderr == ""
    assert ran.stdout.startswith('LLMGW1 abc {"')
    assert ("no-python" in ran.stdout) == (version != "3.9")

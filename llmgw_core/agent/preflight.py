"""What a node can say of a launch before it is tried: each trouble is an error to raise or a finding to show."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator, List, Mapping, Optional, Sequence, Tuple

from llmgw_core.agent.ports import find_port_trouble, find_udp_trouble
from llmgw_core.agent.spawn import base_environment
from llmgw_core.domain.findings import Finding, Severity
from llmgw_core.domain.hardware import Unit
from llmgw_core.domain.launch import RankPlan
from llmgw_core.errors import (
    DiskFull,
    ExecutableMissing,
    GpuTaken,
    HomeUnwritable,
    LaunchError,
    LlmgwError,
    ModelMissing,
    NameTaken,
    PortTaken,
)

MIN_FREE_BYTES = 16 << 20
_EVERY_ADDRESS = "0.0.0.0"  # noqa: S104 - only tried


@dataclass(frozen=True)
class Occupant:
    """An engine that is not over, and what it occupies."""

    engine_id: str
    name: str
    ports: Tuple[int, ...]
    units: Tuple[Unit, ...]


@dataclass(frozen=True)
class Trouble:
    """One reason not to launch."""

    code: str
    subject: str
    error: LlmgwError


def find_troubles(
    rank: RankPlan, occupants: Sequence[Occupant], state: Path, env: Mapping[str, str]
) -> Tuple[Trouble, ...]:
    """Everything that stands against the launch on this node, in the order worth telling. Empty: nothing.

    Args:
        occupants: engines that are not over, other than this one.
        state: the instance's directory.
        env: the node side's environment.
    """
    found: List[Trouble] = []
    for check in (
        _check_names(rank, occupants),
        _check_state(state),
        _check_executable(rank, env),
        _check_model(rank, env),
        _check_workdir(rank),
        _check_gpus(rank, occupants),
        _check_port(rank, occupants),
        _check_gang(rank, occupants),
    ):
        found.extend(check)
    return tuple(found)


def to_finding(trouble: Trouble, node: str) -> Finding:
    """The trouble as a finding of severity error."""
    return Finding(
        trouble.code,
        Severity.ERROR,
        trouble.subject,
        trouble.error.message,
        trouble.error.fix,
        node,
        trouble.error.why,
    )


def list_ports(rank: RankPlan) -> Tuple[int, ...]:
    """Every port that a rank has or will have."""
    own = () if rank.port is None else (rank.port,)
    return (*own, *rank.ports, *(() if rank.gang is None else (rank.gang.port,)))


def base_id(engine_id: str, rank: int) -> str:
    """The part of the id that all ranks of a gang share."""
    return engine_id.removesuffix(f"-r{rank}")


def _check_names(rank: RankPlan, occupants: Sequence[Occupant]) -> Iterator[Trouble]:
    for other in occupants:
        gang = rank.ranks > 1 and other.engine_id.startswith(
            base_id(rank.engine_id, rank.rank) + "-r"
        )
        if other.name == rank.name and not gang:
            yield Trouble(
                "name-taken",
                "name",
                NameTaken(
                    f"an engine named {rank.name} is on this node already",
                    f"{other.engine_id} is not over",
                    f"stop it first (llmgw stop {rank.name}), or choose another name",
                ),
            )
            return


def _check_state(state: Path) -> Iterator[Trouble]:
    fix = f"free some space, or give another place in LLMGW_STATE_DIR ({state})"
    try:
        facts = os.statvfs(state)
    except OSError as error:
        why = f"{state}: {error.strerror}"
        yield Trouble(
            "state", "state directory", HomeUnwritable("no records can be kept", why, fix)
        )
        return
    free = facts.f_bavail * facts.f_frsize
    if free < MIN_FREE_BYTES or (facts.f_files and facts.f_favail == 0):
        why = f"{free >> 10} KiB and {facts.f_favail} inodes are left"
        yield Trouble("disk-full", "state directory", DiskFull(f"{state} is full", why, fix))
    elif not os.access(state, os.W_OK | os.X_OK) or facts.f_flag & os.ST_RDONLY:
        error_ = HomeUnwritable("no records can be kept", f"{state} is read-only", fix)
        yield Trouble("state", "state directory", error_)


def _check_executable(rank: RankPlan, env: Mapping[str, str]) -> Iterator[Trouble]:
    command = rank.argv[0] if rank.argv else ""
    path = {**base_environment(env), **rank.env}.get("PATH", "")
    if "/" in command:
        exists = Path(rank.cwd or "/", command).exists()
        usable = exists and os.access(Path(rank.cwd or "/", command), os.X_OK)
        why = "it is there and not executable" if exists else "there is no such file"
    else:
        usable = shutil.which(command, path=path) is not None
        why = f"it is in no directory of PATH ({path})"
    if not usable:
        error = ExecutableMissing(
            f"the engine's command {command!r} cannot be run",
            why,
            "name the virtual environment the engine is installed in (venv)",
        )
        yield Trouble("executable-missing", "argv", error)


def _check_model(rank: RankPlan, env: Mapping[str, str]) -> Iterator[Trouble]:
    if not rank.model.startswith(("/", ".", "~")):
        return  # a hub name
    if rank.model.startswith("~"):
        home = env.get("HOME", "/home/…")
        path_in_full = home + rank.model[1:] if rank.model.startswith("~/") else rank.model
        error = ModelMissing(
            f"the model {rank.model} is not there",
            "only a shell knows ~, and engines are started without one",
            f"write the path in full, e.g. {path_in_full}",
        )
        yield Trouble("model-missing", "model", error)
        return
    try:
        missing = not Path(rank.cwd or "/", rank.model).exists()
        why = "there is no such file or directory on this node"
    except OSError as caught:
        missing, why = True, caught.strerror or str(caught)
    if missing:
        fix = "correct the path, or copy the model to this node"
        error_ = ModelMissing(f"the model {rank.model} is not there", why, fix)
        yield Trouble("model-missing", "model", error_)


def _check_workdir(rank: RankPlan) -> Iterator[Trouble]:
    if rank.cwd is not None and not Path(rank.cwd).is_dir():
        error = LaunchError(
            f"the working directory {rank.cwd} is not there",
            "there is no such directory on this node",
            "create it, or leave workdir out",
        )
        yield Trouble("workdir-missing", "workdir", error)


def _check_gpus(rank: RankPlan, occupants: Sequence[Occupant]) -> Iterator[Trouble]:
    for unit in rank.units:
        for other in occupants:
            if unit in other.units:
                error = GpuTaken(
                    f"GPU {unit} is not free",
                    f"engine {other.engine_id} holds it",
                    f"stop {other.name}, or choose other GPUs",
                )
                yield Trouble("gpu-taken", f"GPU {unit}", error)


def _check_port(rank: RankPlan, occupants: Sequence[Occupant]) -> Iterator[Trouble]:
    wanted = [(rank.host, rank.port)] if rank.port is not None else []
    # The meeting point is bound on every address, whatever the engine is told.
    wanted += [(_EVERY_ADDRESS, port) for port in rank.ports]
    for host, port in wanted:
        why = _find_holder(port, occupants) or find_port_trouble(host, port)
        if why is not None:
            error = PortTaken(f"port {port} is not free on {host}", why, "choose another port")
            yield Trouble("port-taken", f"port {port}", error)


def _check_gang(rank: RankPlan, occupants: Sequence[Occupant]) -> Iterator[Trouble]:
    """The address by which the other ranks know this node is its own, and its port for them is free."""
    if rank.gang is None:
        return
    address, port = rank.gang.members[rank.rank].address, rank.gang.port
    holder = _find_holder(port, occupants)
    why = holder or find_udp_trouble(address, port)
    if why is None:
        return
    if holder is None and find_udp_trouble(address, 0) is not None:
        error: LlmgwError = LaunchError(
            f"{address} is no address of this node",
            why,
            "name the node's address towards its peers in cluster.toml",
        )
        yield Trouble("address", "address", error)
        return
    error = PortTaken(f"UDP port {port} is not free on {address}", why, "choose another port")
    yield Trouble("port-taken", f"port {port}", error)


def _find_holder(port: int, occupants: Sequence[Occupant]) -> Optional[str]:
    holders = (other.engine_id for other in occupants if port in other.ports)
    return next((f"engine {holder} has it" for holder in holders), None)

"""An engine's directory: made before anything runs, and removed when nothing ever did."""

import errno
import fcntl
import hashlib
import json
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Mapping, Tuple

from llmgw_core.agent.durable import sync_directory, write_durably
from llmgw_core.agent.gang_link import is_gang
from llmgw_core.agent.members import find_marked
from llmgw_core.agent.paths import EngineDir, InstancePaths, is_engine_id
from llmgw_core.agent.procfs import read_all_stats
from llmgw_core.agent.records import (
    RECORD_VERSION,
    IntentRecord,
    SpecRecord,
    TornRecord,
    read_record,
    write_record,
)
from llmgw_core.agent.spawn import start_shim
from llmgw_core.agent.times import rfc3339
from llmgw_core.domain.launch import KEY_BY_FILE, RankPlan
from llmgw_core.domain.wire import dump_json
from llmgw_core.errors import DiskFull, HomeUnwritable, LaunchError, LlmgwError


@dataclass(frozen=True)
class Apart:
    """What comes with a launch apart from its plan, which is printed and kept."""

    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    gang_key: str = field(default="", repr=False)  # hex; "" for an engine of one rank


def launch_engine(
    instance: InstancePaths,
    key: str,
    rank: RankPlan,
    apart: Apart,
    env: Mapping[str, str],
) -> EngineDir:
    """Write the records and start the engine. One whose command cannot be executed is there too, with its exit record.

    Raises:
        DiskFull, HomeUnwritable: its records cannot be written; nothing is left of it.
        LaunchError: no shim could be started; nothing is left of it.
    """
    directory = instance.engine(rank.engine_id)
    try:
        prepare_directory(directory, key, rank, apart, rfc3339())
    except OSError as error:
        remove_directory(directory.root)
        raise _unwritable(instance, rank, error) from error
    try:
        answer = start_shim(directory, env)
    except OSError as error:
        remove_directory(directory.root)
        raise _cannot_start(rank, error.strerror or str(error)) from error
    except LaunchError:
        remove_unstarted(instance)
        raise
    if not answer.get("ok") and not answer.get("exec"):
        remove_unstarted(instance)
        raise _cannot_start(rank, str(answer.get("what")))
    return directory


def refuse_bad_plan(rank: RankPlan, apart: Apart) -> None:
    """Raise LaunchError when the plan cannot be run anywhere: no command, no usable id, a secret that did not come."""
    if rank.gang is not None and not is_gang(rank, apart.gang_key):
        raise LaunchError(
            f"engine {rank.engine_id} was not started",
            "it is one rank of several, and what came with it does not say how to know the others",
            "launch the whole plan with llmgw launch",
        )
    if not is_engine_id(rank.engine_id) or not rank.argv:
        raise LaunchError(
            f"engine {rank.engine_id!r} was not started",
            "its id is no file name, or its command is empty",
            "make the plan again with llmgw plan",
        )
    missing = [name for name in list_secrets(rank) if name not in apart.secrets]
    if missing:
        raise LaunchError(
            f"engine {rank.engine_id} was not started",
            f"no value came for {', '.join(missing)}",
            "set it in the environment llmgw is run from, or leave it out of env_from",
        )


def list_secrets(rank: RankPlan) -> Tuple[str, ...]:
    """The names under which values come with the launch, apart from its plan."""
    return (*rank.env_from, rank.api_key) if rank.api_key else rank.env_from


def prepare_directory(
    directory: EngineDir, key: str, rank: RankPlan, apart: Apart, now: str
) -> None:
    """Write down what is to run, durably: spec, secrets, intent. The shim does the rest.

    Raises:
        OSError: something could not be written; the caller removes what there is.
    """
    directory.root.mkdir(mode=0o700, parents=True, exist_ok=True)
    (directory.root / "work").mkdir(mode=0o700, exist_ok=True)
    directory.log.mkdir(mode=0o700, exist_ok=True)
    argv_sha256 = hashlib.sha256("\0".join(rank.argv).encode("utf-8", "surrogateescape"))
    spec = SpecRecord(RECORD_VERSION, key, now, argv_sha256.hexdigest(), rank)
    write_record(directory.spec, spec)
    wanted = {name: apart.secrets[name] for name in list_secrets(rank)}
    if wanted:
        write_durably(str(directory.secrets), dump_json(wanted).encode("ascii"), 0o600)
    if rank.api_key == KEY_BY_FILE:
        # A JSON text is a YAML one.
        text = f"api-key: {json.dumps(wanted[KEY_BY_FILE])}\n"
        write_durably(str(directory.api_key), text.encode("ascii"), 0o600)
    if apart.gang_key:
        write_durably(str(directory.gang_key), apart.gang_key.encode("ascii"), 0o600)
    write_record(directory.intent, IntentRecord("run", key, now))
    sync_directory(str(directory.root.parent))


def remove_unstarted(instance: InstancePaths) -> None:
    """Remove directories of launches that were cut off before anything ran, so that a retry starts afresh.

    Torn records stay: they may be all that is known of something that runs.
    """
    unstarted = [
        path
        for path in instance.engines.iterdir()
        if is_engine_id(path.name) and path.is_dir() and _never_ran(EngineDir(path))
    ]
    if not unstarted:
        return
    marked = set(find_marked(read_all_stats()).values())
    for path in unstarted:
        if path.name not in marked:
            remove_directory(path)


def remove_directory(path: Path) -> None:
    """Remove an engine's directory and all that is in it, as far as possible."""
    shutil.rmtree(path, ignore_errors=True)


def has_shim(directory: EngineDir) -> bool:
    """Whether a shim is at work there: it holds the lock from its first moment on."""
    try:
        fd = os.open(directory.pump_lock, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def _unwritable(instance: InstancePaths, rank: RankPlan, error: OSError) -> LlmgwError:
    kind = DiskFull if error.errno in (errno.ENOSPC, errno.EDQUOT) else HomeUnwritable
    return kind(
        f"engine {rank.engine_id} was not started",
        f"its records cannot be written: {error.strerror or error}",
        f"free some space under {instance.root}",
    )


def _cannot_start(rank: RankPlan, why: str) -> LaunchError:
    return LaunchError(
        f"engine {rank.engine_id} was not started",
        why,
        "look at the node's memory, process limits and disk",
    )


def _never_ran(directory: EngineDir) -> bool:
    if directory.run.exists() or directory.exit.exists():
        return False
    try:
        read_record(directory.spec, SpecRecord)
    except TornRecord:
        return False
    return not has_shim(directory)

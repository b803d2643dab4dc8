"""Who holds a GPU's memory: ours, somebody's, a container's, or the remains of a dead process. Pure."""

from typing import Mapping, Optional, Sequence, Tuple

from llmgw_core.agent.probes.nvidia_smi import AppRow, GpuRow
from llmgw_core.agent.probes.processes import ProcessFacts
from llmgw_core.domain.findings import Severity
from llmgw_core.domain.hardware import GpuHealth, GpuProcess

# What an idle driver, an X server or MIG instances take without anybody computing: 0 to 59 MiB were seen.
HELD_ABOVE_MIB = 64
# With a desktop on it: 211 to 596 MiB were seen.
HELD_ABOVE_MIB_WITH_DISPLAY = 1024
_SHOWN_PROCESSES = 4
# Serves other processes' work; holds next to nothing itself.
_INFRASTRUCTURE = frozenset({"nvidia-cuda-mps-server"})


def describe_process(app: AppRow, fact: ProcessFacts, engine: Optional[str]) -> GpuProcess:
    """A process that the driver names, with what is known of it here."""
    return GpuProcess(
        pid=app.pid,
        name=app.name,
        user=fact.user,
        memory_mib=app.memory_mib,
        engine=engine,
        command=fact.command,
        kind=_find_kind(app, fact, engine),
    )


def find_memory_held(
    row: GpuRow,
    processes: Sequence[GpuProcess],
    facts: Mapping[int, ProcessFacts],
    engine: Optional[str],
    *,
    sees_processes: bool = True,
) -> Tuple[GpuHealth, ...]:
    """The flag that something which is no engine of ours holds memory, with whom; empty when nothing does.

    Args:
        engine: the engine of ours that has this GPU; what no process accounts for is then its memory.
        sees_processes: False under WSL, where Windows has the list, and its desktop the GPU.
    """
    has_display = row.text("display_active") == "Enabled" or not sees_processes
    foreign = [p for p in processes if p.engine is None and not _is_harmless(p, has_display)]
    if foreign and not (engine is not None and all(p.kind == "hidden" for p in foreign)):
        return (_error(_held_message(foreign, facts)),)
    used = row.whole("memory.used")
    limit = HELD_ABOVE_MIB_WITH_DISPLAY if has_display else HELD_ABOVE_MIB
    if foreign or engine is not None or used is None or used <= limit or not is_used_exact(row):
        return ()
    return (
        _error(
            f"{used} MiB are in use and no process is listed for them: one in a container or of another user, "
            "or the remains of one that died; `nvidia-smi --gpu-reset` frees the latter",
        ),
    )


def is_used_exact(row: GpuRow) -> bool:
    """False where the figure is known to count what nobody holds.

    With ATS the GPU's memory is a NUMA node of the kernel, which puts page cache there; in MIG mode instances take
    some each.
    """
    return row.text("addressing_mode") != "ATS" and row.text("mig.mode.current") != "Enabled"


def _find_kind(app: AppRow, fact: ProcessFacts, engine: Optional[str]) -> str:
    if engine is not None:
        return "engine"
    if (app.name or "").rsplit("/", 1)[-1] in _INFRASTRUCTURE:
        return "system"
    if fact.is_gone:
        return "orphan"
    if fact.container is not None:
        return "container"
    # In a container the driver's pids say nothing: on a GPU that we have, such a process is taken for ours.
    return "hidden" if fact.user is None else "user"


def _is_harmless(process: GpuProcess, has_display: bool) -> bool:
    """A desktop's compositor, or the server of shared GPUs."""
    memory = process.memory_mib
    is_small = memory is not None and memory <= HELD_ABOVE_MIB
    return process.kind == "system" or (has_display and is_small)


def _held_message(processes: Sequence[GpuProcess], facts: Mapping[int, ProcessFacts]) -> str:
    shown = ", ".join(
        _describe(p, facts.get(p.pid, ProcessFacts())) for p in processes[:_SHOWN_PROCESSES]
    )
    more = len(processes) - _SHOWN_PROCESSES
    rest = f" and {more} more" if more > 0 else ""
    kinds = {p.kind for p in processes}
    if kinds == {"orphan"}:
        return f"{shown}{rest} is dead and its memory remains: `nvidia-smi --gpu-reset` or a reboot frees it"
    if kinds == {"container"}:
        return f"{shown}{rest}, no engine of llmgw: stop the container, or choose another GPU"
    if kinds == {"hidden"}:
        return (
            f"{shown}{rest}: look for it on the host or in other containers, or choose another GPU"
        )
    return f"{shown}{rest}, no engine of llmgw: stop it, or choose another GPU"


def _describe(process: GpuProcess, fact: ProcessFacts) -> str:
    memory = "memory" if process.memory_mib is None else f"{process.memory_mib} MiB"
    who = [process.name or "name unknown"]
    if process.user is not None:
        who.append(f"user {process.user}")
    if process.kind == "container":
        who.append(f"container {fact.container}")
    elif process.kind == "orphan":
        who.append("dead")
    elif process.kind == "hidden":
        who.append("owner not visible from here")
    return f"pid {process.pid} ({', '.join(who)}) holds {memory}"


def _error(message: str) -> GpuHealth:
    return GpuHealth("memory-held", Severity.ERROR, message)

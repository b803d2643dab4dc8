"""The node's GPUs, each judged as an operator would before a launch. Pure."""

import re
from dataclasses import replace
from typing import List, Mapping, Optional, Sequence, Set, Tuple

from llmgw_core.agent.probes import nvidia_smi
from llmgw_core.agent.probes.gpu_classes import (
    guess_capability_of_device,
    guess_compute_capability,
    has_unified_memory,
    name_gpu_class,
)
from llmgw_core.agent.probes.gpu_health import (
    explain_lost,
    explain_silent,
    find_health,
    is_lost,
    needs_reset,
    sort_health,
)
from llmgw_core.agent.probes.gpu_holders import describe_process, find_memory_held
from llmgw_core.agent.probes.mig import MigSlice, name_slice_class
from llmgw_core.agent.probes.nvidia_smi import GpuRow
from llmgw_core.agent.probes.processes import ProcessFacts
from llmgw_core.agent.probes.smi_census import find_missing_gpus
from llmgw_core.agent.probes.smi_fields import THROTTLE_FIELD
from llmgw_core.agent.probes.smi_reader import GpuReading, SmiReader
from llmgw_core.agent.probes.throttling import parse_throttle_mask
from llmgw_core.agent.probes.xid_health import collect_xids, find_xid_health
from llmgw_core.domain.findings import Severity
from llmgw_core.domain.hardware import Gpu, GpuHealth, GpuXid, Host, MigInstance, Unit

__all__ = [
    "GpuReading",
    "SmiReader",
    "assess_gpus",
    "find_missing_gpus",
    "share_host_memory",
]

# SXM boards of NVSwitch machines whose driver does not tell the fabric's state.
_ON_SWITCH = re.compile(r"A100-SXM|A800-SXM", re.IGNORECASE)


def assess_gpus(
    reading: GpuReading,
    owners: Mapping[int, str],
    taken: Mapping[Unit, str],
    known: Sequence[Gpu] = (),
) -> Tuple[Gpu, ...]:
    """Each GPU of a reading, judged, in order of index. Pure.

    Args:
        owners: engine id by pid, of all processes of engines of ours.
        taken: engine id by GPU index or by uuid of a slice, of engines that are not over.
        known: the GPUs of the last reading that gave any: who is silent or lost now, keeps its identity.
    """
    if reading.is_silent:
        known = known or _describe_by_driver(reading)
        return tuple(_as_silent(gpu, [explain_silent()], taken) for gpu in known)
    free = _free_indices(reading)
    gpus = [_assess_row(row, reading, owners, taken, free) for row in reading.rows]
    seen = {gpu.pci_bus_id for gpu in gpus}
    for index, bus_id in reading.lost:
        if bus_id not in seen:
            seen.add(bus_id)
            gpu = next((gpu for gpu in known if gpu.pci_bus_id == bus_id), None)
            number = free.pop(0) if index is None or index not in free else index
            base = (
                Gpu(index=number, pci_bus_id=bus_id) if gpu is None else replace(gpu, index=number)
            )
            flags = [explain_lost(bus_id), *_xid_flags(reading, collect_xids(reading.log, bus_id))]
            gpus.append(_as_silent(base, flags, taken))
    return tuple(sorted(gpus, key=lambda gpu: gpu.index))


def _describe_by_driver(reading: GpuReading) -> List[Gpu]:
    """Who the GPUs are by the kernel module alone; numbered by address, as the driver mostly does."""
    return [
        Gpu(
            index=number,
            uuid=gpu.uuid,
            name=gpu.name,
            pci_bus_id=gpu.bus_id,
            compute_capability=guess_compute_capability(gpu.name),
        )
        for number, gpu in enumerate(reading.driver_gpus)
    ]


def _free_indices(reading: GpuReading) -> List[int]:
    """Numbers no row has, for GPUs of which only the address is known: a label has to be there, and be unique."""
    used: Set[Optional[int]] = {row.whole("index") for row in reading.rows}
    total = len(reading.rows) + len(reading.lost)
    return [number for number in range(2 * total) if number not in used]


def _assess_row(
    row: GpuRow,
    reading: GpuReading,
    owners: Mapping[int, str],
    taken: Mapping[Unit, str],
    free: List[int],
) -> Gpu:
    index = row.whole("index")
    index = free.pop(0) if index is None else index
    gpu = _describe_gpu(row, index)
    processes = tuple(
        describe_process(app, reading.processes.get(app.pid, ProcessFacts()), owners.get(app.pid))
        for app in reading.apps
        if app.gpu_uuid == gpu.uuid
    )
    own = (process.engine for process in processes if process.engine is not None)
    engine = taken.get(index) or next(own, None)
    slices = [item for item in reading.slices if _is_slice_of(item, gpu)]
    xids = collect_xids(reading.log, gpu.pci_bus_id)
    flags = find_health(row, has_slices=bool(slices))
    flags += find_memory_held(
        row, processes, reading.processes, engine, sees_processes=not reading.is_wsl
    )
    flags += _xid_flags(reading, xids)
    flags += _find_around(gpu, reading)
    gpu = replace(
        gpu, health=tuple(sort_health(flags)), processes=processes, engine=engine, xids=xids
    )
    instances = _build_instances(gpu, slices, taken)
    return replace(gpu, available=_is_healthy(gpu) and engine is None, mig_instances=instances)


def _is_healthy(gpu: Gpu, but_for: Tuple[str, ...] = ()) -> bool:
    return not any(
        flag.severity is Severity.ERROR and flag.code not in but_for for flag in gpu.health
    )


def _xid_flags(reading: GpuReading, xids: Optional[Tuple[GpuXid, ...]]) -> List[GpuHealth]:
    return find_xid_health(xids or (), reading.at)


def _find_around(gpu: Gpu, reading: GpuReading) -> List[GpuHealth]:
    """What others than the GPU's own row say of it."""
    found = []
    if gpu.pci_bus_id in reading.corrupt_inforoms:
        message = "its infoROM is corrupt: it works on, and cannot record its own errors"
        found.append(GpuHealth("inforom-corrupt", Severity.WARNING, message))
    down = reading.inactive_links.get(gpu.index)
    if down:
        message = f"{down} of its NVLinks are down: engines on several GPUs get slow or fail; reset the GPU"
        found.append(GpuHealth("nvlink-inactive", Severity.WARNING, message))
    is_managed = gpu.fabric_state is None and _ON_SWITCH.search(gpu.name or "") is not None
    if is_managed and reading.has_fabric_manager is False:
        message = "nv-fabricmanager does not run, and CUDA will not start: look at nvidia-fabricmanager.service"
        found.append(GpuHealth("nvlink-fabric", Severity.ERROR, message))
    return found


def _is_slice_of(item: MigSlice, gpu: Gpu) -> bool:
    if item.gpu_uuid is not None and gpu.uuid is not None:
        return item.gpu_uuid == gpu.uuid
    return item.gpu_index == gpu.index


def _build_instances(
    gpu: Gpu, slices: Sequence[MigSlice], taken: Mapping[Unit, str]
) -> Tuple[MigInstance, ...]:
    """The slices as units to place on.

    Which of them a process is on, the driver does not tell, but we know where our engines are: anybody else holds all.
    """
    placed = {taken[item.uuid] for item in slices if item.uuid in taken}
    strangers = [process for process in gpu.processes if process.engine not in placed]
    is_free = (
        _is_healthy(gpu, but_for=("mig-enabled",)) and gpu.index not in taken and not strangers
    )
    return tuple(
        MigInstance(
            uuid=item.uuid,
            profile=item.profile,
            gpu_class=name_slice_class(gpu.name, item.profile),
            number=item.number,
            available=is_free and item.uuid not in taken,
            engine=taken.get(item.uuid),
        )
        for item in slices
    )


def _describe_gpu(row: GpuRow, index: int) -> Gpu:
    name = row.text("name")
    total = row.whole("memory.total") or None  # a card without memory is a failed read
    capability, source = _find_capability(row, name)
    # A dead card reads as empty and idle, which would make it the first to be chosen.
    is_believed = not (needs_reset(row) or is_lost(row))
    return Gpu(
        index=index,
        uuid=row.text("uuid"),
        name=name,
        gpu_class=name_gpu_class(name, total),
        pci_bus_id=nvidia_smi.normalize_bus_id(row.text("pci.bus_id")),
        compute_capability=capability,
        compute_capability_source=source,
        memory_total_mib=total,
        memory_used_mib=row.whole("memory.used") if is_believed else None,
        utilization_percent=row.whole("utilization.gpu") if is_believed else None,
        temperature_celsius=row.whole("temperature.gpu"),
        power_watts=row.number("power.draw"),
        power_limit_watts=row.number("power.limit"),
        ecc_uncorrected=row.whole("ecc.errors.uncorrected.volatile.total"),
        mig_mode=row.text("mig.mode.current"),
        memory_free_mib=row.whole("memory.free") if is_believed else None,
        fan_percent=row.whole("fan.speed"),
        clock_sm_mhz=row.whole("clocks.sm"),
        clock_max_sm_mhz=row.whole("clocks.max.sm"),
        clock_memory_mhz=row.whole("clocks.mem"),
        ecc_mode=row.text("ecc.mode.current"),
        ecc_uncorrected_lifetime=row.whole("ecc.errors.uncorrected.aggregate.total"),
        persistence_mode=row.text("persistence_mode"),
        compute_mode=row.text("compute_mode"),
        addressing_mode=row.text("addressing_mode"),
        recovery_action=row.text("gpu_recovery_action"),
        fabric_state=row.text("fabric.state"),
        fabric_status=row.text("fabric.status"),
        throttle_reasons=parse_throttle_mask(row.text(THROTTLE_FIELD)),
    )


def _find_capability(row: GpuRow, name: Optional[str]) -> Tuple[Optional[str], Optional[str]]:
    """(compute capability, where it is from)."""
    for source, found in (
        ("driver", _capability(row)),
        ("name", guess_compute_capability(name)),
        ("pci", guess_capability_of_device(_device_id(row))),
    ):
        if found is not None:
            return found, source
    return None, None


def _device_id(row: GpuRow) -> Optional[str]:
    """`0x1DF010DE` is device 1df0 of vendor 10de."""
    match = re.fullmatch(r"0x([0-9a-fA-F]{4})10[dD][eE]", row.text("pci.device_id") or "")
    return match.group(1).lower() if match else None


def _capability(row: GpuRow) -> Optional[str]:
    text = row.text("compute_cap") or ""
    return text if re.fullmatch(r"[0-9]{1,3}\.[0-9]{1,2}", text) else None


def _as_silent(gpu: Gpu, flags: Sequence[GpuHealth], taken: Mapping[Unit, str]) -> Gpu:
    """The GPU's identity without its readings."""
    return Gpu(
        index=gpu.index,
        uuid=gpu.uuid,
        name=gpu.name,
        gpu_class=gpu.gpu_class,
        pci_bus_id=gpu.pci_bus_id,
        compute_capability=gpu.compute_capability,
        compute_capability_source=gpu.compute_capability_source,
        memory_total_mib=gpu.memory_total_mib,
        health=tuple(sort_health(flags)),
        engine=taken.get(gpu.index),
    )


def share_host_memory(gpus: Sequence[Gpu], host: Host) -> Tuple[Gpu, ...]:
    """The same GPUs; those without memory of their own with the machine's."""
    total = host.memory_total_bytes
    if total is None:
        return tuple(gpus)
    return tuple(
        replace(gpu, unified_memory_mib=total >> 20) if has_unified_memory(gpu.name or "") else gpu
        for gpu in gpus
    )

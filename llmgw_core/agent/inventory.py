"""A node as a scheduler would see it, read on the node itself: host, GPUs, ports, and the engines it is told of."""

import os
import threading
import time
from dataclasses import replace
from typing import Dict, FrozenSet, Mapping, Optional, Sequence, Tuple

from llmgw_core.agent.live import LiveReadings
from llmgw_core.agent.probes.all_gpus import AllGpusReader, Readings, assess_all_gpus
from llmgw_core.agent.probes.gpus import share_host_memory
from llmgw_core.agent.probes.host_reader import HostReader
from llmgw_core.agent.probes.infiniband import read_ports
from llmgw_core.agent.probes.nearness import Nearness
from llmgw_core.agent.probes.node_health import find_node_health
from llmgw_core.agent.probes.smi_reader import GpuReading
from llmgw_core.agent.probes.smi_start import StartedReading
from llmgw_core.agent.probes.topology import (
    TIMEOUT_S,
    ask_topology,
    finish_topology,
    is_topology_needed,
    start_topology,
)
from llmgw_core.domain.engine import EngineStatus
from llmgw_core.domain.hardware import Gpu, Host, Port, Unit
from llmgw_core.domain.inventory import Node

MIN_GPU_AGE_S = (
    3.0  # nvidia-smi is not asked more often, whoever watches: starting it costs most of all
)
HOST_AGE_S = 5.0  # load and memory
PORTS_AGE_S = 10.0
RETRY_SILENT_S = 30.0  # pause after an nvidia-smi that did not answer
_WAIT_MARGIN_S = 6.0  # ending a hung nvidia-smi, asking GPUs one by one


class NodeProbe:
    """Reads the node again and again, at the cost of what has changed. Thread-safe; each `read` blocks.

    nvidia-smi runs in a thread, one at a time. Only the first readings wait for it: once it has failed to answer,
    every read returns at once with the GPUs' identities, and the thread goes on trying.
    """

    def __init__(self, env: Mapping[str, str], smi_timeout_s: Optional[float] = None) -> None:
        self._env = env
        self._topology: Optional[Mapping[str, Nearness]] = None  # asked once: it stays
        self._gpus = AllGpusReader(env, smi_timeout_s)
        self._live = LiveReadings(env, self._gpus.smi, sysfs_root_of(env))
        self._max_wait_s = self._gpus.smi.timeout_s + _WAIT_MARGIN_S
        self._lock = threading.Lock()
        self._readings = Readings()
        self._read_at: Optional[float] = None  # monotonic, of the last answer
        self._began_at = float("-inf")  # monotonic, when that reading began
        self._in_flight: Optional[threading.Event] = None
        self._known: Tuple[Gpu, ...] = ()
        self._judged: Tuple[Gpu, ...] = ()  # by these readings, owners and taken GPUs:
        self._judged_by: Tuple[Optional[Readings], Dict[int, str], Dict[Unit, str]] = (None, {}, {})
        self._hosts = HostReader(env)
        self._host = Host()
        self._host_at = float("-inf")  # monotonic
        self._ports: Tuple[Port, ...] = ()
        self._ports_at: Optional[float] = None

    def read(
        self,
        engines: Sequence[EngineStatus] = (),
        owners: Optional[Mapping[int, str]] = None,
        taken_gpus: Optional[Mapping[Unit, str]] = None,
        max_age_s: float = 1.0,
    ) -> Node:
        """The node now. GPUs are at most max(max_age_s, 3 s) old while nvidia-smi answers, ports 10 s.

        Args:
            engines: engines of ours, passed on.
            owners: engine id by pid of every process that belongs to an engine.
            taken_gpus: engine id by GPU index or by uuid of a slice, of engines that are not over.
        """
        self.refresh_gpus(max_age_s)
        return self.assess(engines, owners, taken_gpus)

    def refresh_gpus(self, max_age_s: float, *, is_watched: bool = False) -> None:
        """Ask nvidia-smi unless its last answer is at most max(max_age_s, 3 s) old.

        Watched, readings come from a stream, and 10 s are young enough for the rest. `end_watch` ends that.
        """
        limit_s = max(max_age_s, MIN_GPU_AGE_S)
        if is_watched:
            limit_s = self._live.full_age_s(limit_s)
        self._refresh_gpus(limit_s)
        if is_watched:
            self._live.keep(self._readings.nvidia)

    def end_watch(self) -> None:
        """Nobody watches any more: end what runs for that alone."""
        self._live.stop()

    def assess(
        self,
        engines: Sequence[EngineStatus],
        owners: Optional[Mapping[int, str]] = None,
        taken_gpus: Optional[Mapping[Unit, str]] = None,
    ) -> Node:
        """The node by the last answer of nvidia-smi, judged by what is known of engines now; arguments as of `read`."""
        with self._lock:
            readings = self._readings
            facts = (readings, dict(owners or {}), dict(taken_gpus or {}))
            # Watched every second, and nvidia-smi asked every other: judging twice costs as much as parsing.
            if facts[0] is not self._judged_by[0] or facts[1:] != self._judged_by[1:]:
                self._judged = assess_all_gpus(*facts, self._known)
                self._judged_by = facts
            gpus = self._judged
            if not readings.nvidia.is_silent:
                self._known = gpus
            gpus = self._live.lay_over(gpus, self._began_at)
        ports = self._live.lay_rates(self._read_ports(gpus))
        node = _build_node(readings.nvidia, gpus, ports, engines, self._read_host())
        more = self._live.find_health()
        return replace(node, health=(*node.health, *more)) if more else node

    def list_gpu_pids(self, max_age_s: float) -> Optional[FrozenSet[int]]:
        """Pids that hold memory of NVIDIA GPUs, by a reading begun at most so long ago. Never blocks.

        None: there is no such reading; one is under way. While nvidia-smi does not answer it stays so.
        """
        with self._lock:
            reading = self._readings.nvidia
            if time.monotonic() - self._began_at > max_age_s or reading.is_silent:
                self._start_reading()
                return None
            return frozenset(app.pid for app in reading.apps)

    def close(self) -> None:
        """Ask an nvidia-smi that hangs to end. What was started ends by itself."""
        self._live.close()
        self._gpus.close()

    def _refresh_gpus(self, max_age_s: float) -> None:
        with self._lock:
            was_silent = self._readings.nvidia.is_silent
            limit_s = (
                max_age_s
                if not _has_timed_out(self._readings.nvidia)
                else max(max_age_s, RETRY_SILENT_S)
            )
            is_fresh = self._read_at is not None and time.monotonic() - self._read_at < limit_s
            if is_fresh:
                return
            done = self._start_reading()
        if not was_silent:
            done.wait(self._max_wait_s)

    def _start_reading(self) -> threading.Event:
        """Set when the reading under way, or a new one, has ended. The caller holds the lock."""
        if self._in_flight is None:
            self._in_flight = threading.Event()
            threading.Thread(target=self._ask_smi, args=(self._in_flight,), daemon=True).start()
        return self._in_flight

    def _ask_smi(self, done: threading.Event) -> None:
        began_at = time.monotonic()
        try:
            readings = self._gpus.read()
            with self._lock:
                self._readings = readings
                self._began_at, self._read_at = began_at, time.monotonic()
        finally:
            with self._lock:
                self._in_flight = None
            done.set()

    def _read_host(self) -> Host:
        with self._lock:
            now = time.monotonic()
            if now - self._host_at >= HOST_AGE_S:
                self._host, self._host_at = self._hosts.read(), now
            return self._host

    def _read_ports(self, gpus: Sequence[Gpu]) -> Tuple[Port, ...]:
        with self._lock:
            now = time.monotonic()
            if self._ports_at is None or now - self._ports_at >= PORTS_AGE_S:
                self._ports = read_ports_here(self._env, self._find_topology(gpus))
                self._ports_at = now
            return self._ports

    def _find_topology(self, gpus: Sequence[Gpu]) -> Mapping[str, Nearness]:
        """Asks nvidia-smi once it has answered other questions: one that hangs gets no second start."""
        if self._topology is None:
            if not is_topology_needed(sysfs_root_of(self._env)):
                self._topology = {}
            elif gpus and not self._readings.nvidia.is_silent:
                self._topology = ask_topology(self._env, _bus_ids(gpus))
        return self._topology or {}


def read_node(
    env: Mapping[str, str],
    engines: Sequence[EngineStatus] = (),
    owners: Optional[Mapping[int, str]] = None,
    taken: Optional[Mapping[Unit, str]] = None,
    started: Optional[StartedReading] = None,
) -> Node:
    """The node, read once, for a command that ends. Takes as long as one nvidia-smi, at most some seconds over 10.

    Args:
        started: a reading of NVIDIA's GPUs that was begun before, to be ended here.
    """
    topology = start_topology(env) if is_topology_needed(sysfs_root_of(env)) else None
    readings = AllGpusReader(env, started=started).read()
    gpus = assess_all_gpus(readings, owners or {}, taken or {})
    # Where nvidia-smi has just been waited for in vain, this one is not waited for again.
    wait_s = 0.0 if readings.nvidia.is_silent else TIMEOUT_S
    nearness = {} if topology is None else finish_topology(topology, _bus_ids(gpus), wait_s)
    ports = read_ports_here(env, nearness)
    return _build_node(readings.nvidia, gpus, ports, engines, HostReader(env).read())


def _has_timed_out(reading: GpuReading) -> bool:
    """Whether the next try may last as long; looking after one that hangs costs nothing."""
    return reading.is_silent and reading.fault is not None and reading.fault.code == "smi-timeout"


def sysfs_root_of(env: Mapping[str, str]) -> str:
    """Where sysfs is: LLMGW_SYSFS_ROOT, else /sys."""
    return env.get("LLMGW_SYSFS_ROOT") or "/sys"


def read_ports_here(
    env: Mapping[str, str], topology: Optional[Mapping[str, Nearness]] = None
) -> Tuple[Port, ...]:
    """The node's ports. Beside a sysfs of another place, routes are not this machine's, and adapters are opened only
    where LLMGW_DEV_ROOT says so."""
    is_real = not env.get("LLMGW_SYSFS_ROOT")
    return read_ports(
        sysfs_root_of(env),
        proc_root="/proc" if is_real else None,
        dev_root=env.get("LLMGW_DEV_ROOT") or ("/dev" if is_real else None),
        topology=topology,
    )


def _bus_ids(gpus: Sequence[Gpu]) -> Dict[int, str]:
    return {gpu.index: gpu.pci_bus_id for gpu in gpus if gpu.pci_bus_id is not None}


def _build_node(
    reading: GpuReading,
    gpus: Tuple[Gpu, ...],
    ports: Tuple[Port, ...],
    engines: Sequence[EngineStatus],
    host: Host,
) -> Node:
    name = os.uname().nodename or "localhost"
    gpus = share_host_memory(gpus, host)
    return Node(
        name=name,
        error=reading.fault,
        host=host,
        driver_version=reading.driver_version,
        cuda_version=reading.cuda_version,
        gpus=gpus,
        ports=ports,
        island=name,
        engines=tuple(engines),
        health=tuple(find_node_health(reading, gpus)),
    )

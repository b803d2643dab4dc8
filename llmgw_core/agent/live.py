"""What of a node is read only while somebody watches it: the stream of nvidia-smi, and the counters of ports."""

import threading
import time
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from llmgw_core.agent.aside import Aside
from llmgw_core.agent.probes.node_health import explain_no_stream
from llmgw_core.agent.probes.port_counters import PortCounters, PortKey, PortRates, lay_rates
from llmgw_core.agent.probes.smi_reader import GpuReading, SmiReader
from llmgw_core.agent.probes.smi_stream import INTERVAL_MS, SmiStream
from llmgw_core.agent.probes.sweeps import lay_over
from llmgw_core.domain.hardware import Gpu, GpuHealth, Port

FULL_AGE_S = 10.0  # of everything else about GPUs, while a stream gives their readings
_COUNTERS_WAIT_S = 0.3  # a firmware that hangs must not hold up the rest
_RATES_AGE_S = 15.0
_LATE_S = 3 * INTERVAL_MS / 1000  # without a new sweep something is going on


class LiveReadings:
    """Lays newer readings over the last full one. Thread-safe; nothing blocks for long but `close`."""

    def __init__(self, env: Mapping[str, str], smi: SmiReader, sysfs_root: str) -> None:
        self._smi = smi
        self._sysfs_root = sysfs_root
        self._aside = Aside()
        self._counters: Optional[PortCounters] = None  # None: nobody watches
        self._rates: Tuple[float, Dict[PortKey, PortRates]] = (float("-inf"), {})  # monotonic
        self._stream = SmiStream(env)
        self._lock = threading.Lock()
        self._is_watched = False
        self._is_doubtful = False
        smi.is_other_hung = self._stream.is_hung

    def keep(self, reading: GpuReading) -> None:
        """Somebody watches: have a stream where this reading says that one can be had."""
        with self._lock:
            self._is_watched = True
            if self._counters is None:
                self._counters = PortCounters(self._sysfs_root)
            # Under WSL the readings are Windows', and each costs it a round trip that a stream does not save.
            if reading.rows and not reading.is_silent and not reading.is_wsl:
                smi = self._smi
                self._stream.keep(smi.program, smi.core + smi.extra, len(reading.rows))

    def stop(self) -> None:
        """Nobody watches any more."""
        with self._lock:
            self._is_watched = False
            self._counters = None
            self._stream.stop()

    def close(self) -> None:
        """Stop, and wait a moment for the stream's end."""
        self.stop()
        self._stream.close()

    def full_age_s(self, least_s: float) -> float:
        """How old a full reading may be: `least_s`, unless a stream tells that nothing of note has happened."""
        sweep = self._stream.latest()
        is_late = sweep is None or time.monotonic() - sweep.at > _LATE_S
        return least_s if is_late or self._is_doubtful else max(least_s, FULL_AGE_S)

    def lay_over(self, gpus: Tuple[Gpu, ...], began_at: float) -> Tuple[Gpu, ...]:
        """The GPUs of a full reading with the newest sweep's readings, where it is newer.

        Args:
            began_at: monotonic, when the full reading did.
        """
        sweep = self._stream.latest()
        if sweep is None or sweep.at <= began_at:
            return gpus
        laid = lay_over(gpus, sweep.rows)
        self._is_doubtful = laid.is_doubtful
        return laid.gpus

    def lay_rates(self, ports: Sequence[Port]) -> Tuple[Port, ...]:
        """The ports with their rates since the last call; without any while nobody watches."""
        counters = self._counters
        if counters is None or not ports:
            return tuple(ports)

        def read() -> None:
            self._rates = (time.monotonic(), counters.read(ports))

        self._aside.run(read, _COUNTERS_WAIT_S)
        at, rates = self._rates
        return lay_rates(ports, rates if time.monotonic() - at < _RATES_AGE_S else {})

    def find_health(self) -> List[GpuHealth]:
        """What is worth a word about it; nothing while nobody watches."""
        why: Optional[str] = self._stream.trouble if self._is_watched else None
        return [] if why is None else [explain_no_stream(why)]

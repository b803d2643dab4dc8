"""An nvidia-smi for GPUs that are not there: started as `python -I -S fake_nvidia_smi.py FOLDER ARGUMENTS…`.

`FOLDER/gpus.json` describes the node, `FOLDER/holders/<index>/<pid>` who holds memory (toy/gpu_memory.py). Format and
words are those of drivers 550 and later. Imports little: an agent asks every few seconds.
"""

import json
import math
import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

_START_TICKS = 19  # of the fields after the command in /proc/PID/stat. Source: proc(5)
_HANG_S = 600.0  # one that was forgotten ends by itself
BUSY_S = 3.0  # how long one request shows as load
_NOT_AVAILABLE = "[N/A]"
_UNITS = {
    "memory.total": "MiB",
    "memory.reserved": "MiB",
    "memory.used": "MiB",
    "memory.free": "MiB",
    "utilization.gpu": "%",
    "utilization.memory": "%",
    "power.draw": "W",
    "power.limit": "W",
    "clocks.sm": "MHz",
    "clocks.mem": "MHz",
    "used_gpu_memory": "MiB",
}
_ALIASES = {
    "gpu_name": "name",
    "gpu_uuid": "uuid",
    "gpu_bus_id": "pci.bus_id",
    "used_memory": "used_gpu_memory",
}
# Known to this driver; the node's file may give any of them another value.
DEFAULTS: Mapping[str, str] = {
    "index": "0",
    "uuid": "",
    "name": "",
    "pci.bus_id": "",
    "count": "1",
    "serial": _NOT_AVAILABLE,
    "driver_version": "",
    "vbios_version": "96.00.74.00.01",
    "memory.total": "0",
    "memory.reserved": "614",
    "memory.used": "0",
    "memory.free": "0",
    "utilization.gpu": "0",
    "utilization.memory": "0",
    "temperature.gpu": "34",
    "temperature.memory": "38",
    "power.draw": "70.00",
    "power.limit": "700.00",
    "clocks.sm": "1980",
    "clocks.mem": "2619",
    "pstate": "P0",
    "persistence_mode": "Enabled",
    "compute_mode": "Default",
    "display_active": "Disabled",
    "ecc.mode.current": "Enabled",
    "ecc.errors.uncorrected.volatile.total": "0",
    "ecc.errors.uncorrected.aggregate.total": "0",
    "clocks_throttle_reasons.active": "0x0000000000000000",
    "clocks_event_reasons.active": "0x0000000000000000",
    "mig.mode.current": "Disabled",
    "remapped_rows.correctable": "0",
    "remapped_rows.uncorrectable": "0",
    "remapped_rows.pending": "No",
    "remapped_rows.failure": "No",
    "retired_pages.pending": _NOT_AVAILABLE,
    "compute_cap": "9.0",
    "addressing_mode": "None",
    "fabric.state": "N/A",
    "fabric.status": "N/A",
    "gpu_recovery_action": "None",
}
_APP_FIELDS = ("timestamp", "name", "pci.bus_id", "uuid", "pid", "process_name", "used_gpu_memory")


class Node:
    """One node's GPUs as its file describes them, with who holds them now."""

    def __init__(self, folder: str, now: float) -> None:
        with open(f"{folder}/gpus.json", encoding="utf-8") as file:  # noqa: PTH123 - pathlib costs 8 ms
            data: dict[str, Any] = json.load(file)
        self.folder = folder
        self.now = now
        self.driver_version = str(data.get("driver_version", "570.133.20"))
        self.cuda_version = str(data.get("cuda_version", "12.8"))
        self.delay_s = _HANG_S if data.get("hang") else float(data.get("delay_s", 0))
        self.failure: dict[str, Any] | None = data.get("fail")  # {"code", "stdout"}
        self.unknown_fields = frozenset(data.get("unknown_fields", ()))  # to this driver
        self.gpus = [self._describe(gpu) for gpu in data["gpus"]]

    def _describe(self, gpu: Mapping[str, Any]) -> dict[str, str]:
        index, total = int(gpu["index"]), int(gpu["memory_total_mib"])
        held = sum(app["mib"] for app in self.find_holders(index))
        used = min(total, held + int(gpu.get("held_mib", 0)))
        cells = {
            **DEFAULTS,
            "index": str(index),
            "uuid": str(gpu["uuid"]),
            "name": str(gpu["name"]),
            "pci.bus_id": str(gpu["bus_id"]),
            "driver_version": self.driver_version,
            "compute_cap": str(gpu["compute_capability"]),
            "memory.total": str(total),
            "memory.used": str(used),
            "memory.free": str(max(0, total - used - int(DEFAULTS["memory.reserved"]))),
        }
        cells.update(self._move(index, float(gpu["power_limit_watts"]), is_held=held > 0))
        cells.update({str(name): str(value) for name, value in gpu.get("cells", {}).items()})
        return cells

    def _move(self, index: int, limit_w: float, *, is_held: bool) -> dict[str, str]:
        """Readings that move a little all the time, and much while the GPU works."""
        wave = math.sin(self.now / 7 + index * 1.7)
        load = 0.0
        if self._is_busy(index):
            load = 86 + 9 * wave
        elif is_held:
            load = max(0.0, 2 + 3 * wave)
        return {
            "utilization.gpu": f"{load:.0f}",
            "utilization.memory": f"{load * 0.6:.0f}",
            "temperature.gpu": f"{33 + index % 4 + 0.34 * load + 1.5 * wave:.0f}",
            "power.draw": f"{limit_w * (0.10 + 0.0075 * load) + 3 * wave:.2f}",
            "power.limit": f"{limit_w:.2f}",
        }

    def _is_busy(self, index: int) -> bool:
        try:
            return self.now - os.stat(f"{self.folder}/busy-{index}").st_mtime < BUSY_S  # noqa: PTH116
        except OSError:
            return False

    def find_holders(self, index: int) -> list[dict[str, Any]]:
        """The living processes that hold memory on that GPU, by pid: {"pid", "mib", "name"}."""
        folder = f"{self.folder}/holders/{index}"
        try:
            names = [name for name in os.listdir(folder) if name.isdigit()]  # noqa: PTH208
        except OSError:
            return []
        found = []
        for name in sorted(names, key=int):
            try:
                with open(f"{folder}/{name}", encoding="utf-8") as file:  # noqa: PTH123
                    note = json.load(file)
            except (OSError, ValueError):
                continue  # it goes at this moment
            if note["start_ticks"] == read_start_ticks(name):
                found.append({"pid": name, "mib": int(note["mib"]), "name": note["name"]})
        return found

    def apps(self) -> list[dict[str, str]]:
        """One record per GPU and process."""
        stamp = time.strftime("%Y/%m/%d %H:%M:%S.000", time.localtime(self.now))
        return [
            {
                **{name: gpu[name] for name in ("name", "pci.bus_id", "uuid")},
                "timestamp": stamp,
                "pid": app["pid"],
                "process_name": app["name"],
                "used_gpu_memory": str(app["mib"]),
            }
            for gpu in self.gpus
            for app in self.find_holders(int(gpu["index"]))
        ]


def read_start_ticks(pid: str) -> int:
    """When that process started, in ticks since boot; -1: it is dead or was never there."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return -1
    return -1 if fields[0] in {"Z", "X"} else int(fields[_START_TICKS])


def answer(node: Node, argv: Sequence[str]) -> tuple[str, int]:
    """What nvidia-smi prints for these arguments, and its exit status."""
    options = _split_options(argv)
    if "--version" in options:
        return _format_version(node), 0
    if "--help-query-gpu" in options:
        return "".join(f'"{name}"\nOne of the fields.\n\n' for name in DEFAULTS), 0
    gpus = node.gpus
    if (wanted := options.get("-i") or options.get("--id")) is not None:
        gpus = [gpu for gpu in gpus if _is_named(gpu, wanted)]
    if not gpus:
        return "No devices were found\n", 6
    if "-L" in options or "--list-gpus" in options:
        return "".join(f"GPU {g['index']}: {g['name']} (UUID: {g['uuid']})\n" for g in gpus), 0
    if "--query-gpu" in options:
        known = [name for name in DEFAULTS if name not in node.unknown_fields]
        return _format_csv(gpus, options["--query-gpu"], known, options.get("--format", ""))
    if "--query-compute-apps" in options:
        uuids = {gpu["uuid"] for gpu in gpus}
        apps = [app for app in node.apps() if app["uuid"] in uuids]
        return _format_csv(
            apps, options["--query-compute-apps"], _APP_FIELDS, options.get("--format", "")
        )
    return "Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n\n", 2


def main(argv: Sequence[str]) -> NoReturn:
    """Answer `FOLDER ARGUMENTS…`, with -l or -lms again and again; ends the process."""
    pause_s = find_pause_s(argv[1:])
    while True:
        node = Node(argv[0], time.time())
        time.sleep(node.delay_s)
        if node.failure is not None:
            text, code = str(node.failure["stdout"]), int(node.failure["code"])
        else:
            text, code = answer(node, argv[1:])
        sys.stdout.write(text)
        sys.stdout.flush()
        if pause_s is None or code:
            sys.exit(code)
        time.sleep(pause_s)


def find_pause_s(argv: Sequence[str]) -> float | None:
    """Seconds between two answers: `-l 5`, `--loop=5`, `-lms 500`, `--loop-ms=500`; None: one answer is wanted."""
    options = _split_options(argv)
    for names, unit_s in ((("-l", "--loop"), 1.0), (("-lms", "--loop-ms"), 0.001)):
        for name in names:
            if name in options:
                return max(0.001, float(options[name] or 5) * unit_s)
    return None


def _split_options(argv: Sequence[str]) -> dict[str, str]:
    """Value by option; "" for one without."""
    options: dict[str, str] = {}
    name = ""
    for argument in argv:
        if argument.startswith("-"):
            name, _, value = argument.partition("=")
            options[name] = value
        elif name:
            options[name] = argument
    return options


def _is_named(gpu: Mapping[str, str], wanted: str) -> bool:
    names = {gpu["index"], gpu["uuid"], gpu["pci.bus_id"].lower()[-12:]}
    return any(word in names or word.lower()[-12:] in names for word in wanted.split(","))


def _format_csv(
    records: Sequence[Mapping[str, str]],
    asked: str,
    known: Sequence[str],
    shape: str,
) -> tuple[str, int]:
    fields = [_ALIASES.get(field.strip(), field.strip()) for field in asked.split(",")]
    for field, name in zip(fields, asked.split(","), strict=True):
        if field not in known:
            return f'Field "{name}" is not a valid field to query.\n\n', 2
    words = shape.split(",")
    lines = [] if "noheader" in words else [", ".join(_head(field) for field in fields)]
    lines += [
        ", ".join(_cell(field, record[field], words) for field in fields) for record in records
    ]
    return "".join(f"{line}\n" for line in lines), 0


def _head(field: str) -> str:
    return f"{field} [{_UNITS[field]}]" if field in _UNITS else field


def _cell(field: str, text: str, words: Sequence[str]) -> str:
    has_unit = field in _UNITS and "nounits" not in words and not text.startswith("[")
    return f"{text} {_UNITS[field]}" if has_unit else text


def _format_version(node: Node) -> str:
    driver = node.driver_version
    return (
        f"NVIDIA-SMI version  : {driver}\nNVML version        : {driver.rpartition('.')[0]}\n"
        f"DRIVER version      : {driver}\nCUDA Version        : {node.cuda_version}\n"
    )


if __name__ == "__main__":
    main(sys.argv[1:])

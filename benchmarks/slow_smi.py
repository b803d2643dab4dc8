"""A stand-in for nvidia-smi that costs what the real one does on a node: a fifth of a second, and next to no CPU."""

from pathlib import Path

GPU_QUERY = ("--query-gpu=index,uuid,name,memory.used", "--format=csv,noheader,nounits")
# No Python: five of these run at once, and the real one is none either.
_SLOW_SMI = r"""#!/bin/sh
sleep 0.2
case "$*" in
*--query-gpu=*) ;;
*--version*) printf 'DRIVER version      : 570.133.20\nCUDA Version        : 12.8\n'; exit ;;
*) exit ;;
esac
exec awk -v query="$1" 'BEGIN {
    known["name"] = "NVIDIA H100 80GB HBM3"; known["memory.total"] = 81559; known["memory.used"] = 4
    known["utilization.gpu"] = 0; known["temperature.gpu"] = 33; known["driver_version"] = "570.133.20"
    sub(/^--query-gpu=/, "", query)
    count = split(query, fields, ",")
    for (gpu = 0; gpu < 8; gpu++) {
        known["index"] = gpu
        known["uuid"] = "GPU-0000000" gpu "-6c1f-4d2b-9a3e-00000000d2d0"
        known["pci.bus_id"] = "00000000:" gpu + 1 "8:00.0"
        line = ""
        for (n = 1; n <= count; n++)
            line = line (n > 1 ? ", " : "") (fields[n] in known ? known[fields[n]] : "[N/A]")
        print line
    }
}'
"""


def write_slow_smi(folder: Path) -> Path:
    """Write it into the folder, which is made. Returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "slow-nvidia-smi"
    path.write_text(_SLOW_SMI, "utf-8")
    path.chmod(0o755)
    return path

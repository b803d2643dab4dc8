"""Somebody else's training job on a simulated GPU: holds memory until its file or its cluster is gone.

`python -I -S stranger.py FOLDER INDEX MIB`
"""

import json
import os
import sys
import time
from pathlib import Path

_START_TICKS = 19  # of the fields after the command. Source: proc(5)


def main(folder: Path, index: int, mib: int) -> None:
    """Hold that much of the GPU; return when it is no longer wanted."""
    fields = Path("/proc/self/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    holder = {"mib": mib, "name": sys.executable, "start_ticks": int(fields[_START_TICKS])}
    path = folder / "holders" / str(index) / str(os.getpid())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(holder), "utf-8")
    while path.exists():
        time.sleep(1)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))

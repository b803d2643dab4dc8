"""Files that the operator takes away: never over one that is there, and for nobody else to read."""

import os
from datetime import datetime
from pathlib import Path

from llmgw_core.errors import UsageError


def save_new(text: str, path: str, stem: str, ending: str, now: float) -> Path:
    """Write the text to a new file, and return where it is.

    Args:
        path: as typed; empty: a name made of `stem` and the time, in the working directory.
        ending: of a made name, without its dot.
        now: UTC epoch seconds.

    Raises:
        UsageError: there is such a file already, or it cannot be written.
    """
    made = f"{stem}-{datetime.fromtimestamp(now).astimezone():%Y%m%d-%H%M%S}.{ending}"
    target = Path(path).expanduser() if path else Path(made)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(target, flags, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(
            f"{target} was not written", "it is there already", "name another file"
        ) from None
    except OSError as error:
        raise UsageError(
            f"{target} was not written", error.strerror or str(error), "name another place"
        ) from None
    return target.absolute()

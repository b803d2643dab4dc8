"""Which names of variables and flags mean a secret: those never enter a plan, a file or a command line."""

import re
from typing import Dict, List, Mapping, Sequence, Tuple

_SECRET_NAME = re.compile(
    r"TOKEN$|TOKEN_|SECRET|PASSWORD|PASSWD|API_?KEY|CREDENTIAL", re.IGNORECASE
)
_SECRET_FLAG = re.compile(r"--.*(?:token|secret|password|passwd|api-key)")
_LEAST_PREFIX = len("--api")
# Not secrets, though the pattern says so.
_NO_SECRETS = frozenset({"HF_HUB_DISABLE_IMPLICIT_TOKEN", "HF_TOKEN_PATH"})
_KNOWN_FLAGS = ("--api-key", "--hf-token", "--admin-api-key")
HIDDEN = "(hidden)"


def is_secret_name(name: str) -> bool:
    """Whether a variable of that name holds a secret, as far as a name can tell."""
    return _SECRET_NAME.search(name) is not None and name not in _NO_SECRETS


def is_secret_flag(flag: str) -> bool:
    """Whether a flag, without its value, takes a secret. Engines take `_` for `-`, and shortened flags."""
    long = flag.replace("_", "-").lower()
    is_short = len(long) >= _LEAST_PREFIX and any(known.startswith(long) for known in _KNOWN_FLAGS)
    return is_short or _SECRET_FLAG.fullmatch(long) is not None


def hide_secret_env(env: Mapping[str, str]) -> Dict[str, str]:
    """The same environment, without the values of variables that look like secrets."""
    return {name: HIDDEN if is_secret_name(name) else value for name, value in env.items()}


def hide_secret_args(args: Sequence[str]) -> Tuple[str, ...]:
    """The same arguments, without the values of flags that take secrets: `--flag=X` and `--flag X [X …]`."""
    hidden: List[str] = []
    is_value = False
    for word in args:
        flag, equals, _ = word.partition("=")
        if word.startswith("-"):
            is_value = is_secret_flag(flag) and not equals
            hidden.append(f"{flag}={HIDDEN}" if equals and is_secret_flag(flag) else word)
        else:
            hidden.append(HIDDEN if is_value else word)
    return tuple(hidden)

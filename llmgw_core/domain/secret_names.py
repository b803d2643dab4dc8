"""Which names of variables and flags mean a secret: those never enter a plan, a file or a command line."""

import re

_SECRET_NAME = re.compile(
    r"TOKEN$|TOKEN_|SECRET|PASSWORD|PASSWD|API_?KEY|CREDENTIAL", re.IGNORECASE
)
# Not secrets, though the pattern says so.
_NO_SECRETS = frozenset({"HF_HUB_DISABLE_IMPLICIT_TOKEN", "HF_TOKEN_PATH"})
SECRET_FLAGS = frozenset({"--api-key", "--hf-token", "--admin-api-key", "--token"})


def is_secret_name(name: str) -> bool:
    """Whether a variable of that name holds a secret, as far as a name can tell."""
    return _SECRET_NAME.search(name) is not None and name not in _NO_SECRETS

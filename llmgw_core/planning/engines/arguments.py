"""Reading an engine's command line as its parser would. Pure."""

from collections.abc import Iterator, Sequence


def iter_flags(args: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """(flag, value after `=` or None) of each word that is a flag, `_` read as `-`. A number below 0 is a value."""
    for word in args:
        if not word.startswith("-") or word in {"-", "--"} or word[1:2].isdecimal():
            continue
        flag, equals, value = word.partition("=")
        name = flag.replace("_", "-") if flag.startswith("--") else flag
        yield name, value if equals else None


def find_value(args: Sequence[str], flag: str) -> str | None:
    """The value that the flag has last: `--flag value` or `--flag=value`; None when it is not given."""
    found: str | None = None
    for number, word in enumerate(args):
        name, equals, value = word.partition("=")
        if name.replace("_", "-") != flag:
            continue
        if equals:
            found = value
        elif number + 1 < len(args):
            found = args[number + 1]
    return found


def has_flag(args: Sequence[str], flag: str) -> bool:
    """Whether the flag is given, with a value or without."""
    return any(name == flag for name, _ in iter_flags(args))

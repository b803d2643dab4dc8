"""The commands that are typed after `:`, in one table: the palette, the help and the completion are made from it. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import NamedTuple

Vocabulary = Mapping[
    str, Sequence[str]
]  # the words there are now, by kind: nodes, engines, themes …

SHOWN_WORDS = 4  # of what would have been right, in an error


class Argument(NamedTuple):
    """What stands after a command's name."""

    label: str
    kind: str = ""  # it is one of the vocabulary's words of this kind; empty: any text
    is_required: bool = True
    takes_rest: bool = False  # all that is left of the line, blanks and all


@dataclass(frozen=True)
class Command:
    """One command. `changes` is for those that a read-only console refuses."""

    name: str
    says: str
    arguments: tuple[Argument, ...] = ()
    aliases: tuple[str, ...] = ()
    changes: bool = False

    @property
    def usage(self) -> str:
        """`:sort [COLUMN] [up|down]`."""
        labels = (each.label if each.is_required else f"[{each.label}]" for each in self.arguments)
        return " ".join((f":{self.name}", *labels))

    @property
    def needs_words(self) -> bool:
        """Whether it cannot be given by its name alone."""
        return any(each.is_required for each in self.arguments)


class Call(NamedTuple):
    """A command that was understood, with a word for each of its arguments; empty where one was left out."""

    command: Command
    words: tuple[str, ...]


class Candidate(NamedTuple):
    """What the line may be completed to, and what that means."""

    text: str
    says: str
    changes: bool = False


_OPTIONAL_NODE = Argument("NODE", "nodes", is_required=False)
_ACTIONS = (
    Command("node", "go to a node", (Argument("NAME", "nodes"),)),
    Command("engine", "go to an engine", (Argument("NAME", "engines"),)),
    Command("logs", "follow the log of an engine; of the selected one", (Argument("NAME", "engines", is_required=False),)),
    Command("filter", "show only rows with these words; all, without words", (Argument("WORDS", is_required=False, takes_rest=True),)),
    Command("sort", "sort by a column; without one, as it was", (Argument("COLUMN", "columns", is_required=False), Argument("up|down", "ways", is_required=False))),
    Command("launch", "launch an engine, on this node", (_OPTIONAL_NODE,), changes=True),
    Command("stop", "stop the selected or the marked engines; asks first", changes=True),
    Command("restart", "stop and launch again what is selected; asks first", changes=True),
    Command("forget", "drop record and log of an ended engine; asks first", changes=True),
    Command("related", "go to what the selected row is tied to"),
    Command("refresh", "read all nodes again now"),
    Command("copy", "copy the row, the detail, or the log lines seen"),
    Command("theme", "change the colours; without a name, list them", (Argument("NAME", "themes", is_required=False),)),
    Command("export", "save the table as a new file", (Argument("csv|json", "formats"), Argument("PATH", is_required=False, takes_rest=True))),
    Command("screenshot", "save the screen as a new SVG file", (Argument("PATH", is_required=False, takes_rest=True),)),
    Command("help", "every key and command", aliases=("h",)),
    Command("quit", "leave the console; engines go on", aliases=("q", "q!", "qa")),
)  # fmt: skip
_VIEW_ALIASES = {"cluster": ("nodes",), "processes": ("ps",), "engines": ("eng",)}


def make_commands(views: Iterable[str]) -> tuple[Command, ...]:
    """The table: a command for each numbered view, then all others."""
    shown = tuple(
        Command(view, f"show the {view} view", aliases=_VIEW_ALIASES.get(view, ()))
        for view in views
    )
    return (*shown, *_ACTIONS)


def parse_command(text: str, commands: Sequence[Command], words: Vocabulary) -> Call | str:
    """What was typed, without its colon; a sentence that says what is wrong with it and what would be right.

    A name may be shortened as long as it means one command alone.
    """
    name, _, rest = text.strip().partition(" ")
    found = _find(name, commands)
    if isinstance(found, str):
        return found
    given: list[str] = []
    rest = rest.strip()
    for argument in found.arguments:
        word, rest = (rest, "") if argument.takes_rest else _next_word(rest)
        if not word and argument.is_required:
            return (
                f":{found.name} needs a {argument.label}{_examples(words.get(argument.kind, ()))}"
            )
        if word and argument.kind:
            known = _one_of(word, words.get(argument.kind, ()))
            if known is None:
                return _no_such(argument, word, words.get(argument.kind, ()))
            word = known
        given.append(word)
    if rest:
        return f":{found.name} does not take {rest!r}; it is {found.usage}"
    return Call(found, tuple(given))


def _next_word(text: str) -> tuple[str, str]:
    word, _, rest = text.partition(" ")
    return word, rest.strip()


def _find(name: str, commands: Sequence[Command]) -> Command | str:
    if not name:
        return "type a command; tab completes, :help lists them all"
    exact = [each for each in commands if name == each.name or name in each.aliases]
    if exact:
        return exact[0]
    begun = [each for each in commands if each.name.startswith(name)]
    if len(begun) == 1:
        return begun[0]
    if begun:
        return f":{name} may be {' or '.join(f':{each.name}' for each in begun)}"
    near = get_close_matches(name, [each.name for each in commands], 1)
    hint = f"did you mean :{near[0]}?" if near else ":help lists them all"
    return f"there is no command :{name}; {hint}"


def _one_of(word: str, known: Sequence[str]) -> str | None:
    """The known word that is meant: as it is written, else whatever its case, else the only one that so begins."""
    if word in known:
        return word
    folded = word.casefold()
    same = [each for each in known if each.casefold() == folded]
    begun = same or [each for each in known if each.casefold().startswith(folded)]
    return begun[0] if len(begun) == 1 else None


def _no_such(argument: Argument, word: str, known: Sequence[str]) -> str:
    begun = [each for each in known if each.casefold().startswith(word.casefold())]
    if begun:
        return f"{word!r} may be {_listed(begun)}"
    near = get_close_matches(word, known, SHOWN_WORDS) or known
    return f"{word!r} is no {argument.label} here{_examples(near)}"


def _examples(known: Sequence[str]) -> str:
    return f": {_listed(known)}" if known else ""


def _listed(known: Sequence[str]) -> str:
    more = f" … ({len(known)})" if len(known) > SHOWN_WORDS else ""
    return ", ".join(known[:SHOWN_WORDS]) + more


def complete(
    text: str, commands: Sequence[Command], words: Vocabulary, most: int = 8
) -> tuple[Candidate, ...]:
    """What the line may become: commands by what they begin with, then by what they hold; likewise their words."""
    name, blank, rest = text.lstrip().partition(" ")
    if not blank:
        return _complete_name(name, commands)[:most]
    found = _find(name, commands)
    if isinstance(found, str):
        return ()
    done, _, typed = rest.rpartition(" ")
    place = len(done.split())
    if place >= len(found.arguments):
        return ()
    known = _matching(typed, words.get(found.arguments[place].kind, ()))
    head = f"{name} {done} " if done else f"{name} "
    return tuple(Candidate(head + word, found.says, found.changes) for word in known[:most])


def _complete_name(typed: str, commands: Sequence[Command]) -> tuple[Candidate, ...]:
    by_word = {each.name: each for each in commands}
    by_word.update({alias: each for each in commands for alias in each.aliases})
    found = dict.fromkeys(by_word[word] for word in _matching(typed, tuple(by_word)))
    return tuple(
        Candidate(f"{each.name} " if each.arguments else each.name, each.says, each.changes)
        for each in found
    )


def _matching(typed: str, known: Sequence[str]) -> list[str]:
    """The word itself, those that begin with it, those that hold it; of these the order is theirs."""
    folded = typed.casefold()
    holding = [word for word in known if folded in word.casefold()]
    return sorted(holding, key=lambda word: _rank(word.casefold(), folded))


def _rank(word: str, typed: str) -> tuple[bool, bool]:
    return word != typed, not word.startswith(typed)

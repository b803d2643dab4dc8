"""Carries out what was typed after `:`, on the main screen."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from llmgw_core.errors import LlmgwError
from llmgw_tui.present.acts import Act
from llmgw_tui.present.commands import Vocabulary
from llmgw_tui.present.engines import engines_of
from llmgw_tui.present.export import FORMATS, export_table
from llmgw_tui.present.table import Key, column_word
from llmgw_tui.screens.main import MainScreen
from llmgw_tui.screens.saving import save_new
from llmgw_tui.screens.views import CLUSTER, ENGINES_ID, IDS, LOG_ID

WAYS = ("up", "down")
Handler = Callable[[Sequence[str]], None]


class Commander:
    """Knows what each command does.

    Args:
        main: the screen it is done on.
        themes: names of the colours there are.
        more: what commands do that are not the screen's own, by name.
    """

    def __init__(
        self, main: MainScreen, themes: Sequence[str], more: dict[str, Handler] | None = None
    ) -> None:
        self._main = main
        self._themes = tuple(themes)
        self._handlers: dict[str, Handler] = {
            **{name: partial(self._view, place) for place, name in enumerate(IDS)},
            **{act.value: partial(self._act, act) for act in Act},
            "node": lambda words: main.go_to(CLUSTER.id, (words[0],)),
            "engine": self._engine,
            "logs": self._logs,
            "filter": self._filter,
            "sort": self._sort,
            "export": self._export,
            "screenshot": self._screenshot,
            "launch": lambda words: main.action_launch(words[0]),
            "related": lambda _: main.action_related(),
            "refresh": lambda _: main.action_refresh(),
            "copy": lambda _: main.action_copy(),
            "help": lambda _: main.action_help(),
            "quit": lambda _: main.app.exit(),
            **(more or {}),
        }

    def run(self, name: str, words: Sequence[str]) -> None:
        """Do it, with a word for each argument of the command."""
        self._handlers[name](words)

    def vocabulary(self) -> Vocabulary:
        """The names there are now, for completion."""
        main = self._main
        snapshot = main.snapshot
        view = None if main.current == LOG_ID else main.view_of(main.current)
        return {
            "nodes": () if snapshot is None else [item.node.name for item in snapshot.nodes],
            "engines": tuple(self._engines()),
            "columns": [column_word(column) for column in view.spec.columns] if view else (),
            "ways": WAYS,
            "themes": self._themes,
            "formats": FORMATS,
        }

    def _engines(self) -> dict[str, Key]:
        """The key of each engine by its name, with the node where several nodes have one of that name."""
        snapshot = self._main.snapshot
        items = () if snapshot is None else engines_of(snapshot)
        count = Counter(item.status.name for item in items)
        keys: dict[str, Key] = {}
        for item in items:
            name = item.status.name
            # Of one name on one node the first, which is the latest, is meant.
            keys.setdefault(name if count[name] == 1 else f"{name}@{item.key[0]}", item.key)
        return keys

    def _view(self, place: int, words: Sequence[str]) -> None:
        del words
        self._main.action_view(place)

    def _act(self, act: Act, words: Sequence[str]) -> None:
        del words
        self._main.action_act(act.value)

    def _engine(self, words: Sequence[str]) -> None:
        key = self._engines().get(words[0])
        if key is not None:
            self._main.go_to(ENGINES_ID, key)

    def _logs(self, words: Sequence[str]) -> None:
        key = self._engines().get(words[0])
        if key is None:
            self._main.action_logs()
        else:
            self._main.go_to(LOG_ID, key)

    def _filter(self, words: Sequence[str]) -> None:
        if self._is_on_table("/ searches a log, & shows only its hits."):
            self._main.view_of(self._main.current).set_filter(words[0])

    def _sort(self, words: Sequence[str]) -> None:
        if self._is_on_table("A log stands in the order it was written."):
            view = self._main.view_of(self._main.current)
            names = [column_word(column) for column in view.spec.columns]
            place = names.index(words[0]) if words[0] else None
            view.set_order(place, reverse=words[1] == "down")

    def _export(self, words: Sequence[str]) -> None:
        if not self._is_on_table("S saves a log."):
            return
        view = self._main.view_of(self._main.current)
        text = export_table(view.spec.columns, view.table.rows, words[0])
        self._save(text, words[1], self._main.current, words[0])

    def _screenshot(self, words: Sequence[str]) -> None:
        # The command line is still being closed: what is under it is wanted.
        self._main.call_after_refresh(self._save_picture, words[0])

    def _save_picture(self, path: str) -> None:
        self._save(self._main.app.export_screenshot(), path, self._main.current, "svg")

    def _save(self, text: str, path: str, view: str, ending: str) -> None:
        try:
            saved = save_new(text, path, f"llmgw-{view}", ending, time.time())
        except LlmgwError as error:
            self._main.notify(str(error), severity="error", markup=False)
        else:
            self._main.notify(f"Saved as {saved}.", markup=False)

    def _is_on_table(self, said: str) -> bool:
        if self._main.current == LOG_ID:
            self._main.notify(said, severity="warning", markup=False)
        return self._main.current != LOG_ID

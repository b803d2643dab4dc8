"""Which flags an engine has at a version, by the tables that `scripts/engine_flags.py` writes. Pure."""

from collections.abc import Mapping, Sequence
from functools import lru_cache

from llmgw_core.domain.engine import EngineKind
from llmgw_core.planning.engines import sglang_flags, vllm_flags
from llmgw_core.planning.versions import Version, parse_version

Span = tuple[int, int]  # numbers of the first and the last release that had it


class FlagTable:
    """The flags of one engine over its releases that were read."""

    def __init__(self, releases: Sequence[str], flags: Mapping[tuple[str, str], str]) -> None:
        self.releases = tuple(releases)
        self._releases = [parse_version(release) or () for release in releases]
        order = {release: number for number, release in enumerate(releases)}
        self._spans: dict[str, list[Span]] = {}
        for (first, last), words in flags.items():
            for word in words.split():
                self._spans.setdefault(word, []).append((order[first], order[last]))

    def list_known(self, version: Version | None) -> frozenset[str]:
        """All flags that this version may have: between two releases that were read, those of both.

        Args:
            version: None: not known, so those of all releases.
        """
        if version is None:
            return frozenset(self._spans)
        near = set(self._neighbours(version))
        return frozenset(
            flag
            for flag, spans in self._spans.items()
            if any(first <= number <= last for first, last in spans for number in near)
        )

    def covers(self, version: Version | None) -> bool:
        """Whether a flag that is not there surely is none: releases before and after it were read."""
        return version is not None and self._releases[0] <= version <= self._releases[-1]

    def tell_history(self, flag: str) -> str:
        """`from 0.11.1 on`, `up to 0.15.1`, `from 0.11.1 to 0.12.0`; "" when no release had it."""
        spans = self._spans.get(flag)
        if not spans:
            return ""
        first, last = min(span[0] for span in spans), max(span[1] for span in spans)
        if last == len(self.releases) - 1:
            return f"from {self.releases[first]} on"
        if first == 0:
            return f"up to {self.releases[last]}"
        return f"from {self.releases[first]} to {self.releases[last]}"

    def _neighbours(self, version: Version) -> list[int]:
        """The release itself; else the last before it and the first after it."""
        before = [number for number, release in enumerate(self._releases) if release <= version]
        after = [number for number, release in enumerate(self._releases) if release >= version]
        return [*before[-1:], *after[:1]]


@lru_cache(maxsize=8)
def load_flags(engine: EngineKind) -> FlagTable:
    """The engine's table."""
    source = {EngineKind.VLLM: vllm_flags, EngineKind.SGLANG: sglang_flags}[engine]
    return FlagTable(source.RELEASES, source.FLAGS)

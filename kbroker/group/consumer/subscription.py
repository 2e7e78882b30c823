"""What the members of a group subscribe to, counted: by name, and by regular expression."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from kbroker.group.consumer.member import Member
from kbroker.group.topics import Topics


class Subscriptions:
    """Topics and regular expressions with the number of those who name them.

    by_name:  topic -> members that name it.
    by_regex: topic -> regular expressions, of those resolved, that it matches.
    regexes:  regular expression -> members.
    """

    def __init__(self) -> None:
        self.by_name: Counter[str] = Counter()
        self.by_regex: Counter[str] = Counter()
        self.regexes: Counter[str] = Counter()

    def copy(self) -> Subscriptions:
        """The same counts, to be changed."""
        other = Subscriptions()
        other.by_name = Counter(self.by_name)
        other.by_regex = Counter(self.by_regex)
        other.regexes = Counter(self.regexes)
        return other

    def has(self, topic: str) -> bool:
        """Whether anybody subscribes to the topic."""
        return topic in self.by_name or topic in self.by_regex

    def topics(self) -> set[str]:
        """All topics, those that do not exist too."""
        return {*self.by_name, *self.by_regex}

    def replace(self, old: Member | None, new: Member | None) -> None:
        """A member came, changed or went."""
        if old is not None and new is not None and old.topic_names == new.topic_names:
            _count(self.regexes, [old.topic_regex] if old.topic_regex else (), -1)
            _count(self.regexes, [new.topic_regex] if new.topic_regex else (), 1)
            return
        for member, by in ((old, -1), (new, 1)):
            if member is not None:
                _count(self.by_name, member.topic_names, by)
                _count(self.regexes, [member.topic_regex] if member.topic_regex else (), by)

    def resolve(self, old: Iterable[str], new: Iterable[str]) -> None:
        """A regular expression names other topics now."""
        _count(self.by_regex, old, -1)
        _count(self.by_regex, new, 1)

    def is_homogeneous(self, members: int) -> bool:
        """Whether all of so many members subscribe to the same topics, all by name or all by the
        same regular expression."""
        if not self.regexes:
            return not self.by_regex and all(n == members for n in self.by_name.values())
        if next(iter(self.regexes.values())) != members:
            return False
        return not self.by_name and all(count == 1 for count in self.by_regex.values())


def _count(counts: Counter[str], names: Iterable[str], by: int) -> None:
    for name in names:
        counts[name] += by
        if counts[name] <= 0:
            del counts[name]


class TopicIdsOf:
    """The ids of the topics that members subscribe to; members who say the same share them."""

    def __init__(self, topics: Topics, regex_topics: Mapping[str, frozenset[str]]) -> None:
        self._topics = topics
        self._regex_topics = regex_topics
        self._known: dict[tuple[frozenset[str], str | None], tuple[bytes, ...]] = {}

    def __call__(self, member: Member) -> tuple[bytes, ...]:
        """Of topics that exist. A regular expression that is not resolved names none."""
        key = (member.topic_names, member.topic_regex)
        found = self._known.get(key)
        if found is None:
            names = member.topic_names
            if member.topic_regex:
                names |= self._regex_topics.get(member.topic_regex, frozenset())
            infos = (self._topics.by_name(name) for name in sorted(names))
            found = self._known[key] = tuple(one.topic_id for one in infos if one is not None)
        return found

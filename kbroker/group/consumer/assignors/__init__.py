"""Server-side assignors (KIP-848): who of a group gets which partitions.

An assignor is a function of a `GroupSpec`, which tells the members with what they subscribe to
and what they were given last. It gives each member its partitions by topic id. Both assignors give
what Apache Kafka's give (tests/differential/test_consumer_assignors.py), down to the order in
which members are served: see `order`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from .range import assign_range
from .spec import Assignment, GroupSpec, MemberSpec
from .uniform import assign_uniform

Assignor = Callable[[GroupSpec], dict[str, Assignment]]

ASSIGNORS: Final[dict[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}

__all__ = ["ASSIGNORS", "Assignment", "Assignor", "GroupSpec", "MemberSpec"]

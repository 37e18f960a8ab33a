"""What happens in a round, recorded for the rules that check it."""

from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Optional

from .calls import SchedulingDelays


@dataclass
class Key:
    id: str
    account: str
    token: str


@dataclass
class Change:
    """A command that changes keys or limits, and its outcome."""

    kind: str
    account: str
    key: Optional[str] = None
    value: Optional[int] = None
    started: float = 0.0
    ended: Optional[float] = None
    done: bool = False
    # The term in which the command ended; -1 if it reached an old primary, None if unknown.
    term: Optional[int] = None
    said: str = ""

    def __str__(self):
        what = {"limit": f"limit {self.value} of {self.account}"}
        return what.get(self.kind, f"{self.kind} key {self.key} of {self.account}")


@dataclass
class PrimaryTerm:
    """The time in which a server is the primary, and what it had at the start of that time."""

    server: str
    since: float
    keys: dict
    limits: dict
    until: float = float("inf")


@dataclass
class Record:
    """What happened in a round."""

    terms: list = field(default_factory=list)
    # By node and term: the times since which and until which the node's proxy led to the primary.
    contacts: dict = field(default_factory=dict)
    changes: list = field(default_factory=list)
    samples: list = field(default_factory=list)
    status_reports: list = field(default_factory=list)
    faults: list = field(default_factory=list)
    # Keys whose rotation failed. The command may have undone the rotation, or not.
    keys_in_doubt: set = field(default_factory=set)
    delays: SchedulingDelays = field(default_factory=SchedulingDelays)
    on_failure: str = ""
    nodes: int = 0


def has_ended(key):
    """Returns True if a listed key is revoked, or if it was rotated and has expired."""
    if key["revoked_at"] is not None:
        return True
    ends = key["expires_at"]
    return ends is not None and datetime.fromisoformat(ends) <= datetime.now(timezone.utc)

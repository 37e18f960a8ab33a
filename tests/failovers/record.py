"""What a round notes, for those who judge it."""

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
    """A command that changes keys or limits, and what came of it."""

    kind: str
    account: str
    key: Optional[str] = None
    value: Optional[int] = None
    started: float = 0.0
    ended: Optional[float] = None
    done: bool = False
    # In whose term the command had its answer; None if it may be one or another.
    term: Optional[int] = None
    said: str = ""

    def __str__(self):
        what = {"limit": f"limit {self.value} of {self.account}"}
        return what.get(self.kind, f"{self.kind} key {self.key} of {self.account}")


@dataclass
class PrimaryTerm:
    """A server that is the store, from its promotion on, and what it held then."""

    server: str
    since: float
    keys: dict
    limits: dict
    until: float = float("inf")


@dataclass
class Record:
    """What happened in a round."""

    terms: list = field(default_factory=list)
    # Of each node, by term: since when its link leads to the server that reigns, and until when.
    contacts: dict = field(default_factory=dict)
    changes: list = field(default_factory=list)
    samples: list = field(default_factory=list)
    status_reports: list = field(default_factory=list)
    faults: list = field(default_factory=list)
    # Keys whose rotation failed: the command may have undone it, or not.
    keys_in_doubt: set = field(default_factory=set)
    delays: SchedulingDelays = field(default_factory=SchedulingDelays)
    on_failure: str = ""
    nodes: int = 0


def has_ended(key):
    """Whether a key as it is listed is revoked, or was rotated and has ended."""
    if key["revoked_at"] is not None:
        return True
    ends = key["expires_at"]
    return ends is not None and datetime.fromisoformat(ends) <= datetime.now(timezone.utc)

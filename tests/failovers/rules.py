"""The rules of a round. Checks the record, and sends each node requests once more at the end.

A node is in contact while its proxy leads to the primary. A deadline starts once the primary has a
change and the node is in contact.
"""

import asyncio
from collections import defaultdict

from . import calls
from .servers import MAX_UNSETTLED, now

# A change must be in effect within one second. One more second is for a loaded machine; the delays
# of the script itself are added.
DIRECT_SECONDS = 2.0
# If only one node knows a lost change, this node first writes it back, and the others then read it.
RELAYED_SECONDS = 3.0
# After a store lost data, nodes report their totals again for 3 s. A node that connects later may
# lose its lease.
RECOVERY_SECONDS = 2.5


def find_violations(record):
    samples = sorted(record.samples, key=lambda sample: sample.received)
    found = {}
    keys = _KeyRules(record)
    for sample in samples:
        if sample.key in record.keys_in_doubt:
            continue
        for rule, text in [*keys.check_sample(sample), *_limit_faults(record, sample)]:
            about = sample.account if rule == "limit" else sample.key
            found.setdefault((rule, sample.node, about), text)
        if sample.status not in (200, 401, 429, 500):
            found.setdefault(("status", sample.node, sample.status),
                             f"expected 200, 401, 429 or 500 of node {sample.node}, but found "
                             f"{sample.status}")
    return [*found.values(), *_check_limits_kept(record, samples)]


def _term_at(record, node, moment):
    """Returns the number of the term, and since when the node is in contact; None if the node
    is not in contact with the primary."""
    for number in range(len(record.terms) - 1, -1, -1):
        term = record.terms[number]
        if term.since <= moment:
            since, until = record.contacts.get((node, number), (float("inf"), 0.0))
            return (number, since) if since <= moment < min(until, term.until) else None
    return None


def _is_due(record, since, within, moment):
    return moment > since + within + record.delays.within(since, moment)


class _KeyRules:
    """The keys that a node must accept, and those that it must refuse."""

    def __init__(self, record):
        self.record = record
        # By node and key: when the node first accepted it, and when it first refused it as revoked.
        self.accepted, self.refused = {}, {}
        # By key: the nodes that know the key, and those that know its revocation, since when.
        self.knowers, self.revokers = defaultdict(dict), defaultdict(dict)
        self.revoke_begun, self.created, self.revoked = {}, {}, defaultdict(list)
        for change in record.changes:
            if change.kind == "revoke":
                started = self.revoke_begun.get(change.key, float("inf"))
                self.revoke_begun[change.key] = min(started, change.started)
                if change.done:
                    self.revoked[change.key].append(change)
            elif change.kind == "create" and change.done:
                self.created[change.key] = change

    def check_sample(self, sample):
        at = _term_at(self.record, sample.node, sample.sent)
        if sample.status == 401:
            return self.check_refused(sample, at)
        return self.check_accepted(sample, at)

    def check_accepted(self, sample, at):
        pair = sample.node, sample.key
        self.accepted.setdefault(pair, sample.received)
        self.knowers[sample.key].setdefault(sample.node, sample.received)
        if pair in self.refused and self.refused[pair] < sample.sent:
            since = sample.sent - self.refused[pair]
            yield "reopened", (f"expected 401 of node {sample.node} for key {sample.key}, whose "
                               f"revocation it had known for {since:.1f} s, but found "
                               f"{sample.status}")
        if at is None:
            return
        number, contact = at
        revoked = [max(since, contact) for since in self.revoked_in(sample.key, number)]
        if revoked and _is_due(self.record, min(revoked), DIRECT_SECONDS, sample.sent):
            yield "revoked", (f"expected 401 of node {sample.node} for key {sample.key}, revoked "
                              f"in the store and heard {sample.sent - min(revoked):.1f} s before, "
                              f"but found {sample.status}")
        known = self.heard_of(self.revokers[sample.key], number, contact)
        if known and _is_due(self.record, min(known), RELAYED_SECONDS, sample.sent):
            yield "known", (f"expected 401 of node {sample.node} for key {sample.key}, whose "
                            f"revocation another node knew {sample.sent - min(known):.1f} s "
                            f"before, but found {sample.status}")

    def check_refused(self, sample, at):
        pair, started = (sample.node, sample.key), self.revoke_begun.get(sample.key, float("inf"))
        if pair in self.accepted:
            if started > sample.received:
                yield "closed", (f"expected no 401 of node {sample.node} for key {sample.key}, "
                                 "which nobody revoked and which it had accepted, but found one")
            self.refused.setdefault(pair, sample.received)
            self.revokers[sample.key].setdefault(sample.node, sample.received)
            return
        if at is None or started <= sample.received:
            return
        number, contact = at
        good = [max(since, contact) for since in self.good_in(sample.key, number)]
        if good and _is_due(self.record, min(good), DIRECT_SECONDS, sample.sent):
            yield "good", (f"expected no 401 of node {sample.node} for key {sample.key}, which is "
                           f"good in the store for {sample.sent - min(good):.1f} s, but found one")
        known = self.heard_of(self.knowers[sample.key], number, contact)
        if known and _is_due(self.record, min(known), RELAYED_SECONDS, sample.sent):
            yield "lost", (f"expected no 401 of node {sample.node} for key {sample.key}, which "
                           f"another node knew {sample.sent - min(known):.1f} s before, but found "
                           "one")

    def revoked_in(self, key, number):
        """The times from which the primary has a revocation of the key."""
        term = self.record.terms[number]
        held = [term.since] if term.keys.get(key) else []
        return held + [change.ended for change in self.revoked[key] if change.term == number]

    def good_in(self, key, number):
        term = self.record.terms[number]
        held = [term.since] if term.keys.get(key) is False else []
        change = self.created.get(key)
        return held + ([change.ended] if change and change.term == number else [])

    def heard_of(self, nodes, number, contact):
        """For each node that knows: the time since which that node and this node were both in
    contact."""
        contacts = self.record.contacts
        return [max(since, contact, contacts[node, number][0])
                for node, since in nodes.items() if (node, number) in contacts]


def limit_in_force(record, account, number, sent, received):
    """Returns the primary's limit and since when it applies; None if that is not certain."""
    term = record.terms[number]
    changes = [change for change in record.changes
               if change.kind == "limit" and change.account == account
               and change.started < received and change.term in (number, None)
               and (change.ended is None or change.ended >= term.since)]
    if not changes:
        return term.limits.get(account), term.since
    if any(change.ended is None or change.ended > sent for change in changes):
        return None
    last = max(changes, key=lambda change: change.ended)
    overlaps = any(other is not last and other.ended > last.started for other in changes)
    if overlaps or not last.done or last.term is None:
        return None
    return last.value, last.ended


def _limit_faults(record, sample):
    at = _term_at(record, sample.node, sample.sent)
    if sample.limit is None or at is None:
        return
    number, contact = at
    force = limit_in_force(record, sample.account, number, sample.sent, sample.received)
    if force is None:
        return
    value, since = force[0], max(force[1], contact)
    if sample.limit != value and _is_due(record, since, DIRECT_SECONDS, sample.sent):
        yield "limit", (f"expected the limit {value} of account {sample.account} on node "
                        f"{sample.node}, in the store and heard {sample.sent - since:.1f} s "
                        f"before, but found {sample.limit}")


def _check_limits_kept(record, samples):
    """Yields a fault for each account that exceeded its highest limit by more than
    docs/guarantees.md allows."""
    admitted = defaultdict(int)
    for sample in samples:
        admitted[sample.account] += sample.admitted
    most = {account: limit for account, limit in record.terms[0].limits.items()}
    for change in record.changes:
        if change.kind == "limit":
            most[change.account] = max(most[change.account], change.value)
    unsettled = MAX_UNSETTLED if record.on_failure == "open" else 0
    for account, limit in most.items():
        lease = max(1, min(limit // 100, max(64, limit // 10_000), 4_096))
        # One lease per node for changed limits, and one for each failover that a node saw late.
        changed = account not in ("steady", "tight")
        leases = record.nodes * (changed + _count_late_failovers(record))
        bound = limit + record.nodes * unsettled * (len(record.terms) - 1) + leases * lease
        if admitted[account] > bound:
            yield (f"expected at most {bound} calls of account {account} with a limit of {limit}, "
                   f"but found {admitted[account]}")


def _count_late_failovers(record):
    """Counts the failovers that at least one node noticed late."""
    late = 0
    for number in range(1, len(record.terms)):
        since = [contact[0] for (_, of), contact in record.contacts.items() if of == number]
        late += max(since) - min(since) > RECOVERY_SECONDS
    return late


def check_losses_reported(record, said):
    """A node that knows what the store lost must report it."""
    samples = sorted(record.samples, key=lambda sample: sample.received)
    yield from _check_lost_limits_reported(record, samples)
    keys = _KeyRules(record)
    for sample in samples:
        list(keys.check_sample(sample))
    lost = []
    for number in range(1, len(record.terms)):
        for key, nodes in keys.revokers.items():
            for node, since in nodes.items():
                contact = record.contacts.get((node, number))
                if (contact and since < contact[0]
                        and not record.terms[number].keys.get(key)
                        and not _is_made_again(record, number, key, contact[0] + DIRECT_SECONDS)):
                    lost.append((node, key))
    if lost and not any("the store lost" in text for text in said):
        node, key = lost[0]
        yield (f"expected some node to report that the store lost what node {node} knew, that key "
               f"{key} is revoked, but none did")


def _is_made_again(record, number, key, before):
    return any(change.kind == "revoke" and change.key == key
               and change.term in (number, None, number - 1)
               and record.terms[number].since <= change.ended and change.started < before
               for change in record.changes)


def _check_lost_limits_reported(record, samples):
    for (node, number), (contact, until) in record.contacts.items():
        for change in _lost_limits(record, number):
            if not any(sample.node == node and sample.account == change.account
                       and change.started < sample.sent and sample.received < contact
                       and sample.limit == change.value for sample in samples):
                continue
            since = record.terms[number].since
            started = [other.started for other in record.changes if other.kind == "limit"
                     and other.account == change.account and other.ended >= since]
            end = min([until, record.terms[number].until, *started])
            for report in record.status_reports:
                if (report.node == node and report.at < end
                        and _is_due(record, contact, DIRECT_SECONDS, report.at)
                        and not (report.failing
                                 and f"account {change.account}" in report.degraded)):
                    yield (f"expected node {node} to report that the store lost the {change}, but "
                           f"found {report.degraded!r} and riskgate_reload_failing "
                           f"{report.failing}")
                    break


def _lost_limits(record, number):
    """For each account, the last limit of the previous term if the new primary lost it."""
    for account in record.terms[0].limits if number else ():
        before, term = record.terms[number - 1:number + 1]
        changes = [change for change in record.changes
                   if change.kind == "limit" and change.account == account
                   and change.ended >= before.since and change.started < term.since]
        last = max(changes, key=lambda change: change.ended, default=None)
        overlaps = any(other is not last and other.ended > last.started for other in changes)
        if last and last.done and last.term == number - 1 and not overlaps:
            others = [before.limits[account],
                      *(other.value for other in changes if other is not last)]
            if last.value not in others and term.limits[account] in others:
                yield last


async def compare_nodes_with_store(round_, held):
    """Compares every key and limit on every node with the lists of the store."""
    faults = []
    for node in round_.nodes:
        for account, keys in round_.keys.items():
            faults += await _compare_account(round_, node, account, keys, held)
    return faults


async def _compare_account(round_, node, account, keys, held):
    faults, good = [], None
    caller = calls.Caller(node, account)
    try:
        for key in keys:
            sample = await caller.ask(key, calls.DOMAIN)
            is_good = held.keys.get(key.id) is False
            good = key if is_good and sample.status != 401 else good
            if is_good != (sample.status != 401):
                faults.append(f"expected key {key.id}, in the store "
                              f"{_key_state(held.keys.get(key.id))}, to be so on {node.name} at "
                              f"the end, but found {sample.status}")
        started = now()
        while good:
            limit = (await caller.ask(good, calls.USAGE)).limit
            if limit == held.limits[account]:
                break
            if limit is not None or now() - started > DIRECT_SECONDS:
                faults.append(f"expected the limit {held.limits[account]} of account {account} "
                              f"on {node.name} at the end, as in the store, but found {limit}")
                break
            await asyncio.sleep(0.1)
    finally:
        caller.close()
    return faults


def _key_state(is_revoked):
    return {None: "unknown", True: "revoked", False: "good"}[is_revoked]


async def resolve_lost_limits(round_):
    """Sets the limits that nodes report as lost. Afterwards no node may report a problem."""
    started, is_set = now(), set()
    while True:
        reports = [await node.read_status() for node in round_.nodes]
        texts = " | ".join(report[0] for report in reports if report)
        for account in round_.keys:
            if f"account {account}: the store lost" in texts and account not in is_set:
                is_set.add(account)
                limit = str(round_.plans["turning"] + len(is_set))
                code, _, stderr = await round_.run_command(
                    "accounts", "set", account, "--limit", limit)
                if code != 0:
                    return [f"expected accounts set {account} to be done, but found {stderr}"]
                started = now()
        if all(report == ("", 0) for report in reports):
            return []
        if now() - started > RELAYED_SECONDS + round_.record.delays.within(started, now()):
            return [f"expected no node to report a problem of its keys at the end, but "
                    f"found {reports}"]
        await asyncio.sleep(0.1)

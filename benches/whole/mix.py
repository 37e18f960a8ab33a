"""The workload: domains of the bundled lists, keys, and the right responses.

Writes the same facts for every subject, in the format that it reads. One seed determines
everything, so that two runs send the same requests.
"""

import calendar
import copy
import hashlib
import json
import random
import subprocess
import time

SEED = 20261101
ACCOUNTS = 1_000
LIMIT = 100_000_000
# The limit of an account that sends as many requests as a thousand others.
BIG_LIMIT = 1_000_000_000
REQUESTS = 4_000
# Shares of the workload, as a signup form may see them.
FREE, LISTED, SUBDOMAINS = 0.45, 0.20, 0.10
ORIGIN = "https://app.example.com"
UNKNOWN = ('"risk_score":10,"reason":"safe","is_free_provider":false,"is_corporate_email":false,'
           '"mx_provider_label":null')
LISTS = ("special-use", "protected", "corporate", "alias", "disposable-a", "disposable-b",
         "disposable-c", "role", "free")


def ask_table(binary, names, source):
    """Looks names up with the riskgate command. Returns their facts."""
    found = {}
    for first in range(0, len(names), 10_000):
        ran = subprocess.run(
            [binary, "table", "lookup", "--json", "--table", source, *names[first:first + 10_000]],
            stdout=subprocess.PIPE, check=True)
        for each in json.loads(ran.stdout):
            answer = each["answer"]
            facts = {key: answer[key] for key in ("risk_score", "reason", "is_free_provider",
                                                "is_corporate_email", "mx_provider_label")}
            text = json.dumps(facts, separators=(",", ":"), ensure_ascii=False)
            found[each["domain"]] = (text[1:-1], each["row"])
    return found


class TableRows:
    """All rows of the bundled table, in a form that other programs can look up."""

    def __init__(self, binary, data, cache):
        covers = {}
        for name in LISTS:
            for line in (data / f"{name}.txt").read_text().splitlines():
                word = line.split(" ")[0]
                if word and not word.startswith("#") and "." in word:
                    name_alone = word.removeprefix("=")
                    covers[name_alone] = covers.get(name_alone, False) or name_alone == word
        stamp = hashlib.sha256(repr(sorted(covers)).encode()).hexdigest()[:16]
        kept = cache / f"rows-{stamp}.json"
        if not kept.exists():
            answers = ask_table(binary, sorted(covers), data)
            # A listed name without a row of its own in the table is a public suffix: no request
            # can match it.
            kept.write_text(json.dumps({n: f for n, (f, row) in answers.items() if row == n}))
        self.facts = json.loads(kept.read_text())
        self.covers = {name: covers[name] for name in self.facts}

    def row_of(self, domain):
        if domain in self.facts:
            return domain
        parent = domain
        while "." in (parent := parent.partition(".")[2]):
            if self.covers.get(parent):
                return parent
        return None

    def needed(self, mix):
        """Returns only the rows that a workload needs."""
        fewer = copy.copy(self)
        names = {self.row_of(path.rpartition("/")[2]) for path, *_ in mix.lines} - {None}
        fewer.facts = {name: self.facts[name] for name in names}
        return fewer

    def body(self, domain):
        return f'{{"domain":"{domain}",{self.facts.get(self.row_of(domain), UNKNOWN)}}}'


class Keys:
    """Keys of several accounts. Every fourth account is a web page's, with allowed origins."""

    def __init__(self, number, accounts=ACCOUNTS, plan="bench"):
        self.number, self.accounts, self.plan = number, min(accounts, number), plan

    def text(self, at):
        return f"bench_{hashlib.md5(f'{SEED} {at}'.encode()).hexdigest()}"

    def account(self, at):
        at %= self.accounts
        return f"{'web' if self.is_web(at) else 'srv'}-{at}"

    def is_web(self, at):
        return at % 4 == 0

    def digest(self, at):
        return hashlib.sha256(self.text(at).encode()).hexdigest()

    def file(self, path):
        """Writes the key file of riskgate."""
        with open(path, "w") as out:
            for at in range(self.number):
                origins = f'["{ORIGIN}", "https://*.example.org"]' if self.is_web(at) else "[]"
                out.write(f'[[key]]\nid = "key-{at}"\naccount = "{self.account(at)}"\n'
                          f'plan = "{self.plan}"\nhash = "sha256:{self.digest(at)}"\n'
                          f"origins = {origins}\n")


class Workload:
    """Requests with their right bodies, one per line: path, key, origin, body."""

    def __init__(self, lines, path):
        self.lines, self.path = lines, path
        path.write_text("".join("\t".join(line) + "\n" for line in lines))

    def sample(self, count):
        step = max(1, len(self.lines) // count)
        return self.lines[::step]


class FormWorkload(Workload):
    """Requests that post a form: its body is a fifth column."""

    def __init__(self, lines, forms, path):
        self.lines, self.forms, self.path = lines, forms, path
        path.write_text("".join("\t".join(line) + "\t" + form + "\n"
                                for line, form in zip(lines, forms)))


def assign_keys(keys, requests, draw):
    """Assigns a key to each request: all keys equally often, in random order."""
    chosen = [at * keys.number // requests if keys.number > requests else at % keys.number
              for at in range(requests)]
    draw.shuffle(chosen)
    return [(keys.text(at), ORIGIN if keys.is_web(at % keys.accounts) else "") for at in chosen]


def draw_domains(rows, count, draw):
    """Draws names at random: free providers (mostly a few well-known ones), disposable names,
    subdomains of disposable names, and names in no list."""
    by_kind = {"free": [], "disposable": []}
    for name, facts in rows.facts.items():
        if '"is_free_provider":true' in facts:
            by_kind["free"].append(name)
        elif '"reason":"disposable"' in facts and rows.covers[name]:
            by_kind["disposable"].append(name)
    well_known = ["gmail.com", "hotmail.com", "outlook.com", "yahoo.com", "icloud.com", "gmx.de"]
    well_known = [name for name in well_known if name in rows.facts]
    found = []
    for _ in range(count):
        kind = draw.random()
        if kind < FREE:
            found.append(draw.choice(well_known if draw.random() < 0.8 else by_kind["free"]))
        elif kind < FREE + LISTED:
            found.append(draw.choice(by_kind["disposable"]))
        elif kind < FREE + LISTED + SUBDOMAINS:
            found.append(f"mail{draw.randrange(100)}.{draw.choice(by_kind['disposable'])}")
        else:
            found.append(f"company-{draw.getrandbits(40):010x}.{draw.choice(['com', 'net', 'de'])}")
    return found


def lookup_workload(rows, keys, path, requests=REQUESTS):
    draw = random.Random(SEED)
    names = draw_domains(rows, requests, draw)
    callers = assign_keys(keys, requests, draw)
    return Workload([(f"/v1/public/domain/{name}", key, origin, rows.body(name))
                for name, (key, origin) in zip(names, callers)], path)


def one_account_workload(mix, keys, path):
    """The same requests with one key. It is a web page's, and allows requests without an origin."""
    return Workload([(target, keys.text(0), origin, body)
                     for target, _, origin, body in mix.lines], path)


def check_workload(keys, path, requests=REQUESTS):
    draw = random.Random(SEED + 1)
    callers = assign_keys(keys, requests, draw)
    return Workload([(f"/v1/check/user{draw.getrandbits(32)}%40example.com", key, origin,
                 '{"risk_score":10}') for key, origin in callers], path)


def form_workload(rows, keys, path, requests=REQUESTS):
    """Sign-up forms with the domains of the look-ups."""
    draw = random.Random(SEED + 2)
    names = draw_domains(rows, requests, draw)
    forms = [f"name=Jane+Doe&email=user{draw.getrandbits(32)}%40{name}&password=correct+horse"
             for name in names]
    line = ("/signup", keys.text(0), "", '{"risk_score":10}')
    return FormWorkload([line] * requests, forms, path)


def month_ends():
    now = time.gmtime()
    return calendar.timegm((now.tm_year + now.tm_mon // 12, now.tm_mon % 12 + 1, 1, 0, 0, 0))


def write_peer_files(rows, keys, mix, folder):
    """Writes table, keys and bodies in the format of each peer."""
    quoted = {name: facts.replace("\\", "\\\\").replace("'", "\\'")
              for name, facts in rows.facts.items()}
    bodies = {path: body for path, _, _, body in mix.lines}
    (folder / "bodies.map").write_text(
        "".join(f"{path} '{body}';\n" for path, body in bodies.items()))
    (folder / "table.map").write_text("".join(
        f"{'.' if rows.covers[name] else ''}{name} '{facts}';\n" for name, facts in quoted.items()))
    (folder / "table.tsv").write_text("".join(
        f"{name}\t{'covers' if rows.covers[name] else 'alone'}\t{facts}\n"
        for name, facts in rows.facts.items()))
    for kind, wanted in (("covers", True), ("alone", False)):
        (folder / f"{kind}.map").write_text("".join(
            f"{name} {facts}\n" for name, facts in rows.facts.items()
            if rows.covers[name] == wanted))
    every = range(keys.number)
    (folder / "nginx-keys.map").write_text("".join(
        f'"Bearer {keys.text(at)}" {keys.account(at)};\n' for at in every))
    (folder / "haproxy-keys.map").write_text("".join(
        f"{keys.digest(at)} {keys.account(at)}\n" for at in every))
    accounts = sorted({keys.account(at) for at in every})
    web = [account for account in accounts if account.startswith("web-")]
    (folder / "nginx-origins.map").write_text(
        "".join(f'"{account} " -;\n' for account in accounts)
        + "".join(f'"{account} {ORIGIN}" -;\n' for account in web))
    (folder / "haproxy-origins.map").write_text(
        "".join(f"{account}|{ORIGIN} -\n" for account in web))
    (folder / "keys.tsv").write_text("".join(
        f"{keys.digest(at)}\t{keys.account(at)}\t{LIMIT}\t"
        f"{ORIGIN if keys.is_web(at % keys.accounts) else ''}\n" for at in every))

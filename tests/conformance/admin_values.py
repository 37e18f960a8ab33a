"""Gives valid requests to the admin API the values that no schema can describe.

A schema can't say which plans the config has, that a day is in the future, what a cursor looks
like, that an Idempotency-Key is new, or that an integer is written without a fraction. Only valid
requests are changed, so that invalid ones stay as schemathesis makes them.
"""

import itertools
import uuid
from urllib.parse import unquote

import schemathesis

LAST_DAY = "2099-12-31"
CURSORS = {
    "/accounts": "0 acme",
    "/audit": "7",
    "/keys": "1700000000 key_0123456789abcdef",
    "/overrides": "exact first.test",
    "/usage": "9 domain key_0123456789abcdef acme",
}
plans = itertools.cycle(["free", "pro", "large"])


@schemathesis.hook
def before_call(context, case, kwargs):
    if case.meta is None or not case.meta.generation.mode.is_positive:
        return
    if isinstance(case.body, dict):
        if isinstance(case.body.get("plan"), str):
            case.body["plan"] = next(plans)
        if isinstance(case.body.get("until"), str):
            case.body["until"] = LAST_DAY
        if isinstance(case.body.get("expires"), str):
            case.body["expires"] = f"{LAST_DAY}T00:00:00Z"
        if isinstance(case.body.get("limit"), float):
            case.body["limit"] = int(case.body["limit"])
        domain = unquote((case.path_parameters or {}).get("domain", ""))
        if "exact" in case.body and "." not in domain:
            # It would cover a top-level domain and nothing below it.
            case.body["exact"] = False
    if case.query and "cursor" in case.query:
        case.query["cursor"] = CURSORS[case.operation.path]
    if case.headers and "Idempotency-Key" in case.headers:
        case.headers["Idempotency-Key"] = str(uuid.uuid4())


@schemathesis.hook
def filter_case(context, case):
    """Leaves out international names, which riskgate accepts and the document does not describe."""
    values = [(case.path_parameters or {}).get("domain"), (case.query or {}).get("domain")]
    return all(unquote(value).isascii() for value in values if isinstance(value, str))

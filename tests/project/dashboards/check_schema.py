"""Reads a dashboard with Grafana's own types, and fails if they drop or change a part of it.

    python3 check_schema.py DASHBOARD.json

Needs the PyPI package grafana-foundation-sdk, which Grafana generates from its schemas.
"""

import json
import sys
import typing

from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard, units


def find_differences(written, read, place="dashboard"):
    """Yields the places where the types lost or changed a value."""
    if isinstance(written, dict) and isinstance(read, dict):
        for key, value in written.items():
            if key not in read:
                yield f"{place}.{key}: Grafana's schema does not know it"
            else:
                yield from find_differences(value, read[key], f"{place}.{key}")
    elif isinstance(written, list) and isinstance(read, list) and len(written) == len(read):
        for at, (one, other) in enumerate(zip(written, read)):
            yield from find_differences(one, other, f"{place}[{at}]")
    elif written != read:
        yield f"{place}: expected {written!r}, but Grafana's schema reads {read!r}"


def known_units():
    hints = typing.get_type_hints(units)
    return {value for hint in hints.values() for value in typing.get_args(hint)}


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        written = json.load(file)
    plugins.register_default_plugins()
    read = json.loads(JSONEncoder().encode(dashboard.Dashboard.from_json(written)))
    faults = list(find_differences(written, read))
    panels = [panel for panel in written["panels"] if panel["type"] != "row"]
    for panel in panels:
        unit = panel["fieldConfig"]["defaults"]["unit"]
        if unit not in known_units():
            faults.append(f"{panel['title']}: Grafana does not know the unit {unit!r}")
    if faults:
        sys.exit("\n".join(faults))
    print(f"{len(panels)} panels: good")


main()

"""Lints and renders the chart with the libraries of Helm, and validates the objects.

Reads a JSON list from standard input and writes a JSON list with one answer for each request:

    {"values": {…}, "file": "ci/NAME.yaml", "is_upgrade": bool, "kubernetes": ["1.37", …]}

`values` override those of `file`, and both override values.yaml. The answer has `error`, or
`objects` and `notes`. `kubernetes` names versions of the Kubernetes API; the objects are validated
against the schemas of each, and an object that does not fit is the `error`.

scripts/setup --tests installs the packages that are imported here.
"""

import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
CHART = ROOT / "contrib/helm/riskgate"
sys.path.insert(0, str(ROOT / "target/tools/kubernetes"))

import helm_python  # noqa: E402
import kubernetes_validate  # noqa: E402
import yaml  # noqa: E402

# A finding of helm lint of this severity or a higher one is a fault: 2 is a warning.
LEAST_SEVERITY = 2


def merge(base, over):
    """Merges values as Helm does: maps by their members, everything else as a whole."""
    if not isinstance(base, dict) or not isinstance(over, dict):
        return over
    return {**base, **{name: merge(base.get(name), value) for name, value in over.items()}}


def read_values(request):
    values = {}
    if "file" in request:
        values = yaml.safe_load((CHART / request["file"]).read_text()) or {}
    return merge(values, request.get("values", {}))


def validate_object(manifest, versions):
    if manifest["apiVersion"].startswith("monitoring.coreos.com/"):
        validate_operator_object(manifest)
        return
    for version in versions:
        # strict: a member that the schema does not have is a fault.
        kubernetes_validate.validate(manifest, version, strict=True)


def validate_operator_object(manifest):
    # The import takes seconds, so only requests that need it pay for it.
    from cloudcoil.models.prometheus_operator import v1

    model = getattr(v1, manifest["kind"]).model_validate(manifest)
    known = json.loads(model.model_dump_json(by_alias=True, exclude_unset=True))
    # The models drop members that they do not know.
    if known != manifest:
        raise ValueError(f"expected only known members, but found {manifest}, known are {known}")


def answer(request):
    values = read_values(request)
    report = helm_python.lint(str(CHART), values, strict=True)
    found = [it["error"] for it in report["messages"] if it["severity"] >= LEAST_SEVERITY]
    if found or report["errors"]:
        return {"error": "\n".join(found + report["errors"])}
    with helm_python.Chart.load(str(CHART)) as chart:
        is_upgrade = request.get("is_upgrade", False)
        files = chart.render(
            values,
            name=request.get("name", "riskgate"),
            namespace="gates",
            is_install=not is_upgrade,
            is_upgrade=is_upgrade,
        )
    notes = "".join(text for name, text in files.items() if name.endswith("NOTES.txt"))
    texts = [text for name, text in files.items() if name.endswith(".yaml")]
    objects = [it for text in texts for it in yaml.safe_load_all(text) if it is not None]
    for manifest in objects:
        try:
            validate_object(manifest, request.get("kubernetes", []))
        except Exception as error:
            kind = f"{manifest.get('kind')} {manifest.get('metadata', {}).get('name')}"
            return {"error": f"{kind}: {error}"}
    return {"objects": objects, "notes": notes}


def answer_or_error(request):
    try:
        return answer(request)
    except helm_python.HelmError as error:
        return {"error": str(error)}


json.dump([answer_or_error(request) for request in json.load(sys.stdin)], sys.stdout)

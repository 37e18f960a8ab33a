"""The targets, and whether the figures meet them.

A missed target does not fail the run, because the machine may be shared; the table shows it as
missed.
"""

# The CPU time of both is compared, unless an entry has another figure. Section, subject, subject
# that it is compared with, highest ratio, figure.
RATIOS = [
    ("lookup", "riskgate", "nginx map, gates", 0.80, "cpu_us"),
    ("lookup", "riskgate", "nginx map", 0.90, "cpu_us"),
    ("lookup", "riskgate", "nginx + Lua", 0.70, "cpu_us"),
    ("lookup", "riskgate", "hyper", 1.05, "user_us"),
    ("lookup", "riskgate, log", "nginx map, log", 0.95, "cpu_us"),
    ("lookup", "riskgate Pingora path", "nginx map", 1.50, "cpu_us"),
    ("lookup", "riskgate Pingora path", "nginx + Lua", 0.90, "cpu_us"),
    ("pipelined", "riskgate", "nginx map", 0.20, "cpu_us"),
    ("tls", "riskgate, TLS", "nginx map, TLS", 1.00, "cpu_us"),
    ("http2", "riskgate, TLS, 1 stream", "nginx map, TLS, 1 stream", 1.00, "cpu_us"),
    ("http2", "riskgate, TLS, 10 streams", "nginx map, TLS, 10 streams", 1.00, "cpu_us"),
    ("handshakes", "riskgate, TLS, new", "nginx map, TLS, new", 0.60, "cpu_us"),
    ("handshakes", "riskgate, TLS, resumed", "nginx map, TLS, resumed", 0.60, "cpu_us"),
    ("one-account", "riskgate, one account", "riskgate, 1,000 accounts", 1.50, "p99_us"),
    ("proxied", "riskgate, proxy", "nginx, proxy", 0.95, "cpu_us"),
    ("proxied", "riskgate, proxy", "HAProxy, proxy", 1.00, "cpu_us"),
    ("proxied", "riskgate, proxy", "Envoy, proxy", 1.00, "cpu_us"),
    ("proxied", "riskgate, proxy", "Caddy, proxy", 1.00, "cpu_us"),
    ("proxied", "riskgate, proxy", "Traefik, proxy", 1.00, "cpu_us"),
    ("screened", "riskgate, not screened", "nginx, forms", 1.00, "cpu_us"),
    ("screened", "riskgate, screened", "nginx, forms", 1.25, "cpu_us"),
    ("mounted", "mounted gate, GET", "bare Pingora, GET", 1.15, "cpu_us"),
    ("mounted", "mounted gate, form", "bare Pingora, form", 1.15, "cpu_us"),
    ("mounted", "mounted gate, screened, form", "bare Pingora, form", 1.15, "cpu_us"),
    ("http2-proxied", "riskgate, HTTP/2, GET", "nginx, HTTP/2, GET", 1.00, "cpu_us"),
    ("http2-proxied", "riskgate, HTTP/2, form", "nginx, HTTP/2, form", 1.00, "cpu_us"),
    ("http2-proxied", "riskgate, HTTP/2, screened, form", "nginx, HTTP/2, form", 1.25, "cpu_us"),
]
# The lowest ratio of the rates. Section, subject, subject that it is compared with, ratio.
RATES = [
    ("one-account", "riskgate, one account", "riskgate, 1,000 accounts", 0.90),
    ("workers", "riskgate, 2 workers", "riskgate, 1 workers", 1.80),
    ("workers", "riskgate Pingora path, 2 workers", "riskgate Pingora path, 1 workers", 1.80),
]
IDLE_BYTES = 10_000
FIGURES = {"cpu_us": "CPU", "user_us": "user CPU", "p99_us": "p99"}


def check(sections):
    """Compares figures with targets, and leaves out targets whose subjects did not run. Returns for
    each target its name, the target as text, the figure, and whether it meets the target."""
    by_name = {section.name: section.rows for section in sections}
    found = []
    for name, subject, beside, most, figure in RATIOS:
        rows = by_name.get(name, {})
        if subject in rows and beside in rows:
            ratio = rows[subject][figure] / rows[beside][figure]
            text = f"{name}: {subject} / {beside}, {FIGURES[figure]}"
            found.append((text, f"≤ {most:.2f}", ratio, ratio <= most))
    for name, subject, beside, least in RATES:
        rows = by_name.get(name, {})
        if subject in rows and beside in rows:
            ratio = rows[subject]["rate"] / rows[beside]["rate"]
            text = f"{name}: {subject} / {beside}, requests/s"
            found.append((text, f"≥ {least:.2f}", ratio, ratio >= least))
    for subject, row in by_name.get("idle", {}).items():
        if subject.startswith("riskgate"):
            most = IDLE_BYTES / 1000
            each = row["each"] / 1000
            found.append((f"idle: {subject}, kB each", f"≤ {most:.2f}", each, each <= most))
    return found


def table(found):
    lines = ["### Targets", "", "| | target | found | |", "|---|---:|---:|---|"]
    for name, target, value, is_met in found:
        lines.append(f"| {name} | {target} | {value:.2f} | {'met' if is_met else 'missed'} |")
    return "\n".join(lines) + "\n"

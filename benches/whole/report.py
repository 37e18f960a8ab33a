"""Formats the figures as Markdown tables, a chart and JSON."""

import json
from html import escape

from . import targets


def number(value):
    if value >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.2f}"


def megabytes(value):
    return f"{value / 1e6:.1f}"


# wrk does not measure the latency of pipelined requests correctly, so it is left out there.
PIPELINED = [("CPU µs", "cpu_us", number), ("user", "user_us", number),
             ("system", "system_us", number), ("to nginx", "ratio", number),
             ("requests/s", "rate", number), ("memory MB", "resident", megabytes)]
THROUGHPUT = PIPELINED[:-1] + [
    ("p50 µs", "p50_us", number), ("p99", "p99_us", number), ("p99.9", "p999_us", number),
    PIPELINED[-1]]
GROWTH = [("CPU µs", "cpu_us", number), ("user", "user_us", number),
          ("system", "system_us", number), ("requests/s", "rate", number),
          ("memory MB", "resident", megabytes), ("ready after s", "ready_s", number)]
COLUMNS = {
    "lookup": THROUGHPUT, "pipelined": PIPELINED, "tls": THROUGHPUT, "http2": PIPELINED,
    "handshakes": PIPELINED[:-1] + [("resumed", "resumed", "{:.1%}".format), PIPELINED[-1]],
    "http2-proxied": PIPELINED, "mounted": THROUGHPUT,
    "one-account": THROUGHPUT, "proxied": THROUGHPUT, "screened": THROUGHPUT, "workers": THROUGHPUT,
    "open-loop": [("most/s", "most", number)] + [
        (f"{share} %: {label}", f"{share} {name}", number) for share in (50, 80)
        for label, name in (("p50", "p50"), ("p99", "p99"), ("p99.9", "p999"))],
    "idle": [("each kB", "each", lambda value: f"{value / 1000:.1f}"),
             ("before MB", "before", megabytes), ("with them MB", "resident", megabytes)],
    "reload": [("rate/s", "rate", number), ("reloads", "reloads", number),
               ("p50 µs", "p50", number), ("p99", "p99", number), ("p99.9", "p999", number)],
    "table-size": GROWTH + [("built in s", "build_s", number)],
    "key-count": GROWTH + [("imported in s", "import_s", number)],
}
REFERENCE_SUBJECT = {"lookup": "nginx map", "pipelined": "nginx map", "tls": "nginx map, TLS",
                     "proxied": "nginx, proxy", "screened": "nginx, forms",
                     "workers": "nginx map, 1 workers"}
# In these sections, each subject has several rows: the ends of their names, each with a reference.
REFERENCE_SUFFIXES = {
    "http2": ("nginx map, TLS", (", 1 stream", ", 10 streams")),
    "handshakes": ("nginx map, TLS", (", new", ", resumed")),
    "http2-proxied": ("nginx, HTTP/2", (", GET", ", form")),
    "mounted": ("bare Pingora", (", GET", ", form")),
}


def reference(section, subject):
    """The row that a subject's CPU time is divided by; None without one."""
    beside, suffixes = REFERENCE_SUFFIXES.get(section.name, (None, ()))
    for suffix in suffixes:
        if subject.endswith(suffix):
            return section.rows.get(beside + suffix)
    return section.rows.get(REFERENCE_SUBJECT.get(section.name))


def add_ratios(sections):
    for section in sections:
        for subject, row in section.rows.items():
            if beside := reference(section, subject):
                row["ratio"] = row["cpu_us"] / beside["cpu_us"]


def table(section):
    columns = [c for c in COLUMNS[section.name]
               if any(c[1] in row for row in section.rows.values())]
    lines = [f"### {section.title}", ""]
    if section.rows:
        lines.append("| | " + " | ".join(head for head, _, _ in columns) + " |")
        lines.append("|---|" + "---:|" * len(columns))
    for subject, row in section.rows.items():
        cells = [form(row[key]) if key in row else "" for _, key, form in columns]
        lines.append(f"| {subject} | " + " | ".join(cells) + " |")
    lines += [""] if section.rows else []
    lines += [f"{note[0].upper()}{note[1:]}.\n" for note in section.notes]
    return "\n".join(lines)


def disturbance_note(sections):
    """The highest share of the machine that other processes used during a window, as text."""
    found = [each for section in sections for rounds in section.rounds.values()
             for each in rounds if "others" in each]
    if not found:
        return ""
    others, host = (max(each[by] for each in found) for by in ("others", "stolen"))
    return (f", in a window at most {others:.1%} of the machine taken by other processes and "
            f"{host:.1%} by its host")


def head(world, machine, sections):
    kind = f"{machine['cpu']}{', virtual' if machine['virtual'] else ''}"
    cores = f"{machine['cores']} cores ({kind})"
    words = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    return (f"{machine['date']}, {cores}, {machine['memory_gb']} GB, Linux {machine['kernel']}; "
            f"load average {machine['load_before']:.2f} before and {machine['load_after']:.2f} "
            f"after{disturbance_note(sections)}; {words}. "
            f"Server on core {machine['server_cores'][0]}, load on {machine['load_cores']}; "
            f"{world.rounds} rounds of {world.seconds} s; CPU times are lower quartiles, rates "
            f"upper quartiles, the rest medians.\n")


# Layout of the chart, in pixels.
LEFT, BAR, GAP, WIDTH, TITLE = 190, 16, 6, 860, 40


def chart(sections):
    """Draws CPU per request as bars, user and system, section by section."""
    shown = [s for s in sections if s.name in ("lookup", "proxied", "pipelined") and s.rows]
    height = 40 + sum(TITLE + len(s.rows) * (BAR + GAP) for s in shown)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
           f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12">',
           '<rect width="100%" height="100%" fill="#fff"/>',
           f'<text x="{LEFT}" y="20">CPU of the server for a request, µs: '
           '<tspan fill="#1f6f8b">user</tspan>, <tspan fill="#99b">system</tspan></text>']
    top = 30
    for section in shown:
        out.append(f'<text x="10" y="{top + 22}" font-weight="bold">{escape(section.title)}</text>')
        top += TITLE - 8
        widest = max(row["cpu_us"] for row in section.rows.values())
        scale = (WIDTH - LEFT - 110) / widest
        for subject, row in section.rows.items():
            user, system = row["user_us"] * scale, row["system_us"] * scale
            bold = ' font-weight="bold"' if subject.startswith("riskgate") else ""
            ratio = f' ({row["ratio"]:.2f})' if "ratio" in row else ""
            out += [
                f'<text x="{LEFT - 8}" y="{top + 12}" text-anchor="end"{bold}>{escape(subject)}'
                '</text>',
                f'<rect x="{LEFT}" y="{top}" width="{user:.1f}" height="{BAR}" fill="#1f6f8b"/>',
                f'<rect x="{LEFT + user:.1f}" y="{top}" width="{system:.1f}" height="{BAR}" '
                'fill="#99b"/>',
                f'<text x="{LEFT + user + system + 6:.1f}" y="{top + 12}">{row["cpu_us"]:.2f}'
                f'{ratio}</text>',
            ]
            top += BAR + GAP
        top += 8
    out.append("</svg>")
    return "\n".join(out) + "\n"


def write(folder, world, machine, sections):
    """Writes the Markdown, the chart and the raw figures. Returns the Markdown."""
    add_ratios(sections)
    parts = [head(world, machine, sections), *map(table, sections)]
    if not world.quick and (found := targets.check(sections)):
        parts.append(targets.table(found))
    text = "\n".join(parts)
    (folder / "bench.md").write_text(text)
    if any(s.name in ("lookup", "proxied", "pipelined") for s in sections):
        (folder / "bench.svg").write_text(chart(sections))
    raw = {"machine": machine, "quick": world.quick, "seconds": world.seconds, "sections": [
        {"name": s.name, "title": s.title, "summary": s.rows, "rounds": s.rounds,
         "notes": s.notes} for s in sections]}
    (folder / "bench.json").write_text(json.dumps(raw, indent=1) + "\n")
    return text

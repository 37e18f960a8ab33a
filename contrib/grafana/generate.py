#!/usr/bin/env python3
"""Writes riskgate.json, the dashboard, beside this file. SECTIONS is its content.

Grafana's own form of a dashboard repeats the same settings in each panel. This script adds them, so
that a change of a panel is a change of one line. `tests/project/dashboards.rs` fails if riskgate.json is
not what this script writes.

In an expression, `@` stands for the selection of the job and the nodes. The panels of section n
have the ids 100 n + 1 and so on, in their order: append a new panel to its section, so that links
to the other panels stay valid.
"""

import json
import pathlib
import sys

SELECTION = 'job="$job", instance=~"$instance"'
ROUTES = SELECTION + ', route=~"$route"'
RATE = "[$__rate_interval]"
# The reasons of forms that riskgate could not read, or from which it can't tell whose account they
# make. The action of such a form is "unscreened", or "block" with unscreened = "block".
UNREAD = ("encoded", "too_long", "other_type", "other_charset", "broken", "no_field",
          "many_inboxes")
# Without upstream.servers, a node knows the default server, which may not exist.
UNHEALTHY = ("riskgate_upstream_healthy{@} == bool 0\n  and on (job, instance)\n  "
             "sum by (job, instance) (riskgate_upstream_requests_total{@}) > 0")
FAILURES = 'outcome=~"internal_error|upstream_unavailable|upstream_timeout"'


def rate(metric, by, matchers="@"):
    return f"sum by ({by}) (rate({metric}{{{matchers}}}{RATE}))"


def increase(metric, by="instance", matchers="@"):
    return f"sum by ({by}) (increase({metric}{{{matchers}}}{RATE}))"


def quantile(of, metric, by, matchers="@"):
    return f"histogram_quantile({of}, {rate(metric + '_bucket', by + ', le', matchers)})"


def gauge(metric, matchers="@"):
    return f"{metric}{{{matchers}}}"


def share(part, whole):
    """The share of one rate in another; 0 / 0 has no value, so a quiet node has no point."""
    return f"{part}\n  / {whole}"


def stat(title, unit, why, query, steps):
    """A number for all nodes; `steps` are the values from which it is orange and red."""
    return {"kind": "stat", "title": title, "unit": unit, "why": why, "queries": [(query, "")],
            "steps": steps}


def lines(title, unit, why, *queries, steps=None, stack=False):
    """Curves; each query has a legend. `steps` are drawn as lines."""
    return {"kind": "timeseries", "title": title, "unit": unit, "why": why, "queries": queries,
            "steps": steps, "stack": stack}


def states(title, why, *queries):
    """One coloured bar for each series: 0 is good, 1 is a fault."""
    return {"kind": "state-timeline", "title": title, "unit": "bool_yes_no", "why": why,
            "queries": queries, "steps": None}


SECTIONS = [
    ("Overview", [
        stat("Nodes", "short", "Nodes that Prometheus can scrape. Red: none.",
             'count(up{@} == 1) or vector(0)', {"below": 1}),
        stat("Requests", "reqps", "Requests of all selected routes.",
             f"sum(rate(riskgate_requests_total{{{ROUTES}}}{RATE}))", None),
        stat("Fail open", "percentunit",
             "Share of requests that riskgate failed to serve. Clients let their users through. "
             "The goal is less than 0.1 % in 30 days.",
             share(f"sum(rate(riskgate_requests_total{{{ROUTES}, {FAILURES}}}{RATE}))",
                   f"sum(rate(riskgate_requests_total{{{ROUTES}}}{RATE}))"), (0.001, 0.0144)),
        stat("Store down", "short", "Nodes that can't reach the store.",
             "sum(riskgate_store_down{@})", (None, 1)),
        stat("Faulty parts", "short",
             "Each such part serves its last good state, or is degraded. /readyz of the node says why.",
             "sum(riskgate_reload_failing{@}) or vector(0)", (None, 1)),
        stat("Unhealthy upstream servers", "short",
             "Servers that a node skips, added over all nodes. A node that never needed a server "
             "does not count.",
             f"sum({UNHEALTHY}) or vector(0)", (1, None)),
        lines("Requests by route", "reqps", "All answers of riskgate, by route.",
              (rate("riskgate_requests_total", "route", ROUTES), "{{route}}"), stack=True),
        lines("Requests that failed", "reqps",
              "Requests that riskgate failed to serve, with 500 and X-Fail-Open, by outcome.",
              (rate("riskgate_requests_total", "outcome", f"{ROUTES}, {FAILURES}"), "{{outcome}}"),
              stack=True),
        lines("Share of requests that failed", "percentunit",
              "The red line is the rate that spends 2 % of the error budget of 30 days in an hour.",
              (share(rate("riskgate_requests_total", "instance", f"{ROUTES}, {FAILURES}"),
                     rate("riskgate_requests_total", "instance", ROUTES)), "{{instance}}"),
              steps=(0.001, 0.0144)),
        lines("Refused requests", "reqps",
              "Requests that riskgate refused for a reason of the client: key, quota, format, "
              "or a refused e-mail address.",
              (rate("riskgate_requests_total", "outcome", ROUTES + ', outcome=~"bad_request|'
                    "unauthorized|forbidden|not_found|method_not_allowed|request_timeout|"
                    "content_too_large|uri_too_long|expectation_failed|validation_error|"
                    "email_refused|form_unreadable|too_many_requests|"
                    'quota_exceeded|headers_too_large"'), "{{outcome}}"), stack=True),
        lines("Admitted requests", "reqps",
              "Requests that riskgate or an upstream server answered. fallback: riskgate answered "
              "a check that no upstream server answered. redirected: by listen.redirect.",
              (rate("riskgate_requests_total", "outcome", ROUTES +
                    ', outcome=~"ok|redirected|fallback|upstream_4xx|upstream_5xx|aborted|other"'),
               "{{outcome}}"), stack=True),
        lines("Median time of a request", "s",
              "From the header of the request to the end of the answer, with the upstream server.",
              (quantile(0.5, "riskgate_request_duration_seconds", "route", ROUTES), "{{route}}")),
        lines("99th percentile of the time of a request", "s",
              "From 1 s, an alert fires for forwarded requests; clients give up at 3 s.",
              (quantile(0.99, "riskgate_request_duration_seconds", "route", ROUTES), "{{route}}"),
              steps=(1, 2.5)),
    ]),
    ("Verdicts", [
        lines("Verdicts by reason", "ops", "Verdicts on domains in look-ups, checks and forms.",
              (rate("riskgate_verdicts_total", "reason"), "{{reason}}"), stack=True),
        lines("Verdicts by source", "ops",
              "What decided: a list, a rule for unlisted names, the DNS, or nothing.",
              (rate("riskgate_verdicts_total", "source"), "{{source}}"), stack=True),
        lines("Share of flagged domains", "percentunit",
              "A sudden rise means a wave of robots, or a list that flags too much.",
              (share(rate("riskgate_verdicts_total", "source", '@, reason!="safe"'),
                     "ignoring (source) group_left ()\n  "
                     f"sum(rate(riskgate_verdicts_total{{@}}{RATE}))"), "{{source}}")),
        lines("Look-ups that the top list did not count", "ops",
              "The list of top domains is too low by these look-ups.",
              (rate("riskgate_top_domains_lookups_dropped_total", "instance"), "{{instance}}")),
    ]),
    ("Quota and store", [
        states("Store", "Down: no answer. Recovering: all nodes report their totals again.",
               (gauge("riskgate_store_down"), "{{instance}} down"),
               (gauge("riskgate_store_recovering"), "{{instance}} recovering")),
        lines("Lease reports", "ops",
              "Batches of lease reports that the store committed, and operations that failed.",
              (rate("riskgate_store_commits_total", "instance"), "{{instance}} committed"),
              (rate("riskgate_store_failures_total", "instance"), "{{instance}} failed")),
        lines("Exchanges of shared rates", "ops",
              "With rates.shared: statements that told the store what clients used, and the requests "
              "of clients that other nodes may not know.",
              (rate("riskgate_store_rate_exchanges_total", "outcome"), "{{outcome}}"),
              (rate("riskgate_store_rate_requests_lost_total", "instance"),
               "{{instance}} requests lost")),
        lines("Calls not reported yet", "short",
              "Calls admitted while the store was down. At store.max_unsettled (100,000 by "
              "default), riskgate answers 500.",
              (gauge("riskgate_store_unsettled_calls"), "{{instance}}"), steps=(50000, 100000)),
        lines("Refused for quota and rate", "reqps",
              "quota_exceeded: the month of an account is spent. too_many_requests: a client "
              "exceeds max_per_client.",
              (rate("riskgate_requests_total", "outcome", ROUTES +
                    ', outcome=~"quota_exceeded|too_many_requests"'), "{{outcome}}")),
        lines("Requests with refunded calls", "ops", "Requests whose counted calls riskgate "
              "refunded: it failed to serve them, or their bodies were faulty.",
              (rate("riskgate_quota_refunds_total", "instance"), "{{instance}}")),
        lines("Missing replicas", "short", "Replicas of store.wait_replicas that have not "
              "acknowledged the last report.",
              (gauge("riskgate_store_replicas_missing"), "{{instance}}"), steps=(None, 1)),
        states("Clock", "A clock jumped, or calls are counted in a month that has not begun.",
               (gauge("riskgate_clock_suspect"), "{{instance}}")),
        lines("Quota webhooks", "short", "Quota events that the receiver has not accepted yet (of "
              "all nodes), and attempts to deliver in each interval.",
              (gauge("riskgate_webhook_events_pending"), "{{instance}} pending"),
              (increase("riskgate_webhook_deliveries_total", "instance, outcome"),
               "{{instance}} {{outcome}}")),
    ]),
    ("Keys and origins", [
        lines("Keys", "short", "Keys in the key ring, revoked ones included. All nodes of one "
              "store should have the same number.", (gauge("riskgate_keys"), "{{instance}}")),
        lines("Refused keys and origins", "reqps",
              "unauthorized: no valid key. forbidden: the key does not allow the Origin.",
              (rate("riskgate_requests_total", "outcome", ROUTES +
                    ', outcome=~"unauthorized|forbidden"'), "{{outcome}}")),
    ]),
    ("Screening and authz", [
        lines("Screened forms by action", "ops", "would_block: a form that the mode block refuses.",
              (rate("riskgate_screened_total", "action"), "{{action}}"), stack=True),
        lines("Flagged forms by reason", "ops", "Forms that riskgate refused or would refuse.",
              (rate("riskgate_screened_total", "route, reason",
                    '@, action=~"block|would_block"'), "{{route}} {{reason}}"), stack=True),
        lines("Forms without a verdict", "ops", "Forms that riskgate could not read, and why. It "
              'refused them if the route has unscreened = "block".',
              (f'sum by (route, reason) (\n  rate(riskgate_screened_total{{@, '
               f'action="unscreened"}}{RATE})\n  or\n  rate(riskgate_screened_total{{@, '
               f'reason=~"{"|".join(UNREAD)}"}}{RATE}))', "{{route}} {{reason}}")),
        lines("Decisions of rules", "ops", "Sign-ups that a rule of the config decided.",
              (rate("riskgate_rule_decisions_total", "rule, action"), "{{rule}}: {{action}}"),
              stack=True),
        lines("Answers to proxies", "reqps", "Answers on the path of [authz], by outcome.",
              (rate("riskgate_requests_total", "outcome", '@, route="authz"'), "{{outcome}}"),
              stack=True),
    ]),
    ("Upstream servers", [
        states("Unhealthy servers", "Servers that riskgate skips. A node that never needed a server "
               "shows none.", (UNHEALTHY, "{{instance}} → {{server}}")),
        lines("Attempts by outcome", "ops",
              "Attempts to get a response from an upstream server.",
              (rate("riskgate_upstream_requests_total", "outcome"), "{{outcome}}"), stack=True),
        lines("Share of failed attempts", "percentunit",
              "By server; attempts that failed because of the client are left out.",
              (share(rate("riskgate_upstream_requests_total", "server",
                          '@, outcome!~"response|client_failed"'),
                     rate("riskgate_upstream_requests_total", "server")), "{{server}}"),
              steps=(0.05, 0.2)),
        lines("Time to the response header", "s", "Median and 99th percentile, by server.",
              (quantile(0.5, "riskgate_upstream_response_header_seconds", "server"),
               "{{server}} median"),
              (quantile(0.99, "riskgate_upstream_response_header_seconds", "server"),
               "{{server}} 99th percentile"), steps=(1, 2.5)),
        lines("Exchanges and idle connections", "short",
              "At upstream.max_in_flight exchanges (1,000 by default), riskgate answers 500.",
              (gauge("riskgate_upstream_exchanges_in_flight"), "{{instance}} exchanges"),
              (gauge("riskgate_upstream_idle_connections"), "{{instance}} idle connections")),
        lines("Bodies that arrive", "bytes",
              "At listen.max_held_bytes (64 MiB by default), riskgate answers 500.",
              (gauge("riskgate_held_body_bytes"), "{{instance}}")),
        lines("Retries", "ops", "Attempts after a first attempt that failed.",
              (rate("riskgate_upstream_retries_total", "instance"), "{{instance}}")),
    ]),
    ("Connections and TLS", [
        lines("Connections", "short", "Open client connections. At listen.max_connections (10,000 "
              "by default), riskgate closes further ones.",
              (gauge("riskgate_connections"), "{{instance}}"), steps=(8000, 10000)),
        lines("Requests in flight", "short", "Requests between their header and the end of the "
              "answer.", (gauge("riskgate_requests_in_flight"), "{{instance}}")),
        lines("Closed by riskgate", "cps", "Rejected: over a limit, or without the PROXY header of a trusted proxy. "
              "TLS: the handshake failed. Flood: HTTP/2 frames that are no requests.",
              (rate("riskgate_connections_rejected_total", "instance"), "{{instance}} rejected"),
              (rate("riskgate_tls_handshake_failures_total", "instance"), "{{instance}} TLS"),
              (rate("riskgate_http2_floods_total", "instance"), "{{instance}} flood")),
        lines("Time until certificates expire", "s", "Red: two days. Orange: two weeks.",
              ("riskgate_tls_certificate_expires_timestamp_seconds{@} - time()",
               "{{instance}} {{certificate}}"), steps={"below": (14 * 86400, 2 * 86400)}),
        lines("Share of requests on the fast path", "percentunit",
              "The rest takes the Pingora path, which costs more CPU.",
              (share(rate("riskgate_fast_path_requests_total", "instance"),
                     rate("riskgate_requests_total", "instance")), "{{instance}}")),
    ]),
    ("Table, feeds and DNS", [
        lines("Age of the table", "s", "Since the table was built. Orange: 30 days.",
              ("time() - riskgate_table_built_timestamp_seconds{@}", "{{instance}}"),
              steps=(30 * 86400, None)),
        lines("Age of the lists", "s", "Since a list package of the table was published; the "
              "oldest on any node.",
              ("max by (source) (time() - "
               "riskgate_table_source_published_timestamp_seconds{@})", "{{source}}")),
        lines("Age of the knowledge without feeds", "s", "Since the newest source behind the "
              "table's disposable names was published. Orange: 30 days.",
              ("time() - (riskgate_table_newest_evidence_timestamp_seconds{@} > 0)",
               "{{instance}}"), steps=(30 * 86400, None)),
        lines("Rows of the table", "short", "Nodes with the same lists have the same number.",
              (gauge("riskgate_table_rows"), "{{instance}}")),
        lines("Age of feeds", "s", "Since riskgate last fetched a good list, and since the list "
              "last changed. Orange: two days. Red: a week.",
              ("max by (feed) (time() - riskgate_feed_fetched_timestamp_seconds{@})",
               "{{feed}} fetched"),
              ("max by (feed) (time() - riskgate_feed_changed_timestamp_seconds{@})",
               "{{feed}} changed"), steps=(2 * 86400, 7 * 86400)),
        lines("Rows and fetches of feeds", "short",
              "Rows of the last good list, and fetches in each interval by outcome.",
              ("max by (feed) (riskgate_feed_rows{@})", "{{feed}} rows"),
              (increase("riskgate_feed_fetches_total", "feed, outcome"), "{{feed}} {{outcome}}")),
        states("Faulty parts, by part",
               "Each such part serves its last good state, or is degraded.",
               (gauge("riskgate_reload_failing"), "{{instance}} {{part}}")),
        lines("Reloads", "short", "Reloads in each interval, by part and outcome.",
              (increase("riskgate_reloads_total", "part, outcome"), "{{part}} {{outcome}}")),
        lines("DNS resolutions", "ops",
              "Names that riskgate resolved. unknown: no reliable answer.",
              (rate("riskgate_dns_resolutions_total", "outcome"), "{{outcome}}"), stack=True),
        lines("DNS queue and learned names", "short",
              "At 10,000 waiting names, riskgate drops further ones.",
              (gauge("riskgate_dns_queue_length"), "{{instance}} waiting"),
              (gauge("riskgate_dns_learned_names"), "{{instance}} learned"),
              (increase("riskgate_dns_names_dropped_total"), "{{instance}} dropped")),
    ]),
    ("Logs and traces", [
        lines("Lost log lines", "short", "Lines dropped in each interval.",
              (increase("riskgate_access_log_lines_dropped_total"), "{{instance}} access log"),
              (increase("riskgate_process_log_lines_dropped_total"), "{{instance}} process log"),
              steps=(None, 1)),
        lines("Spans of traces", "ops", "Spans that the collector took, and spans that were lost.",
              (rate("riskgate_trace_spans_total", "instance, outcome"),
               "{{instance}} {{outcome}}")),
    ]),
    ("Process", [
        lines("CPU", "short", "Cores in use.",
              (rate("riskgate_process_cpu_seconds_total", "instance"), "{{instance}}")),
        lines("Memory", "bytes", "The worst case measured with default settings is 813 MiB of "
              "resident memory.",
              (gauge("riskgate_process_resident_memory_bytes"), "{{instance}} resident"),
              (gauge("riskgate_process_virtual_memory_bytes"), "{{instance}} virtual")),
        lines("File descriptors in use", "percentunit", "Share of the limit of open files.",
              ("riskgate_process_open_fds{@} / riskgate_process_max_fds{@}", "{{instance}}"),
              steps=(0.8, 0.95)),
        lines("Uptime", "s", "Since the process started.",
              ("time() - riskgate_process_start_time_seconds{@}", "{{instance}}")),
        lines("Threads", "short", "Threads of the process.",
              (gauge("riskgate_process_threads"), "{{instance}}")),
        lines("Panics", "short", "Panics in each interval. Each is a bug, and ends one connection.",
              (increase("riskgate_panics_total"), "{{instance}}"), steps=(None, 1)),
        lines("Versions", "short", "Nodes by version. Two versions are an upgrade under way.",
              ("count by (version) (riskgate_build_info{@})", "{{version}}"), stack=True),
    ]),
]

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


def thresholds(steps):
    """Grafana's thresholds: green, then orange and red from two values, or downwards from two."""
    colours = [{"color": "green", "value": None}]
    if isinstance(steps, dict):
        below = steps["below"]
        orange, red = below if isinstance(below, tuple) else (None, below)
        colours = [{"color": "red", "value": None}]
        if orange is not None:
            colours.append({"color": "orange", "value": red})
        colours.append({"color": "green", "value": red if orange is None else orange})
    elif steps:
        colours += [{"color": colour, "value": value}
                    for colour, value in zip(("orange", "red"), steps) if value is not None]
    return {"mode": "absolute", "steps": colours}


def field_config(panel):
    defaults = {"unit": panel["unit"], "thresholds": thresholds(panel["steps"])}
    if panel["kind"] == "state-timeline":
        defaults["thresholds"] = thresholds((None, 1))
        defaults["color"] = {"mode": "thresholds"}
        defaults["custom"] = {"fillOpacity": 70, "lineWidth": 0}
    elif panel["kind"] == "timeseries":
        stack = {"group": "A", "mode": "normal" if panel["stack"] else "none"}
        defaults["color"] = {"mode": "palette-classic"}
        defaults["min"] = 0
        defaults["custom"] = {
            "drawStyle": "line", "fillOpacity": 25 if panel["stack"] else 0, "lineWidth": 1,
            "showPoints": "never", "spanNulls": False, "stacking": stack,
            "thresholdsStyle": {"mode": "line" if panel["steps"] else "off"},
        }
        # A certificate that has expired is below 0.
        if isinstance(panel["steps"], dict):
            del defaults["min"]
    else:
        defaults["color"] = {"mode": "thresholds"}
    return {"defaults": defaults, "overrides": []}


def options(kind):
    legend = {"calcs": [], "displayMode": "list", "placement": "bottom", "showLegend": True}
    tooltip = {"mode": "multi", "sort": "desc"}
    if kind == "stat":
        return {"colorMode": "value", "graphMode": "area", "justifyMode": "auto",
                "orientation": "auto", "textMode": "auto",
                "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}}
    if kind == "state-timeline":
        return {"alignValue": "left", "mergeValues": True, "rowHeight": 0.8, "showValue": "never",
                "legend": legend, "tooltip": tooltip}
    return {"legend": legend, "tooltip": tooltip}


def to_panel(panel, number, place):
    targets = [{"datasource": DATASOURCE, "editorMode": "code", "refId": chr(ord("A") + at),
                "expr": query.replace("@", SELECTION), "legendFormat": legend or "__auto",
                "range": True} for at, (query, legend) in enumerate(panel["queries"])]
    return {"id": number, "type": panel["kind"], "title": panel["title"],
            "description": panel["why"], "datasource": DATASOURCE, "gridPos": place,
            "fieldConfig": field_config(panel), "options": options(panel["kind"]),
            "targets": targets}


def all_panels():
    """The panels in their places: stats six in a line, all others three, below their section."""
    panels, top = [], 0
    for at, (title, section) in enumerate(SECTIONS, start=1):
        panels.append({"id": 100 * at, "type": "row", "title": title, "collapsed": False,
                       "gridPos": {"h": 1, "w": 24, "x": 0, "y": top}, "panels": []})
        top, left, height = top + 1, 0, 0
        for number, panel in enumerate(section, start=100 * at + 1):
            width, high = (4, 4) if panel["kind"] == "stat" else (8, 8)
            if left + width > 24 or (left and high != height):
                top, left = top + height, 0
            height = high
            panels.append(to_panel(panel, number, {"h": high, "w": width, "x": left, "y": top}))
            left += width
        top += height
    return panels


def query_variable(name, label, metric, multi):
    matchers = "" if name == "job" else '{job="$job"}'
    query = f"label_values({metric}{matchers}, {name})"
    variable = {"name": name, "label": label, "type": "query", "datasource": DATASOURCE,
                "query": {"query": query, "refId": name}, "refresh": 2, "sort": 1,
                "multi": multi, "includeAll": multi}
    return variable | ({"allValue": ".*", "current": {"text": ["All"], "value": ["$__all"]}}
                       if multi else {})


def dashboard():
    variables = [
        {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
        query_variable("job", "Job", "riskgate_build_info", False),
        query_variable("instance", "Node", "riskgate_build_info", True),
        query_variable("route", "Route", "riskgate_requests_total", True),
    ]
    return {
        "uid": "riskgate", "title": "riskgate", "tags": ["riskgate"], "schemaVersion": 39,
        "description": "All metrics of riskgate. docs/operations.md explains each of them.",
        "editable": True, "graphTooltip": 1, "refresh": "30s", "timezone": "browser",
        "time": {"from": "now-6h", "to": "now"}, "annotations": {"list": []}, "links": [],
        "templating": {"list": variables}, "panels": all_panels(),
    }


if __name__ == "__main__":
    text = json.dumps(dashboard(), indent=1, ensure_ascii=False) + "\n"
    if sys.argv[1:] == ["--print"]:
        sys.stdout.write(text)
    else:
        pathlib.Path(__file__).with_name("riskgate.json").write_text(text, encoding="utf-8")

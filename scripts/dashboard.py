#!/usr/bin/env python3
"""Draws docs/dashboard.svg: each panel of dashboard.json, with what a real Prometheus has of a real waldo under load.

bin/waldo serves, a Prometheus (Debian's package) reads /metrics each second and evaluates the panels' own expressions,
and this program makes calls and draws. It needs no Grafana, so the look is not Grafana's. SECONDS sets the length.
"""

import html, http.server, json, math, os, random, subprocess, sys, tempfile, threading, time, urllib.error, urllib.parse, urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WALDO, PROMETHEUS = "http://127.0.0.1:17676", "http://127.0.0.1:19090"
COLOURS = ["#3274d9", "#e0752d", "#56a64b", "#b877d9", "#e02f44", "#37872d", "#f2cc0c", "#705da0", "#5794f2", "#8f3bb8"]
SERVER = r"""
import json, sys, time
for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m: continue
    r = {}
    if m["method"] == "initialize":
        r = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "desk", "version": "1"}}
    elif m["method"] == "tools/list":
        r = {"tools": [{"name": n, "description": n, "inputSchema": {"type": "object"}} for n in ("find", "close", "erase", "pay")]}
    elif m["method"] == "tools/call":
        time.sleep(0.01)
        r = {"content": [{"type": "text", "text": "write to ann@example.com"}]}
    print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": r}), flush=True)
"""
CONFIG = """version: 1
servers: {desk: {command: [python3, %s], placement: outside}}
capabilities:
  run_python: {transport: sandboxed_exec, mode: high_risk, isolation: namespace, approval: none, network: {allow: ["localhost:17677"]}}
  desk.find: {mode: read, approval: none}
  desk.close: {mode: write, approval: none}
  desk.pay: {mode: write, approval: always}
  desk.erase: deny
redaction: {model: [secrets, email]}
"""


def ask(url, body=None):
    data = json.dumps(body).encode() if body is not None else None
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, {"Content-Type": "application/json"}), timeout=60) as answer:
            return json.load(answer) if "json" in answer.headers.get("Content-Type", "") else answer.read()
    except urllib.error.HTTPError as refused:  # a refusal is one of the things to draw
        if "json" not in refused.headers.get("Content-Type", ""):
            raise
        return json.loads(refused.read())


def ready(url):
    for _ in range(100):
        try:
            return ask(url)
        except OSError:
            time.sleep(0.2)
    sys.exit(f"dashboard: {url} does not answer")


class Own(http.server.BaseHTTPRequestHandler):
    """What programs can reach."""

    def do_GET(self):
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


class Host:
    """An agent host: a client of MCP with a session."""

    def __init__(self):
        self.headers, self.last = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}, 0
        about = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "dashboard", "version": "1"}}
        self.headers["Mcp-Session-Id"] = self.post("initialize", about)["Mcp-Session-Id"]

    def post(self, method, params):
        self.last += 1
        body = json.dumps({"jsonrpc": "2.0", "id": self.last, "method": method, "params": params}).encode()
        with urllib.request.urlopen(urllib.request.Request(WALDO + "/mcp", body, self.headers), timeout=60) as answer:
            answer.read()
            return answer.headers


def load(until, seed):
    """Makes calls of every kind until a time."""
    host = Host()
    pick, asked = random.Random(seed), 0
    while time.time() < until:
        what, rest = pick.choices(["find", "close", "erase", "pay", "run", "reach", "unknown"], [40, 15, 4, 1, 12, 3, 2])[0], {}
        if what in ("run", "reach"):
            code = "print(sum(range(10**5)))"
            if what == "reach":
                code = "import urllib.request as u\ntry: u.urlopen('http://%s')\nexcept OSError as e: print(e)" % pick.choice(
                    ["localhost:17677", "elsewhere.invalid"])
            ask(WALDO + "/api/v1/runs", {"language": "python", "code": code})
        elif what in ("find", "close"):
            host.post("tools/call", {"name": "desk__" + what, "arguments": {"n": pick.randrange(1000)}})
        elif what != "pay" or asked < 5:
            asked += what == "pay"
            ask(WALDO + "/api/v1/calls", {"capability": "desk." + what, "arguments": {"n": pick.randrange(1000)}})
        time.sleep(pick.expovariate(6 + 4 * math.sin(time.time() / 25)))


def series(expr, begin, end):
    query = urllib.parse.urlencode({"query": expr, "start": begin, "end": end, "step": max(1, (end - begin) / 120)})
    answer = ask(f"{PROMETHEUS}/api/v1/query_range?{query}")
    if answer.get("status") != "success":
        sys.exit(f"dashboard: {expr}: {answer}")
    return answer["data"]["result"]


def label(legend, metric):
    for name, value in metric.items():
        legend = legend.replace("{{%s}}" % name, value)
    return legend


def number(v, unit):
    if unit == "s" and v < 1:
        return f"{v * 1000:.3g} ms"
    return f"{v:.3g}" + {"s": " s", "reqps": "/s"}.get(unit, "")


def panel(p, begin, end):
    """One panel as SVG, and whether it has data."""
    at, lines = p["gridPos"], []
    x, y, w, h = at["x"] * 50, at["y"] * 26 + 34, at["w"] * 50 - 8, at["h"] * 26 - 8
    unit = p["fieldConfig"]["defaults"].get("unit", "")
    for t in p["targets"]:
        for s in series(t["expr"], begin, end):
            points = [(a, float(v)) for a, v in s["values"] if math.isfinite(float(v))]
            if points:
                lines.append((label(t.get("legendFormat", ""), s["metric"]), points))
    top = max([v for _, points in lines for _, v in points] or [0]) or 1
    keys = min(len(lines), 5)
    left, right, up, down = x + 52, x + w - 10, y + 26, y + h - 22 - 13 * keys
    out = [f'<rect x="{x}" y="{y}" width="{w}" height="{h}" rx="3" fill="#fff" stroke="#d8d9dd"/>',
           f'<text x="{x + 8}" y="{y + 16}" font-weight="600">{html.escape(p["title"])}</text>']
    for part in (0, 0.5, 1):
        line = down - part * (down - up)
        out.append(f'<path d="M{left} {line:.1f}H{right}" stroke="#ececf0"/><text x="{left - 4}" y="{line + 3:.1f}" '
                   f'text-anchor="end" fill="#666">{number(top * part, unit)}</text>')
    for at_time in (begin, (begin + end) / 2, end):
        anchor = {begin: "start", end: "end"}.get(at_time, "middle")
        out.append(f'<text x="{left + (at_time - begin) / (end - begin) * (right - left):.0f}" y="{down + 12}" '
                   f'text-anchor="{anchor}" fill="#666">{time.strftime("%H:%M:%S", time.gmtime(at_time))}</text>')
    for i, (name, points) in enumerate(lines):
        colour = COLOURS[i % len(COLOURS)]
        path = " ".join(f"{left + (a - begin) / (end - begin) * (right - left):.1f},{down - v / top * (down - up):.1f}" for a, v in points)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.4"/>')
        if i < keys:
            row = down + 27 + 13 * i
            out.append(f'<path d="M{x + 10} {row - 3}h12" stroke="{colour}" stroke-width="3"/><text x="{x + 27}" y="{row}">'
                       f'{html.escape(name)}, last {number(points[-1][1], unit)}</text>')
    if not lines:
        out.append(f'<text x="{(left + right) / 2}" y="{(up + down) / 2}" text-anchor="middle" fill="#666">no data</text>')
    return "\n".join(out), bool(lines)


def draw(board, begin, end):
    parts = [panel(p, begin, end) for p in board["panels"]]
    high = max(p["gridPos"]["y"] + p["gridPos"]["h"] for p in board["panels"]) * 26 + 34
    with open(os.path.join(ROOT, "docs/dashboard.svg"), "w") as f:
        f.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-8 0 1208 {high}" font-family="sans-serif" font-size="10" fill="#24292e">\n'
                f'<rect x="-8" width="1208" height="{high}" fill="#f4f5f5"/>\n<text x="0" y="22" font-size="15" font-weight="600">'
                f'{html.escape(board["title"])}</text>\n' + "\n".join(svg for svg, _ in parts) + "\n</svg>\n")
    return sum(has for _, has in parts), len(parts)


def main():
    seconds = int(os.environ.get("SECONDS", "300"))
    with open(os.path.join(ROOT, "internal/feature/telemetry/files/dashboard.json")) as f:
        board = json.load(f)
    rules = os.path.join(ROOT, "internal/feature/telemetry/files/alerts.yml")
    with tempfile.TemporaryDirectory(prefix="waldo-dashboard-") as work:
        for name, text in (("server.py", SERVER), ("waldo.yaml", CONFIG % (work + "/server.py")), ("prometheus.yml",
                "global: {scrape_interval: 1s, evaluation_interval: 5s}\nrule_files: [%s]\nscrape_configs:\n"
                "  - {job_name: waldo, static_configs: [{targets: ['%s']}]}\n" % (rules, WALDO[7:]))):
            with open(os.path.join(work, name), "w") as f:
                f.write(text)
        running = []
        try:
            running.append(subprocess.Popen([ROOT + "/bin/waldo", "--config", "waldo.yaml", "--state", work + "/state", "serve",
                                             "--listen", WALDO[7:]], cwd=work))
            ready(WALDO + "/readyz")
            running.append(subprocess.Popen(["prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=" + work + "/data",
                                             "--web.listen-address=" + PROMETHEUS[7:], "--log.level=warn"], cwd=work))
            ready(PROMETHEUS + "/-/ready")
            own = http.server.ThreadingHTTPServer(("127.0.0.1", 17677), Own)
            threading.Thread(target=own.serve_forever, daemon=True).start()
            begin = time.time()
            callers = [threading.Thread(target=load, args=(begin + seconds, n)) for n in range(3)]
            for c in callers:
                c.start()
            for c in callers:
                c.join()
            some, of = draw(board, begin, time.time())
            health = {r["name"]: r["health"] for g in ask(PROMETHEUS + "/api/v1/rules")["data"]["groups"] for r in g["rules"]}
        finally:
            for p in reversed(running):
                p.terminate()
                p.wait(60)
    print(f"dashboard: docs/dashboard.svg, {some} of {of} panels have data; Prometheus evaluates the alerts: {health}")
    sys.exit(set(health.values()) != {"ok"})


main()

# SPDX-License-Identifier: Apache-2.0
"""The admin port's page: what comes, and what a browser makes of it."""
import base64
import decimal
import hashlib
import html.parser
import http.client
import http.server
import json
import re
import socket
import threading
import urllib.parse

import pytest

import browser
import exposition
import programs
import wire
from test_admin import LOOPBACK, keys, metrics, ones

pytestmark = pytest.mark.skipif(
    not programs.RECPSD.is_file(), reason=f"{programs.RECPSD} is not built")
in_a_browser = pytest.mark.skipif(
    browser.CHROMIUM is None, reason="no chromium (Debian package chromium)")

PHONE, DESK = (390, 844), (1280, 800)


@pytest.fixture(scope="module")
def server():
    """A server with two tables and some traffic behind it."""
    with programs.Recpsd("--loops", "2", "--memory-limit", "64MiB",
                         admin=LOOPBACK) as it:
        with it.connect() as connection:
            users = connection.table("user_id", dim=16, initializer="zeros")
            connection.table("item.category", dim=4, min_used_times=2)
            for i in range(70):  # each key is in a sample of a push in 64
                reply = connection.call(
                    wire.PUSH, [keys(*range(1200), table_id=users),
                                ones(1200, 16, table_id=users)], number=i + 1)
                assert reply.status == wire.OK, reply.text
            connection.call(wire.LOOKUP, [keys(*range(1500), table_id=users)])
            refused = connection.call(wire.LOOKUP, [keys(1, table_id=users + 1)])
            assert refused.status < 0
            yield it
        if it.process.poll() is None:
            assert it.stop() == 143, it.log()


class Parts(html.parser.HTMLParser):
    """Tags with their attributes, and the text of style and script."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.inside, self.text = [], None, {}
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.inside = tag

    def handle_endtag(self, tag):
        self.inside = None

    def handle_data(self, data):
        if self.inside in ("style", "script"):
            self.text[self.inside] = self.text.get(self.inside, "") + data


# ---- what comes ----

def test_the_page_comes_with_headers_that_keep_others_out(server):
    status, text, headers = server.get("/")
    assert status == 200
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cache-Control"] == "no-store"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert int(headers["Content-Length"]) == len(text.encode())
    policy = dict(part.split(" ", 1) for part in
                  headers["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["connect-src"] == "'self'"
    for name in ("base-uri", "form-action", "frame-ancestors"):
        assert policy[name] == "'none'"
    assert "unsafe" not in str(policy)
    parts = Parts(text)
    for name in ("style", "script"):
        raw = hashlib.sha256(parts.text[name].encode()).digest()
        assert policy[f"{name}-src"] == \
            f"'sha256-{base64.b64encode(raw).decode()}'"


def test_the_page_needs_nothing_else(server):
    text = server.get("/")[1]
    own = {"/metrics", "/configz", "/readyz?verbose", "/livez?verbose",
           "data:,"}
    for tag, attributes in Parts(text).tags:
        assert tag not in ("iframe", "object", "embed", "base", "form")
        assert "src" not in attributes and "style" not in attributes
        assert attributes.get("href", "data:,") in own
        assert not [name for name in attributes if name.startswith("on")]
    # the one address in it is the name of a language, asked of nobody
    assert set(re.findall(r"\w+://[^\s\"'<]*", text)) == \
        {"http://www.w3.org/2000/svg"}
    assert not re.search(r"@import|url\(|innerHTML|insertAdjacent|eval\(", text)


def test_every_other_page_lets_a_browser_do_nothing(server):
    for path in ("/metrics", "/configz", "/livez", "/nothing", "/hotz"):
        assert server.get(path)[2]["Content-Security-Policy"] == \
            "default-src 'none'; frame-ancestors 'none'"


def test_head_and_unknown_pages_know_of_it(server):
    assert server.get("/", method="HEAD")[:2] == (200, "")
    assert "/\n/livez\n" in server.get("/nothing")[1]


# ---- hot keys ----

def test_hotz_says_what_the_server_says_itself(server):
    status, text, headers = server.get("/hotz?table=user_id")
    assert (status, headers["Content-Type"]) == (200, "application/json")
    with server.connect() as connection:
        told = connection.call(wire.HOT_KEYS, [wire.text(
            {"table": "user_id", "max": 12})]).json
    assert json.loads(text) == told
    assert len(told["keys"]) == 12
    assert server.get("/hotz?a=b&table=item.category")[:2] == (
        200, '{"keys":[]}\n')


@pytest.mark.hostile
@pytest.mark.parametrize("query, code", [
    ("", 400), ("?", 400), ("?table", 400), ("?tables=user_id", 400),
    ("?table=", 404), ("?table=nobody", 404), ("?table=user_id%00", 404),
    ("?table=" + "x" * 5000, 404), ("?table=%3Cscript%3E", 404),
    ("?table=%zz", 404), ("?" + "&" * 500, 400)])
def test_hotz_refuses_in_words(server, query, code):
    status, text, headers = server.get("/hotz" + query)
    # a name cut short by a NUL is that name, and may be there
    assert status == code or (query.endswith("%00") and status == 200)
    assert headers["X-Content-Type-Options"] == "nosniff"
    if status != 200:
        assert headers["Content-Type"].startswith("text/plain")
        assert "<" not in text and text.endswith("\n")


def own_address():
    """Of this host, not of the loopback; None where it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(("192.0.2.1", 9))  # nothing is sent
        except OSError:
            return None
        address = sock.getsockname()[0]
    return None if address.startswith("127.") else address


def test_keys_are_for_this_host_only():
    address = own_address()
    if address is None:
        pytest.skip("this host has the loopback only")
    with programs.Recpsd(admin="0.0.0.0:0") as server:
        with server.connect() as connection:
            connection.table("emb")
        assert server.get("/hotz?table=emb")[0] == 200
        status, text, _ = server.get("/hotz?table=emb", host=address)
        assert status == 403 and "recps hot" in text
        assert server.get("/", host=address)[0] == 200
        assert server.stop() == 143


@pytest.mark.hostile
@pytest.mark.parametrize("host, code", [
    ("localhost", 200), ("LOCALHOST:9464", 200), ("127.0.0.1:1", 200),
    ("[::1]:9464", 200), ("evil.example", 403), ("127.0.0.1.evil.example", 403),
    ("localhost.evil.example:9464", 403), ("", 403)])
def test_keys_are_not_for_a_name_that_leads_here(server, host, code):
    connection = http.client.HTTPConnection(
        "127.0.0.1", int(server.admin_file.read_text()), timeout=20)
    connection.request("GET", "/hotz?table=user_id", headers={"Host": host})
    assert connection.getresponse().status == code
    connection.close()


# ---- a browser ----

@pytest.fixture(scope="module")
def window():
    with browser.Browser() as it:
        yield it


def url_of(server):
    return f"http://127.0.0.1:{int(server.admin_file.read_text())}/"


def look(window, looks=2):
    window.until(
        f"document.body && +document.body.dataset.looks >= {looks}")
    return window.run("""({
        grids: Object.fromEntries(["tables", "requests", "hot"].map((id) => [id,
            Object.fromEntries([...document.querySelectorAll(
                `#${id} tbody tr`)].map((row) => [row.children[0].textContent,
                Object.fromEntries([...row.children].slice(1).map((cell) =>
                    [cell.dataset.name, cell.textContent]))]))])),
        facts: Object.fromEntries([...document.querySelectorAll("dt")].map(
            (dt) => [dt.textContent, dt.nextElementSibling.textContent])),
        tiles: Object.fromEntries([...document.querySelectorAll(".tile")].map(
            (tile) => [...tile.children].map((p) => p.textContent)).map(
            ([name, ...rest]) => [name, rest])),
        charts: [...document.querySelectorAll("figcaption")].map(
            (caption) => caption.textContent),
        state: document.getElementById("state").textContent,
        who: document.getElementById("who").textContent,
        notice: document.getElementById("notice").textContent,
    })""")


def shown_bytes(n):
    """Three digits and a unit, as people write them."""
    n, units = decimal.Decimal(n), ["B", "KiB", "MiB", "GiB", "TiB"]
    while n >= 1000 and (n >= 1024 or len(units) < 5):
        n, units = n / 1024, units[1:]
    places = 0 if n >= 100 or n == 0 or units[0] == "B" else 1 if n >= 10 else 2
    n = n.quantize(decimal.Decimal(1).scaleb(-places), decimal.ROUND_HALF_UP)
    return f"{n} {units[0]}"


@in_a_browser
@pytest.mark.parametrize("size", [PHONE, DESK], ids=["phone", "desk"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_browser_shows_what_metrics_says(server, window, size, dark):
    window.open(url_of(server), *size, dark=dark)
    seen = look(window)
    found = metrics(server)
    assert set(seen["grids"]["tables"]) == {"user_id", "item.category"}
    for table, row in seen["grids"]["tables"].items():
        def of(name, **labels):
            return int(found(name, table=table, **labels))
        rows, size_bytes = of("recps_rows"), of("recps_table_bytes")
        assert row["Rows"] == f"{rows:,}"
        assert row["Bytes"] == shown_bytes(size_bytes)
        assert row["Admitted"] == f"{of('recps_rows_inserted_total'):,}"
        assert row["Pending"] == f"{of('recps_pending_keys'):,}"
        assert row["Evicted"] == str(
            of("recps_rows_evicted_total", reason="cold") +
            of("recps_rows_evicted_total", reason="full"))
        assert row["Lookups/s"] == "0"  # nobody asks just now
        if rows:
            assert abs(float(row["Bytes a row"]) - size_bytes / rows) < 0.051
        else:
            assert row["Bytes a row"] == "–"
    users = seen["grids"]["tables"]["user_id"]
    assert (users["Rows"], users["Missing"]) == ("1,200", "20 %")
    for op, refused in (("PUSH_GRADIENTS", 0), ("EMBEDDING_LOOKUP", 1)):
        row = seen["grids"]["requests"][op]
        fine = int(found("recps_requests_total", op=op, code="OK"))
        assert row["Answered"] == str(fine + refused)
        assert row["Not OK"] == str(refused)
        assert re.fullmatch(r"[\d.]+ (µs|ms|s)", row["p99"])
    told = json.loads(server.get("/hotz?table=user_id")[1])["keys"]
    assert {key: row["Pushes"] for key, row in seen["grids"]["hot"].items()} \
        == {key: f"{int(n):,}" for key, n, _ in told}
    used = found("recps_memory_used_bytes")
    assert seen["facts"]["Tables"] == shown_bytes(used)
    assert seen["facts"]["Limit of the tables"] == "64.0 MiB"
    assert seen["tiles"]["Memory of tables"][0] == shown_bytes(used)
    assert seen["tiles"]["Memory of tables"][1].endswith(" % of 64.0 MiB")
    connections = int(found("recps_connections"))
    assert seen["facts"]["Open"] == f"{connections} of 4,096"
    assert seen["facts"]["Last one"] == "none since the start"
    assert seen["facts"]["Committed"] == "0"
    assert seen["state"] == "ready" and seen["notice"] == ""
    assert f"127.0.0.1:{server.port}" in seen["who"]
    assert len(seen["charts"]) == 6
    assert window.run("""[...document.querySelectorAll(".plot path")].some(
        (path) => path.getAttribute("d").includes("L"))""")
    # nothing was stopped, nothing went elsewhere
    assert window.faults() == []
    assert all(u.startswith(url_of(server)) or u.startswith("data:")
               for u in window.asked_for())


@in_a_browser
@pytest.mark.parametrize("size, columns", [(PHONE, 1), (DESK, 3)],
                         ids=["phone", "desk"])
def test_it_fits_the_window(server, window, size, columns):
    window.open(url_of(server), *size)
    look(window, 1)
    assert window.run("innerWidth") == size[0]
    assert window.run("document.documentElement.scrollWidth") <= size[0]
    tops = window.run("""[...document.querySelectorAll(".chart")].map(
        (chart) => Math.round(chart.getBoundingClientRect().top))""")
    assert tops.count(tops[0]) == columns
    # no text of a figure is cut off at the side
    assert window.run("""[...document.querySelectorAll("td, dd, .value")]
        .filter((place) => place.scrollWidth > place.clientWidth + 1)
        .map((place) => place.textContent)""") == []


@in_a_browser
def test_it_is_dark_where_the_reader_wants_it_dark(server, window):
    def light():
        rgb = window.run("getComputedStyle(document.body).backgroundColor")
        return sum(map(int, re.findall(r"\d+", rgb)[:3]))
    window.open(url_of(server), *DESK, dark=True)
    look(window, 1)
    assert light() < 150
    window.open(url_of(server), *DESK, dark=False)
    look(window, 1)
    assert light() > 600


class Stand_in:
    """Serves the real page, and as /metrics what a test says."""

    def __init__(self, server):
        _, self.page, self.headers = server.get("/")
        self.metrics, self.asked = "", []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                outer.answer(self)

            def log_message(self, *_):
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/"

    def answer(self, request):
        self.asked.append(urllib.parse.unquote(request.path))
        body = {"/": self.page, "/metrics": self.metrics,
                "/readyz": "draining: SIGTERM\n"}.get(request.path)
        if callable(body):
            body = body()
        request.send_response(404 if body is None else 200)
        if request.path == "/":
            for name in ("Content-Type", "Content-Security-Policy"):
                request.send_header(name, self.headers[name])
        request.end_headers()
        request.wfile.write((body or "<b>no</b>").encode())

    def __enter__(self):
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.http.shutdown()
        self.http.server_close()


@in_a_browser
@pytest.mark.hostile
def test_names_are_text_whatever_they_look_like(server, window):
    names = ["<img src=x onerror='document.title=\"taken\"'>",
             "</script><script>document.title='taken'</script>",
             'a"}{b="c', "back\\slash", "__proto__", "two\nlines",
             "\u202eright to left", "x" * 300]
    def escaped(name):
        return name.replace("\\", r"\\").replace('"', r'\"').replace(
            "\n", r"\n")
    with Stand_in(server) as stand_in:
        stand_in.metrics = "# TYPE recps_rows gauge\n" + "".join(
            f'recps_rows{{table="{escaped(n)}"}} {i + 7}\n'
            f'recps_requests_total{{op="{escaped(n)}",code="<i>"}} 3\n'
            f'recps_connections_refused_total{{reason="{escaped(n)}"}} 1\n'
            for i, n in enumerate(names))
        assert set(exposition.labels_of(f'table="{escaped(names[2])}"')) == {
            ("table", names[2])}
        window.open(stand_in.url, *PHONE)
        seen = look(window)
        rows = seen["grids"]["tables"]
        assert {n: rows[n]["Rows"] for n in names} == {
            n: str(i + 7) for i, n in enumerate(names)}
        assert window.run(
            'document.querySelectorAll("img, b, i, script").length') == 1 + 16
        assert window.run("document.title") != "taken"
        assert window.run("document.documentElement.scrollWidth") <= PHONE[0]
        assert f"/hotz?table={names[0]}" in stand_in.asked
        assert not [e for e in window.faults()
                    if e["method"] == "Runtime.exceptionThrown"]


@in_a_browser
@pytest.mark.parametrize("text", [
    "", "recps_rows{table=\"a\"} 3\n", "recps_rows{table=\"a\"} NaN\n",
    "no metrics\x00\n{}{} 1\nrecps_connections\nrecps_ready x\n",
    "recps_request_duration_seconds_bucket{op=\"A\",le=\"+Inf\"} 4\n"
    "recps_requests_total{op=\"A\",code=\"OK\"} 4\n"])
def test_figures_that_are_missing_are_dashes(server, window, text):
    with Stand_in(server) as stand_in:
        stand_in.metrics = text
        window.open(stand_in.url, *DESK)
        seen = look(window)
        assert seen["tiles"]["Lookups"][0] == "–"
        assert seen["tiles"]["Memory of tables"] == ["–", "no limit"]
        assert seen["facts"]["Committed"] == "–"
        assert "NaN" not in str(seen) and "undefined" not in str(seen)
        assert "No answer" not in seen["notice"]
        assert not [e for e in window.faults()
                    if e["method"] == "Runtime.exceptionThrown"]


LEGENDS = """Object.fromEntries([...document.querySelectorAll("figure")].map(
    (figure) => [figure.firstChild.textContent,
        [...figure.querySelectorAll("b")].map((b) => b.textContent)]))"""


@in_a_browser
def test_percentiles_and_rates_are_of_what_came_since_the_last_look(
        server, window):
    """Each time 50 more requests of 1 to 2 ms, and 50 of 2 to 4 ms; before
    the first one a million of other times."""
    asked = 0

    def grow():
        nonlocal asked
        asked += 1
        op = 'op="EMBEDDING_LOOKUP"'
        counts = [("0.001", 0), ("0.002", 50), ("0.004", 100), ("+Inf", 100)]
        return "".join(
            f'recps_request_duration_seconds_bucket{{{op},le="{le}"}} '
            f'{10**6 + n * asked}\n' for le, n in counts) + \
            f'recps_keys_looked_up_total{{table="a"}} {3000 * asked}\n' \
            f'recps_keys_looked_up_total{{table="b"}} {1000 * asked}\n' \
            f'recps_gradients_applied_total{{table="a"}} {2000 * asked}\n'

    with Stand_in(server) as stand_in:
        stand_in.metrics = grow
        window.open(stand_in.url, *DESK)
        look(window, 3)
        seen = window.run(LEGENDS)
    # the halves of a bucket are equal on a scale of octaves
    assert seen["Time of a lookup"] == ["2.00 ms", "3.94 ms", "3.99 ms"]
    assert seen["Time of a push"] == ["–"] * 3
    keys_seen, updates = (float(text.replace(",", ""))
                          for text in seen["Keys a second"])
    assert abs(keys_seen - 2 * updates) <= 2


@in_a_browser
def test_a_counter_that_begins_anew_has_no_rate(server, window):
    left = iter(range(9000, 0, -1))
    with Stand_in(server) as stand_in:
        stand_in.metrics = lambda: \
            f'recps_keys_looked_up_total{{table="a"}} {next(left)}\n'
        window.open(stand_in.url, *DESK)
        look(window, 2)
        assert window.run(LEGENDS)["Keys a second"] == ["–", "–"]
        assert window.run(
            'document.querySelector(".plot path").getAttribute("d")') == ""


@in_a_browser
def test_why_it_is_not_ready_is_told(server, window):
    with Stand_in(server) as stand_in:
        stand_in.metrics = "recps_ready 0\n"
        window.open(stand_in.url, *PHONE)
        seen = look(window)
    assert seen["state"] == "not ready"
    assert seen["notice"] == "Not ready: draining: SIGTERM"


@in_a_browser
def test_the_table_whose_hot_keys_are_shown_can_be_chosen(server, window):
    window.open(url_of(server), *DESK)
    assert len(look(window, 1)["grids"]["hot"]) == 12
    window.run("""{
        const list = document.getElementById("hot-table");
        list.value = "item.category";
        list.dispatchEvent(new Event("change"));
    }""")
    window.until('document.querySelector("#hot table").hidden')
    assert window.run('document.querySelector("#hot .none").textContent'
                      ).startswith("No key of it")


@in_a_browser
def test_a_server_that_went_is_told_and_its_figures_stay(window):
    with programs.Recpsd(admin=LOOPBACK) as server:
        with server.connect() as connection:
            connection.table("emb")
        window.open(url_of(server), *DESK)
        assert "emb" in look(window)["grids"]["tables"]
        assert server.stop() == 143
        window.until('document.getElementById("state").textContent ==='
                     ' "no answer"')
        seen = look(window)
        assert seen["notice"].startswith("No answer")
        assert "emb" in seen["grids"]["tables"]

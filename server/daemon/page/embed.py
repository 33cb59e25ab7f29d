# SPDX-License-Identifier: Apache-2.0
"""page.html with its style and script inside, as C, with its policy.

    embed.py page.html page.css page.js OUT.c

The policy names the hashes of both, so that a browser runs and applies
nothing else, whatever a name on the page looks like.
"""
import base64
import hashlib
import pathlib
import sys


def digest(text):
    raw = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(raw).decode()}'"


def put(page, mark, text, closing):
    if page.count(mark) != 1 or closing in text.lower():
        sys.exit(f"embed.py: {mark} must come once, {closing} not at all")
    return page.replace(mark, text)


def main(html, css, js, out):
    page, style, script = (pathlib.Path(p).read_text(encoding="utf-8")
                           for p in (html, css, js))
    page = put(page, "{{style}}", style, "</style")
    page = put(page, "{{script}}", script, "</script")
    policy = "; ".join((
        "default-src 'none'", f"style-src {digest(style)}",
        f"script-src {digest(script)}", "connect-src 'self'",
        "img-src data:", "base-uri 'none'", "form-action 'none'",
        "frame-ancestors 'none'"))
    data = page.encode()
    rows = (",".join(map(str, data[i:i + 20]))
            for i in range(0, len(data), 20))
    pathlib.Path(out).write_text(
        '#include "server/daemon/admin_page.h"\n'
        "const unsigned char rps_page[] = {\n" + ",\n".join(rows) + "};\n"
        f"const size_t rps_page_bytes = {len(data)};\n"
        f'const char rps_page_policy[] = "{policy}";\n', encoding="utf-8")


main(*sys.argv[1:])

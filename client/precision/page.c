/* SPDX-License-Identifier: Apache-2.0 */
#include "client/precision/page.h"

#include "base/file.h"

static const char style[] =
        "<style>\n"
        ":root { color-scheme: light dark; --ink: #1a1e26; --quiet: #596273;\n"
        "  --page: #f4f5f7; --card: #fff; --line: #d8dde6; --good: #2563eb;\n"
        "  --bad: #c2256b; }\n"
        "@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ee;\n"
        "  --quiet: #98a2b3; --page: #0f1216; --card: #181c23;\n"
        "  --line: #343b47; --good: #71a7fb; --bad: #f472b6; } }\n"
        "body { margin: 0 auto; padding: 24px; max-width: 1180px;\n"
        "  background: var(--page); color: var(--ink);\n"
        "  font: 14px/1.45 system-ui, \"Segoe UI\", Roboto, \"DejaVu Sans\",\n"
        "  sans-serif; font-variant-numeric: tabular-nums; }\n"
        "h1 { font-size: 20px; margin: 0 0 8px; overflow-wrap: anywhere; }\n"
        "h2 { font-size: 15px; margin: 24px 0 8px; }\n"
        ".card { background: var(--card); border: 1px solid var(--line);\n"
        "  border-radius: 8px; padding: 14px; overflow-x: auto; }\n"
        ".verdict { white-space: pre-wrap; overflow-wrap: anywhere; }\n"
        "svg { display: block; width: 100%; min-width: 640px; }\n"
        "svg text { fill: var(--ink); font-size: 12px; }\n"
        "svg .quiet { fill: var(--quiet); }\n"
        ".good { fill: var(--good); } .bad { fill: var(--bad); }\n"
        ".unread { fill: none; stroke: var(--quiet); }\n"
        ".grid { stroke: var(--line); }\n"
        ".mark { stroke: var(--quiet); stroke-dasharray: 4 3; }\n"
        "table { border-collapse: collapse; width: 100%; }\n"
        "th, td { padding: 3px 8px; text-align: right; white-space: nowrap;\n"
        "  border-bottom: 1px solid var(--line); }\n"
        "th { color: var(--quiet); font-weight: 500; }\n"
        ".name, th:first-child, td:first-child { text-align: left; }\n"
        ".below td { color: var(--bad); }\n"
        "</style>\n";

void
rps_page_text(struct rps_text *page, const char *text)
{
    for (; *text != '\0'; text++) {
        switch (*text) {
        case '&':
            rps_text_add(page, "&amp;");
            break;
        case '<':
            rps_text_add(page, "&lt;");
            break;
        case '>':
            rps_text_add(page, "&gt;");
            break;
        case '"':
            rps_text_add(page, "&quot;");
            break;
        default: /* no control characters, but lines */
            rps_text_add_bytes(page,
                    (unsigned char)*text < ' ' && *text != '\n' ? "?" : text,
                    1);
        }
    }
}

void
rps_page_begin(struct rps_text *page, const char *title, const char *verdict)
{
    rps_text_add(page, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta "
                       "charset=\"utf-8\">\n<meta name=\"viewport\" "
                       "content=\"width=device-width\">\n<title>");
    rps_page_text(page, title);
    rps_text_add(page, "</title>\n%s</head><body>\n<h1>", style);
    rps_page_text(page, title);
    rps_text_add(page, "</h1>\n<div class=\"card verdict\">");
    rps_page_text(page, verdict);
    rps_text_add(page, "</div>\n");
}

rps_status
rps_page_write(struct rps_text *page, const char *path, struct rps_error *error)
{
    rps_status status;

    rps_text_add(page, "</body></html>\n");
    status = page->failed
                     ? rps_fail(error, RPS_E_NOMEM, "%s: no memory", path)
                     : rps_file_replace(path, page->bytes, page->length, error);
    rps_text_finish(page);
    return status;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `/`: the page for people. It is one file that the build makes of page/ and
 * that needs nothing else: it draws what it reads from /metrics, /readyz and
 * /configz, and from /hotz, which is here, too.
 */
#include "server/daemon/admin_page.h"

#include "server/daemon/admin_impl.h"

#include <event2/http.h>
#include <event2/keyvalq_struct.h>
#include <stdlib.h>

#define HOT_KEYS_SHOWN 12u

void
rps_admin_page_for_people(
        const struct rps_admin_request *request, struct rps_http_answer *answer)
{
    (void)request;
    answer->type = "text/html; charset=utf-8";
    answer->policy = rps_page_policy;
    rps_text_add_bytes(&answer->body, rps_page, rps_page_bytes);
}

static void
refuse(struct rps_http_answer *answer, int code, const char *words)
{
    answer->type = "text/plain; charset=utf-8";
    answer->code = code;
    rps_text_add(&answer->body, "%s\n", words);
}

static void
answer_hot(const struct rps_admin_request *request, const char *table,
        struct rps_http_answer *answer)
{
    char *text;

    switch (rps_service_hot_keys(request->view->service, table, HOT_KEYS_SHOWN,
            RPS_ADMIN_TABLES_MS, &text)) {
    case RPS_OK:
        answer->type = "application/json";
        rps_text_add(&answer->body, "%s\n", text);
        break;
    case RPS_E_NOT_FOUND:
        refuse(answer, HTTP_NOTFOUND, "there is no such table here");
        break;
    case RPS_E_RETRY_LATER:
        refuse(answer, HTTP_SERVUNAVAIL,
                "the tables cannot be looked at now: they are being "
                "replaced, or a checkpoint is being written; ask again");
        break;
    default:
        refuse(answer, HTTP_INTERNAL, "no memory");
    }
    free(text);
}

/* Keys may be people: beyond this host they are nobody's business, and the
 * port cannot ask who it is. */
void
rps_admin_hotz(
        const struct rps_admin_request *request, struct rps_http_answer *answer)
{
    struct evkeyvalq query = {0};
    const char *table = NULL;

    if (!request->local) {
        refuse(answer, 403,
                "keys are shown to this host only, where it asks for "
                "localhost, 127.0.0.1 or [::1]; \"recps hot TABLE\" asks the "
                "server itself");
        return;
    }
    if (request->query != NULL &&
            evhttp_parse_query_str(request->query, &query) == 0) {
        table = evhttp_find_header(&query, "table");
    }
    if (table == NULL) {
        refuse(answer, HTTP_BADREQUEST, "say which table: /hotz?table=NAME");
    } else {
        answer_hot(request, table, answer);
    }
    evhttp_clear_headers(&query);
}

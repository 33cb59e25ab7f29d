/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns LOG_LEVEL: the least level of the process's log, while it runs. The
 * line that says so is written under the more talkative of the two levels.
 */
#include "base/log.h"
#include "server/state.h"

static rps_status
change(struct rps_request *request, const char *word, enum rps_log_level was)
{
    enum rps_log_level level;

    if (!rps_log_level_parse(word, &level)) {
        return rps_fail(&request->error, RPS_E_INVAL,
                "LOG_LEVEL: level is \"%.32s\"; debug, info, warn or error is "
                "allowed",
                word);
    }
    if (level < was) {
        rps_log_set_level(level);
    }
    rps_service_event(request->service, RPS_LOG_INFO, "log_level",
            "log_level=%s, it was %s; asked by %s", rps_log_level_str(level),
            rps_log_level_str(was), request->session->peer);
    rps_log_set_level(level);
    return RPS_OK;
}

rps_status
rps_serve_log_level(struct rps_request *request)
{
    const enum rps_log_level was = rps_log_least();
    json_t *object = NULL;
    const json_t *level;
    rps_status status = RPS_OK;

    if (rps_message_find(request->message, RPS_SECTION_TEXT, 0) != NULL) {
        status = rps_request_json(request, &object);
    }
    if (status != RPS_OK) {
        return status;
    }
    level = json_object_get(object, "level");
    if (level != NULL && !json_is_string(level)) {
        status = rps_fail(
                &request->error, RPS_E_INVAL, "LOG_LEVEL: level is no text");
    } else if (level != NULL) {
        status = change(request, json_string_value(level), was);
    }
    json_decref(object);
    if (status != RPS_OK) {
        return status;
    }
    request->text = rps_json_text(json_pack("{s:s, s:s}", "level",
            rps_log_level_str(rps_log_least()), "was", rps_log_level_str(was)));
    return request->text != NULL ? RPS_OK : RPS_E_NOMEM;
}

/* callback_text.c - replies of the callback connector as JSON text, for ranks without
 * callbacks */
#include "actors/loops/callback_text.h"

#include <string.h>

#include "actors/loops/metrics.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/json_path.h"

static char *text_of(json_t *object, pl_error_t *err)
{
    char *text = NULL;
    if (object)
        text = pl_metrics_text(object, err);
    else
        pl_no_memory(err);
    json_decref(object);
    return text;
}

char *pl_hook_reply_text(const pl_run_hook_reply_t *request, pl_error_t *err)
{
    return text_of(json_pack("{s:b, s:b, s:b, s:f, s:I, s:s, s:s, s:s, s:s, s:s, s:s}",
                             "stop", (int)request->stop, "by_clock",
                             (int)request->by_clock, "skip", (int)request->skip,
                             "lr_factor", request->lr_factor, "accumulate",
                             (json_int_t)request->accumulate, "metrics", request->metrics,
                             "freeze", request->freeze, "unfreeze", request->unfreeze,
                             "save", request->save, "drop", request->drop, "reason",
                             request->reason),
                   err);
}

/* The numbers are this library's own, on ranks that are of one version. */
static json_t *numbers_keep(pl_bytes_t bytes)
{
    json_t *list = json_array();
    for (size_t k = 0; k < bytes.size / sizeof(uint64_t); k++) {
        uint64_t number;
        memcpy(&number, (const char *)bytes.data + k * sizeof number, sizeof number);
        list = pl_json_append(list, json_integer((json_int_t)number));
    }
    return list;
}

char *pl_callback_hooks_text(const pl_callback_hooks_reply_t *interest, pl_error_t *err)
{
    return text_of(json_pack("{s:I, s:I, s:o, s:o}", "points",
                             (json_int_t)interest->points, "requests",
                             (json_int_t)interest->requests, "halts",
                             numbers_keep(interest->halts), "looks",
                             numbers_keep(interest->looks)),
                   err);
}

int pl_hook_reply_read(const char *text, pl_run_hook_reply_t *request, json_t **kept_p,
                       pl_error_t *err)
{
    int stop = 0, by_clock = 0, skip = 0;
    json_int_t accumulate = 0;
    json_t *kept = pl_json_read(text, strlen(text), "the requests of the callbacks", err);
    if (!kept)
        return err->code;
    if (json_unpack(kept, "{s:b, s:b, s:b, s:F, s:I, s:s, s:s, s:s, s:s, s:s, s:s}",
                    "stop", &stop, "by_clock", &by_clock, "skip", &skip, "lr_factor",
                    &request->lr_factor, "accumulate", &accumulate, "metrics",
                    &request->metrics, "freeze", &request->freeze, "unfreeze",
                    &request->unfreeze, "save", &request->save, "drop", &request->drop,
                    "reason", &request->reason)
        != 0) {
        json_decref(kept);
        return pl_fail(err, PL_EPROTOCOL, "rank 0 sent no requests of callbacks");
    }
    request->stop = stop, request->by_clock = by_clock, request->skip = skip;
    request->accumulate = (uint64_t)accumulate;
    *kept_p = kept;
    return PL_OK;
}

static pl_bytes_t numbers_read(const json_t *list, uint64_t *number)
{
    size_t count = json_array_size(list);
    if (count > PL_HOOK_INTERVALS)
        count = PL_HOOK_INTERVALS;
    for (size_t k = 0; k < count; k++)
        number[k] = (uint64_t)json_integer_value(json_array_get(list, k));
    return (pl_bytes_t){number, count * sizeof *number};
}

int pl_callback_hooks_read(const char *text, pl_callback_hooks_reply_t *interest,
                           uint64_t numbers[2 * PL_HOOK_INTERVALS], pl_error_t *err)
{
    json_int_t points = 0, requests = 0;
    json_t *kept = pl_json_read(text, strlen(text), "the hooks of the callbacks", err);
    if (!kept)
        return err->code;
    int failed = json_unpack(kept, "{s:I, s:I}", "points", &points, "requests",
                             &requests);
    *interest =
        (pl_callback_hooks_reply_t){.points = (uint32_t)points,
                                    .requests = (uint32_t)requests,
                                    .halts = numbers_read(json_object_get(kept, "halts"),
                                                          numbers),
                                    .looks = numbers_read(json_object_get(kept, "looks"),
                                                          numbers + PL_HOOK_INTERVALS)};
    json_decref(kept);
    return failed ? pl_fail(err, PL_EPROTOCOL, "rank 0 sent no hooks of callbacks")
                  : PL_OK;
}

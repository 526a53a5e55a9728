/* agreed.c - the callbacks' answers as text, for the ranks that have none to ask */
#include "actors/loops/agreed.h"

#include <string.h>

#include "actors/loops/figures.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/json_walk.h"

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

char *pl_agreed_wish(const pl_ask_callbacks_reply_t *wish, pl_error_t *err)
{
    return text_of(json_pack("{s:b, s:b, s:b, s:f, s:I, s:s, s:s, s:s, s:s, s:s, s:s}",
                             "stop", (int)wish->stop, "by_clock", (int)wish->by_clock,
                             "skip", (int)wish->skip, "lr_factor", wish->lr_factor,
                             "accumulate", (json_int_t)wish->accumulate, "metrics",
                             wish->metrics, "freeze", wish->freeze, "unfreeze",
                             wish->unfreeze, "save", wish->save, "drop", wish->drop,
                             "reason", wish->reason),
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

char *pl_agreed_interest(const pl_interest_reply_t *interest, pl_error_t *err)
{
    return text_of(json_pack("{s:I, s:I, s:o, s:o}", "points",
                             (json_int_t)interest->points, "requests",
                             (json_int_t)interest->requests, "halts",
                             numbers_keep(interest->halts), "looks",
                             numbers_keep(interest->looks)),
                   err);
}

int pl_agreed_read_wish(const char *text, pl_ask_callbacks_reply_t *wish, json_t **kept_p,
                        pl_error_t *err)
{
    int stop = 0, by_clock = 0, skip = 0;
    json_int_t accumulate = 0;
    json_t *kept = pl_json_read(text, strlen(text), "the requests of the callbacks", err);
    if (!kept)
        return err->code;
    if (json_unpack(kept, "{s:b, s:b, s:b, s:F, s:I, s:s, s:s, s:s, s:s, s:s, s:s}",
                    "stop", &stop, "by_clock", &by_clock, "skip", &skip, "lr_factor",
                    &wish->lr_factor, "accumulate", &accumulate, "metrics",
                    &wish->metrics, "freeze", &wish->freeze, "unfreeze", &wish->unfreeze,
                    "save", &wish->save, "drop", &wish->drop, "reason", &wish->reason)
        != 0) {
        json_decref(kept);
        return pl_fail(err, PL_EPROTOCOL, "rank 0 sent no requests of callbacks");
    }
    wish->stop = stop, wish->by_clock = by_clock, wish->skip = skip;
    wish->accumulate = (uint64_t)accumulate;
    *kept_p = kept;
    return PL_OK;
}

static pl_bytes_t numbers_read(const json_t *list, uint64_t *number)
{
    size_t count = json_array_size(list);
    if (count > PL_AGREED_NUMBERS)
        count = PL_AGREED_NUMBERS;
    for (size_t k = 0; k < count; k++)
        number[k] = (uint64_t)json_integer_value(json_array_get(list, k));
    return (pl_bytes_t){number, count * sizeof *number};
}

int pl_agreed_read_interest(const char *text, pl_interest_reply_t *interest,
                            uint64_t numbers[2 * PL_AGREED_NUMBERS], pl_error_t *err)
{
    json_int_t points = 0, wishes = 0;
    json_t *kept = pl_json_read(text, strlen(text), "the hooks of the callbacks", err);
    if (!kept)
        return err->code;
    int failed = json_unpack(kept, "{s:I, s:I}", "points", &points, "requests", &wishes);
    *interest =
        (pl_interest_reply_t){.points = (uint32_t)points,
                              .requests = (uint32_t)wishes,
                              .halts = numbers_read(json_object_get(kept, "halts"),
                                                    numbers),
                              .looks = numbers_read(json_object_get(kept, "looks"),
                                                    numbers + PL_AGREED_NUMBERS)};
    json_decref(kept);
    return failed ? pl_fail(err, PL_EPROTOCOL, "rank 0 sent no hooks of callbacks")
                  : PL_OK;
}

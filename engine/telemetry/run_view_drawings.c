/* run_view_drawings.c - metrics that are no numbers: confusion matrices and curves
 *
 * The newest of each is kept as JSON, and sent when it changes. */
#include "telemetry/run_view_parts.h"

#include <jansson.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json_text.h"
#include "base/utf8.h"

enum { DRAWING_MAX = 1 << 18 };                 /* bytes: a page needs no larger ones */

static bool text_take(char **kept, const json_t *value)
{
    char *text = pl_json_write(value, PL_JSON_COMPACT);
    if (!text || strlen(text) > DRAWING_MAX || (*kept && !strcmp(*kept, text))) {
        pl_text_free(text);
        return false;
    }
    pl_text_free(*kept);
    *kept = text;
    return true;
}

/* Others, as the times of the ranks, change with each report and are not drawn. */
static bool is_drawing(const json_t *value)
{
    return json_is_array(json_array_get(value, 0)) || json_object_get(value, "points");
}

void run_drawing(pl_run_view_t *view, viewed_run_t *run, const char *name,
                const json_t *value)
{
    char shown[sizeof run->drawing[0].name];
    int k = 0;
    if (!is_drawing(value))
        return;
    pl_utf8_show(name, shown, sizeof shown);
    while (k < run->drawings && strcmp(run->drawing[k].name, shown) != 0)
        k++;
    if (k == DRAWINGS_MAX || !text_take(&run->drawing[k].json, value))
        return;
    strcpy(run->drawing[k].name, shown);
    run->drawing[k].item = ++view->item;
    run->drawings += k == run->drawings;
}

void run_data_info(pl_run_view_t *view, viewed_run_t *run, const char *data_info)
{
    json_t *info = pl_json_value(data_info, strlen(data_info), NULL);
    const json_t *names = json_object_get(info, "class_names");
    if (json_is_array(names) && text_take(&run->class_names, names))
        run->class_names_item = ++view->item;
    json_decref(info);
}

void run_drawings_free(viewed_run_t *run)
{
    for (int k = 0; k < run->drawings; k++)
        pl_text_free(run->drawing[k].json);
    pl_text_free(run->class_names);
}

static json_t *value_of(const char *json)
{
    json_t *value = json ? pl_json_value(json, strlen(json), NULL) : NULL;
    return value ? value : json_null();
}

json_t *run_drawings_json(const viewed_run_t *run, uint64_t since, uint64_t until)
{
    json_t *all = json_array();
    for (int k = 0; k < run->drawings; k++) {
        const drawing_t *drawing = &run->drawing[k];
        if (drawing->item > since && drawing->item <= until)
            json_array_append_new(all, json_pack("{s:s, s:o}", "name", drawing->name,
                                                 "value", value_of(drawing->json)));
    }
    return all;
}

json_t *run_class_names_json(const viewed_run_t *run, uint64_t since)
{
    return value_of(run->class_names_item > since ? run->class_names : NULL);
}

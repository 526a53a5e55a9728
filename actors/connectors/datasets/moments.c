/* moments.c - what a data set did to the numbers of "x", told in its data info */
#include "actors/connectors/datasets/moments.h"

#include "actors/connectors/datasets/datasets.h"
#include "base/json_text.h"

int pl_moments_read(const json_t *list, pl_moments_t *moments)
{
    size_t k;
    json_t *pair;
    json_array_foreach(list, k, pair) {
        const json_t *mean = json_array_get(pair, 0), *factor = json_array_get(pair, 1);
        if (!json_is_number(mean) || !json_is_number(factor))
            return (int)k;
        moments[k] = (pl_moments_t){json_number_value(mean), json_number_value(factor)};
    }
    return -1;
}

/* [[mean, factor], …] as text; NULL: out of memory. */
static char *moments_text(const pl_moments_t *moments, int count)
{
    json_t *list = json_array();
    bool whole = list;
    for (int k = 0; k < count && whole; k++) {
        json_t *pair = json_pack("[f, f]", moments[k].mean, moments[k].factor);
        whole = json_array_append_new(list, pair) == 0;
    }
    char *text = whole ? pl_json_write(list, PL_JSON_COMPACT) : NULL;
    json_decref(list);
    return text;
}

char *pl_moments_tell(char **data_info_p, const pl_moments_t *moments, int count)
{
    char *reported = *data_info_p ? moments_text(moments, count) : NULL;
    return pl_dataset_tell(data_info_p, PL_MOMENTS, &reported);
}

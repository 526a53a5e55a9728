/* sample_plugin.c - a plug-in as users build them: it includes paceline.h and links with
 * nothing of ours */
#include <unistd.h>

#include "paceline.h"

typedef struct guest {
    int64_t beds;
} guest_t;

static const pl_option_t guest_options[] = {PL_INT(guest_t, beds, "2", "1..", "beds"),
                                            PL_OPTIONS_END};
static const pl_component_t guest = {"guest", "from a plug-in", sizeof(guest_t),
                                     guest_options};

/* A data set on a disk that does not answer. */
static int silent_open(void *self, const pl_data_request_t *request, pl_data_info_t *info,
                       pl_error_t *err)
{
    (void)self, (void)request, (void)info, (void)err;
    while (pause() < 0)
        continue;
    return PL_OK;
}

static int silent_read(const void *self, const pl_read_request_t *request,
                       void *const field[], pl_error_t *err)
{
    (void)self, (void)request, (void)field, (void)err;
    return PL_OK;
}

static const pl_dataset_ops_t silent = {.name = "silent",
                                        .help = "never opens",
                                        .size = 1,
                                        .open = silent_open,
                                        .read = silent_read};
static const pl_registration_t components[] = {{"module", &guest},
                                               {"dataset", &silent},
                                               PL_REGISTRATIONS_END};

PL_API const pl_registration_t *paceline_plugin(void);

const pl_registration_t *paceline_plugin(void)
{
    return components;
}

/* sample_plugin.c - a plug-in as users build them: it includes paceline.h and links with
 * nothing of ours */
#include "paceline.h"

typedef struct guest {
    int64_t beds;
} guest_t;

static const pl_option_t guest_options[] = {PL_INT(guest_t, beds, "2", "1..", "beds"),
                                            PL_OPTIONS_END};
static const pl_part_t guest = {"guest", "from a plug-in", sizeof(guest_t),
                                guest_options};
static const pl_registration_t parts[] = {{"module", &guest}, PL_REGISTRATIONS_END};

PL_API const pl_registration_t *paceline_plugin(void);

const pl_registration_t *paceline_plugin(void)
{
    return parts;
}

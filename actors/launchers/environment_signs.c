/* environment_signs.c - variables that show that a process is one of several ranks
 *
 * They tell too little to join the others: environment.c has the complete sets.  Without
 * this check such a process would train alone, and each of its peers too. */
#include <stdio.h>
#include <stdlib.h>

#include "actors/launchers/environment.h"
#include "base/error.h"

typedef char *(*get_t)(const char *name);

static const char *text_of(get_t get, const char *name)
{
    const char *text = get(name);
    return text && *text ? text : NULL;
}

/* Each with the least value that a process by itself does not have, and with what is
 * needed to join the others. */
static const struct {
    const char *name;
    int min;                                                /* of a size 2, of a rank 1 */
    const char *needed[2];
} signs[] = {
    {"LOCAL_RANK", 1, {"RANK", "WORLD_SIZE"}},
    {"LOCAL_WORLD_SIZE", 2, {"RANK", "WORLD_SIZE"}},
    {"NODE_RANK", 1, {"RANK", "WORLD_SIZE"}},
    {"GROUP_RANK", 1, {"RANK", "WORLD_SIZE"}},
    {"SLURM_PROCID", 1, {"SLURM_NTASKS", "SLURM_STEP_ID"}},
    {"OMPI_COMM_WORLD_RANK", 1, {"OMPI_COMM_WORLD_SIZE"}},
    {"OMPI_COMM_WORLD_LOCAL_RANK", 1, {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}},
    {"OMPI_COMM_WORLD_LOCAL_SIZE", 2, {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}},
    {"PMI_RANK", 1, {"PMI_SIZE"}},
    {"MPI_LOCALRANKID", 1, {"PMI_RANK", "PMI_SIZE"}},
    {"MPI_LOCALNRANKS", 2, {"PMI_RANK", "PMI_SIZE"}},
    {"JSM_NAMESPACE_RANK", 1, {"JSM_NAMESPACE_SIZE", "LSB_DJOB_RANKFILE"}},
    {"JSM_NAMESPACE_LOCAL_RANK", 1, {"JSM_NAMESPACE_RANK", "LSB_DJOB_RANKFILE"}},
    {"PMIX_RANK", 1, {"PACELINE_RANK", "PACELINE_WORLD_SIZE"}},
    {"MV2_COMM_WORLD_RANK", 1, {"PACELINE_RANK", "PACELINE_WORLD_SIZE"}},
    {"MV2_COMM_WORLD_SIZE", 2, {"PACELINE_RANK", "PACELINE_WORLD_SIZE"}},
    {"PALS_RANKID", 1, {"PACELINE_RANK", "PACELINE_WORLD_SIZE"}},
    {"FLUX_TASK_RANK", 1, {"PACELINE_RANK", "PACELINE_WORLD_SIZE"}},
    {"PACELINE_LOCAL_RANK", 1, {"PACELINE_RANK", "PACELINE_WORLD_SIZE"}},
    {"PACELINE_NODE_RANK", 1, {"PACELINE_RANK", "PACELINE_WORLD_SIZE"}},
    {"PACELINE_LOCAL_WORLD_SIZE", 2, {"PACELINE_RANK", "PACELINE_WORLD_SIZE"}},
};

static int sign_fail(get_t get, const char *name, const char *const needed[2],
                     pl_error_t *err)
{
    static const char *const own[2] = {"PACELINE_RANK", "PACELINE_WORLD_SIZE"};
    const bool has[2] = {text_of(get, needed[0]), !needed[1] || text_of(get, needed[1])};
    char missing[80];
    if (has[0] && has[1])
        return sign_fail(get, name, own, err);
    if (has[0] || has[1])
        snprintf(missing, sizeof missing, "%s is", needed[has[0]]);
    else
        snprintf(missing, sizeof missing, "%s and %s are", needed[0], needed[1]);
    return pl_fail(err, PL_EINVAL,
                   "%s is %.40s, so this process is one of several ranks, but %s not "
                   "set: set what is missing, or set trainer.launcher to \"inline\" to "
                   "train alone",
                   name, text_of(get, name), missing);
}

int pl_environment_signs(get_t get, pl_error_t *err)
{
    for (size_t k = 0; k < sizeof signs / sizeof *signs; k++) {
        const char *text = text_of(get, signs[k].name);
        if (text && atoi(text) >= signs[k].min)
            return sign_fail(get, signs[k].name, signs[k].needed, err);
    }
    return PL_OK;
}

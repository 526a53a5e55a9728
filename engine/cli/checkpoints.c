/* checkpoints.c - what inspect says of checkpoints */
#include "cli/checkpoints.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli/output.h"
#include "cli/weights.h"

bool cli_is_checkpoint(const char *folder)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/" CLI_MANIFEST, folder);
    return access(path, F_OK) == 0;
}

json_t *cli_checkpoint_read(const char *path, bool verify, pl_error_t *err)
{
    char *text = pl_checkpoint_describe(path, verify, err);
    json_t *manifest = text ? json_loads(text, 0, NULL) : NULL;
    if (text && !manifest)
        pl_fail(err, PL_ENOMEM, "out of memory");
    if (manifest && verify)
        json_object_set_new(manifest, "verified", json_true());
    pl_text_free(text);
    return manifest;
}

static double bytes_of(const json_t *manifest)
{
    const char *name;
    json_t *file;
    double bytes = 0;
    json_object_foreach(json_object_get(manifest, "files"), name, file)
        bytes += json_number_value(json_object_get(file, "bytes"));
    return bytes;
}

static json_int_t integer_of(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

/* How often each loop has turned: what they keep lies one in the other, as they call. */
static void show_counts(const json_t *progress)
{
    const char *name;
    json_t *member;
    json_object_foreach(json_object_get(progress, "counts"), name, member)
        cli_print("  %-12s %lld ready, %lld started, %lld processed, %lld completed\n",
                  name, (long long)integer_of(member, "ready"),
                  (long long)integer_of(member, "started"),
                  (long long)integer_of(member, "processed"),
                  (long long)integer_of(member, "completed"));
    json_object_foreach((json_t *)progress, name, member)
        if (json_is_object(member))
            show_counts(member);
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "?";
}

static void show_origin(const json_t *manifest)
{
    json_t *origin;
    size_t k;
    cli_print("  run          %s, seed %lld, arithmetic %s, plans %s\n",
              text_of(manifest, "run_id"), (long long)integer_of(manifest, "seed"),
              text_of(manifest, "arithmetic"),
              text_of(json_object_get(manifest, "strategy"), "plans"));
    json_array_foreach(json_object_get(manifest, "resumed"), k, origin)
        cli_print("  resumed      from run %s after step %lld\n",
                  text_of(origin, "run_id"),
                  (long long)integer_of(origin, "global_step"));
}

void cli_checkpoint_show(const json_t *manifest)
{
    char bytes[24];
    cli_print("  checkpoint   after step %lld, epochs done %lld, %s%s\n",
              (long long)integer_of(manifest, "global_step"),
              (long long)integer_of(manifest, "epoch"),
              cli_bytes(bytes_of(manifest), bytes),
              json_object_get(manifest, "verified") ? ", every block verified" : "");
    show_origin(manifest);
    show_counts(json_object_get(manifest, "progress"));
}

/* ---- of a run ---- */

static json_t *one_of(const char *path, bool verify)
{
    pl_error_t err = {0};
    json_t *manifest = cli_checkpoint_read(path, verify, &err), *one;
    if (!manifest)
        return json_pack("{s:s}", "refused", err.text);
    one = json_pack("{s:I, s:I, s:f, s:b}", "step", integer_of(manifest, "global_step"),
                    "epoch", integer_of(manifest, "epoch"), "bytes", bytes_of(manifest),
                    "verified", verify);
    json_decref(manifest);
    return one;
}

static int is_shown(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

json_t *cli_checkpoints_list(const char *run_dir, bool verify)
{
    char folder[PATH_MAX], path[PATH_MAX + 260];
    struct dirent **entries = NULL;
    json_t *list = json_object();
    snprintf(folder, sizeof folder, "%s/" CLI_CHECKPOINTS, run_dir);
    int count = scandir(folder, &entries, is_shown, alphasort);
    for (int k = 0; k < count; k++) {
        snprintf(path, sizeof path, "%s/%s", folder, entries[k]->d_name);
        json_object_set_new(list, entries[k]->d_name, one_of(path, verify));
        free(entries[k]);
    }
    free(entries);
    return list;
}

void cli_checkpoints_show(json_t *list)
{
    const char *name;
    json_t *one;
    char bytes[24];
    json_object_foreach(list, name, one) {
        const char *refused = json_string_value(json_object_get(one, "refused"));
        if (refused)
            cli_print("  refused: %s\n", refused);
        else
            cli_print("  " CLI_CHECKPOINTS "/%s: step %lld, %s%s\n", name,
                      (long long)integer_of(one, "step"),
                      cli_bytes(json_number_value(json_object_get(one, "bytes")), bytes),
                      json_is_true(json_object_get(one, "verified")) ? ", verified" : "");
    }
}

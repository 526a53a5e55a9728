/* keys.h - the secrets of a job: who may speak with its processes beyond this machine
 *
 * They lie in a file that only its owner can read and that every process of the job
 * reads; they never stand on a command line or in the environment.  Whoever has the file
 * is of the job: there are no further roles. */
#ifndef PL_TRANSPORT_KEYS_H
#define PL_TRANSPORT_KEYS_H

#include "base/limits.h"
#include "paceline.h"

#define PL_KEY_TEXT 41                                      /* in Z85, with its end */

typedef struct pl_keys {
    /* CURVE: of who binds, and of who connects. */
    char server_public[PL_KEY_TEXT], server_secret[PL_KEY_TEXT];
    char client_public[PL_KEY_TEXT], client_secret[PL_KEY_TEXT];
    unsigned char root[PL_KEY_BYTES];                  /* random: what others come from */
} pl_keys_t;

/* The keys in a file.  PL_ENOTFOUND: there is none; PL_EINVAL: it is another's, or others
 * may read or write it; PL_EFORMAT: it is no key file. */
int pl_keys_read(const char *path, pl_keys_t *keys, pl_error_t *err);

/* New keys into a new file, whole or not at all, with mode 0600.  PL_EEXIST: something
 * lies there. */
int pl_keys_make(const char *path, pl_keys_t *keys, pl_error_t *err);

/* Reads the file, or makes it when there is none; of several that do so at once all get
 * the same keys. */
int pl_keys_open(const char *path, pl_keys_t *keys, pl_error_t *err);

/* The key under which the collective of a run's incarnation encrypts: the same in all
 * processes of the job, another one in each incarnation, telling nothing of the
 * others. PL_EUNSUPPORTED: built without libsodium. */
int pl_keys_collective(const pl_keys_t *keys, uint64_t run, uint32_t incarnation,
                       unsigned char key[PL_KEY_BYTES], pl_error_t *err);

/* Overwrites them. */
void pl_keys_forget(pl_keys_t *keys);

#endif

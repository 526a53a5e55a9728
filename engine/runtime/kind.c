/* kind.c - kinds of actors: a name and a level, with a number in the whole process
 *
 * Addresses and envelopes have the number; checks use the level, texts the name.
 * There are few kinds, so the table only grows, and reading it needs no lock. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "runtime/actor.h"
#include "runtime/message.h"

#define KINDS_MAX 1024
#define TABLES_MAX 64

typedef struct kind_entry {
    char name[48];
    int level;
} kind_entry_t;

static pthread_mutex_t kind_lock = PTHREAD_MUTEX_INITIALIZER;
static kind_entry_t kinds[KINDS_MAX];
static uint32_t kind_count = 1;                             /* atomic; 0 is no kind */

uint32_t pl_kind_enter(const char *name, int level, pl_error_t *err)
{
    pthread_mutex_lock(&kind_lock);
    uint32_t k = 1;
    while (k < kind_count
           && (kinds[k].level != level
               || strncmp(kinds[k].name, name, sizeof kinds[k].name - 1)))
        k++;
    if (k == kind_count && k < KINDS_MAX) {
        snprintf(kinds[k].name, sizeof kinds[k].name, "%s", name);
        kinds[k].level = level;
        __atomic_store_n(&kind_count, k + 1, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&kind_lock);
    if (k < KINDS_MAX)
        return k;
    pl_fail(err, PL_EBUSY, "more than %d kinds of actors in one process", KINDS_MAX - 1);
    return 0;
}

static const kind_entry_t *kind_of(uint32_t kind)
{
    return kind && kind < __atomic_load_n(&kind_count, __ATOMIC_ACQUIRE) ? &kinds[kind]
                                                                         : NULL;
}

const char *pl_kind_name(uint32_t kind)
{
    const kind_entry_t *k = kind_of(kind);
    return k ? k->name : "?";
}

int pl_kind_level(uint32_t kind)
{
    const kind_entry_t *k = kind_of(kind);
    return k ? k->level : 0;
}

const pl_actor_ops_t *pl_actor_kind(const pl_actor_ops_t *like, const char *name,
                                    pl_error_t *err)
{
    static pl_actor_ops_t tables[TABLES_MAX];
    int k = 0;
    pthread_mutex_lock(&kind_lock);
    while (k < TABLES_MAX && tables[k].name
           && (tables[k].name != name || tables[k].handlers != like->handlers))
        k++;
    if (k < TABLES_MAX && !tables[k].name) {
        tables[k] = *like;
        tables[k].name = name;
    }
    pthread_mutex_unlock(&kind_lock);
    if (k < TABLES_MAX)
        return &tables[k];
    pl_fail(err, PL_EBUSY,
            "more than %d kinds of accelerators and collectives in one "
            "process",
            TABLES_MAX);
    return NULL;
}

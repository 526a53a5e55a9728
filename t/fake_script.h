/* fake_script.h - the rules that the fake accelerator follows; fake.h has the language */
#ifndef T_FAKE_SCRIPT_H
#define T_FAKE_SCRIPT_H

#include "paceline.h"

typedef enum fake_action {
    FAKE_FAILS,
    FAKE_IS_REFUSED,
    FAKE_HANGS,
    FAKE_TAKES,
    FAKE_GIVES_NAN,
} fake_action_t;

typedef struct fake_rule {
    char what[16];                           /* "open", "region", "replay", "step", … */
    uint64_t number;                         /* which; 0: each */
    char kind[20];                           /* "forward_backward"; "": any */
    fake_action_t action;
    double ms;
    char tensor[64];
} fake_rule_t;

#define FAKE_RULES 8

typedef struct fake_script {
    fake_rule_t rule[FAKE_RULES];
    int count;
} fake_script_t;

int fake_script_read(fake_script_t *script, const char *text, pl_error_t *err);

/* The first rule for the number-th `what` of a kind, from `after` on [all], or NULL. */
const fake_rule_t *fake_script_find(const fake_script_t *script, const char *what,
                                    uint64_t number, const char *kind,
                                    const fake_rule_t *after);

#endif

/* token.h - the secret in the address of the page: who has it may look and command */
#ifndef PL_TELEMETRY_TOKEN_H
#define PL_TELEMETRY_TOKEN_H

#include "paceline.h"

#define PL_TOKEN_TEXT 129                                   /* with its end */

/* That of the file which PACELINE_DASHBOARD_TOKEN_FILE names, made when there is none; a
 * new random one when it is not set.  PL_EINVAL: the file is another's, or others may
 * read or write it; PL_EFORMAT: what it holds is no token. */
int pl_token_open(char token[static PL_TOKEN_TEXT], pl_error_t *err);

/* Takes as long for a wrong one as for the right one. */
bool pl_token_is(const char *token, const char *given, size_t length);

#endif

/* foreign.h - files that are no table as text, recognised by what they begin with */
#ifndef PL_FORMATS_FOREIGN_H
#define PL_FORMATS_FOREIGN_H

#include "paceline.h"

/* Refuses data of a known format that is no table. data: bytes and a zero behind them;
 * name: of the file. PL_EFORMAT names the format and what to do. */
int pl_foreign_refuse(const char *data, size_t size, const char *name, pl_error_t *err);

#endif

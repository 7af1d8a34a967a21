/* Which part of a trace a reading command looks at. */
#ifndef EPI_READ_OPTIONS_H
#define EPI_READ_OPTIONS_H

#include "cli.h"

#define NO_STEP INT64_MIN

typedef struct read_choice {
    const char *region, *window, *machine; /* or NULL */
    int64_t step;                          /* NO_STEP: all */
    int64_t from_ns, to_ns;                /* of the window, set by check_choice */
    bool keep_args;                        /* the trace will be written again */
} read_choice;

/* -1 to go on, or the exit code after a message. */
int check_choice(read_choice *choice);
ep_status read_trace(const char *path, const read_choice *choice, ep_error *err, ep_trace **out);

#endif

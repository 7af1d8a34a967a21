/* What a report holds: its text and its JSON, both malloc'ed and owned by it; made by explain, diff and list. */
#ifndef EP_READ_RESULT_H
#define EP_READ_RESULT_H

#include <epilogue/analyze.h>

struct ep_report {
    char *text, *json;                /* either may be NULL */
    void *diff;                       /* what --fail-on asks, or NULL */
    void (*destroy_diff)(void *diff); /* or NULL */
};

#endif

/* The parts of the page: report_data.c writes what the scripts read. */
#ifndef EP_READ_REPORT_H
#define EP_READ_REPORT_H

#include "base/json_write.h"
#include "read/analyze/facts.h"

/* The timeline of a trace as one JSON object: lanes, tracks, and columns in base64. At most `most` events, the longest. */
ep_status ep_report_timeline(ep_json_out *o, const ep_facts *f, const char *label, size_t most, ep_error *err);

#endif

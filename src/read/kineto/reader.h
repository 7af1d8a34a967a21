/* Reading a trace from a stream; include/epilogue/trace.h has the calls for everyone. */
#ifndef EP_READ_READER_H
#define EP_READ_READER_H

#include "base/file.h"
#include "model/trace/trace.h"

/* `no_fast`: every event goes through the tolerant parser, which the fast one must equal. */
ep_status kineto_read_stream(ep_stream_in *stream, const char *name, const ep_read_options *options, bool no_fast,
                             ep_error *err, ep_trace **out);

#endif

/* Machine files: where the measurement of this machine is kept, and what is assumed before there is one. */
#ifndef EP_MODEL_MACHINE_H
#define EP_MODEL_MACHINE_H

#include <epilogue/machine.h>

#include "base/status.h"

/* The file that holds the measurement of `device` here: under $XDG_CACHE_HOME (if absolute) or ~/.cache, named for the processor,
 * its cores and the instruction set in force, so that a shared home serves several machines. */
ep_status ep_machine_path(ep_device device, ep_error *err, char *out, size_t size);
/* What a processor of this instruction set usually does; measured = false. */
void ep_machine_estimate(ep_machine *out);
/* Text as a machine file has it; `name` is for messages. */
ep_status ep_machine_parse(const char *text, const char *name, ep_error *err, ep_machine *out);

#endif

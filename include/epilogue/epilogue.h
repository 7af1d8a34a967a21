/* epilogue.h: all of the public API. */
#ifndef EPILOGUE_EPILOGUE_H
#define EPILOGUE_EPILOGUE_H

/* The version of these headers: 10000 * major + 100 * minor + patch. ep_version() is the library's. */
#define EP_VERSION_NUMBER 100

#include "analyze.h"
#include "block.h"
#include "compile.h"
#include "context.h"
#include "guess.h"
#include "kernels.h"
#include "machine.h"
#include "ops.h"
#include "profile.h"
#include "status.h"
#include "tensor.h"
#include "trace.h"

#endif

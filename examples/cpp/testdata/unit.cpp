//go:build ignore

// A second translation unit, in the other language: both must share the process's state.
#include "../rpcprof.h"

extern "C" void *unit_process();
void *unit_process() { return &rpcprof_this_process_; }

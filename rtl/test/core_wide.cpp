#include <Vcore64.h>

#include "test/core_run.h"

namespace dllm::rtl {

CoreModel core64() { return core_model(engine_config(64), run_core<Vcore64>, halt_core<Vcore64>); }

}  // namespace dllm::rtl

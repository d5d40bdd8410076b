#include <Vanswer16.h>

#include "answer/core_executor_run.h"

namespace dllm::rtl {

CoreShape answer16() {
  return {DLLM_SOURCE_DIR "/rtl/answer/answer-16.toml", 8192, 1024, 1024, 65536, make_executor<Vanswer16>};
}

}  // namespace dllm::rtl

#include <Vanswer8.h>

#include "answer/core_executor_run.h"

namespace dllm::rtl {

CoreShape answer8() {
  return {DLLM_SOURCE_DIR "/rtl/answer/answer-8.toml", 2048, 256, 512, 8192, make_executor<Vanswer8>};
}

}  // namespace dllm::rtl

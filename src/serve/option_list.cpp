// GET /options: the options of a generation, as this build's methods declare them.
#include "engine/option_catalog.h"
#include "serve/answer.h"

namespace dllm::serve {

Expected<void> list_options(const CallPtr& call) {
  call->reply(option_catalog(call->served().model));
  return {};
}

}  // namespace dllm::serve

#include "base/background.h"

#include <sys/resource.h>
#include <unistd.h>

namespace dllm {
namespace {

thread_local bool background = false;

}  // namespace

void enter_background() {
  background = true;
  // Of this thread: Linux keeps the value by thread. On a busy core 10 leaves a tenth of the time, so that whoever
  // waits for this work is not forgotten; 19 would leave a seventieth.
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), 10);
}

bool in_background() { return background; }

}  // namespace dllm

#include "base/background.h"

#include <sys/resource.h>
#include <unistd.h>

namespace dllm {
namespace {

thread_local bool background = false;

}  // namespace

void enter_background() {
  background = true;
  // Linux has a nice value for each thread. On a busy core a thread at 10 gets about a tenth of the time, so that the
  // work still ends soon; at 19 it would get about a seventieth.
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), 10);
}

bool in_background() { return background; }

}  // namespace dllm

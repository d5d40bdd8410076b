#include "base/background.h"

#include "base/os_process.h"

namespace dllm {
namespace {

thread_local bool background = false;

}  // namespace

void enter_background() {
  background = true;
  // On a busy core a thread at 10 gets about a tenth of the time on Linux, so that the work still ends soon; at 19 it
  // would get about a seventieth.
  lower_priority(10);
}

bool in_background() { return background; }

}  // namespace dllm

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <system_error>

#include "app/cli/environment.h"
#include "app/cli/exit_code.h"
#include "app/cli/process.h"
#include "app/cli/verb.h"

namespace {

std::terminate_handler usual_terminate = nullptr;

/// Static objects are constructed before main(). If an allocation fails there, std::terminate() is called: nothing can
/// catch the exception, and there may be no memory to throw it. The priority comes before all static objects of this
/// program.
[[gnu::constructor(101)]] void prepare_static_objects() {
  usual_terminate = std::set_terminate([] {
    std::fputs("error: out of memory before the program could start (see ulimit -v)\n", stderr);
    std::_Exit(dllm::app::kExitResource);
  });
}

}  // namespace

int main(int argc, char** argv) {
  using namespace dllm::app;
  std::set_terminate(usual_terminate);
  prepare_process();
  // run_program() reports its own exceptions; what it needs before that must be reported without memory.
  try {
    Terminal terminal = Terminal::standard();
    Interrupt interrupt;
    const std::vector<std::string> args(argv + (argc > 0 ? 1 : 0), argv + argc);
    return run_program(
        args, terminal, interrupt, [](const std::string& name) { return std::getenv(name.c_str()); }, flag_variables());
  } catch (const std::bad_alloc&) {
    std::fputs("error: out of memory\n", stderr);
  } catch (const std::system_error&) {
    std::fputs("error: the system allows no more threads (see ulimit -u and ulimit -v)\n", stderr);
  }
  return kExitResource;
}

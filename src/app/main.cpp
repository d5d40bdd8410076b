#include <cstdlib>

#include "app/environment.h"
#include "app/verb.h"

int main(int argc, char** argv) {
  using namespace dllm::app;
  Terminal terminal = Terminal::standard();
  Interrupt interrupt;
  const std::vector<std::string> args(argv + (argc > 0 ? 1 : 0), argv + argc);
  return run_program(
      args, terminal, interrupt, [](const std::string& name) { return std::getenv(name.c_str()); }, flag_variables());
}

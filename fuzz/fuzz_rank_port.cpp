// Through real connections, so that the time of an input says nothing about its size.
#include "ranks/testing/port_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  dllm::FuzzedPort::get().send(std::as_bytes(std::span(data, size)));
  return 0;
}

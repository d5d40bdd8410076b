#include "bindings.h"
#include "dllm/version.h"
#include "image/image.h"

// The compiled half of the package. Python code uses `dllm`, which adds types, defaults and documentation.
NB_MODULE(_dllm, module) {
  // Classes of decoders stay registered until the process ends, and with them all that their modules refer to.
  nanobind::set_leak_warnings(false);
  module.attr("version") = DLLM_VERSION;
  module.attr("most_image_bytes") = dllm::kMostImageBytes;
  dllm::python::bind_calls(module);
  dllm::python::bind_options(module);
  dllm::python::bind_answers(module);
  dllm::python::bind_hub(module);
  dllm::python::bind_model(module);
  dllm::python::bind_stream(module);
  dllm::python::bind_decoders(module);
  dllm::python::bind_comparison(module);
  dllm::python::bind_npu(module);
}

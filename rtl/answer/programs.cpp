#include "answer/programs.h"

#include <utility>

#include "base/input_file.h"
#include "base/try.h"
#include "npu_core/assembler/assembler.h"
#include "npu_core/machine/images.h"

namespace dllm::rtl {
namespace {

Expected<void> load_piece(npu::MachineState& state, const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos)
    return Error{ErrorCode::kUsage, "--load " + text + " names no file", "", "--load PIECE=FILE"};
  DLLM_TRY(const npu::ImageSpec spec, npu::parse_image_spec(text.substr(0, equals)));
  const std::string path = text.substr(equals + 1);
  DLLM_TRY(const std::string bytes, read_input(path));
  return npu::load_image(state, spec, bytes, path);
}

}  // namespace

Expected<CoreTotals> run_program(const CoreShape& shape, const ProgramRun& run, MemoryTiming timing) {
  DLLM_TRY(const CoreDevice device, core_device(shape));
  DLLM_TRY(const auto core, shape.make(shape, device.device, device.config, timing));
  DLLM_TRY(npu::Machine host, npu::Machine::create(device.config));
  host.state().reach_hbm(device.config.hbm_bytes);
  for (const std::string& text : run.loads) DLLM_CHECK_OK(load_piece(host.state(), text));
  DLLM_TRY(const std::string text, read_input(run.program));
  DLLM_TRY(const npu::Program program, npu::assemble(text, {.file = run.program}));
  core->set_vectors(host.state());
  DLLM_CHECK_OK(core->run(host, program));
  return core->totals();
}

}  // namespace dllm::rtl

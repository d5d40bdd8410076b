#include "npu_core/device/readers.h"

#include <algorithm>
#include <cassert>

namespace dllm::npu {

using namespace reads;

std::span<const ReaderInfo> reader_infos() {
  static constexpr ReaderInfo kInfos[] = {
      {kMachine, "machine", "sizes and formats of the functional machine"},
      {kLayout, "layout", "where a model's tensors are placed, and in how many parts a step fits"},
      {kProgram, "program", "what else decides the instructions of a compiled step"},
      {kListing, "listing", "the bounds in the listing of a program"},
      {kSimulator, "simulator", "time, cycle by cycle"},
      {kDraws, "draws", "draws on the chip (`--temperature`)"},
      {kCost, "cost", "the analytical model of time, per operator"},
      {kSchedule, "schedule", "the analytical schedule of a step, and its time without overlap"},
      {kEnergy, "energy", "energy and area"},
      {kMemory, "memory", "DRAM alone"},
      {kWindow, "window", "placing and staging in the window of addresses"},
      {kHost, "host", "the host's processor"},
      {kHeat, "heat", "heat, and the lowered clock"},
      {kValues, "values", "answers in the device's formats"},
  };
  return kInfos;
}

std::span<const DeviceVerb> device_verbs() {
  constexpr Readers kTimed = kMachine | kSimulator | kEnergy;
  constexpr Readers kStep = kTimed | kLayout | kProgram;
  constexpr Readers kBlocks = kLayout | kCost | kSchedule | kEnergy;
  constexpr Readers kAnswers = kCost | kEnergy | kWindow | kHost | kHeat;
  static constexpr DeviceVerb kVerbs[] = {
      {"npu run", kMachine},
      {"npu run --timing", kTimed | kDraws},
      {"npu trace", kTimed | kDraws},
      {"npu compile", kMachine | kLayout | kProgram | kListing},
      {"npu step", kStep},
      {"npu step --temperature", kStep | kDraws},
      {"npu step --analytic", kStep | kCost | kSchedule},
      {"npu sampling", kTimed},
      {"npu sampling --temperature", kTimed | kDraws},
      {"npu dram", kMemory},
      {"npu analyze", kBlocks},
      {"npu sweep", kBlocks},
      {"npu plan", kCost | kWindow},
      {"npu plan --program", kWindow},
      {"npu calibrate", kAnswers},
      {"bench --backend npu", kAnswers},
      {"run --backend npu", kAnswers | kValues},
      {"run --backend npu --npu-values machine", kAnswers | kMachine | kLayout | kProgram},
      {"run --backend npu --npu-timing simulated", kAnswers | kValues | kStep},
      {"run --backend npu --npu-processor host", kHost | kHeat | kValues},
  };
  return kVerbs;
}

Readers VerbUse::readers() const {
  Readers all = 0;
  for (const std::string_view name : names_) {
    const auto found = std::ranges::find(device_verbs(), name, &DeviceVerb::name);
    assert(found != device_verbs().end());
    all |= found->readers;
  }
  return all;
}

std::vector<std::string> verbs_reading(Readers readers) {
  std::vector<std::string> names;
  for (const DeviceVerb& verb : device_verbs())
    if ((verb.readers & readers) != 0) names.emplace_back(verb.name);
  return names;
}

}  // namespace dllm::npu

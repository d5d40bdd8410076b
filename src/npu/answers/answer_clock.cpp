#include "npu/answers/answer_clock.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace dllm::npu {

StepTime AnswerClock::sum(std::size_t end) const {
  StepTime sum;
  for (std::size_t i = 0; i < std::min(end, steps_.size()); ++i) sum += steps_[i].time;
  return sum;
}

nlohmann::ordered_json step_time_json(const StepTime& t) {
  return {{"ms", t.seconds() * 1e3},
          {"joules", t.energy.joules()},
          {"parts_ms",
           {{"array", t.array * 1e3},
            {"vector", t.vector * 1e3},
            {"memory", t.memory * 1e3},
            {"dispatch", t.dispatch * 1e3},
            {"staging", t.staging * 1e3},
            {"host", t.host * 1e3}}},
          {"parts_joules",
           {{"compute", t.energy.compute},
            {"dram", t.energy.dram},
            {"standby", t.energy.standby},
            {"host_active", t.energy.host_active},
            {"host_idle", t.energy.host_idle}}}};
}

}  // namespace dllm::npu

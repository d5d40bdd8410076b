#include "npu_compiler/runtime/memory_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/human_bytes.h"
#include "base/svg_plot.h"
#include "base/to_size.h"

namespace dllm::npu {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kMiB = 1 << 20;

std::string_view use_name(MemoryMapping::Use use) {
  constexpr std::string_view kNames[] = {"scratch", "staging", "resident"};
  return kNames[use];
}
std::string_view kind_name(TensorPlace::Kind kind) {
  constexpr std::string_view kNames[] = {"unused", "resident", "staged", "scratch"};
  return kNames[kind];
}

const std::string& name_of(const MemoryProgram& program, std::int32_t tensor) {
  return program.tensors[to_size(tensor)].name;
}

/// Tensors in a mapping, by address.
std::vector<std::int32_t> held_by(const MemoryPlan& plan, std::int32_t mapping) {
  std::vector<std::int32_t> found;
  for (std::size_t t = 0; t < plan.places.size(); ++t)
    if (plan.places[t].mapping == mapping) found.push_back(static_cast<std::int32_t>(t));
  std::ranges::stable_sort(found, {}, [&](std::int32_t t) { return plan.places[to_size(t)].address; });
  return found;
}

std::string what_holds(const MemoryProgram& program, const MemoryPlan& plan, std::int32_t mapping) {
  if (plan.mappings[to_size(mapping)].use == MemoryMapping::kStaging)
    return fmt::format("2 slots of {}", human_bytes(static_cast<double>(plan.slot_bytes)));
  const std::vector<std::int32_t> tensors = held_by(plan, mapping);
  if (tensors.size() == 1) return name_of(program, tensors.front());
  return fmt::format("{} tensors, {} to {}", tensors.size(), name_of(program, tensors.front()),
                     name_of(program, tensors.back()));
}

/// Times at which operators begin in a run, without waiting and with it; and the end.
std::vector<double> operator_begins(const MemoryProgram& program, const MemoryPlan& plan) {
  std::vector<double> begins;
  double now = 0;
  std::size_t part = 0;
  for (std::size_t o = 0; o < program.ops.size(); ++o) {
    begins.push_back(now);
    now += program.ops[o].seconds;
    for (; part < plan.parts.size() && plan.parts[part].op == static_cast<std::int32_t>(o); ++part)
      now += plan.parts[part].waited;
  }
  begins.push_back(now);
  return begins;
}

/// Draws one plan.
class MapPicture {
 public:
  MapPicture(const MemoryProgram& program, const MemoryPlan& plan, const std::string& title)
      : program_(program),
        plan_(plan),
        begins_(operator_begins(program, plan)),
        plot_(layout_, title),
        x_{0, std::max(plan.seconds, 1e-9) * 1e3, layout_.left, layout_.right},
        y_{0, std::max(1.0, static_cast<double>(plan.window_used())) / kMiB, layout_.bottom, layout_.top} {
    plot_.x_grid(x_);
    plot_.y_grid(y_);
    plot_.axis_names("time of a run [ms]", "device address [MiB]");
  }

  std::string draw() && {
    for (std::size_t m = 0; m < plan_.mappings.size(); ++m) mapping(static_cast<std::int32_t>(m));
    scratch();
    staging();
    legend();
    return std::move(plot_).take();
  }

 private:
  static constexpr const char *kResident = "#4878a8", *kScratch = "#5a9a5a", *kMoving = "#e0b070", *kWork = "#b05020";

  void box(double from_s, double to_s, std::int64_t address, std::int64_t bytes, const char* colour, double opacity) {
    const double left = std::clamp(x_(from_s * 1e3), layout_.left, layout_.right),
                 right = std::clamp(x_(to_s * 1e3), layout_.left, layout_.right),
                 low = y_(static_cast<double>(address) / kMiB), high = y_(static_cast<double>(address + bytes) / kMiB);
    if (right <= left) return;
    plot_.area(fmt::format("M{:.2f} {:.2f}H{:.2f}V{:.2f}H{:.2f}z", left, low, right, high, left), colour, opacity);
  }

  void mapping(std::int32_t index) {
    const MemoryMapping& one = plan_.mappings[to_size(index)];
    if (one.use != MemoryMapping::kResident) return;
    box(0, plan_.seconds, one.address, one.bytes, kResident, index % 2 == 0 ? 0.55 : 0.4);
    plot_.text(layout_.left + 6, y_(static_cast<double>(one.address) / kMiB) - 6, what_holds(program_, plan_, index),
               "#222", 10);
  }

  void scratch() {
    const std::vector<TensorLife> lives = tensor_lives(program_);
    for (std::size_t t = 0; t < plan_.places.size(); ++t)
      if (plan_.places[t].kind == TensorPlace::kScratch)
        box(begins_[to_size(lives[t].first)], begins_[to_size(lives[t].last) + 1], plan_.places[t].address,
            program_.tensors[t].bytes, kScratch, 0.6);
  }

  /// A part that is moved in advance for the next run is drawn at the end of this one.
  void staging() {
    std::int64_t address = 0;
    for (const MemoryMapping& one : plan_.mappings)
      if (one.use == MemoryMapping::kStaging) address = one.address;
    for (const StagedPart& part : plan_.parts) {
      const std::int64_t at = address + part.slot * plan_.slot_bytes;
      for (const double shift : {0.0, plan_.seconds})
        box(std::max(0.0, part.start + shift), std::min(plan_.seconds, part.ready + shift), at, part.bytes, kMoving,
            0.8);
      box(part.begin, part.end, at, part.bytes, kWork, 0.8);
    }
  }

  void legend() {
    const std::pair<const char*, const char*> entries[] = {
        {kResident, "resident"}, {kScratch, "activations"}, {kMoving, "transfer"}, {kWork, "work on what was staged"}};
    double x = layout_.left;
    for (const auto& [colour, name] : entries) {
      plot_.area(fmt::format("M{:.1f} 462h12v12h-12z", x + 100), colour, 0.7);
      plot_.text(x + 118, 472, name, "#333", 11);
      x += 110;
    }
  }

  static constexpr PlotLayout layout_ = {
      .width = 900, .height = 490, .left = 80, .right = 880, .top = 40, .bottom = 410};
  const MemoryProgram& program_;
  const MemoryPlan& plan_;
  std::vector<double> begins_;
  SvgPlot plot_;
  PlotScale x_, y_;
};

}  // namespace

std::string memory_map_text(const MemoryProgram& program, const MemoryPlan& plan) {
  std::string text = fmt::format("{:<10}{:>12}{:>14}  {}\n", "mapping", "address MiB", "bytes", "holds");
  for (std::size_t m = 0; m < plan.mappings.size(); ++m) {
    const MemoryMapping& one = plan.mappings[m];
    text += fmt::format("{:<10}{:>12.1f}{:>14}  {}\n", use_name(one.use), static_cast<double>(one.address) / kMiB,
                        one.bytes, what_holds(program, plan, static_cast<std::int32_t>(m)));
  }
  const auto size = [](std::int64_t bytes) { return human_bytes(static_cast<double>(bytes)); };
  text += fmt::format("resident {}, staged {} in {} parts, activations {}\n", size(plan.resident_bytes),
                      size(plan.staged_bytes), plan.parts.size(), size(plan.scratch_bytes));
  text += fmt::format(
      "run {:.3f} ms: computing {:.3f}, waiting {:.3f}; transfers {:.3f} ms, {:.1f} % hidden; first run {:.3f} ms\n"
      "without staging ahead: {:.3f} ms, {:.2f} x\n",
      plan.seconds * 1e3, plan.compute_seconds * 1e3, plan.waiting_seconds * 1e3, plan.transfer_seconds * 1e3,
      plan.transfer_seconds > 0 ? 100 * plan.hidden_seconds() / plan.transfer_seconds : 100.0, plan.first_seconds * 1e3,
      plan.paging_seconds * 1e3, plan.seconds > 0 ? plan.paging_seconds / plan.seconds : 1.0);
  return text;
}

Json memory_map_json(const MemoryProgram& program, const MemoryPlan& plan) {
  Json mappings = Json::array(), tensors = Json::array(), parts = Json::array();
  for (const MemoryMapping& one : plan.mappings)
    mappings.push_back({{"use", use_name(one.use)}, {"address", one.address}, {"bytes", one.bytes}});
  for (std::size_t t = 0; t < plan.places.size(); ++t) {
    const TensorPlace& place = plan.places[t];
    Json one = {
        {"name", program.tensors[t].name}, {"bytes", program.tensors[t].bytes}, {"place", kind_name(place.kind)}};
    if (place.mapping >= 0) {
      one["mapping"] = place.mapping;
      one["address"] = place.address;
    }
    tensors.push_back(std::move(one));
  }
  for (const StagedPart& part : plan.parts)
    parts.push_back({{"tensor", name_of(program, part.tensor)},
                     {"operator", program.ops[to_size(part.op)].name},
                     {"offset", part.offset},
                     {"bytes", part.bytes},
                     {"slot", part.slot},
                     {"start_us", part.start * 1e6},
                     {"ready_us", part.ready * 1e6},
                     {"begin_us", part.begin * 1e6},
                     {"end_us", part.end * 1e6},
                     {"waited_us", part.waited * 1e6}});
  return {{"run_ms", plan.seconds * 1e3},
          {"first_run_ms", plan.first_seconds * 1e3},
          {"compute_ms", plan.compute_seconds * 1e3},
          {"waiting_ms", plan.waiting_seconds * 1e3},
          {"transfer_ms", plan.transfer_seconds * 1e3},
          {"hidden_ms", plan.hidden_seconds() * 1e3},
          {"paging_ms", plan.paging_seconds * 1e3},
          {"window_bytes_used", plan.window_used()},
          {"resident_bytes", plan.resident_bytes},
          {"staged_bytes", plan.staged_bytes},
          {"scratch_bytes", plan.scratch_bytes},
          {"slot_bytes", plan.slot_bytes},
          {"mappings", mappings},
          {"tensors", tensors},
          {"parts", parts}};
}

std::string memory_map_svg(const MemoryProgram& program, const MemoryPlan& plan, const std::string& title) {
  return MapPicture(program, plan, title).draw();
}

}  // namespace dllm::npu

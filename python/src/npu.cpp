// dllm.npu: programs and designs of the simulated processor.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <nlohmann/json.hpp>
#include <string_view>
#include <tuple>

#include "arrays.h"
#include "base/cache_directory.h"
#include "base/parse_text.h"
#include "base/try.h"
#include "bindings.h"
#include "calls.h"
#include "npu_compiler/compiler/device_step.h"
#include "npu_compiler/sweep/space.h"
#include "npu_core/assembler/assembler.h"
#include "npu_core/device/energy.h"
#include "npu_core/device/keys.h"
#include "npu_core/device/profile.h"
#include "npu_core/machine/device_machine.h"
#include "npu_core/machine/images.h"
#include "npu_core/timing/memo.h"
#include "npu_core/timing/simulator.h"
#include "raise.h"

namespace dllm::python {

namespace nb = nanobind;

namespace {

using Changes = std::vector<std::pair<std::string, std::string>>;

std::vector<npu::Override> overrides(const Changes& changes) {
  std::vector<npu::Override> result;
  for (const auto& [key, value] : changes) result.push_back({key, value});
  return result;
}

/// All errors of a source at once: a list as the exception's last argument would be lost in tracebacks.
npu::Program assemble(const std::string& source, const std::string& file) {
  npu::Assembly assembly = npu::assemble_all(source, {.file = file});
  if (assembly.errors.empty()) return std::move(assembly.program);
  Error all = assembly.errors.front();
  for (std::size_t i = 1; i < assembly.errors.size(); ++i) all.what += "\n" + assembly.errors[i].message();
  raise(all);
}

struct Run {
  std::uint64_t instructions = 0;
  std::vector<nb::object> memory;  ///< by dump
  std::string timing;              ///< JSON; empty: not asked
};

/// Lets Ctrl-C end programs, which may run for hours.
class Watched final : public npu::IssueObserver {
 public:
  explicit Watched(npu::IssueObserver* next) : next_(next) {}
  void on_issue(const npu::IssueEvent& event) override {
    constexpr std::uint64_t kBetweenPolls = std::uint64_t{1} << 16;
    if (event.sequence % kBetweenPolls == kBetweenPolls - 1 && !poll_python()) throw Exiting();
    if (next_ != nullptr) next_->on_issue(event);
  }

 private:
  npu::IssueObserver* next_;
};

struct RunRequest {
  std::vector<std::string> dumps{};    ///< pieces of memory in the command line's notation
  std::vector<std::string> formats{};  ///< reset values of format registers
  bool timing = false;
  bool data = true;
  std::uint64_t most_instructions = 0;
};

/// `loads`: a piece of memory in the command line's notation, and the bytes of a NumPy file for it.
Run run(const npu::Program& program, const npu::Device& device,
        const std::vector<std::pair<std::string, nb::bytes>>& loads, const RunRequest& request) {
  npu::MachineConfig config = take(npu::machine_config(device));
  for (const std::string& format : request.formats) take(npu::override_format(config, format));
  npu::Machine machine = take(npu::Machine::create(config));
  for (const auto& [piece, bytes] : loads)
    take(npu::load_image(machine.state(), take(npu::parse_image_spec(piece)),
                         std::string_view(bytes.c_str(), bytes.size()), piece));
  std::unique_ptr<npu::TimingSimulator> simulator;
  npu::TimingOptions timing_options;
  npu::apply_issue(device.issue, timing_options);
  if (request.timing) simulator = take(npu::TimingSimulator::create(device, config, program, timing_options));
  Watched watched(simulator.get());
  npu::RunOptions options{.max_instructions = request.most_instructions, .data = request.data, .observer = &watched};
  Run result;
  {
    auto done = unlocked([&] { return machine.run(program, options); });
    result.instructions = take(std::move(done)).instructions;
  }
  for (const std::string& dump : request.dumps) {
    npu::ImageValues values = take(npu::read_image(machine.state(), take(npu::parse_image_spec(dump))));
    result.memory.push_back(values.is_integer ? nb::cast(to_numpy<std::uint32_t>(std::move(values.integers)))
                                              : nb::cast(to_numpy<float>(std::move(values.real))));
  }
  if (request.timing) result.timing = npu::timing_json(simulator->finish(), device, config, timing_options).dump();
  return result;
}

/// A space of designs: what all of them share is computed once.
class Design {
 public:
  Design(const std::string& model, const std::string& base) {
    npu::SweepSpec spec;
    spec.model = model;
    spec.base = base;
    space_ = take(npu::SweepSpace::create(spec));
    evaluator_ = std::make_unique<npu::PointEvaluator>(*space_);
  }

  std::vector<double> evaluate(const Changes& changes) {
    const std::vector<npu::Override> given = overrides(changes);
    const auto metrics = take(evaluator_->evaluate(given));
    return {metrics.begin(), metrics.end()};
  }

 private:
  std::unique_ptr<npu::SweepSpace> space_;
  std::unique_ptr<npu::PointEvaluator> evaluator_;
};

/// A compiled and simulated denoising step.
struct StepTime {
  npu::Cycle cycles = 0;
  double seconds = 0;
  bool from_cache = false;
  std::string report;  ///< JSON
};

/// Times steps as `dllm npu step` does.
class StepTimer {
 public:
  /// `directory`: of stored reports; "auto": the command line's; "": none.
  StepTimer(const std::string& model, std::string base, std::int64_t layers, std::string directory)
      : shape_(take(npu::load_model_shape(model))), base_(std::move(base)), directory_(std::move(directory)) {
    request_.layers = layers;
    if (directory_ == "auto") {
      const std::string caches = cache_directory();
      directory_ = caches.empty() ? "" : caches + "/npu";
    }
  }

  StepTime simulate(const Changes& changes) const {
    npu::StepRequest request = request_;
    Changes device;
    for (const auto& [key, value] : changes)
      if (!key.starts_with(kWorkload))
        device.emplace_back(key, value);
      else
        set(request, key, value);
    auto timed = [&] {
      const nb::gil_scoped_release release;
      return time(request, overrides(device));
    }();
    return take(std::move(timed));
  }

 private:
  static constexpr std::string_view kWorkload = "workload.";

  static void set(npu::StepRequest& request, const std::string& key, const std::string& value) {
    const std::string name = key.substr(kWorkload.size());
    const auto bad = [&](const char* what) { raise({ErrorCode::kUsage, what, key, ""}); };
    if (name == "cache") {
      const auto kind = npu::cache_from_name(value);
      if (!kind) bad("it must be none, prefix or dual");
      request.cache = *kind;
      return;
    }
    if (name == "reduced_head" || name == "balanced") {
      if (value != "true" && value != "false") bad("it must be True or False");
      (name == "balanced" ? request.choices.balanced : request.reduced) = value == "true";
      return;
    }
    std::int64_t* const target = name == "batch"     ? &request.size.sequences
                                 : name == "rows"    ? &request.size.rows
                                 : name == "context" ? &request.size.keys
                                 : name == "scored"  ? &request.size.scored
                                 : name == "suffix"  ? &request.suffix
                                                     : nullptr;
    if (target == nullptr) bad("it is none of batch, rows, context, scored, cache, suffix, reduced_head and balanced");
    const auto number = parse_number<std::int64_t>(value);
    const bool may_be_zero = name == "scored" || name == "suffix";
    if (!number || *number < (may_be_zero ? 0 : 1) || *number > 1 << 20) bad("it must be a whole number up to 1048576");
    *target = *number;
  }

  Expected<StepTime> time(const npu::StepRequest& request, const std::vector<npu::Override>& changes) const {
    DLLM_TRY(npu::Device device, npu::load_device(base_, changes));
    for (const npu::Override& change : changes)
      if (const npu::DeviceKey* const key = npu::find_device_key(change.key))
        DLLM_CHECK_OK(npu::check_verb_reads(*key, {"npu step"}));
    DLLM_TRY(const npu::CompiledStep compiled, npu::compile_step(shape_, std::move(device), request));
    npu::TimingOptions options;
    options.repeat = true;
    npu::apply_issue(compiled.device.issue, options);
    DLLM_TRY(const npu::MemoisedTiming timing,
             npu::memoised_timing(compiled.device, compiled.machine, compiled.step.program, options, directory_));
    return StepTime{timing.total, static_cast<double>(timing.total) / (compiled.device.clock.ghz * 1e9),
                    timing.from_cache, timing.report.dump()};
  }

  npu::ModelShape shape_;
  std::string base_;
  npu::StepRequest request_;
  std::string directory_;
};

void bind_program(nb::module_& module) {
  nb::class_<npu::Program>(module, "Program", "An assembled program.")
      .def_ro("name", &npu::Program::name)
      .def("__len__", &npu::Program::size)
      .def_prop_ro(
          "words", [](const npu::Program& p) { return to_numpy<std::uint32_t>(std::vector(p.words)); },
          nb::rv_policy::move, "uint32, as encoded")
      .def_prop_ro("regions",
                   [](const npu::Program& p) {
                     std::vector<std::tuple<std::string, std::uint32_t, std::uint32_t>> regions;
                     for (const npu::Region& r : p.regions) regions.emplace_back(r.name, r.begin, r.end);
                     return regions;
                   })
      .def(
          "disassemble", [](const npu::Program& p, bool annotate) { return npu::disassemble(p, annotate); },
          nb::arg("annotate") = false)
      .def("to_binary", [](const npu::Program& p) {
        const std::string bytes = npu::to_binary(p);
        return nb::bytes(bytes.data(), bytes.size());
      });
  module.def("npu_assemble", &assemble);
  module.def("npu_program", [](const nb::bytes& bytes, const std::string& name) {
    return take(npu::program_from_bytes(std::string_view(bytes.c_str(), bytes.size()), name));
  });
}

void bind_device(nb::module_& module) {
  nb::class_<npu::Device>(module, "Device", "A device profile.")
      .def_ro("name", &npu::Device::name)
      .def_ro("summary", &npu::Device::summary)
      .def_prop_ro("peak_tops", &npu::Device::peak_tops)
      .def_prop_ro("memory_gbps", &npu::Device::memory_gbps)
      .def_prop_ro("area_mm2", [](const npu::Device& device) { return npu::area(device).total(); })
      .def("json", [](const npu::Device& device) { return npu::device_json(device).dump(); })
      .def("__repr__",
           [](const npu::Device& device) { return "<dllm.npu.Device " + device.name + ": " + device.summary + ">"; });
  module.def("npu_devices", &npu::device_names);
  module.def("npu_device", [](const std::string& name, const Changes& changes) {
    return take(npu::load_device(name, overrides(changes)));
  });
}

}  // namespace

void bind_npu(nb::module_& module) {
  bind_program(module);
  bind_device(module);
  nb::class_<Run>(module, "NpuRun")
      .def_ro("instructions", &Run::instructions)
      .def_ro("memory", &Run::memory)
      .def_ro("timing", &Run::timing);
  nb::class_<RunRequest>(module, "NpuRunRequest")
      .def(nb::init<std::vector<std::string>, std::vector<std::string>, bool, bool, std::uint64_t>());
  module.def("npu_run", &run);
  nb::class_<Design>(module, "Design")
      .def(nb::init<const std::string&, const std::string&>())
      .def("evaluate", &Design::evaluate);
  nb::class_<StepTime>(module, "NpuStepTime")
      .def_ro("cycles", &StepTime::cycles)
      .def_ro("seconds", &StepTime::seconds)
      .def_ro("from_cache", &StepTime::from_cache)
      .def_ro("report", &StepTime::report);
  nb::class_<StepTimer>(module, "StepTimer")
      .def(nb::init<const std::string&, std::string, std::int64_t, std::string>())
      .def("simulate", &StepTimer::simulate);
  module.def("npu_metrics", [] {
    std::vector<std::tuple<std::string, std::string, bool>> metrics;
    for (const npu::Metric& m : npu::sweep_metrics()) metrics.emplace_back(m.name, m.unit, m.larger_is_better);
    return metrics;
  });
  module.def("npu_models", &npu::model_shape_names);
}

}  // namespace dllm::python

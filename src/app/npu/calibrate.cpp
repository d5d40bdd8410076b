// dllm npu calibrate: a device profile whose parameters are fitted to measured times.
#include "npu_compiler/calibrate/calibrate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostream>

#include "app/cli/options.h"
#include "app/cli/report.h"
#include "app/cli/verb.h"
#include "app/cli/written_files.h"
#include "app/npu/flags.h"
#include "base/input_file.h"
#include "base/try.h"
#include "npu_core/device/profile.h"

namespace dllm::app {
namespace {

using Json = nlohmann::ordered_json;

template <class T>
Expected<void> read_measurements(const std::string& path,
                                 Expected<std::vector<T>> (*parse)(std::string_view, const std::string&),
                                 std::vector<T>& into) {
  if (path.empty()) return {};
  DLLM_TRY(const std::string text, read_input(path));
  DLLM_TRY(into, parse(text, path));
  return {};
}

/// What the measurements say about a key.
std::string key_verdict(const npu::CalibratedKey& key) {
  switch (key.fit.state) {
    case npu::FittedParameter::State::kFitted:
      return fmt::format("{:.6g} {} (was {:.6g}), standard error {:.2g} %{}{}", key.fit.value, key.unit, key.before,
                         100 * key.fit.error, key.with.empty() ? "" : "; the measurements do not tell it from ",
                         fmt::join(key.with, ", "));
    case npu::FittedParameter::State::kBounded:
      return fmt::format("at least {:.6g} {} (was {:.6g}): it limits none of the measurements", key.fit.value, key.unit,
                         key.before);
    case npu::FittedParameter::State::kUnused:
      return fmt::format("not determined: it limits none of the measurements (stays {:.6g})", key.before);
    case npu::FittedParameter::State::kInseparable:
      return fmt::format("not determined: the measurements do not tell it from {} (stays {:.6g})",
                         fmt::join(key.with, ", "), key.before);
    case npu::FittedParameter::State::kVague:
      return fmt::format("not determined: standard error {:.0f} % (stays {:.6g})", 100 * key.fit.error, key.before);
  }
  return {};
}

const char* state_name(npu::FittedParameter::State state) {
  constexpr const char* kNames[] = {"fitted", "unused", "bounded", "inseparable", "vague"};
  return kNames[static_cast<std::size_t>(state)];
}

class NpuCalibrate final : public Verb {
 public:
  void declare(Flags& flags) override {
    flags.group("Measurements (CSV with a header; times in microseconds, energies in joules or watts)");
    const auto file = [&flags](const char* name, const char* help, std::string& target) {
      flags.add({.names = {name}, .value = "FILE.csv", .help = help, .takes_path = true, .apply = into(target)});
    };
    file("--gemms", "products on the device: rows,outputs,inputs,us", gemms_);
    file("--steps", "steps on the device, every row scored: rows,keys,us", steps_);
    file("--mappings", "mappings of a buffer: bytes,us", mappings_);
    file("--host-gemms", "products on the host's processor, as --gemms", host_gemms_);
    file("--host-steps", "steps on the host's processor, as --steps", host_steps_);
    file("--shared-steps", "steps on the device while the host repeats others: rows,keys,host_rows,host_keys,us",
         shared_steps_);
    file("--gemm-joules", "energy of products: rows,outputs,inputs and joules or watts", gemm_joules_);
    file("--step-joules", "energy of steps on the device: rows,keys and joules or watts", step_joules_);
    file("--host-step-joules", "energy of steps on the host's processor, as --step-joules", host_step_joules_);
    flags.group("Step of a model");
    model_.add(flags);
    flags.group("Device");
    device_.name = "mobile-sm8750";
    device_.add(flags);
    flags.group("Output");
    flags.add({.names = {"--profile"},
               .value = "FILE.toml",
               .help = "write the fitted profile",
               .takes_path = true,
               .written = true,
               .apply = into(profile_)});
    flags.add({.names = {"--name"}, .value = "NAME", .help = "its name", .default_text = name_, .apply = into(name_)});
    add_output_flag(flags, output_, {"text", "json"});
  }

  Expected<ExitCode> run(const Flags&, Session& session) override {
    DLLM_TRY(const npu::Device device, device_.load({"npu calibrate"}));
    npu::Measurements all;
    DLLM_CHECK_OK(read_measurements(gemms_, npu::parse_gemms, all.gemms));
    DLLM_CHECK_OK(read_measurements(steps_, npu::parse_steps, all.steps));
    DLLM_CHECK_OK(read_measurements(mappings_, npu::parse_mappings, all.mappings));
    DLLM_CHECK_OK(read_measurements(host_gemms_, npu::parse_gemms, all.host_gemms));
    DLLM_CHECK_OK(read_measurements(host_steps_, npu::parse_steps, all.host_steps));
    DLLM_CHECK_OK(read_measurements(shared_steps_, npu::parse_shared_steps, all.shared_steps));
    DLLM_CHECK_OK(read_measurements(gemm_joules_, npu::parse_gemm_energies, all.gemm_energies));
    DLLM_CHECK_OK(read_measurements(step_joules_, npu::parse_step_energies, all.step_energies));
    DLLM_CHECK_OK(read_measurements(host_step_joules_, npu::parse_step_energies, all.host_step_energies));
    DLLM_TRY(const npu::ModelShape shape, model_.load());
    const auto graph = [&shape](StepShape step) { return shape.architecture->build(shape.desc, step); };
    DLLM_TRY(const npu::Calibration result, npu::calibrate(device, graph, all));
    if (!profile_.empty()) DLLM_CHECK_OK(write_profile(result, session));
    if (output_ == "json")
      session.terminal.out << dump(json(result, session.command)) << "\n";
    else
      print(result, session.terminal.out);
    return kExitOk;
  }

 private:
  Expected<void> write_profile(const npu::Calibration& result, Session& session) const {
    const std::vector<std::string> shipped = npu::device_names();
    const bool unchanged = device_.sets.empty() && std::ranges::find(shipped, device_.name) != shipped.end();
    const std::string text = npu::calibrated_profile(result, unchanged ? device_.name : "", name_, session.command);
    DLLM_CHECK_OK(npu::parse_device(text, profile_));
    return write_result(session, profile_, text);
  }

  static void print(const npu::Calibration& result, std::ostream& out) {
    out << fmt::format("{:52} {:>14} {:>14}    {:>9}\n", "measurement", "measured", "model", "residual");
    for (const npu::CalibrationResidual& one : result.residuals)
      out << fmt::format("{:52} {:14.6g} {:14.6g} {:2} {:+8.2f} %\n", one.what, one.measured, one.model, one.unit,
                         100 * (one.model / one.measured - 1));
    out << fmt::format("{} measurements: relative residuals {:.2f} % (root mean square), at most {:.2f} %\n\n",
                       result.residuals.size(), 100 * result.rms, 100 * result.worst);
    for (const npu::CalibratedKey& key : result.keys) out << fmt::format("{:30} {}\n", key.key, key_verdict(key));
  }

  static Json json(const npu::Calibration& result, const std::string& command) {
    Json all = provenance(command);
    all["measurements"] = result.residuals.size();
    all["rms"] = result.rms;
    all["worst"] = result.worst;
    for (const npu::CalibratedKey& key : result.keys)
      all["keys"].push_back({{"key", key.key},
                             {"state", state_name(key.fit.state)},
                             {"before", key.before},
                             {"value", key.fit.value},
                             {"relative_error", key.fit.error},
                             {"not_told_from", key.with}});
    for (const npu::CalibrationResidual& one : result.residuals)
      all["residuals"].push_back(
          {{"measurement", one.what}, {"unit", one.unit}, {"measured", one.measured}, {"model", one.model}});
    return all;
  }

  NpuModelFlags model_;
  DeviceFlags device_;
  std::string gemms_, steps_, mappings_, host_gemms_, host_steps_;
  std::string shared_steps_, gemm_joules_, step_joules_, host_step_joules_;
  std::string profile_, name_ = "calibrated", output_;
};

}  // namespace

std::unique_ptr<Verb> make_npu_calibrate() { return std::make_unique<NpuCalibrate>(); }

}  // namespace dllm::app

// dllm npu devices: lists the shipped profiles, or shows one of them resolved.
#include <nlohmann/json.hpp>
#include <ostream>

#include "app/cli/options.h"
#include "app/cli/report.h"
#include "app/cli/verb.h"
#include "app/npu/flags.h"
#include "base/try.h"
#include "npu_core/device/energy.h"
#include "npu_core/device/keys.h"
#include "npu_core/device/profile.h"

namespace dllm::app {
namespace {

nlohmann::ordered_json resolved(const npu::Device& device) {
  nlohmann::ordered_json json = npu::device_json(device);
  json["derived"]["area_mm2"] = npu::area_json(npu::area(device));
  return json;
}

std::string show(const npu::Device& device) {
  const nlohmann::ordered_json json = resolved(device);
  std::string text = fmt::format("{}: {}\n", device.name, device.summary);
  std::string_view section;
  for (const npu::DeviceKey& key : npu::device_keys()) {
    if (key.section != section) text += fmt::format("\n[{}]\n", section = key.section);
    text += fmt::format("{:<24} {:<22} {:<7} {}\n", key.key, key.value(device), key.unit, key.meaning);
  }
  text += fmt::format("\n{:.1f} TOPS, {:.1f} GB/s over {} pseudo-channels, {:.1f} mm2 at 7 nm, {:.3f} V\n",
                      device.peak_tops(), device.memory_gbps(), json["derived"]["memory_pseudochannels"].get<int>(),
                      npu::area(device).total(), device.clock.voltage);
  return text;
}

class NpuDevices final : public Verb {
 public:
  void declare(Flags& flags) override {
    flags.group("Input");
    flags.positionals("NAME|FILE", "a profile to show in full; none: list the shipped ones", 1, words_);
    flags.add({.names = {"--set"},
               .value = "KEY=VALUE",
               .help = "change one key of the profile, e.g. memory.stacks=4; may be repeated",
               .apply = into(device_.sets)});
    flags.group("Output");
    flags.add({.names = {"--keys"},
               .help = "every key with unit, default, range, meaning and readers: docs/guide/device-keys.md",
               .apply = into(keys_)});
    add_output_flag(flags, output_, {"text", "json"});
  }

  Expected<ExitCode> run(const Flags& flags, Session& session) override {
    (void)flags;
    std::ostream& out = session.terminal.out;
    if (keys_) {
      if (!words_.empty() || !device_.sets.empty())
        return Error{ErrorCode::kUsage, "the keys are those of every device", "--keys", "leave the profile out"};
      out << (output_ == "json" ? dump(npu::device_keys_json()) + "\n" : npu::device_keys_markdown());
      return kExitOk;
    }
    if (!words_.empty()) {
      device_.name = words_.front();
      DLLM_TRY(const npu::Device device, load());
      out << (output_ == "json" ? dump(resolved(device)) + "\n" : show(device));
      return kExitOk;
    }
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    std::string text =
        fmt::format("{:<16} {:>8} {:>8} {:>6} {:>6} {:>6}  {}\n", "name", "TOPS", "GB/s", "BLEN", "MLEN", "VLEN", "");
    for (const std::string& name : npu::device_names()) {
      device_.name = name;
      DLLM_TRY(const npu::Device device, load());
      list.push_back(resolved(device));
      text +=
          fmt::format("{:<16} {:>8.1f} {:>8.1f} {:>6} {:>6} {:>6}  {}\n", name, device.peak_tops(),
                      device.memory_gbps(), device.array.blen, device.array.mlen, device.array.vlen, device.summary);
    }
    out << (output_ == "json" ? dump(list) + "\n" : text);
    return kExitOk;
  }

 private:
  /// All keys are shown, so that --set may change any.
  Expected<npu::Device> load() const {
    DLLM_TRY(const std::vector<npu::Override> changes, device_.changes());
    return npu::load_device(device_.name, changes);
  }

  std::vector<std::string> words_;
  DeviceFlags device_;
  std::string output_;
  bool keys_ = false;
};

}  // namespace

std::unique_ptr<Verb> make_npu_devices() { return std::make_unique<NpuDevices>(); }

}  // namespace dllm::app

// A backend from outside the library, with a clock of its own, and one that this build has not got.
#include "engine/backends.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/testing/temp_dir.h"
#include "base/try.h"
#include "dllm/model.h"
#include "engine/backend/cpu.h"
#include "engine/testing/second_path_test_options.h"
#include "npu_core/device/profile.h"
#include "vulkan/vulkan_backend.h"

namespace dllm {
namespace {

/// This processor's values, in a time of its own: so long for each row.
class RowClockBackend final : public Backend {
 public:
  RowClockBackend(std::unique_ptr<Backend> values, double seconds) : values_(std::move(values)), seconds_(seconds) {}

  const ModelDesc& desc() const override { return values_->desc(); }
  Expected<std::unique_ptr<KvCache>> make_cache(Position capacity) override { return values_->make_cache(capacity); }
  Expected<std::vector<Scores>> forward(std::span<const SequenceStep> batch) override {
    VirtualStep step;
    for (const SequenceStep& one : batch) step.rows += static_cast<std::int32_t>(one.plan.rows.size());
    step.parts.array = seconds_ * step.rows;
    steps.push_back(step);
    return values_->forward(batch);
  }

  std::vector<VirtualStep> steps;

 private:
  std::unique_ptr<Backend> values_;
  double seconds_;  ///< of a row
};

class RowClock final : public VirtualClock {
 public:
  explicit RowClock(RowClockBackend& backend) : backend_(backend) {}

  void reset() override { backend_.steps.clear(); }
  VirtualTime read(const Generation& answer) const override {
    VirtualTime time;
    time.device = "rows";
    time.steps = backend_.steps;
    for (std::size_t i = 0; i < time.steps.size(); ++i) {
      time.parts += time.steps[i].parts;
      if (i < first_block_passes(answer)) time.first_block_seconds = time.parts.seconds();
    }
    return time;
  }
  Expected<LatencyTable> latency_table() override {
    return Error{ErrorCode::kUnsupported, "rows have no stairs", "--latency", "name a file"};
  }
  nlohmann::ordered_json settings() const override { return {{"device", "rows"}}; }

 private:
  RowClockBackend& backend_;
};

const std::string kFast = "row-fast";

Expected<std::vector<DeviceInfo>> list_rows() {
  return std::vector<DeviceInfo>{{.name = "row-slow", .meaning = "a quarter of a second", .standard = true},
                                 {.name = kFast, .meaning = "an eighth"}};
}

Expected<void> check_row(const std::string& name) {
  if (name == "row-slow" || name == kFast) return {};
  return Error{ErrorCode::kUsage, "there is no clock '" + name + "'", "", "row-slow or row-fast"};
}

/// What this processor reads, and a device.
const LoadReader& rows_reader() {
  static const LoadReader reader = [] {
    LoadReader one{"test-rows", {"device"}, "rows do not read it", "leave it out"};
    for (const char* key : {"threads", "isa", "cache_type"}) one.keys.emplace_back(key);
    return one;
  }();
  return reader;
}

Expected<RunningBackend> make_rows(const Model& model, const std::string& path, const LoadOptions& options,
                                   const Log& log) {
  DLLM_CHECK_OK(check_load(options, rows_reader()));
  LoadOptions values = options;
  values.device.clear();
  DLLM_TRY(RunningBackend running, run_on_cpu(model, path, values, log));
  running.latency.reset();
  running.second_path = nullptr;
  auto timed = std::make_unique<RowClockBackend>(std::move(running.backend), options.device == kFast ? 0.125 : 0.25);
  running.clock = std::make_unique<RowClock>(*timed);
  running.backend = std::move(timed);
  return running;
}

const bool added = [] {
  BackendEntry rows{"test-rows", "so long for each row", make_rows};
  rows.readers = {rows_reader()};
  rows.devices = {"a clock of rows, by name", list_rows, check_row};
  rows.virtual_time = true;
  BackendEntry empty{"test-empty", "a machine without its hardware", make_rows};
  empty.devices = {
      "a card, by index",
      [] {
        return Expected<std::vector<DeviceInfo>>(Error{ErrorCode::kUnsupported, "there is no card", "", "plug one in"});
      },
      nullptr};
  BackendEntry absent{"test-absent", "not in this build"};
  absent.missing = "install the test's headers and build again";
  return add_backend(std::move(rows)) && add_backend(std::move(empty)) && add_backend(std::move(absent));
}();

LoadOptions on(const char* backend) {
  LoadOptions options;
  options.backend = backend;
  return options;
}

Expected<Generation> answer_of(const LanguageModel& model, const char* latency = nullptr) {
  GenerateOptions options;
  options.length = 32;
  if (latency != nullptr) {
    options.window.name = "adaptive";
    options.window.options["latency"] = std::string(latency);
  }
  return model.generate("Reverse: a b c", options);
}

TEST(Backends, OneFromOutsideAnswersInItsOwnTime) {
  ASSERT_TRUE(added);
  const auto model = LanguageModel::load("", on("test-rows"));
  ASSERT_TRUE(model) << model.error().message();
  const auto here = LanguageModel::load("");
  ASSERT_TRUE(here);
  const auto plain = answer_of(*here);
  ASSERT_TRUE(plain);
  EXPECT_FALSE(plain->virtual_time);
  // The second answer starts at zero too.
  for (int i = 0; i < 2; ++i) {
    const auto timed = answer_of(*model);
    ASSERT_TRUE(timed) << timed.error().message();
    EXPECT_EQ(timed->hash, plain->hash);
    ASSERT_TRUE(timed->virtual_time);
    EXPECT_EQ(timed->virtual_time->device, "rows");
    EXPECT_EQ(timed->virtual_time->steps.size(), static_cast<std::size_t>(timed->stats.nfe));
    EXPECT_DOUBLE_EQ(timed->virtual_time->parts.seconds(), 0.25 * static_cast<double>(timed->stats.rows_forwarded));
    EXPECT_GT(timed->virtual_time->first_block_seconds, 0);
  }
}

TEST(Backends, TheCostOfStepsComesFromTheClock) {
  const auto model = LanguageModel::load("", on("test-rows"));
  ASSERT_TRUE(model) << model.error().message();
  const auto refused = answer_of(*model, "auto");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().what, "rows have no stairs");
}

TEST(Backends, ThePassesOfTheFirstBlock) {
  Generation answer;
  answer.options.block_length = 2;
  EXPECT_EQ(first_block_passes(answer), 0U);
  answer.commit_step = {3, 1, 7};
  EXPECT_EQ(first_block_passes(answer), 4U);
  answer.commit_step = {-1, -1, 7};
  EXPECT_EQ(first_block_passes(answer), 0U);
  answer.options.block_length = 8;
  EXPECT_EQ(first_block_passes(answer), 8U);
}

TEST(Backends, OneThatTheBuildHasNotGotSaysHowToGetIt) {
  const auto model = LanguageModel::load("", on("test-absent"));
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(model.error().where, "--backend");
  EXPECT_EQ(model.error().hint, "install the test's headers and build again");
  const auto unknown = find_backend("test-row");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, ErrorCode::kUsage);
  EXPECT_NE(unknown.error().hint.find("test-rows"), std::string::npos);
  EXPECT_EQ((*find_backend(""))->name, "cpu");
}

TEST(Backends, HintsNameThoseThatHaveVirtualTime) {
  EXPECT_EQ(virtual_time_flags(), "--backend npu or --backend test-rows");
}

/// The name of a device is the backend's affair, and comes to its clock.
TEST(Backends, ADeviceIsNamed) {
  LoadOptions options = on("test-rows");
  options.device = kFast;
  const auto model = LanguageModel::load("", options);
  ASSERT_TRUE(model) << model.error().message();
  const auto timed = answer_of(*model);
  ASSERT_TRUE(timed) << timed.error().message();
  EXPECT_DOUBLE_EQ(timed->virtual_time->parts.seconds(), 0.125 * static_cast<double>(timed->stats.rows_forwarded));
}

TEST(Backends, MethodsThatNeedShadowRowsAreRefusedWhereThereAreNone) {
  const auto model = LanguageModel::load("", on("test-rows"));
  ASSERT_TRUE(model) << model.error().message();
  for (const char* name : {"wino", "cover"}) {
    GenerateOptions options;
    options.decoder.name = name;
    const auto refused = model->generate("3+4=", options);
    ASSERT_FALSE(refused) << name;
    EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
    EXPECT_EQ(refused.error().where, "--algorithm");
    EXPECT_NE(refused.error().what.find(name), std::string::npos) << refused.error().what;
  }
}

Error refused_device(const char* backend, const std::string& device) {
  LoadOptions options = on(backend);
  options.device = device;
  const auto entry = requested_backend(options);
  EXPECT_FALSE(entry) << backend << " " << device;
  // Before the model's file is opened.
  const auto model = LanguageModel::load("no-such-file.gguf", options);
  EXPECT_FALSE(model);
  EXPECT_EQ(model.error().message(), entry.error().message());
  return entry.error();
}

TEST(Backends, ADeviceOfAnotherKindIsRefused) {
  const Error profile = refused_device("test-rows", "mobile-sm8750");
  EXPECT_EQ(profile.code, ErrorCode::kUsage);
  EXPECT_EQ(profile.where, "--device");
  EXPECT_EQ(profile.what,
            "'mobile-sm8750' is a profile of an NPU, by name or file, of --backend npu; --backend test-rows runs on a "
            "clock of rows, by name");
  EXPECT_EQ(profile.hint, "give --backend npu, or see --backend test-rows --list-devices");
  EXPECT_EQ(refused_device("npu", kFast).hint, "give --backend test-rows, or see --backend npu --list-devices");
}

TEST(Backends, ADeviceThatNoneHasIsRefused) {
  const Error clock = refused_device("test-rows", "row-fat");
  EXPECT_EQ(clock.where, "--device");
  EXPECT_EQ(clock.what, "there is no clock 'row-fat'");
  EXPECT_EQ(clock.hint, "row-slow or row-fast; --backend test-rows runs on a clock of rows, by name");
  const Error index = refused_device("npu", "no-such");
  EXPECT_NE(index.what.find("'no-such'"), std::string::npos);
  EXPECT_NE(index.hint.find("--backend npu runs on a profile of an NPU, by name or file"), std::string::npos);
  LoadOptions here;
  here.device = "0";
  const auto model = LanguageModel::load("", here);
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().what, has_vulkan() ? "only --backend npu or --backend vulkan or --backend test-rows reads it"
                                             : "only --backend npu or --backend test-rows reads it");
}

TEST(Backends, AnOptionOfItsOwnMayImplyIt) {
  LoadOptions options;
  options.backend_options = {{"workers", "127.0.0.1:7070"}};
  const auto implied = requested_backend(options);
  ASSERT_TRUE(implied) << implied.error().message();
  EXPECT_EQ((*implied)->name, "ranks");
  options.backend = "cpu";
  const auto named = requested_backend(options);
  ASSERT_TRUE(named) << named.error().message();
  EXPECT_EQ((*named)->name, "cpu");
  EXPECT_EQ((*requested_backend(LoadOptions()))->name, backends().front().name);
}

/// The name is right, and a change of a key may be what mends the file.
TEST(Backends, AProfileWithAMistakeIsAProfile) {
  const test::TempDir folder;
  LoadOptions options = on("npu");
  options.device = folder / "mine.toml";
  std::ofstream(options.device) << "base = \"mobile-sm8750\"\nname = \"mine\"\nsummary = \"-\"\n[host]\ncores = -1\n";
  const auto wrong = LanguageModel::load("", options);
  ASSERT_FALSE(wrong);
  EXPECT_NE(wrong.error().where, "--device");
  EXPECT_NE(wrong.error().what.find("host.cores"), std::string::npos) << wrong.error().message();
  options.device_changes = {"host.cores=8"};
  const auto mended = LanguageModel::load("", options);
  EXPECT_TRUE(mended) << mended.error().message();
}

/// Bringing an 8B model's weights into the formats of a device takes long.
TEST(Backends, ASimulatedDeviceTellsItsProgress) {
  LoadOptions options = on("npu");
  std::vector<double> told;
  options.progress = [&told](double done) {
    told.push_back(done);
    return true;
  };
  ASSERT_TRUE(LanguageModel::load("", options));
  EXPECT_TRUE(std::ranges::is_sorted(told));
  EXPECT_GT(std::ranges::count_if(told, [](double done) { return done > 0 && done < 1; }), 10);
  options.progress = [](double done) { return done < 0.5; };
  const auto stopped = LanguageModel::load("", options);
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, ErrorCode::kCancelled);
}

TEST(Backends, ListsTheDevicesOfEach) {
  const auto all = list_devices();
  ASSERT_TRUE(all);
  std::string text;
  std::size_t profiles = 0;
  for (const DeviceInfo& one : *all) {
    if (one.backend == "npu") {
      ++profiles;
      EXPECT_EQ(one.standard, one.name == "dart-2048") << one.name;
      EXPECT_FALSE(one.meaning.empty()) << one.name;
      continue;
    }
    if (one.backend == "cpu") {
      EXPECT_EQ(one.name, "");
      EXPECT_TRUE(one.standard);
      EXPECT_NE(one.meaning.find("CPU"), std::string::npos);
      continue;
    }
    if (one.backend == "ranks") {
      EXPECT_EQ(one.name, "");
      EXPECT_TRUE(one.standard);
      continue;
    }
    // What a machine and a build have.
    if (one.backend == "vulkan") {
      EXPECT_NE(one.name.empty(), one.missing.empty());
      continue;
    }
    if (one.backend.starts_with("test-more")) continue;
    text += one.backend + "|" + one.name + "|" + one.meaning + "|" + one.missing + (one.standard ? "|default\n" : "\n");
  }
  EXPECT_EQ(profiles, npu::device_names().size());
  EXPECT_EQ(text,
            "test-rows|row-slow|a quarter of a second||default\n"
            "test-rows|row-fast|an eighth|\n"
            "test-empty|||there is no card (plug one in)\n"
            "test-absent|||not in this build: install the test's headers and build again\n");
  const auto one = list_devices("test-rows");
  ASSERT_TRUE(one);
  EXPECT_EQ(one->size(), 2U);
  EXPECT_EQ(list_devices("test-absent")->size(), 1U);
  EXPECT_EQ(list_devices("test-row").error().where, "--backend");
}

/// Others may be added while somebody holds one.
TEST(Backends, EntriesStayWhereTheyAre) {
  const BackendEntry* const npu = *find_backend("npu");
  for (int i = 0; i < 64; ++i) {
    BackendEntry one{"test-more-" + std::to_string(i), "one more"};
    one.missing = "nothing";
    add_backend(std::move(one));
  }
  EXPECT_EQ(*find_backend("npu"), npu);
  EXPECT_EQ(npu->name, "npu");
  EXPECT_EQ(npu->meaning, "a simulated NPU, in its number formats and its virtual time");
}

TEST(Backends, WhatItsReaderRefuses) {
  LoadOptions options = on("test-rows");
  options.arithmetic = "super";
  const auto model = LanguageModel::load("", options);
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().what, "rows do not read it");
  EXPECT_EQ(model.error().where, "--arithmetic");
  options = on("test-rows");
  options.backend_options["npu_timing"] = std::string("analytic");
  EXPECT_EQ(LanguageModel::load("", options).error().hint, "add --backend npu");
}

TEST(Backends, OneWithoutASecondPathSaysSo) {
  const auto model = LanguageModel::load("", on("test-rows"));
  ASSERT_TRUE(model);
  const auto refused = model->generate("Reverse: a b c", test::second_path());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().what, "this backend runs one pass at a time");
  EXPECT_EQ(refused.error().where, "--refresh-path");
}

TEST(Backends, OnlyADeviceReadsItsTiles) {
  for (const BackendEntry& entry : backends()) EXPECT_EQ(entry.tiles.has_value(), entry.name == "npu") << entry.name;
}

}  // namespace
}  // namespace dllm

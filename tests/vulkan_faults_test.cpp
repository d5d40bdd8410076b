// A device that fails under a server: its Vulkan calls are replaced by ones that return errors.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/try.h"
#include "dllm/model.h"
#include "engine/backend/vulkan.h"
#include "engine/backends.h"
#include "engine/load_options.h"
#include "serve/server.h"
#include "vulkan/device.h"
#include "vulkan/on_device.h"
#include "vulkan/self_test.h"
#include "vulkan/testing/test_device.h"

namespace dllm {
namespace {

/// The device of the model that was loaded last.
std::optional<std::shared_ptr<vulkan::Device>>& last_device =
    vulkan::test::shared_by_tests<std::shared_ptr<vulkan::Device>>();

std::shared_ptr<vulkan::Device>& opened_device() {
  if (!last_device) last_device.emplace();
  return *last_device;
}

const LoadReader& faults_reader() {
  static const LoadReader reader{"test-faults", {"threads"}, "it does not read it", "leave it out"};
  return reader;
}

Expected<RunningBackend> make_faulty(const Model& model, const std::string&, const LoadOptions& options, const Log&) {
  DLLM_CHECK_OK(check_load(options, faults_reader()));
  DLLM_TRY(opened_device(), vulkan::Device::open({}));
  DLLM_TRY(const vulkan::Arithmetic arithmetic, vulkan::test_device(opened_device()));
  VulkanOptions vulkan;
  vulkan.threads = options.threads;
  DLLM_TRY(auto backend, vulkan::make_backend_on(
                             opened_device(), arithmetic, model.desc(),
                             [&model](StepShape shape) { return model.build(shape); }, model.weights(), vulkan));
  return run_on_vulkan(std::move(backend));
}

constexpr std::chrono::seconds kPatience(100);  ///< a busy machine needs many of them

const bool faults_added = [] {
  BackendEntry entry{"test-faults", "a Vulkan device whose calls a test replaces", make_faulty};
  entry.readers = {faults_reader()};
  return add_backend(std::move(entry));
}();

VkResult lose_device(VkDevice, std::uint32_t, const VkFence*, VkBool32, std::uint64_t) { return VK_ERROR_DEVICE_LOST; }
/// The card is removed after so many passes.
std::atomic<int> passes_left = 0;
PFN_vkQueueSubmit submit_to_card = nullptr;
VkResult submit_until_removed(VkQueue queue, std::uint32_t count, const VkSubmitInfo* work, VkFence fence) {
  if (passes_left.fetch_sub(1) <= 0) return VK_ERROR_DEVICE_LOST;
  return submit_to_card(queue, count, work, fence);
}
VkResult refuse_memory(VkDevice, const VkMemoryAllocateInfo*, const VkAllocationCallbacks*, VkDeviceMemory*) {
  return VK_ERROR_OUT_OF_DEVICE_MEMORY;
}

/// A server with the embedded model on such a device, in a thread.
class FaultyServer : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(faults_added);
    const auto devices = vulkan_devices();
    if (!devices || devices->empty()) GTEST_SKIP() << "this machine has no Vulkan device";
    LoadOptions load;
    load.backend = "test-faults";
    load.threads = 1;
    auto loaded = LanguageModel::load("", load);
    ASSERT_TRUE(loaded) << loaded.error().message();
    model_ = std::make_unique<LanguageModel>(std::move(*loaded));
    options_.port = 0;
    std::promise<std::uint16_t> ready;
    server_ = std::async(std::launch::async, [this, &ready] {
      return serve::serve(
          *model_, options_, [this](std::string_view line) { log_.append(line).append("\n"); },
          [&ready](std::uint16_t port) { ready.set_value(port); });
    });
    port_ = ready.get_future().get();
  }
  void TearDown() override {
    if (server_.valid()) std::raise(SIGTERM);
    if (server_.valid()) server_.wait();
    model_.reset();
    opened_device().reset();
  }

  /// The whole answer to a request.
  std::string ask(const std::string& line, const std::string& body = "") const {
    const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port_);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    std::string answer;
    if (::connect(socket, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0) {
      const std::string request =
          line + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n" +
          "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
      EXPECT_EQ(::send(socket, request.data(), request.size(), 0), static_cast<ssize_t>(request.size()));
      char part[4096];
      for (ssize_t got = 0; (got = ::recv(socket, part, sizeof part, 0)) > 0;)
        answer.append(part, static_cast<std::size_t>(got));
    }
    ::close(socket);
    return answer;
  }
  std::string complete(int tokens = 8) const {
    return ask("POST /v1/completions", R"({"prompt": "Reverse: a b c", "max_tokens": )" + std::to_string(tokens) + "}");
  }
  double metric(const std::string& name) const {
    const std::string text = ask("GET /metrics");
    const std::size_t at = text.find("\n" + name + " ");
    return at == std::string::npos ? -1 : std::stod(text.substr(at + name.size() + 2));
  }

  std::unique_ptr<LanguageModel> model_;
  serve::ServerOptions options_;
  std::future<Expected<void>> server_;
  std::uint16_t port_ = 0;
  std::string log_;
};

bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

TEST_F(FaultyServer, SaysThatItsDeviceIsLostAndEnds) {
  const double before = metric("dllm_device_memory_used_bytes");
  EXPECT_GT(before, 0) << "vectors at least; matrices may be imported";
  EXPECT_GT(metric("dllm_device_memory_bytes"), before);
  EXPECT_EQ(metric("dllm_device_passes_total"), 0);
  EXPECT_TRUE(has(complete(), " 200 "));
  EXPECT_GT(metric("dllm_device_passes_total"), 0);
  EXPECT_GT(metric("dllm_device_pass_seconds_total"), 0);
  EXPECT_GT(metric("dllm_device_memory_used_bytes"), before) << "a cache and a pass";

  // No memory for a longer pass: this request fails, with the reason, and later ones do not.
  auto& calls = opened_device()->calls_for_faults();
  const auto allocate = std::exchange(calls.AllocateMemory, refuse_memory);
  const std::string refused = complete();
  EXPECT_TRUE(has(refused, " 503 ")) << refused;
  EXPECT_TRUE(has(refused, "the Vulkan device has no memory left for a KV cache")) << refused;
  EXPECT_TRUE(has(refused, "are in use")) << refused;
  calls.AllocateMemory = allocate;
  EXPECT_TRUE(has(complete(), " 200 "));
  EXPECT_TRUE(has(ask("GET /health"), " 200 "));

  calls.WaitForFences = lose_device;
  const std::string lost = complete();
  EXPECT_TRUE(has(lost, " 503 ")) << lost;
  EXPECT_TRUE(has(lost, "the Vulkan device was lost in a pass")) << lost;
  const std::string health = ask("GET /health");
  EXPECT_TRUE(has(health, " 503 ")) << health;
  EXPECT_TRUE(has(health, "the Vulkan device was lost in a pass: the server ends")) << health;
  EXPECT_TRUE(has(complete(), " 503 "));
  ASSERT_EQ(server_.wait_for(kPatience), std::future_status::ready);
  const auto result = server_.get();
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kResource);
  EXPECT_EQ(result.error().what, "the Vulkan device was lost in a pass");
  EXPECT_TRUE(has(log_, "device lost")) << log_;
}

TEST_F(FaultyServer, TellsAStreamThatItsCardIsGone) {
  auto& calls = opened_device()->calls_for_faults();
  passes_left = 3;
  submit_to_card = std::exchange(calls.QueueSubmit, submit_until_removed);
  const std::string stream =
      ask("POST /v1/completions", R"({"prompt": "Sort these words: pear fig kiwi plum", "stream": true,
      "max_tokens": 64, "ignore_eos": true, "algorithm": "low-confidence", "block_length": 4})");
  EXPECT_LT(passes_left, 0) << "it was removed in the middle";
  // What was committed before comes first; the stream then says why it ends.
  EXPECT_TRUE(has(stream, " 200 ")) << stream;
  EXPECT_TRUE(has(stream, "the Vulkan device was lost in a pass")) << stream;
  EXPECT_FALSE(has(stream, "finish_reason\":\"stop")) << stream;
  EXPECT_TRUE(has(ask("GET /health"), "the server ends"));
  ASSERT_EQ(server_.wait_for(kPatience), std::future_status::ready);
  EXPECT_FALSE(server_.get());
}

TEST_F(FaultyServer, EndsRequestsThatWait) {
  // Several at once: those in the pass and those that wait for a place get the error, and nobody waits for ever.
  opened_device()->calls_for_faults().WaitForFences = lose_device;
  std::vector<std::future<std::string>> answers;
  for (int i = 0; i < 12; ++i) answers.push_back(std::async(std::launch::async, [this] { return complete(64); }));
  for (auto& answer : answers) {
    const std::string text = answer.get();
    EXPECT_TRUE(has(text, "the Vulkan device was lost in a pass")) << text;
  }
  ASSERT_EQ(server_.wait_for(kPatience), std::future_status::ready);
  EXPECT_FALSE(server_.get());
}

}  // namespace
}  // namespace dllm

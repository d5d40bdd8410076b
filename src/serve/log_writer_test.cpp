#include "serve/log_writer.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

namespace dllm::serve {
namespace {

/// A pipe that nobody reads until it is opened.
class StuckPipe {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    wake_.notify_all();
  }
  void wait_for_writer() {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [this] { return blocked_; });
  }
  std::string text() {
    const std::lock_guard lock(mutex_);
    return text_;
  }
  void write(std::string_view text) {
    std::unique_lock lock(mutex_);
    blocked_ = true;
    wake_.notify_all();
    wake_.wait(lock, [this] { return open_; });
    text_ += text;
  }

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  bool open_ = false, blocked_ = false;
  std::string text_;
};

std::string notice(std::uint64_t lines) { return std::to_string(lines) + " lost"; }

TEST(LogWriter, WritesEveryLineInOrderBeforeItEnds) {
  std::string written, expected;
  {
    LogWriter log([&](std::string_view text) { written += text; }, notice);
    for (int i = 0; i < 1000; ++i) {
      log.write(std::to_string(i));
      expected += std::to_string(i) + '\n';
    }
    EXPECT_EQ(log.lost(), 0u);
  }
  EXPECT_EQ(written, expected);
}

TEST(LogWriter, AReaderThatSleepsCostsLinesAndDelaysNobody) {
  StuckPipe pipe;
  {
    LogWriter log([&](std::string_view text) { pipe.write(text); }, notice, /*most=*/10);
    log.write("first");
    pipe.wait_for_writer();
    for (const char* line : {"1234", "567", "too many", "8", "again too many"}) log.write(line);
    EXPECT_EQ(log.lost(), 3u);  // "8" would be the tenth byte with its line feed
    pipe.open();
  }
  EXPECT_EQ(pipe.text(), "first\n1234\n567\n3 lost\n");
}

TEST(LogWriter, AReaderThatNeverComesDelaysNoEnd) {
  const auto pipe = std::make_shared<StuckPipe>();  // for the thread that is left behind
  {
    LogWriter log([pipe](std::string_view text) { pipe->write(text); }, notice);
    log.write("never read");
    pipe->wait_for_writer();
  }
  EXPECT_EQ(pipe->text(), "");
  pipe->open();
}

TEST(LogWriter, Lines) {
  const Json fields = {{"event", "a b"}, {"file", "x"}, {"seconds", 0.12345}, {"lines", 3}};
  EXPECT_EQ(log_line(fields, LogForm::kText), "event=\"a b\" file=x seconds=0.123 lines=3");
  EXPECT_EQ(log_line(fields, LogForm::kJson), R"({"event":"a b","file":"x","seconds":0.12345,"lines":3})");
}

}  // namespace
}  // namespace dllm::serve

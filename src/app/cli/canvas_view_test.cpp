#include "app/cli/canvas_view.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <sstream>

namespace dllm::app {
namespace {

/// Token ids of the tests: 0.. index this table.
const std::vector<std::string> kTexts = {"Hello", " world", "\n", "\xe2\x82", "\xac", "\x1b[2J", "\t", "\xff", "界"};
constexpr std::int32_t kEnd = 100;  // a control token

TokenText lookup(std::int32_t token) {
  if (token == kEnd) return {"", true};
  return {kTexts.at(static_cast<std::size_t>(token)), false};
}

CanvasCell cell(std::int32_t token, double confidence = 0.95, bool changed = false) {
  return {.token = token, .masked = false, .changed = changed, .confidence = confidence};
}

CanvasCell mask() { return {.token = -1, .masked = true}; }

StepEvent event_of(std::vector<CanvasCell> answer) {
  StepEvent event;
  event.step = 2;
  event.nfe = 3;
  event.prompt_length = 1;
  event.canvas.push_back(cell(0));
  for (const CanvasCell& c : answer) event.masked += c.masked ? 1 : 0;
  event.canvas.insert(event.canvas.end(), answer.begin(), answer.end());
  event.block_begin = 1;
  event.block_end = static_cast<std::int32_t>(event.canvas.size());
  return event;
}

std::string body(const std::string& frame) { return frame.substr(frame.find('\n') + 1); }

std::string plain(std::vector<CanvasCell> answer, int width = 80, int height = 24) {
  return body(render_frame(event_of(std::move(answer)), lookup, {width, height, false}));
}

TEST(RenderFrame, HeadlineAndCells) {
  const std::string frame = render_frame(event_of({cell(0), cell(1), mask(), cell(kEnd)}), lookup, {80, 24, false});
  EXPECT_EQ(frame, "step 3 · NFE 3 · 3/4 tokens · window 1..5\nHello world░·\n");
}

TEST(RenderFrame, ThePromptIsNotShown) { EXPECT_EQ(plain({mask()}), "░\n"); }

TEST(RenderFrame, ACharacterSplitOverTokens) {
  EXPECT_EQ(plain({cell(3), cell(4)}), "€\n");
  EXPECT_EQ(plain({cell(3), mask()}), "\uFFFD\uFFFD░\n");
  EXPECT_EQ(plain({cell(3), cell(0)}), "\uFFFD\uFFFDHello\n");
  EXPECT_EQ(plain({cell(7)}), "\uFFFD\n");
  EXPECT_EQ(plain({cell(3)}), "\uFFFD\uFFFD\n");
}

TEST(RenderFrame, NothingSteersTheTerminal) {
  EXPECT_EQ(plain({cell(5), cell(6), cell(0)}), "\\x1b[2J Hello\n");
  EXPECT_EQ(plain({cell(0), cell(2), cell(1)}), "Hello⏎\n world\n");
}

TEST(RenderFrame, LinesFitTheWidth) {
  for (int width : {1, 10, 11, 20, 33}) {
    const std::vector<CanvasCell> cells = {cell(0), cell(1), mask(),  cell(8), cell(8),
                                           cell(8), cell(8), cell(8), cell(0)};
    std::istringstream lines(render_frame(event_of(cells), lookup, {width, 50, false}));
    for (std::string line; std::getline(lines, line);) EXPECT_LT(display_width(line), std::max(width, 9)) << line;
  }
}

TEST(RenderFrame, LinesFitTheHeightAndShowTheWindow) {
  std::vector<CanvasCell> cells;
  for (int i = 0; i < 40; ++i) {
    cells.push_back(cell(0));
    cells.push_back(cell(2));
  }
  StepEvent event = event_of(cells);
  for (int height : {3, 10}) {
    for (int begin : {1, 30, 80}) {
      event.block_begin = begin;
      const std::string frame = render_frame(event, lookup, {80, height, false});
      EXPECT_LE(std::count(frame.begin(), frame.end(), '\n'), height - 1);
    }
  }
  // 80 cells on 41 lines, the window begins on line 39: the end is shown.
  event.canvas.back().masked = true;
  event.block_begin = 79;
  EXPECT_NE(render_frame(event, lookup, {80, 10, false}).find("░"), std::string::npos);
}

TEST(RenderFrame, ColoursFollowConfidence) {
  const auto frame = [](double confidence, bool changed) {
    return body(render_frame(event_of({cell(0, confidence, changed)}), lookup, {80, 24, true}));
  };
  EXPECT_EQ(frame(1.0, false), "\x1b[38;5;46mHello\x1b[0m\n");
  EXPECT_EQ(frame(0.1, false), "\x1b[38;5;196mHello\x1b[0m\n");
  EXPECT_EQ(frame(1.0, true), "\x1b[1;7;38;5;46mHello\x1b[0m\n");
  EXPECT_NE(frame(std::nan(""), false).find("244"), std::string::npos);
}

TEST(RenderFrame, NoAnswerAtAll) {
  EXPECT_EQ(plain({}), "\n");
  EXPECT_FALSE(render_frame(StepEvent{}, lookup, {}).empty());
}

TEST(CanvasView, RedrawsInPlace) {
  std::istringstream in;
  std::ostringstream out, err;
  Terminal terminal{in, out, err};
  terminal.err_tty = true;
  terminal.width = 40;
  terminal.height = 10;
  CanvasView view(terminal, lookup);
  view.show(event_of({mask(), mask()}));
  EXPECT_EQ(err.str().rfind("\x1b[?2026h\r", 0), 0u);
  EXPECT_NE(err.str().find("░░"), std::string::npos);
  err.str("");
  view.show(event_of({cell(0), mask()}));
  EXPECT_EQ(err.str().rfind("\x1b[?2026h\x1b[2A\r", 0), 0u) << err.str();
  EXPECT_TRUE(err.str().ends_with("\x1b[J\x1b[?2026l"));
  EXPECT_TRUE(out.str().empty());
}

TEST(CanvasView, PlainFramesWithoutATerminal) {
  std::istringstream in;
  std::ostringstream out, err;
  Terminal terminal{in, out, err};
  CanvasView(terminal, lookup).show(event_of({cell(0)}));
  EXPECT_EQ(err.str().find('\x1b'), std::string::npos);
}

TEST(Text, SanitizeAndWidth) {
  EXPECT_EQ(sanitize("a\tb\nc"), "a\tb\nc");
  EXPECT_EQ(sanitize(std::string_view("\x1b[0m\0\x7f", 6)), "\\x1b[0m\\x00\\x7f");
  EXPECT_EQ(sanitize("\xc2\x9b"
                     "31m"),
            "\\x9b31m");
  EXPECT_EQ(sanitize("caf\xc3\xa9 \xff"), "café \uFFFD");
  EXPECT_EQ(display_width("a界é"), 4);
}

}  // namespace
}  // namespace dllm::app

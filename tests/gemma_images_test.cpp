// Chats with images: where they stand in prompts, what is refused, prefixes, batches and cancelled answers. The model
// is gemma_vision_test.cpp's.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "backend/prompt_images.h"
#include "dllm/model.h"
#include "dllm/scheduler.h"
#include "golden_model.h"
#include "image/image.h"

namespace dllm {
namespace {

using nlohmann::json;
using test::GoldenModel;

/// The golden model with image tokens, a chat template that writes them, and images of at most six embeddings.
const GoldenModel& chatting() {
  static const GoldenModel* const model = [] {
    auto* const made = new GoldenModel("gemma-vision", [](test::HfCheckpoint& c) {
      std::int32_t id = 262;
      for (const char* text : {"<|image>", "<|image|>", "<image|>"}) {
        json token = c.tokenizer["added_tokens"].back();
        token["id"] = id++;
        token["content"] = text;
        c.tokenizer["added_tokens"].push_back(token);
      }
      c.tokenizer_config.erase("chat_template");
      c.chat_template_jinja =
          "{% for m in messages %}{% if m['content'] is string %}{{ m['content'] }}{% else %}{% for p in m['content'] "
          "%}{% if p['type'] == 'image' %}<|image|>{% else %}{{ p['text'] }}{% endif %}{% endfor %}{% endif %}{% "
          "endfor %}";
      c.config["text_config"]["max_position_embeddings"] = 512;
    });
    test::write_text(made->path() + "/processor_config.json", R"({"image_processor": {"max_soft_tokens": 6}})");
    return made;
  }();
  return *model;
}

std::string picture(const std::string& name) { return test::read_text(DLLM_SOURCE_DIR "/src/image/testdata/" + name); }

LanguageModel chat_model(const std::string& tower = chatting().path(), const char* backend = "") {
  LoadOptions load;
  load.threads = 2;
  load.mmproj = tower;
  load.backend = backend;
  auto model = LanguageModel::load(chatting().path(), load);
  if (!model) throw std::runtime_error(model.error().message());
  return *std::move(model);
}

GenerateOptions eight() {
  GenerateOptions options;
  options.length = 8;
  return options;
}

TEST(ImagesInChats, AnImageStandsBeforeItsText) {
  if (!decodes_image("PNG")) GTEST_SKIP() << "this build decodes no PNG";
  const LanguageModel model = chat_model();
  EXPECT_TRUE(model.reads_images());
  const auto answer = model.generate({{"user", "hi", {picture("rgb.png")}}}, eight());
  ASSERT_TRUE(answer) << answer.error().message();
  EXPECT_EQ(answer->prompt_ids, (std::vector<TokenId>{262, 263, 263, 263, 263, 264, 104, 105}))
      << "23 x 17 pixels become 2 x 2 embeddings";
  const auto again = model.generate({{"user", "hi", {picture("rgb.png")}}}, eight());
  EXPECT_EQ(again->ids, answer->ids);
  EXPECT_EQ(again->confidence, answer->confidence);
  const auto other = model.generate({{"user", "hi", {picture("grey.png")}}}, eight());
  EXPECT_NE(other->confidence, answer->confidence) << "another image, another answer";
  const auto batch = model.generate_batch(
      {{{"user", "hi", {picture("grey.png")}}}, {{"user", "hi"}}, {{"user", "hi", {picture("rgb.png")}}}}, eight(), 3);
  ASSERT_TRUE(batch) << batch.error().message();
  EXPECT_EQ((*batch)[0].confidence, other->confidence);
  EXPECT_EQ((*batch)[2].confidence, answer->confidence);
  EXPECT_EQ((*batch)[1].prompt_ids, (std::vector<TokenId>{104, 105}));
  const auto two = model.apply_template({{"user", "", {picture("rgb.png"), picture("exif.png")}}});
  ASSERT_TRUE(two) << two.error().message();
  EXPECT_EQ(std::ranges::count(*two, 262), 2);
}

TEST(ImagesInChats, WhatCannotBeReadIsRefused) {
  if (!decodes_image("PNG")) GTEST_SKIP() << "this build decodes no PNG";
  const LanguageModel model = chat_model(), blind = chat_model("");
  const std::string image = picture("rgb.png");
  const auto error = [](const LanguageModel& one, const std::vector<ChatTurn>& turns) {
    const auto answer = one.generate(turns, eight());
    return answer ? std::string() : answer.error().message();
  };
  EXPECT_FALSE(blind.reads_images());
  EXPECT_NE(error(blind, {{"user", "hi", {image}}}).find("--mmproj"), std::string::npos);
  EXPECT_NE(error(model, {{"user", "hi", {"GIF89a"}}}).find("image 1"), std::string::npos);
  EXPECT_NE(error(model, {{"user", "hi", {image, image.substr(0, image.size() / 2)}}}).find("image 2"),
            std::string::npos);
  LanguageModel plain = chat_model();
  ASSERT_TRUE(plain.set_chat_template("{{ messages[0]['role'] }}"));
  EXPECT_NE(error(plain, {{"user", "hi", {image}}}).find("places for 0 images"), std::string::npos);
  const auto raw = model.generate_ids({104, kFirstImageId}, eight());
  EXPECT_FALSE(raw) << "no id of an image is known without it";
  LoadOptions load;
  load.mmproj = chatting().path();
  const auto llada = LanguageModel::load("", load);
  EXPECT_NE(llada.error().message().find("--mmproj"), std::string::npos) << llada.error().message();
  load.mmproj = DLLM_SOURCE_DIR "/models/tiny-llada-f32.gguf";
  const auto swapped = LanguageModel::load(chatting().path(), load);
  EXPECT_NE(swapped.error().message().find("no vision tower"), std::string::npos);
  const GoldenModel narrow("gemma-vision", [](test::HfCheckpoint& c) {
    c.set("model.encoder.embed_vision.embedding_projection.weight", {32, 32});
  });
  load.mmproj = narrow.path();
  const auto unfit = LanguageModel::load(chatting().path(), load);
  ASSERT_FALSE(unfit) << "the embeddings would be read beyond their ends";
  EXPECT_NE(unfit.error().message().find("embeddings of 32 values"), std::string::npos) << unfit.error().message();
}

TEST(ImagesInChats, PrefixesAreComparedByImages) {
  if (!decodes_image("PNG")) GTEST_SKIP() << "this build decodes no PNG";
  const LanguageModel model = chat_model();
  const auto fresh = [&] { return *Scheduler::create(model, {.prefix_bytes = std::int64_t{64} << 20}); };
  const auto ask = [&](Scheduler& scheduler, const std::vector<std::string>& images) {
    json variables;
    variables["messages"][0] = {{"role", "user"}, {"content", json::array()}};
    for (std::size_t i = 0; i < images.size(); ++i) {
      variables["messages"][0]["content"].push_back({{"type", "image"}});
      variables["messages"][0]["content"].push_back({{"type", "text"}, {"text", std::string(200, 'a')}});
    }
    const auto prompt = model.place_images(*model.render_template(variables.dump()), images);
    std::vector<ScheduledRequest> one(1);
    one[0].prompt = prompt->ids;
    one[0].images = prompt->images;
    one[0].options = eight();
    Generation answer;
    one[0].on_done = [&answer](Expected<Generation> done) { answer = *std::move(done); };
    EXPECT_TRUE(scheduler.submit(std::move(one)));
    while (scheduler.step()) {
    }
    return answer;
  };
  const auto scheduler = fresh();
  const auto asked = [&](const std::string& image) { return ask(*scheduler, {image}); };
  const Generation first = asked(picture("rgb.png")), same = asked(picture("rgb.png"));
  EXPECT_EQ(first.stats.cached_tokens, 0);
  EXPECT_GT(same.stats.cached_tokens, 64);
  EXPECT_EQ(same.confidence, first.confidence);
  const Generation other = asked(picture("grey.png"));
  EXPECT_EQ(other.stats.cached_tokens, 0) << "the same ids, but for the image";
  EXPECT_NE(other.confidence, first.confidence);
  EXPECT_EQ(asked(picture("rgb.png")).confidence, first.confidence);
  // The next turn's image, behind what is kept of this one.
  const std::vector<std::string> two = {picture("rgb.png"), picture("alpha.png")};
  const Generation more = ask(*scheduler, two), whole = ask(*fresh(), two);
  EXPECT_GT(more.stats.cached_tokens, 64);
  EXPECT_EQ(whole.stats.cached_tokens, 0);
  EXPECT_EQ(more.ids, whole.ids);
  EXPECT_EQ(more.confidence, whole.confidence);
}

TEST(ImagesInChats, ThoseThatDoNotFitAreRefusedBeforeTheyAreComputed) {
  if (!decodes_image("PNG")) GTEST_SKIP() << "this build decodes no PNG";
  const LanguageModel model = chat_model();
  const auto error = [&](const std::string& text, std::size_t images) {
    const auto ids = model.apply_template({{"user", text, std::vector<std::string>(images, picture("rgb.png"))}});
    return ids ? std::string() : ids.error().message();
  };
  EXPECT_EQ(error("hi", 64), "");
  EXPECT_NE(error("hi", 65).find("64"), std::string::npos);
  EXPECT_NE(error(std::string(510, 'a'), 1).find("context of 512"), std::string::npos);
}

TEST(ImagesInChats, WorkEndsBetweenTwoImages) {
  if (!decodes_image("PNG")) GTEST_SKIP() << "this build decodes no PNG";
  const LanguageModel model = chat_model();
  const auto prompt = model.render_template(
      R"({"messages": [{"role": "user", "content": [{"type": "image"}, {"type": "image"}, {"type": "image"}]}]})");
  ASSERT_TRUE(prompt) << prompt.error().message();
  const std::vector<std::string> images(3, picture("rgb.png"));
  int asked = 0;
  const auto until = [&](int most) {
    asked = 0;
    return model.place_images(*prompt, images, [&asked, most] { return ++asked <= most; });
  };
  EXPECT_TRUE(until(6));
  EXPECT_EQ(asked, 6) << "before an image is decoded, and before it is embedded";
  for (const int most : {0, 2, 4}) {
    const auto ended = until(most);
    ASSERT_FALSE(ended);
    EXPECT_EQ(ended.error().code, ErrorCode::kCancelled);
    EXPECT_EQ(asked, most + 1);
  }
}

ScheduledRequest asking(const LanguageModel& model, const std::vector<std::string>& images, Generation& answer) {
  json variables;
  json& content = variables["messages"][0]["content"] = json::array();
  variables["messages"][0]["role"] = "user";
  for (std::size_t i = 0; i < images.size(); ++i) content.push_back({{"type", "image"}});
  content.push_back({{"type", "text"}, {"text", "hello"}});
  const auto prompt = model.place_images(*model.render_template(variables.dump()), images);
  ScheduledRequest request;
  request.prompt = prompt->ids;
  request.images = prompt->images;
  request.options = eight();
  request.on_done = [&answer](Expected<Generation> done) { answer = *std::move(done); };
  return request;
}

/// Answers some prompts at once; the one at `cancelled` is cancelled after its first step.
std::vector<Generation> together(const LanguageModel& model, const std::vector<std::vector<std::string>>& prompts,
                                 std::size_t cancelled = SIZE_MAX) {
  const auto scheduler = *Scheduler::create(model, {.prefix_bytes = std::int64_t{64} << 20});
  std::vector<Generation> answers(prompts.size());
  std::vector<ScheduledRequest> requests;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    requests.push_back(asking(model, prompts[i], answers[i]));
    if (i == cancelled) requests.back().on_step = [](const StepEvent&) { return false; };
  }
  EXPECT_TRUE(scheduler->submit(std::move(requests)));
  while (scheduler->step()) {
  }
  return answers;
}

TEST(ImagesInChats, ABatchAnswersLikeEachAlone) {
  if (!decodes_image("PNG")) GTEST_SKIP() << "this build decodes no PNG";
  const LanguageModel model = chat_model();
  const std::vector<std::vector<std::string>> prompts = {{picture("rgb.png")}, {}};
  const std::vector<Generation> both = together(model, prompts);
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const Generation alone = together(model, {prompts[i]}).front();
    EXPECT_EQ(both[i].ids, alone.ids);
    EXPECT_EQ(both[i].confidence, alone.confidence);
  }
}

TEST(ImagesInChats, ACancelledOneChangesNoLaterAnswer) {
  if (!decodes_image("PNG")) GTEST_SKIP() << "this build decodes no PNG";
  const LanguageModel model = chat_model();
  const std::vector<std::string> image = {picture("rgb.png")};
  const Generation whole = together(chat_model(), {image}).front();
  EXPECT_EQ(together(model, {image}, 0).front().finish, FinishReason::kCancelled);
  const Generation again = together(model, {image}).front();
  EXPECT_EQ(again.ids, whole.ids);
  EXPECT_EQ(again.confidence, whole.confidence);
}

TEST(ImagesInChats, StepsShowTheImageToken) {
  if (!decodes_image("PNG")) GTEST_SKIP() << "this build decodes no PNG";
  const LanguageModel model = chat_model();
  int steps = 0;
  const auto answer = model.generate({{"user", "hi", {picture("rgb.png")}}}, eight(), [&](const StepEvent& event) {
    ++steps;
    for (const CanvasCell& cell : event.canvas) EXPECT_LT(cell.token, model.vocab_size());
    return true;
  });
  EXPECT_TRUE(answer);
  EXPECT_GT(steps, 0);
}

}  // namespace
}  // namespace dllm

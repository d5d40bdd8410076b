// What /tokenize says, and that it stops when nobody waits; the rest is tested from outside (tests/app/serve_test.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "serve/api.h"

namespace dllm::serve {
namespace {

class KeptReply final : public Exchange {
 public:
  const HttpRequest& request() const override { return request_; }
  void reply(HttpResponse response) override { kept = std::move(response); }
  void begin_stream(HttpResponse, std::string) override {}
  void write(std::string) override {}
  void end() override {}
  std::size_t backlog() const override { return 0; }
  void on_abandoned(std::function<void()>) override {}

  std::optional<HttpResponse> kept;

 private:
  HttpRequest request_;
};

class TokenizeRoute : public ::testing::Test {
 protected:
  CallPtr call(Json body) {
    auto call = std::make_shared<Call>(Call{api_, exchange_, "7", "", "/tokenize"});
    call->bound = served_.get();
    call->body = std::move(body);
    return call;
  }
  static RouteHandler handler() { return std::ranges::find(routes(), "/tokenize", &Route::path)->handler; }

  LanguageModel model_ = *LanguageModel::load("");
  ServerOptions options_;
  std::unique_ptr<ServedModel> served_ = *ServedModel::create(borrowed(model_), options_, {}, "", {});
  Api api_{options_, nullptr};
  std::shared_ptr<KeptReply> exchange_ = std::make_shared<KeptReply>();
};

TEST_F(TokenizeRoute, PiecesAreThoseOfTheIds) {
  const std::string text = "Ben \"has\" \n\u00e9 \U0001f600 3 + 3 = 6";
  const std::vector<std::int32_t> ids = *model_.tokenize(text, true);
  ASSERT_TRUE(handler()(call({{"content", text}, {"with_pieces", true}})));
  const Json told = Json::parse(exchange_->kept->body);
  EXPECT_EQ(told["count"], ids.size());
  EXPECT_EQ(told["max_model_len"], model_.context_length());
  ASSERT_EQ(told["tokens"].size(), ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const Json expected = {{"id", ids[i]}, {"piece", *model_.detokenize({ids[i]}, true)}};
    EXPECT_EQ(dump(told["tokens"][i]), dump(expected)) << i;
  }
  ASSERT_TRUE(handler()(call({{"content", ""}, {"with_pieces", true}})));
  EXPECT_EQ(Json::parse(exchange_->kept->body)["tokens"], Json::array());
}

TEST_F(TokenizeRoute, WorkEndsWithItsClient) {
  const CallPtr left = call({{"content", "Ben has pens."}, {"with_pieces", true}});
  left->stop.request_stop();
  EXPECT_TRUE(handler()(left));
  EXPECT_FALSE(exchange_->kept);
}

TEST_F(TokenizeRoute, WorkEndsWithTheServer) {
  const CallPtr waiting = call({{"content", "Ben has pens."}, {"with_pieces", true}});
  EXPECT_FALSE(waiting->gone());
  api_.ended = true;
  EXPECT_TRUE(waiting->gone());
  EXPECT_TRUE(handler()(waiting));
  EXPECT_FALSE(exchange_->kept);
}

TEST_F(TokenizeRoute, WorkEndsWithItsTime) {
  const CallPtr late = call({{"content", "Ben has pens."}, {"with_pieces", true}});
  late->start -= std::chrono::hours(24);
  EXPECT_TRUE(handler()(late));
  ASSERT_TRUE(exchange_->kept);
  EXPECT_EQ(exchange_->kept->status, 504);
}

}  // namespace
}  // namespace dllm::serve

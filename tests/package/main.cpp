#include <dllm/decoder.h>
#include <dllm/model.h>

#include <algorithm>
#include <iostream>

/// Commits all positions of at least a confidence.
class Sure : public dllm::CustomDecoder {
 public:
  explicit Sure(double least) : least_(least) {}
  std::vector<dllm::Decision> decide(const dllm::DecodingState&,
                                     std::span<const dllm::Prediction> predictions) override {
    std::vector<dllm::Decision> chosen;
    for (const dllm::Prediction& one : predictions)
      if (one.eligible && one.confidence >= least_) chosen.push_back({.position = one.position});
    return chosen;
  }

 private:
  double least_;
};

int main() {
  dllm::OptionInfo least;
  least.key = "sure_from";
  least.type = dllm::OptionType::kNumber;
  least.standard = 0.9;
  least.meaning = "least confidence";
  dllm::DecoderDeclaration sure{.name = "sure", .meaning = "confident positions", .options = {least}};
  sure.make = [](const dllm::OptionMap& options) {
    return std::make_unique<Sure>(std::get<double>(options.at("sure_from")));
  };
  if (auto added = dllm::register_custom_decoder(std::move(sure)); !added)
    return std::cerr << added.error().message() << '\n', 1;

  auto model = dllm::LanguageModel::load("");  // a path, or the embedded model
  if (!model) return std::cerr << model.error().message() << '\n', 1;
  dllm::GenerateOptions own;
  own.decoder = {"sure", {{"sure_from", 0.8}}};
  dllm::GenerateOptions engines;
  engines.decoder = {"threshold", {{"threshold", 0.8}}};
  auto answer = model->generate("Solve 17+4.", own), expected = model->generate("Solve 17+4.", engines);
  if (!answer || !expected) return std::cerr << (answer ? expected : answer).error().message() << '\n', 1;
  std::cout << answer->text << '\n';
  if (answer->ids != expected->ids || answer->stats.nfe != expected->stats.nfe)
    return std::cerr << "the engine's rule gives another answer\n", 1;
  const auto devices = dllm::list_devices("cpu");
  return devices && !devices->empty() ? 0 : 1;
}

// llada.cpp's modes for another model's shape.
#include <fmt/format.h>

#include "base/try.h"
#include "experiment/answer_times.h"
#include "experiment/experiments.h"
#include "npu_core/device/profile.h"

namespace dllm::app {

Expected<Figure> dream_latency(Lab& lab) {
  constexpr const char *kPhone = "mobile-sm8750", *kShapes[] = {"", "dream-7b"};
  Figure figure{.name = "dream-latency",
                .title = "Dream on one phone",
                .setting = answer_setting(lab) +
                           fmt::format(" On {}; also with the steps of dream-7b, for the same passes.", kPhone),
                .claim = "the techniques shorten Dream's answers as they do LLaDA's (Fig. 12).",
                .columns = {"shape", "tokens"},
                .x_name = "128 tokens; each mode also has what the modes before it have",
                .y_name = "seconds",
                .log_y = true};
  for (const AnswerMode& mode : answer_modes()) {
    figure.columns.push_back(mode.name + " s");
    figure.x_labels.push_back(mode.name);
  }
  figure.columns.emplace_back("x host");
  DLLM_TRY(const npu::Device device, npu::load_device(kPhone));
  std::string ratios;
  for (const char* shape : kShapes) {
    const std::string name = *shape == '\0' ? lab.inputs().shape : shape;
    figure.series.push_back({name, {}});
    for (const std::int32_t tokens : {32, 64, 128}) {
      DLLM_CHECK_OK(lab.begin_part(figure.rows.size(), 3 * std::size(kShapes)));
      std::vector<nlohmann::ordered_json> row = {name, tokens};
      double host = 0, last = 0;
      for (std::size_t m = 0; m < answer_modes().size(); ++m) {
        DLLM_TRY(const auto time, mode_time(lab, device, answer_modes()[m], tokens, shape));
        row.emplace_back();
        if (!time) continue;
        row.back() = last = time->seconds();
        if (m == 0) host = last;
        if (tokens == 128) figure.series.back().points.emplace_back(static_cast<double>(m), last);
      }
      row.emplace_back(host / last);
      if (tokens == 128) ratios += fmt::format("{}{:.1f} times with {}", ratios.empty() ? "" : ", ", host / last, name);
      figure.rows.push_back(std::move(row));
    }
  }
  figure.verdict = fmt::format(
      "128 tokens on {}, the whole system over the host with a prefix cache: {}. The passes are those of our trained "
      "model, not Dream's own.",
      kPhone, ratios);
  return figure;
}

}  // namespace dllm::app

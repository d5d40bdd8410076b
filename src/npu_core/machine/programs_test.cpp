// The kernels of src/npu_core/testdata, written in PLENA's style, against references in double precision.

#include <fstream>
#include <sstream>

#include "npu_core/assembler/hazards.h"
#include "npu_core/machine/hazard_monitor.h"
#include "npu_core/machine/testing/lab.h"

namespace dllm::npu {
namespace {

using test::Lab;

constexpr MxFormat kProgramInt8{MxElement::kInt8, MxRule::kOcp, 32};

/// PLENA's public geometry: 4/64/64/16.
MachineConfig plena() {
  MachineConfig config;
  config.weight = config.matrix_kv = config.matrix_input = kProgramInt8;
  config.hbm_bytes = 1 << 20;
  return config;
}

/// Runs a file of testdata; both the text and the run must be free of hazards.
void run(Lab& lab, const std::string& name) {
  std::ifstream file(std::string(DLLM_SOURCE_DIR) + "/src/npu_core/testdata/" + name);
  std::stringstream text;
  text << file.rdbuf();
  const auto program = assemble(text.str(), {.file = name});
  ASSERT_TRUE(program.has_value()) << program.error().message();
  for (const Hazard& hazard : check_hazards(*program))
    ADD_FAILURE() << program->where(hazard.index) << ": " << hazard.what;
  HazardMonitor monitor;
  const auto result = lab.machine().run(*program, {.observer = &monitor});
  ASSERT_TRUE(result.has_value()) << result.error().message();
  for (const Hazard& hazard : monitor.hazards()) ADD_FAILURE() << program->where(hazard.index) << ": " << hazard.what;
}

/// Relative error of BF16 results after a few roundings.
void expect_close(const std::vector<float>& out, const std::vector<double>& exact, double relative, double absolute) {
  ASSERT_EQ(out.size(), exact.size());
  for (std::size_t i = 0; i < out.size(); ++i)
    EXPECT_NEAR(static_cast<double>(out[i]), exact[i], relative * std::fabs(exact[i]) + absolute) << i;
}

TEST(Programs, Gemm) {
  Lab lab(plena());
  // Whole numbers that all formats represent: the result is exact.
  std::vector<float> x(8 * 128), w(128 * 128);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(static_cast<int>(i * 7 % 11) - 5);
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(static_cast<int>(i * 5 % 13) - 6);
  EXPECT_EQ(lab.put_tensor(0, kProgramInt8, w), 128u * 128u);
  for (std::size_t row = 0; row < 8; ++row)
    for (std::size_t k = 0; k < 128; ++k)
      lab.state().vram[k / 64 * 512 + row * 64 + k % 64] = f32_to_bf16(x[row * 128 + k]);
  run(lab, "gemm.asm");
  for (std::size_t row = 0; row < 8; ++row)
    for (std::size_t n = 0; n < 128; ++n) {
      double sum = 0;
      for (std::size_t k = 0; k < 128; ++k)
        sum += static_cast<double>(x[row * 128 + k]) * static_cast<double>(w[k * 128 + n]);
      EXPECT_EQ(lab.row(1024 + n / 64 * 512 + row * 64 + n % 64, 1)[0], test::bf16_round(sum));
    }
}

TEST(Programs, RmsNorm) {
  Lab lab(plena());
  const auto x = test::normals(4 * 128, 1, 2.0f), gain = test::normals(128, 2);
  for (std::size_t t = 0; t < 4; ++t)
    for (std::size_t c = 0; c < 128; ++c)
      lab.state().vram[c / 64 * 256 + t * 64 + c % 64] = f32_to_bf16(x[t * 128 + c]);
  lab.set_row(512, gain);
  lab.state().fp_mem[0] = f32_to_bf16(1.0f / 128);
  lab.state().fp_mem[1] = f32_to_bf16(1e-5f);
  run(lab, "rmsnorm.asm");
  for (std::size_t t = 0; t < 4; ++t) {
    double sum = 0;
    for (std::size_t c = 0; c < 128; ++c) sum += std::pow(static_cast<double>(x[t * 128 + c]), 2);
    const double scale = 1 / std::sqrt(sum / 128 + 1e-5);
    for (std::size_t c = 0; c < 128; ++c) {
      const double exact = static_cast<double>(x[t * 128 + c]) * scale * static_cast<double>(gain[c]);
      EXPECT_NEAR(static_cast<double>(lab.row(1024 + c / 64 * 256 + t * 64 + c % 64, 1)[0]), exact,
                  0.02 * std::fabs(exact));
    }
  }
}

TEST(Programs, SwiGlu) {
  Lab lab(plena());
  const auto x = test::normals(192, 3, 3.0f), u = test::normals(192, 4);
  lab.set_row(0, x);
  lab.set_row(1024, u);
  lab.state().fp_mem[0] = kBf16One;
  run(lab, "silu.asm");
  std::vector<double> exact;
  for (std::size_t i = 0; i < 192; ++i)
    exact.push_back(static_cast<double>(x[i]) / (1 + std::exp(-static_cast<double>(x[i]))) * static_cast<double>(u[i]));
  expect_close(lab.row(2048, 192), exact, 0.03, 0);
}

TEST(Programs, Rope) {
  Lab lab(plena());
  const auto x = test::normals(192, 5);
  lab.set_row(0, x);
  std::vector<float> cosine(192), sine(192);
  std::vector<double> exact(192);
  for (std::size_t i = 0; i < 192; ++i) {
    const std::size_t token = i / 64, lane = i % 16, pair = lane % 8;
    const double angle = static_cast<double>(token + 3) * std::pow(10000.0, -static_cast<double>(pair) / 8);
    cosine[i] = test::bf16_round(std::cos(angle));
    sine[i] = test::bf16_round(lane < 8 ? -std::sin(angle) : std::sin(angle));
    const std::size_t other = lane < 8 ? i + 8 : i - 8;
    exact[i] = static_cast<double>(x[i]) * static_cast<double>(cosine[i]) +
               static_cast<double>(x[other]) * static_cast<double>(sine[i]);
  }
  lab.set_row(1024, cosine);
  lab.set_row(2048, sine);
  run(lab, "rope.asm");
  expect_close(lab.row(3072, 192), exact, 0.01, 0.02);
}

TEST(Programs, FlashAttention) {
  Lab lab(plena());
  std::vector<float> q(64 * 64), k = test::normals(128 * 64, 7), v = test::normals(128 * 64, 8);
  q = test::normals(64 * 64, 6, 2.0f);
  lab.set_row(0, q);
  lab.put_tensor(0, kProgramInt8, k);
  lab.put_tensor(65536, kProgramInt8, v);
  q = test::through(kProgramInt8, q);
  k = test::through(kProgramInt8, k);
  v = test::through(kProgramInt8, v);
  run(lab, "flash_attention.asm");
  for (std::size_t head = 0; head < 4; ++head)
    for (std::size_t row = 0; row < 64; ++row) {
      std::vector<double> p(128);
      double top = -1e30, total = 0;
      for (std::size_t key = 0; key < 128; ++key) {
        double score = 0;
        for (std::size_t d = 0; d < 16; ++d)
          score += static_cast<double>(q[row * 64 + head * 16 + d]) * static_cast<double>(k[key * 64 + d]);
        p[key] = score / 4;
        top = std::max(top, p[key]);
      }
      for (double& value : p) total += value = std::exp(value - top);
      std::vector<double> exact(16, 0.0);
      for (std::size_t key = 0; key < 128; ++key)
        for (std::size_t d = 0; d < 16; ++d) exact[d] += p[key] / total * static_cast<double>(v[key * 64 + d]);
      expect_close(lab.row(65536 + (head * 64 + row) * 64, 16), exact, 0.02, 0.03);
    }
}

TEST(Programs, Sampling) {
  Lab lab(plena());
  auto logits = test::normals(4 * 256, 9);
  for (std::size_t i = 0; i < 256; ++i) logits[i] -= 20.0f;  // a row of negative logits
  for (float& value : logits) value = bf16_to_f32(f32_to_bf16(value));
  const std::size_t best[] = {130, 7, 255, 64};
  const float margin[] = {1.0f, 9.0f, 6.0f, 8.0f};
  for (std::size_t l = 0; l < 4; ++l)
    logits[l * 256 + best[l]] = *std::max_element(logits.begin() + static_cast<std::ptrdiff_t>(l * 256),
                                                  logits.begin() + static_cast<std::ptrdiff_t>(l * 256 + 256)) +
                                margin[l];
  logits[256 + 9] = bf16_to_f32(f32_to_bf16(logits[256 + 7]));  // a tie, at a later index
  logits[256 + 7] = logits[256 + 9];
  lab.put_tensor(0, {}, logits);
  const std::uint32_t mask_id = 999;
  for (std::size_t l = 0; l < 4; ++l) lab.state().int_mem[l] = l == 3 ? 42 : mask_id;
  lab.set_row(0, {1.0f, 1.0f, 1.0f, 0.0f});  // position 3 is already decided
  run(lab, "sampling.asm");
  std::vector<double> confidence(4);
  for (std::size_t l = 0; l < 4; ++l) {
    double sum = 0;
    for (std::size_t i = 0; i < 256; ++i)
      sum += std::exp(static_cast<double>(logits[l * 256 + i]) - static_cast<double>(logits[l * 256 + best[l]]));
    confidence[l] = 1 / sum;
    EXPECT_NEAR(static_cast<double>(bf16_to_f32(lab.state().fp_mem[l])), confidence[l], 0.02 * confidence[l]) << l;
  }
  ASSERT_GT(confidence[2], confidence[1]);  // the tie halves position 1
  ASSERT_GT(confidence[1], confidence[0]);
  const std::uint32_t x0[] = {130, 7, 255, 42}, x[] = {mask_id, 7, 255, 42};
  for (std::size_t l = 0; l < 4; ++l) {
    EXPECT_EQ(lab.state().int_mem[16 + l], x0[l]);
    EXPECT_EQ(lab.state().int_mem[l], x[l]);
  }
}

}  // namespace
}  // namespace dllm::npu

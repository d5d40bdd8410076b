#include "format/npy.h"

#include <gtest/gtest.h>

#include <cstring>

namespace dllm {
namespace {

std::string file(const std::string& descr, const std::string& shape, const std::string& data,
                 const char* order = "False") {
  std::string header = "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }\n";
  std::string bytes = "\x93NUMPY";
  bytes += {'\x01', '\x00', static_cast<char>(header.size()), '\x00'};
  return bytes + header + data;
}

TEST(Npy, RoundTrip) {
  const std::vector<float> floats = {1.5f, -2.0f, 0.0f};
  const auto array = parse_npy(npy_of(floats), "x.npy");
  ASSERT_TRUE(array.has_value()) << array.error().message();
  EXPECT_EQ(array->shape, std::vector<std::size_t>{3});
  EXPECT_EQ(array->values, (std::vector<double>{1.5, -2.0, 0.0}));
  EXPECT_EQ(parse_npy(npy_of(std::vector<std::uint32_t>{4000000000u}), "x")->values, std::vector<double>{4e9});
  EXPECT_EQ(npy_of(floats).size() % 4, 0u);
  EXPECT_EQ(npy_of(std::vector<float>{}).size() % 64, 0u) << "NumPy aligns data to 64 bytes";
}

TEST(Npy, TypesAndShapes) {
  EXPECT_EQ(parse_npy(file("<i2", "(2, 1)", std::string("\xff\xff\x02\x00", 4)), "x")->values,
            (std::vector<double>{-1, 2}));
  EXPECT_EQ(parse_npy(file("<f2", "()", std::string("\x00\x3c", 2)), "x")->values, std::vector<double>{1});
  EXPECT_EQ(parse_npy(file("|u1", "(0,)", ""), "x")->values.size(), 0u);
}

TEST(Npy, DamagedAndForeign) {
  EXPECT_FALSE(parse_npy("", "x"));
  EXPECT_FALSE(parse_npy("\x93NUMPY\x01", "x"));
  EXPECT_FALSE(parse_npy(file("<f4", "(3,)", "1234"), "x")) << "too short";
  EXPECT_FALSE(parse_npy(file("<f4", "(99999999999, 99999999999)", ""), "x"));
  EXPECT_FALSE(parse_npy(file("<f4", "oops", "1234"), "x"));
  EXPECT_EQ(parse_npy(file(">f4", "(1,)", "1234"), "x").error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(parse_npy(file("<f4", "(1,)", "1234", "True"), "x").error().code, ErrorCode::kUnsupported);
  const std::string good = npy_of(std::vector<float>{1, 2});
  for (std::size_t n = 0; n < good.size(); ++n) EXPECT_FALSE(parse_npy(good.substr(0, n), "x")) << n;
}

}  // namespace
}  // namespace dllm

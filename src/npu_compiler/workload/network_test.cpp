// The text of a network's file: what it may name, and how often.

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/testing/fuzz_replay.h"
#include "npu_compiler/workload/network.h"
#include "npu_compiler/workload/testing/fuzz_entry.h"

namespace dllm::npu {
namespace {

using Json = nlohmann::json;

/// Two rows of four columns, a product, and its rows as `y`.
Json small_network() {
  return Json::parse(R"({"version": 1, "name": "n", "source": "s", "rows": 2, "visible": 2, "causal": false,
    "scored": [], "fixed": [],
    "inputs": [{"name": "x", "kind": "rows", "shape": [2, 4], "width": 4, "tensor": "rows"}],
    "outputs": [{"name": "y", "shape": [2, 4], "tensor": "all"}],
    "ops": [{"op": "input", "x": "x", "out": "v0"}, {"op": "linear", "x": "v0", "weight": "w", "bias": "b", "out": "v1"},
            {"op": "output", "x": "v1"}]})");
}

/// The bytes of its tensors are gone: only for what needs their shapes.
Expected<std::shared_ptr<const Network>> read_of(const Json& json) {
  const std::string bytes = network_file_with(json.dump());
  auto file = Safetensors::parse(MappedFile::wrap(test::bytes_of(bytes), "input"));
  EXPECT_TRUE(file) << file.error().message();
  return read_network(std::move(*file));
}

/// Empty, if the file is read.
std::string refusal_of(const Json& json) {
  const auto network = read_of(json);
  return network ? std::string() : network.error().what;
}

TEST(NetworkText, SmallNetworkIsRead) { EXPECT_EQ(refusal_of(small_network()), ""); }

/// A sample belongs to one output: of two with one name, the first could be the smaller one.
TEST(NetworkText, NamesAreUnique) {
  Json json = small_network();
  json["outputs"].insert(json["outputs"].begin(), Json::parse(R"({"name": "y", "shape": [4], "tensor": "b"})"));
  EXPECT_EQ(refusal_of(json), "two outputs 'y'");
  json = small_network();
  json["inputs"].push_back(json["inputs"][0]);
  EXPECT_EQ(refusal_of(json), "two inputs 'x'");
}

TEST(NetworkText, ArraysAreCounted) {
  for (const auto& [list, what] : {std::pair("inputs", "more than 256 inputs"), {"outputs", "more than 256 outputs"}}) {
    Json json = small_network();
    const Json one = json[list][0];
    for (int i = 0; i < 300; ++i) {
      json[list].push_back(one);
      json[list].back()["name"] = "another" + std::to_string(i);
    }
    EXPECT_EQ(refusal_of(json), what);
  }
  Json json = small_network();
  for (int i = 0; i < 255; ++i) json["ops"].push_back(json["ops"][2]);
  EXPECT_EQ(refusal_of(json), "");
  json["ops"].push_back(json["ops"][2]);
  EXPECT_EQ(refusal_of(json), "operator 258: more than 256 results");
}

/// Sizes are compared with the tensor's before it is decoded.
TEST(NetworkText, ArraysHaveTheTensorsSize) {
  Json json = small_network();
  json["inputs"][0]["width"] = 3;
  EXPECT_EQ(refusal_of(json), "tensor 'rows' has 8 numbers, not 6");
  json = small_network();
  json["outputs"][0]["shape"] = {3, 4};
  EXPECT_EQ(refusal_of(json), "tensor 'all' has 8 numbers, not 12");
  json["outputs"][0]["shape"] = {1 << 20, 1 << 20};
  EXPECT_EQ(refusal_of(json), "an array of more than 16777216 numbers");
  json = small_network();
  json["rows"] = json["visible"] = 1 << 16;
  json["inputs"][0]["width"] = 1 << 12;
  EXPECT_EQ(refusal_of(json), "inputs of more than 67108864 numbers");
}

TEST(NetworkText, DimensionsOfZeroAreNamed) {
  Json json = small_network();
  json["outputs"][0]["shape"] = {0, 4};
  EXPECT_EQ(refusal_of(json), "an array with a dimension of 0");
}

/// With all rows scored, gathered and other results have equally many rows, but not in a batch's parts.
TEST(NetworkText, ResultsHaveTheSameRows) {
  Json json = small_network();
  json["scored"] = {0, 1};
  json["ops"].push_back(Json::parse(R"({"op": "gather", "x": "v1", "out": "v2"})"));
  json["ops"].push_back(Json::parse(R"({"op": "output", "x": "v2"})"));
  EXPECT_EQ(refusal_of(json), "operator 4: 'v2' has gathered rows, unlike the results before it");
  std::swap(json["ops"][2], json["ops"][3]);
  std::swap(json["ops"][3], json["ops"][4]);
  EXPECT_EQ(refusal_of(json), "operator 4: 'v1' has all rows, unlike the results before it");
  json["ops"][4] = Json::parse(R"({"op": "add", "x": "v1", "y": "v2", "out": "v3"})");
  EXPECT_EQ(refusal_of(json), "operator 4: 'v1' and 'v2', of which only one has gathered rows");
  json["ops"].erase(4);
  EXPECT_EQ(refusal_of(json), "");
  json["ops"].push_back(Json::parse(R"({"op": "output", "x": "v2"})"));
  EXPECT_EQ(refusal_of(json), "");
}

/// What is built for any rows has the widths and the rows of its kind.
TEST(NetworkText, GraphsOfOtherRows) {
  Json json = small_network();
  json["scored"] = {0, 1};
  json["ops"].insert(json["ops"].begin() + 2, Json::parse(R"({"op": "gather", "x": "v1", "out": "v2"})"));
  json["ops"][3]["x"] = "v2";
  const auto network = read_of(json);
  ASSERT_TRUE(network) << network.error().message();
  EXPECT_EQ((*network)->handed, 8);
  const Graph graph = (*network)->architecture.build((*network)->desc, {1009, 17});
  EXPECT_EQ(validate(graph), "");
  EXPECT_TRUE(hands_out_scored(graph));
  EXPECT_EQ(graph.shape.rows, 1009);
  EXPECT_EQ(graph.shape.scored, 17);
}

TEST(NetworkText, RowsAreGatheredOnlyIfTheyAreNamed) {
  Json json = small_network();
  json["ops"][2] = Json::parse(R"({"op": "gather", "x": "v1", "out": "v2"})");
  json["ops"].push_back(Json::parse(R"({"op": "output", "x": "v2"})"));
  EXPECT_EQ(refusal_of(json), "operator 2: rows are gathered, but 'scored' names none");
  json["scored"] = {0, 1};
  EXPECT_EQ(refusal_of(json), "");
}

/// Outputs index what the results hand out: here one row of the two.
TEST(NetworkText, OutputsStayWithinTheResults) {
  Json json = small_network();
  json["scored"] = {1};
  json["ops"].insert(json["ops"].begin() + 2, Json::parse(R"({"op": "gather", "x": "v1", "out": "v2"})"));
  json["ops"][3]["x"] = "v2";
  EXPECT_EQ(refusal_of(json), "output 'y': index 4 of 4 numbers");
}

TEST(NetworkText, InputsHaveTheirOwnWidths) {
  Json json = small_network();
  json["inputs"].push_back(Json::parse(R"({"name": "z", "kind": "rows", "shape": [4], "width": 2, "tensor": "b"})"));
  json["ops"].push_back(Json::parse(R"({"op": "input", "x": "z", "out": "v2"})"));
  json["ops"].push_back(Json::parse(R"({"op": "output", "x": "v2"})"));
  ASSERT_EQ(refusal_of(json), "");
  EXPECT_EQ((*read_of(json))->handed, 2 * (4 + 2));
}

/// Ids choose from the smallest table; without one, any id that a token can have is as good.
TEST(NetworkText, IdsAreThoseOfTheTable) {
  Json json = small_network();
  EXPECT_EQ((*read_of(json))->ids, std::numeric_limits<TokenId>::max());
  json["inputs"].push_back(Json::parse(R"({"name": "t", "kind": "tokens", "shape": [2]})"));
  json["ops"].push_back(Json::parse(R"({"op": "embed", "weight": "table", "out": "v2"})"));
  ASSERT_EQ(refusal_of(json), "");
  EXPECT_EQ((*read_of(json))->ids, 8);
}

TEST(NetworkText, NamesAreShownWithoutControlCharacters) {
  Json json = small_network();
  json["ops"][1]["weight"] = "w\x1b[31m";
  EXPECT_EQ(refusal_of(json), "operator 1: a tensor 'w\\x1b[31m' that is not in the file");
}

TEST(FuzzCorpus, Network) { test::replay_corpus("network", 50, fuzz_network); }

}  // namespace
}  // namespace dllm::npu

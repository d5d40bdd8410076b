#include "npu_compiler/runtime/program_file.h"

#include <fmt/format.h>

#include <cmath>
#include <unordered_map>

#include "base/try.h"
#include "format/toml_table.h"

namespace dllm::npu {
namespace {

using TensorIndices = std::unordered_map<std::string, std::int32_t>;

Expected<MemoryTensor> read_tensor(TomlTable& table) {
  MemoryTensor tensor;
  DLLM_TRY(tensor.name, table.text("name"));
  DLLM_TRY(tensor.bytes, table.integer("bytes"));
  DLLM_TRY(const auto granule, table.optional_integer("granule"));
  DLLM_TRY(const auto lasting, table.optional_boolean("lasting"));
  DLLM_CHECK_OK(table.finish());
  tensor.granule = granule.value_or(0);
  tensor.lasting = lasting.value_or(false);
  if (tensor.bytes < 1 || tensor.bytes > std::int64_t{1} << 50)
    return table.error("bytes", fmt::format("a size of {} bytes", tensor.bytes), "1 to 2^50");
  if (tensor.granule < 0 || tensor.granule > tensor.bytes)
    return table.error("granule", fmt::format("parts of {} of {} bytes", tensor.granule, tensor.bytes));
  if (tensor.granule > 0 && !tensor.lasting)
    return table.error("granule", "only lasting tensors are staged", "set lasting = true, or leave granule out");
  return tensor;
}

Expected<std::vector<std::int32_t>> read_names(TomlTable& table, std::string_view key, const TensorIndices& known) {
  std::vector<std::int32_t> found;
  if (!table.contains(key)) return found;
  DLLM_TRY(const std::vector<std::string> names, table.texts(key));
  for (const std::string& name : names) {
    const auto tensor = known.find(name);
    if (tensor == known.end()) return table.error(key, fmt::format("there is no tensor '{}'", name));
    found.push_back(tensor->second);
  }
  return found;
}

Expected<MemoryOp> read_operator(TomlTable& table, const TensorIndices& known) {
  MemoryOp op;
  DLLM_TRY(op.name, table.text("name"));
  DLLM_TRY(const double us, table.number("us"));
  DLLM_TRY(op.reads, read_names(table, "reads", known));
  DLLM_TRY(op.writes, read_names(table, "writes", known));
  DLLM_CHECK_OK(table.finish());
  if (!(us >= 0) || std::isinf(us)) return table.error("us", fmt::format("a time of {} us", us));
  op.seconds = us * 1e-6;
  return op;
}

}  // namespace

Expected<MemoryProgram> parse_memory_program(std::string_view text, const std::string& file) {
  DLLM_TRY(TomlTable root, TomlTable::parse(text, file));
  DLLM_TRY(auto tensors, root.tables("tensor"));
  DLLM_TRY(auto operators, root.tables("operator"));
  DLLM_CHECK_OK(root.finish());
  MemoryProgram program;
  TensorIndices known;
  for (TomlTable& table : tensors) {
    DLLM_TRY(MemoryTensor tensor, read_tensor(table));
    if (!known.emplace(tensor.name, static_cast<std::int32_t>(program.tensors.size())).second)
      return table.error("name", fmt::format("the name '{}' is given twice", tensor.name));
    program.tensors.push_back(std::move(tensor));
  }
  for (TomlTable& table : operators) {
    DLLM_TRY(MemoryOp op, read_operator(table, known));
    program.ops.push_back(std::move(op));
  }
  return program;
}

}  // namespace dllm::npu

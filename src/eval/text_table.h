#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dllm {

/// Cells as strings; every row has one per column.
struct TextTable {
  struct Column {
    std::string title;
    bool left = false;  ///< text; numbers are aligned right
  };
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> rows;

  std::string aligned() const;  ///< for a terminal
  std::string markdown() const;
  std::string csv() const;  ///< RFC 4180
};

}  // namespace dllm

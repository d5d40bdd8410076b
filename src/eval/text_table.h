#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dllm {

/// Cells as strings; every row has as many as there are columns.
struct TextTable {
  struct Column {
    std::string title;
    bool left = false;  ///< text; numbers stand right
  };
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> rows;

  std::string aligned() const;  ///< for a terminal
  std::string markdown() const;
  std::string csv() const;  ///< RFC 4180
};

}  // namespace dllm

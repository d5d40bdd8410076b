# cmake -DFOLDER=... -DOUTPUT=... -P embed.cmake: writes embedded_files.cpp with every *.toml below FOLDER.
file(GLOB_RECURSE files RELATIVE ${FOLDER} ${FOLDER}/*.toml)
list(TRANSFORM files REPLACE "\\.toml$" "")  # before sorting: "a" comes before "a-b", but "a.toml" does not
list(SORT files)
set(entries "")
foreach(name ${files})
  file(READ ${FOLDER}/${name}.toml text)
  string(APPEND entries "      {\"${name}\",\n       R\"TOML(${text})TOML\"},\n")
endforeach()
file(WRITE ${OUTPUT}.new "#include \"npu/config/embedded_files.h\"

#include <algorithm>

namespace dllm::npu {

const std::vector<EmbeddedFile>& embedded_files() {
  static const std::vector<EmbeddedFile> files = {
${entries}  };
  return files;
}

std::optional<EmbeddedFile> find_embedded_file(std::string_view name) {
  const auto& files = embedded_files();
  const auto at = std::find_if(files.begin(), files.end(), [name](const EmbeddedFile& f) { return f.name == name; });
  return at == files.end() ? std::nullopt : std::optional<EmbeddedFile>(*at);
}

}  // namespace dllm::npu
")
file(COPY_FILE ${OUTPUT}.new ${OUTPUT} ONLY_IF_DIFFERENT)

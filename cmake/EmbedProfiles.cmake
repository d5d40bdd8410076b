# cmake -DFOLDER=... -DFUNCTION=... -DHEADER=... -DOUTPUT=... -P EmbedProfiles.cmake: writes a source whose function
# returns every *.toml below FOLDER (npu_core/config/embedded_files.h).
file(GLOB_RECURSE files RELATIVE ${FOLDER} ${FOLDER}/*.toml)
list(TRANSFORM files REPLACE "\\.toml$" "")  # before sorting: "a" comes before "a-b", but "a.toml" does not
list(SORT files)
set(entries "")
foreach(name ${files})
  file(READ ${FOLDER}/${name}.toml text)
  string(APPEND entries "      {\"${name}\",\n       R\"TOML(${text})TOML\"},\n")
endforeach()
file(WRITE ${OUTPUT}.new "#include \"${HEADER}\"

namespace dllm::npu {

EmbeddedFiles ${FUNCTION}() {
  static constexpr EmbeddedFile kFiles[] = {
${entries}  };
  return kFiles;
}

}  // namespace dllm::npu
")
file(COPY_FILE ${OUTPUT}.new ${OUTPUT} ONLY_IF_DIFFERENT)

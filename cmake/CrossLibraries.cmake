# The libraries of a program for another system, under the names that the modules know them by: archives that
# scripts/<system>_libraries has built into `folder`.
#   dllm_cross_libraries(wasm FOLDER [TARGET=ARCHIVE ...])     with archives that only this system's programs have
function(dllm_cross_libraries system folder)
  if(NOT EXISTS ${folder}/made-of)
    message(FATAL_ERROR "${folder} is missing: run scripts/${system}_libraries (make ${system} does)")
  endif()
  include_directories(SYSTEM ${folder}/include)
  foreach(name fmt::fmt=fmt PkgConfig::PCRE2=pcre2-8 PkgConfig::UTF8PROC=utf8proc ${ARGN})
    string(REPLACE "=" ";" pair ${name})
    list(GET pair 0 target)
    list(GET pair 1 library)
    add_library(${target} STATIC IMPORTED GLOBAL)
    set_target_properties(${target} PROPERTIES IMPORTED_LOCATION ${folder}/lib/lib${library}.a)
  endforeach()
  set_target_properties(PkgConfig::PCRE2 PROPERTIES INTERFACE_COMPILE_DEFINITIONS PCRE2_STATIC)
  set_target_properties(PkgConfig::UTF8PROC PROPERTIES INTERFACE_COMPILE_DEFINITIONS UTF8PROC_STATIC)
  foreach(target nlohmann_json::nlohmann_json PkgConfig::TOMLPLUSPLUS Threads::Threads)  # headers alone
    add_library(${target} INTERFACE IMPORTED GLOBAL)
  endforeach()
endfunction()

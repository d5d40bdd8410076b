# The libraries of a program for Windows, under the names that the modules know them by.
set(DLLM_WINDOWS_LIBRARIES ${PROJECT_SOURCE_DIR}/build/windows-libraries CACHE PATH "folder of scripts/windows_libraries")
include(CrossLibraries)
# POSIX' headers that mingw-w64 does not have, or has otherwise. Not SYSTEM: zig's own folders come before those.
include_directories(BEFORE ${PROJECT_SOURCE_DIR}/src/base/os_windows/posix)
dllm_cross_libraries(windows ${DLLM_WINDOWS_LIBRARIES} CURL::libcurl=curl)
# Asio 1.74 takes std::result_of otherwise, which C++20 removed.
add_compile_definitions(BOOST_ASIO_HAS_STD_INVOKE_RESULT)
add_compile_definitions(_FILE_OFFSET_BITS=64 _POSIX_THREAD_SAFE_FUNCTIONS NOMINMAX WIN32_LEAN_AND_MEAN)
# zig adds debug information unless it hears -s, also where -g0 asks for none.
add_compile_options(-s -Wno-shorten-64-to-32 -Wno-implicit-int-conversion -Wno-unused-command-line-argument)
set_target_properties(CURL::libcurl PROPERTIES INTERFACE_COMPILE_DEFINITIONS CURL_STATICLIB
                                               INTERFACE_LINK_LIBRARIES "ws2_32;bcrypt;crypt32;secur32;advapi32")
add_library(CLI11::CLI11 INTERFACE IMPORTED GLOBAL)
# Modules ask pkg-config for libraries that are named above.
macro(pkg_check_modules)
endmacro()
# The system's libraries that Asio names.
link_libraries(ws2_32 mswsock)

# Functions of Windows and of its C library take UTF-8 in this program, and paths may be long.
function(dllm_windows_manifest target)
  set(manifest ${PROJECT_SOURCE_DIR}/packaging/windows.manifest)
  set(resource ${CMAKE_CURRENT_BINARY_DIR}/${target}-manifest)
  file(CONFIGURE OUTPUT ${resource}.rc CONTENT "1 24 \"${manifest}\"\n")
  add_custom_command(OUTPUT ${resource}.res COMMAND ${DLLM_ZIG} rc /:auto-includes none ${resource}.rc ${resource}.res DEPENDS ${manifest} VERBATIM)
  target_link_options(${target} PRIVATE ${resource}.res)
  set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS ${resource}.res)
  target_sources(${target} PRIVATE ${resource}.res)
  set_source_files_properties(${resource}.res PROPERTIES HEADER_FILE_ONLY ON)
endfunction()

# The libraries that every module of a native build may use; those of one module alone are found where it is.
if(DLLM_ARCHIVES)
  include(StaticLibraries)
endif()
find_package(Threads REQUIRED)
find_package(fmt 9 REQUIRED)
if(DLLM_ARCHIVES)
  set_target_properties(fmt::fmt PROPERTIES IMPORTED_LOCATION_NONE ${DLLM_STATIC_LIBRARIES}/lib/libfmt.a)
endif()
find_package(nlohmann_json 3.11 REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)

if(DLLM_STATIC)
  unset(CMAKE_CXX_LINK_PIE_SUPPORTED CACHE)  # -static-pie would yield to the -pie that this adds
else()
  include(CheckPIESupported)
  check_pie_supported(LANGUAGES CXX)  # executables are position independent by request, not by the compiler's default
endif()

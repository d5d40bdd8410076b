# What `cmake --install` and CPack add to the program: manual pages and completions, which the program itself writes from
# its declarations of flags. `program` is set before.
set(share "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/share")
function(dllm_write path)
  cmake_path(GET path PARENT_PATH folder)
  file(MAKE_DIRECTORY ${folder})
  execute_process(COMMAND ${program} ${ARGN} OUTPUT_FILE ${path} COMMAND_ERROR_IS_FATAL ANY)
endfunction()
dllm_write(${share}/bash-completion/completions/dllm --completion bash)
dllm_write(${share}/zsh/vendor-completions/_dllm --completion zsh)
dllm_write(${share}/fish/vendor_completions.d/dllm.fish --completion fish)

file(MAKE_DIRECTORY ${share}/man/man1)
execute_process(COMMAND ${program} --man-pages ${share}/man/man1 COMMAND_ERROR_IS_FATAL ANY)

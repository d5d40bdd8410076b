/* The bytes of models/tiny-llada-f32.gguf as a read-only section: `dllm` answers without any file beside it. */
#if defined(_WIN32)
    .section .rdata,"dr"
#elif defined(__APPLE__)
    .section __TEXT,__const
#else
    .section .rodata
#endif
    .global dllm_embedded_model_begin
    .global dllm_embedded_model_end
    .balign 64
dllm_embedded_model_begin:
    .incbin DLLM_EMBEDDED_MODEL
dllm_embedded_model_end:
#if defined(__ELF__)
    .section .note.GNU-stack,"",%progbits
#endif
#if defined(__ELF__) && defined(__x86_64__)
/* No code, so indirect branch tracking and shadow stacks (bits 0 and 1) work: without this note the linker would say that
   the whole program does not support them. */
    .section .note.gnu.property,"a"
    .balign 8
    .long 4, 16, 5
    .asciz "GNU"
    .long 0xc0000002, 4, 3, 0
#endif

/* The bytes of models/tiny-llada-f32.gguf as a read-only section: `dllm` answers without any file beside it. */
    .section .rodata
    .global dllm_embedded_model_begin
    .global dllm_embedded_model_end
    .balign 64
dllm_embedded_model_begin:
    .incbin DLLM_EMBEDDED_MODEL
dllm_embedded_model_end:
    .section .note.GNU-stack,"",%progbits

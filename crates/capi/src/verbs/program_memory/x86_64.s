    .pushsection .text.roci_program_memory,"ax",@progbits
    .p2align 4
    .globl roci_program_memory_begin
    .hidden roci_program_memory_begin
roci_program_memory_begin:

// int roci_program_memory_copy(to: rdi, from: rsi, length: rdx)
    .globl roci_program_memory_copy
    .hidden roci_program_memory_copy
    .type roci_program_memory_copy, @function
roci_program_memory_copy:
    .cfi_startproc
    cmp     rdx, 64
    jb      3f
    mov     rcx, rdx
    and     rcx, -64
    add     rcx, rsi
    .p2align 4
2:
    movups  xmm0, [rsi]
    movups  xmm1, [rsi + 16]
    movups  xmm2, [rsi + 32]
    movups  xmm3, [rsi + 48]
    movups  [rdi], xmm0
    movups  [rdi + 16], xmm1
    movups  [rdi + 32], xmm2
    movups  [rdi + 48], xmm3
    add     rsi, 64
    add     rdi, 64
    cmp     rsi, rcx
    jne     2b
3:
    test    dl, 32
    jz      4f
    movups  xmm0, [rsi]
    movups  xmm1, [rsi + 16]
    movups  [rdi], xmm0
    movups  [rdi + 16], xmm1
    add     rsi, 32
    add     rdi, 32
4:
    test    dl, 16
    jz      5f
    movups  xmm0, [rsi]
    movups  [rdi], xmm0
    add     rsi, 16
    add     rdi, 16
5:
    test    dl, 8
    jz      6f
    mov     rax, [rsi]
    mov     [rdi], rax
    add     rsi, 8
    add     rdi, 8
6:
    test    dl, 4
    jz      7f
    mov     eax, [rsi]
    mov     [rdi], eax
    add     rsi, 4
    add     rdi, 4
7:
    test    dl, 2
    jz      8f
    movzx   eax, word ptr [rsi]
    mov     [rdi], ax
    add     rsi, 2
    add     rdi, 2
8:
    test    dl, 1
    jz      9f
    movzx   eax, byte ptr [rsi]
    mov     [rdi], al
9:
    mov     eax, 1
    ret
    .cfi_endproc
    .size roci_program_memory_copy, . - roci_program_memory_copy

// int roci_program_memory_compare_swap(word: rdi, expected: rsi, new: rdx, found: rcx)
    .globl roci_program_memory_compare_swap
    .hidden roci_program_memory_compare_swap
    .type roci_program_memory_compare_swap, @function
roci_program_memory_compare_swap:
    .cfi_startproc
    mov     rax, rsi
    lock cmpxchg [rdi], rdx
    mov     [rcx], rax
    mov     eax, 1
    ret
    .cfi_endproc
    .size roci_program_memory_compare_swap, . - roci_program_memory_compare_swap

    .globl roci_program_memory_end
    .hidden roci_program_memory_end
roci_program_memory_end:

    .globl roci_program_memory_absent
    .hidden roci_program_memory_absent
    .type roci_program_memory_absent, @function
roci_program_memory_absent:
    .cfi_startproc
    xor     eax, eax
    ret
    .cfi_endproc
    .size roci_program_memory_absent, . - roci_program_memory_absent
    .popsection

    .pushsection .text.roci_program_memory,"ax",@progbits
    .p2align 4
    .globl roci_program_memory_begin
    .hidden roci_program_memory_begin
roci_program_memory_begin:

// int roci_program_memory_copy(to: x0, from: x1, length: x2)
    .globl roci_program_memory_copy
    .hidden roci_program_memory_copy
    .type roci_program_memory_copy, %function
roci_program_memory_copy:
    .cfi_startproc
    ands    x3, x2, #-64
    b.eq    3f
    add     x3, x1, x3
2:
    ldp     q0, q1, [x1]
    ldp     q2, q3, [x1, #32]
    stp     q0, q1, [x0]
    stp     q2, q3, [x0, #32]
    add     x1, x1, #64
    add     x0, x0, #64
    cmp     x1, x3
    b.ne    2b
3:
    tbz     x2, #5, 4f
    ldp     q0, q1, [x1], #32
    stp     q0, q1, [x0], #32
4:
    tbz     x2, #4, 5f
    ldr     q0, [x1], #16
    str     q0, [x0], #16
5:
    tbz     x2, #3, 6f
    ldr     x3, [x1], #8
    str     x3, [x0], #8
6:
    tbz     x2, #2, 7f
    ldr     w3, [x1], #4
    str     w3, [x0], #4
7:
    tbz     x2, #1, 8f
    ldrh    w3, [x1], #2
    strh    w3, [x0], #2
8:
    tbz     x2, #0, 9f
    ldrb    w3, [x1]
    strb    w3, [x0]
9:
    mov     w0, #1
    ret
    .cfi_endproc
    .size roci_program_memory_copy, . - roci_program_memory_copy

// int roci_program_memory_compare_swap(word: x0, expected: x1, new: x2, found: x3)
    .globl roci_program_memory_compare_swap
    .hidden roci_program_memory_compare_swap
    .type roci_program_memory_compare_swap, %function
roci_program_memory_compare_swap:
    .cfi_startproc
2:
    ldaxr   x4, [x0]
    cmp     x4, x1
    b.ne    3f
    stlxr   w5, x2, [x0]
    cbnz    w5, 2b
    b       4f
3:
    clrex
4:
    str     x4, [x3]
    mov     w0, #1
    ret
    .cfi_endproc
    .size roci_program_memory_compare_swap, . - roci_program_memory_compare_swap

    .globl roci_program_memory_end
    .hidden roci_program_memory_end
roci_program_memory_end:

    .globl roci_program_memory_absent
    .hidden roci_program_memory_absent
    .type roci_program_memory_absent, %function
roci_program_memory_absent:
    .cfi_startproc
    mov     w0, #0
    ret
    .cfi_endproc
    .size roci_program_memory_absent, . - roci_program_memory_absent
    .popsection

//! Copying of memory on x86-64, for static binaries.
//!
//! musl copies with `rep movsq`, whose start alone costs more than copying the few hundred bytes of
//! a request. This function loads and stores overlapping vectors of 16 bytes instead, as the GNU C
//! library does, and needs only SSE2. It is correct if source and destination overlap. `main.rs`
//! makes it the binary's `memcpy` and `memmove`; a program that mounts riskgate keeps its own.

// The lint counts assembly as unsafe code. The assembly reads only the n source bytes and writes
// only the n destination bytes: each branch has compared n with the bytes that it moves. It loads
// every source byte before a store may overwrite it.
#![allow(unsafe_code)]

// rdi: destination, rsi: source, rdx: n. Returns the destination in rax, like C's memmove. It
// changes only registers that a called function may change.
std::arch::global_asm!(
    ".globl riskgate_memmove",
    ".hidden riskgate_memmove",
    ".type riskgate_memmove, @function",
    ".p2align 6",
    "riskgate_memmove:",
    ".cfi_startproc",
    "mov rax, rdi",
    "cmp rdx, 16",
    "jb 20f",
    "cmp rdx, 32",
    "ja 10f",
    // 16 to 32 bytes.
    "movups xmm0, [rsi]",
    "movups xmm1, [rsi + rdx - 16]",
    "movups [rdi], xmm0",
    "movups [rdi + rdx - 16], xmm1",
    "ret",
    "10:",
    "cmp rdx, 64",
    "ja 11f",
    // 33 to 64 bytes.
    "movups xmm0, [rsi]",
    "movups xmm1, [rsi + 16]",
    "movups xmm2, [rsi + rdx - 32]",
    "movups xmm3, [rsi + rdx - 16]",
    "movups [rdi], xmm0",
    "movups [rdi + 16], xmm1",
    "movups [rdi + rdx - 32], xmm2",
    "movups [rdi + rdx - 16], xmm3",
    "ret",
    "11:",
    "mov rcx, rdi",
    "sub rcx, rsi",
    "cmp rdx, 128",
    "ja 12f",
    // 65 to 128 bytes.
    "movups xmm0, [rsi]",
    "movups xmm1, [rsi + 16]",
    "movups xmm2, [rsi + 32]",
    "movups xmm3, [rsi + 48]",
    "movups xmm4, [rsi + rdx - 64]",
    "movups xmm5, [rsi + rdx - 48]",
    "movups xmm6, [rsi + rdx - 32]",
    "movups xmm7, [rsi + rdx - 16]",
    "movups [rdi], xmm0",
    "movups [rdi + 16], xmm1",
    "movups [rdi + 32], xmm2",
    "movups [rdi + 48], xmm3",
    "movups [rdi + rdx - 64], xmm4",
    "movups [rdi + rdx - 48], xmm5",
    "movups [rdi + rdx - 32], xmm6",
    "movups [rdi + rdx - 16], xmm7",
    "ret",
    "12:",
    // If the destination begins within the source, copy from the end.
    "cmp rcx, rdx",
    "jb 16f",
    "cmp rdx, 4096",
    "jae 15f",
    "13:",
    // The last 64 bytes are loaded first, because a store of the loop may overwrite them.
    "movups xmm4, [rsi + rdx - 64]",
    "movups xmm5, [rsi + rdx - 48]",
    "movups xmm6, [rsi + rdx - 32]",
    "movups xmm7, [rsi + rdx - 16]",
    "lea r8, [rdi + rdx - 64]",
    "14:",
    "movups xmm0, [rsi]",
    "movups xmm1, [rsi + 16]",
    "movups xmm2, [rsi + 32]",
    "movups xmm3, [rsi + 48]",
    "add rsi, 64",
    "movups [rdi], xmm0",
    "movups [rdi + 16], xmm1",
    "movups [rdi + 32], xmm2",
    "movups [rdi + 48], xmm3",
    "add rdi, 64",
    "cmp rdi, r8",
    "jb 14b",
    "movups [r8], xmm4",
    "movups [r8 + 16], xmm5",
    "movups [r8 + 32], xmm6",
    "movups [r8 + 48], xmm7",
    "ret",
    "15:",
    // From 4 KiB on, the processor's own copy is the fastest, but not if source and destination
    // overlap.
    "neg rcx",
    "cmp rcx, rdx",
    "jb 13b",
    "mov rcx, rdx",
    "rep movsb",
    "ret",
    "16:",
    // The first 64 bytes are loaded first, because a store of the loop may overwrite them.
    "movups xmm4, [rsi]",
    "movups xmm5, [rsi + 16]",
    "movups xmm6, [rsi + 32]",
    "movups xmm7, [rsi + 48]",
    "17:",
    "movups xmm0, [rsi + rdx - 64]",
    "movups xmm1, [rsi + rdx - 48]",
    "movups xmm2, [rsi + rdx - 32]",
    "movups xmm3, [rsi + rdx - 16]",
    "movups [rdi + rdx - 64], xmm0",
    "movups [rdi + rdx - 48], xmm1",
    "movups [rdi + rdx - 32], xmm2",
    "movups [rdi + rdx - 16], xmm3",
    "sub rdx, 64",
    "cmp rdx, 64",
    "ja 17b",
    "movups [rdi], xmm4",
    "movups [rdi + 16], xmm5",
    "movups [rdi + 32], xmm6",
    "movups [rdi + 48], xmm7",
    "ret",
    // 0 to 15 bytes.
    "20:",
    "cmp edx, 8",
    "jae 21f",
    "cmp edx, 4",
    "jae 22f",
    "test edx, edx",
    "je 24f",
    "movzx ecx, byte ptr [rsi]",
    "cmp edx, 1",
    "je 23f",
    "movzx r8d, word ptr [rsi + rdx - 2]",
    "mov word ptr [rdi + rdx - 2], r8w",
    "23:",
    "mov byte ptr [rdi], cl",
    "24:",
    "ret",
    "21:",
    "mov rcx, [rsi]",
    "mov r8, [rsi + rdx - 8]",
    "mov [rdi], rcx",
    "mov [rdi + rdx - 8], r8",
    "ret",
    "22:",
    "mov ecx, [rsi]",
    "mov r8d, [rsi + rdx - 4]",
    "mov [rdi], ecx",
    "mov [rdi + rdx - 4], r8d",
    "ret",
    ".cfi_endproc",
    ".size riskgate_memmove, . - riskgate_memmove",
);

#[cfg(test)]
mod tests {
    unsafe extern "C" {
        fn riskgate_memmove(destination: *mut u8, source: *const u8, n: usize) -> *mut u8;
    }

    /// Moves `n` bytes within a buffer, and compares all its bytes with those that are expected.
    #[track_caller]
    fn assert_moves(from: usize, to: usize, n: usize) {
        let len = from.max(to) + n + 64;
        let mut buffer: Vec<u8> = (0..len).map(|at| (at * 31 + at / 251) as u8).collect();
        let mut expected = buffer.clone();
        expected.copy_within(from..from + n, to);
        let start = buffer.as_mut_ptr();
        // SAFETY: both ranges lie within the buffer, which nothing else uses.
        let returned = unsafe { riskgate_memmove(start.add(to), start.add(from), n) };
        assert_eq!(returned as usize, start as usize + to);
        assert!(buffer == expected, "{n} bytes from {from} to {to}");
    }

    #[test]
    fn bytes_are_moved_for_every_length_distance_and_alignment() {
        let short = (0..=300).chain([511, 512, 513, 1000]);
        let long = [4095, 4096, 4097, 5000, 65_536, 70_001];
        for n in short.chain(long) {
            for from in [0, 1, 7, 64] {
                for distance in [0, 1, 15, 16, 17, 63, 64, 65, 128, 500, n, n + 1] {
                    assert_moves(from, from + distance, n);
                    assert_moves(from + distance, from, n);
                }
            }
        }
    }
}

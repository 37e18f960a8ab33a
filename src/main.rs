//! The binary: calls the command line of the library.
#![deny(unsafe_code)]

#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// The options of jemalloc, as a text that ends with NUL: jemalloc reads this symbol. With
/// `retain:false`, jemalloc gives freed address space back to the system. Otherwise the memory that
/// one thread has freed would count against `RLIMIT_AS` while another thread needs memory: see
/// `support/memory.rs`.
#[cfg(feature = "jemalloc")]
#[allow(unsafe_code)]
#[unsafe(export_name = "_rjem_malloc_conf")]
pub static JEMALLOC_OPTIONS: Option<&u8> = b"retain:false\0".first();

// Static binaries for x86-64 copy memory with riskgate's function instead of musl's:
// src/support/memmove.rs.
#[cfg(all(target_env = "musl", target_arch = "x86_64"))]
#[allow(unsafe_code)]
mod memmove {
    std::arch::global_asm!(
        ".globl memcpy",
        ".globl memmove",
        ".type memcpy, @function",
        ".type memmove, @function",
        "memcpy:",
        "memmove:",
        "jmp riskgate_memmove",
        ".size memcpy, . - memcpy",
        ".size memmove, . - memmove",
    );
}

fn main() -> std::process::ExitCode {
    riskgate::cli::main()
}

//! Has the system's allocator give memory back. By default glibc keeps what a large request took, in every thread's arena and
//! for ever: 62 MiB after 100,000 jobs in batches of 10,000, of which the server needs a third.

/// Large pieces are mapped and unmapped one by one, from this size on (bytes). Setting it also stops glibc from raising it.
#[cfg(target_env = "gnu")]
const MAPPED_FROM: libc::c_int = 128 * 1024;
/// Free memory at the end of the heap that is kept at most (bytes).
#[cfg(target_env = "gnu")]
const KEPT: libc::c_int = 128 * 1024;
/// Arenas that threads share.
#[cfg(target_env = "gnu")]
const ARENAS: libc::c_int = 2;

/// Call once, before the first other thread starts.
#[cfg(target_env = "gnu")]
#[expect(unsafe_code, reason = "the C library's function has no safe wrapper")]
pub fn keep_small() {
    // SAFETY: takes no pointers, and no other thread runs yet.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_FROM);
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT);
        libc::mallopt(libc::M_ARENA_MAX, ARENAS);
    }
}

/// Other C libraries give memory back by themselves or not at all.
#[cfg(not(target_env = "gnu"))]
pub fn keep_small() {}

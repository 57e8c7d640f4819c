//! How much memory a piece of code has at its peak: the test binary's allocator counts, for each thread by itself.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    // A thread that ends has no counters any more, and nobody asks for them.
    let _ = HELD.try_with(|held| {
        held.set(held.get() + bytes);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(held.get())));
    });
}

#[expect(unsafe_code, reason = "an allocator can't be written otherwise; this one only counts and passes on")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-layout.size().cast_signed());
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// The value, and how many bytes this thread had at most beyond what it had before.
pub(super) fn peak_of<T>(run: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.get();
    PEAK.set(before);
    let value = run();
    (value, usize::try_from(PEAK.get() - before).unwrap_or(0))
}

#[test]
fn the_peak_is_counted_also_when_it_is_given_back() {
    let ((), peak) = peak_of(|| drop(std::hint::black_box(vec![0u8; 1 << 20])));
    assert!((1 << 20..2 << 20).contains(&peak), "{peak}");
    let (kept, peak) = peak_of(|| std::hint::black_box(vec![0u8; 100]));
    assert!(peak < 1 << 10 && kept.len() == 100, "{peak}");
}

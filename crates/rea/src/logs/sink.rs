//! A bounded buffer that everybody appends to and one thread writes out. Full means dropped and counted, never waited for.

use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Most bytes that wait to be written.
const CAPACITY: usize = 4 << 20;
/// What a buffer keeps of its memory between two writes.
const KEPT: usize = 256 << 10;
/// How long the writer gathers lines before it writes: many lines share one system call, and one wake-up.
const GATHER: Duration = Duration::from_millis(3);

/// Where lines go.
pub struct Sink {
    buffer: Mutex<Buffer>,
    /// There is something to write.
    filled: Condvar,
    /// Everything has been written.
    drained: Condvar,
    /// The writer is asleep and wants to be woken.
    asleep: AtomicBool,
    /// Lines that were dropped since the start.
    lost: AtomicU64,
    capacity: usize,
}

#[derive(Default)]
struct Buffer {
    bytes: Vec<u8>,
    dropped: u64,
    writing: bool,
    closed: bool,
}

impl Sink {
    /// A sink whose thread writes to stderr.
    #[must_use]
    pub fn stderr() -> Arc<Sink> {
        Sink::to(Box::new(std::io::stderr()), CAPACITY)
    }

    /// A sink whose thread writes to `out` and that holds at most `capacity` bytes meanwhile.
    #[must_use]
    pub fn to(out: Box<dyn Write + Send>, capacity: usize) -> Arc<Sink> {
        let sink = Arc::new(Sink {
            buffer: Mutex::default(),
            filled: Condvar::new(),
            drained: Condvar::new(),
            asleep: AtomicBool::new(false),
            lost: AtomicU64::new(0),
            capacity,
        });
        let writer = Arc::clone(&sink);
        let started = std::thread::Builder::new().name("log".into()).spawn(move || writer.write_out(out));
        if started.is_err() {
            // Without its writer the log is lost, not the jobs.
            sink.lock().closed = true;
        }
        sink
    }

    /// Appends one line, or drops and counts it when there is no room.
    pub fn append(&self, line: &[u8]) {
        let mut buffer = self.lock();
        if buffer.bytes.len() + line.len() > self.capacity || buffer.closed {
            buffer.dropped += 1;
            self.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        buffer.bytes.extend_from_slice(line);
        drop(buffer);
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::Relaxed) {
            self.filled.notify_one();
        }
    }

    /// Waits up to `limit` until everything appended so far is written.
    pub fn flush(&self, limit: Duration) {
        let buffer = self.lock();
        let waiting = |b: &mut Buffer| (b.writing || !b.bytes.is_empty()) && !b.closed;
        drop(self.drained.wait_timeout_while(buffer, limit, waiting));
    }

    /// Lines dropped since the start, those included that are not yet reported in the log.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Buffer> {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The writer's life: sleep, gather, swap, write.
    fn write_out(&self, mut out: Box<dyn Write + Send>) {
        let mut batch = Vec::new();
        let mut dropped = 0;
        loop {
            self.wait_for_lines();
            std::thread::sleep(GATHER);
            {
                let mut buffer = self.lock();
                batch.clear();
                std::mem::swap(&mut batch, &mut buffer.bytes);
                dropped += std::mem::take(&mut buffer.dropped);
                buffer.writing = true;
            }
            let written = out.write_all(&batch).and_then(|()| report(&mut *out, dropped)).and_then(|()| out.flush());
            match written {
                Ok(()) => dropped = 0,
                // A reader that is gone or too slow must not stop the server; the lines count as dropped.
                Err(_) => {
                    let lines = batch.iter().filter(|&&b| b == b'\n').count() as u64;
                    dropped += lines;
                    self.lost.fetch_add(lines, Ordering::Relaxed);
                }
            }
            batch.clear();
            batch.shrink_to(KEPT);
            self.lock().writing = false;
            self.drained.notify_all();
        }
    }

    fn wait_for_lines(&self) {
        let mut buffer = self.lock();
        while buffer.bytes.is_empty() {
            self.asleep.store(true, Ordering::Relaxed);
            buffer = self.filled.wait(buffer).unwrap_or_else(PoisonError::into_inner);
        }
        self.asleep.store(false, Ordering::Relaxed);
    }
}

/// Says how many lines are missing.
fn report(out: &mut dyn Write, dropped: u64) -> std::io::Result<()> {
    if dropped == 0 {
        return Ok(());
    }
    let mut line = b"{\"ts\":\"".to_vec();
    super::line::push_now(&mut line);
    line.extend_from_slice(
        format!("\",\"level\":\"warn\",\"action\":\"log_dropped\",\"lines\":{dropped}}}\n").as_bytes(),
    );
    out.write_all(&line)
}

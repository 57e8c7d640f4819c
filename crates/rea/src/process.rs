//! This process as the kernel sees it: memory, processor time, descriptors.

use std::fs;

/// Figures of this process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Process {
    /// Resident memory, bytes.
    pub rss_bytes: u64,
    /// Processor time, user and system, seconds.
    pub cpu_s: f64,
    /// Open file descriptors.
    pub open_fds: usize,
    /// When it started, seconds of Unix time.
    pub started_s: f64,
}

/// Looks at `/proc`; `None` where there is none.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "figures for graphs")]
pub fn look() -> Option<Process> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program, in brackets, may hold spaces; fields are counted behind it, from the third.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let field = |n: usize| fields.get(n - 3)?.parse::<u64>().ok();
    let ticks = rustix::param::clock_ticks_per_second() as f64;
    let boot = fs::read_to_string("/proc/stat").ok()?;
    let boot_s: f64 = boot.lines().find_map(|l| l.strip_prefix("btime "))?.trim().parse().ok()?;
    Some(Process {
        rss_bytes: field(24)? * rustix::param::page_size() as u64,
        cpu_s: (field(14)? + field(15)?) as f64 / ticks,
        open_fds: fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1),
        started_s: boot_s + field(22)? as f64 / ticks,
    })
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_plausible_figures() {
        let process = look().unwrap();
        assert!(process.rss_bytes > 1 << 20 && process.open_fds >= 3, "{process:?}");
        let now_s = jiff::Timestamp::now().as_second() as f64;
        assert!(process.started_s > now_s - 86_400.0 && process.started_s < now_s + 5.0, "{process:?} at {now_s}");
    }
}

//! `rea run` of a flow file: a batch with a single line.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

use crate::cli::flow::file;
use crate::cli::{Exit, Failure};

/// Whether the file holds a flow, not a line for each job.
pub(super) fn is_one(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "toml" || ending == "json")
}

/// The file as a batch, in memory.
pub(super) fn as_batch(path: &Path) -> Result<File, Failure> {
    let flow = file::read(path)?;
    let no_memory = |e: std::io::Error| Failure::new(Exit::Unreachable, format!("can't keep the flow in memory: {e}"));
    let memory = rustix::fs::memfd_create("flow", rustix::fs::MemfdFlags::CLOEXEC).map_err(|e| no_memory(e.into()))?;
    let mut memory = File::from(memory);
    // Line ends are none inside of JSON texts.
    let line = format!("{{\"flow\":{}}}\n", flow.trim().replace(['\n', '\r'], " "));
    memory.write_all(line.as_bytes()).and_then(|()| memory.seek(SeekFrom::Start(0))).map_err(no_memory)?;
    Ok(memory)
}

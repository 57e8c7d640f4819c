//! Puts the Python package into the binary: makes a table of `python/rea/*.py` with `include_bytes!` and a hash of all of
//! it, which `workers::package` writes out at start. So `rea serve` needs no `pip install`. And turns the API's description
//! into JSON, which the server hands out.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    python_package()?;
    api_description()
}

/// `protocol/openapi.yaml` as JSON.
fn api_description() -> io::Result<()> {
    let page = Path::new(&var("CARGO_MANIFEST_DIR")).join("../../protocol/openapi.yaml").canonicalize()?;
    println!("cargo::rerun-if-changed={}", page.display());
    let page: serde_json::Value = serde_yaml_ng::from_str(&fs::read_to_string(page)?).map_err(io::Error::other)?;
    fs::write(Path::new(&var("OUT_DIR")).join("openapi.json"), page.to_string())
}

fn python_package() -> io::Result<()> {
    let package = Path::new(&var("CARGO_MANIFEST_DIR")).join("../../python/rea").canonicalize()?;
    println!("cargo::rerun-if-changed={}", package.display());
    let mut files: Vec<PathBuf> = fs::read_dir(&package)?.map(|e| e.map(|e| e.path())).collect::<io::Result<_>>()?;
    files.retain(|path| path.extension().is_some_and(|e| e == "py") || path.ends_with("py.typed"));
    files.sort();
    let mut table =
        String::from("/// The package's files: name and content.\npub(super) const FILES: &[(&str, &[u8])] = &[\n");
    let mut hash = Fnv::default();
    for path in &files {
        println!("cargo::rerun-if-changed={}", path.display());
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        hash.add(name.as_bytes());
        hash.add(&fs::read(path)?);
        let _ = writeln!(table, "    ({name:?}, include_bytes!({:?})),", path.display().to_string());
    }
    let _ = writeln!(table, "];\n/// Names this very content.\npub(super) const HASH: &str = \"{:016x}\";", hash.0);
    fs::write(Path::new(&var("OUT_DIR")).join("package_files.rs"), table)
}

fn var(name: &str) -> String {
    env::var(name).unwrap_or_default()
}

/// FNV-1a, 64 bits. It only tells versions apart; the files themselves are compared before use.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Fnv {
        Fnv(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    fn add(&mut self, bytes: &[u8]) {
        for part in [bytes, &bytes.len().to_be_bytes()] {
            for byte in part {
                self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
            }
        }
    }
}

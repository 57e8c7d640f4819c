//! The direction of the imports, from the Cargo files: the model knows no one, stores know the model, the engine knows
//! the stores, the program knows the engine; the suite is for tests only.

use super::{File, Finding, has_word};

/// Which crates of this workspace each of them may depend on: in the product, and for its tests on top of that.
const TABLE: &[(&str, &[&str], &[&str])] = &[
    ("ax-model", &[], &[]),
    ("ax-conformance", &["ax-model"], &[]),
    ("ax-sqlite", &["ax-model"], &["ax-conformance"]),
    ("ax", &["ax-model", "ax-sqlite"], &["ax-conformance"]),
    ("rea", &["ax-model", "ax"], &["ax-conformance"]),
    // Never shipped: it measures and breaks the others.
    ("xtask", &["ax-model", "ax-sqlite", "ax-conformance", "ax", "rea"], &[]),
];

/// Each crate depends only on those that the table allows.
pub(super) fn follow_the_table(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files {
        let Some(name) = file.path.strip_prefix("crates/").and_then(|p| p.strip_suffix("/Cargo.toml")) else {
            continue;
        };
        let Some((_, product, tests)) = TABLE.iter().find(|(n, _, _)| *n == name) else {
            findings.push(file.finding(0, format!("{name} is not in the import table of tidy/imports.rs")));
            continue;
        };
        let manifest: toml::Table = match file.text.parse() {
            Ok(manifest) => manifest,
            Err(error) => {
                findings.push(file.finding(0, format!("is not TOML: {error}")));
                continue;
            }
        };
        for (section, allowed) in [
            ("dependencies", product.to_vec()),
            ("build-dependencies", product.to_vec()),
            ("dev-dependencies", [*product, *tests].concat()),
        ] {
            let used = manifest.get(section).and_then(toml::Value::as_table);
            for used in used.into_iter().flat_map(toml::Table::keys) {
                let ours = TABLE.iter().any(|(n, _, _)| n == used);
                if ours && !allowed.contains(&used.as_str()) {
                    findings.push(file.finding(0, format!("[{section}] {used}: {name} may not know it")));
                }
            }
        }
    }
    findings
}

/// The engine talks to a store through the trait; where one is opened is one file.
pub(super) fn one_file_names_the_store(files: &[File]) -> Vec<Finding> {
    let engine = |f: &&File| f.path.starts_with("crates/ax/src/") && f.path != "crates/ax/src/open.rs";
    let mut findings = Vec::new();
    for file in files.iter().filter(engine) {
        for (line, _) in file.code_lines().filter(|(_, code)| has_word(code, "ax_sqlite")) {
            findings.push(file.finding(line, "names ax_sqlite; only crates/ax/src/open.rs may"));
        }
    }
    findings
}

/// Every dependency comes from one registry, and none from a repository: a lock made behind a mirror names two.
pub(super) fn lock_has_one_source(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|f| f.path == "Cargo.lock") {
        let sources = || file.lines().filter(|(_, l)| l.starts_with("source = "));
        let first = sources().map(|(_, l)| l).find(|l| l.starts_with("source = \"registry+"));
        for (line, _) in sources().filter(|(_, l)| Some(*l) != first) {
            findings.push(file.finding(line, "a dependency from another source than the registry of the others"));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::places;
    use super::*;

    #[test]
    fn imports_against_the_direction_are_refused() {
        let bad = [
            ("crates/ax-model/Cargo.toml", "[dependencies]\nax = {}\n"),
            ("crates/ax-sqlite/Cargo.toml", "[dependencies]\nax-conformance = {}\n"),
            ("crates/rea/Cargo.toml", "[dependencies]\nax-sqlite = {}\n"),
            ("crates/extra/Cargo.toml", ""),
        ];
        assert_eq!(places(follow_the_table, &bad).len(), 4);
        let good = [
            ("crates/ax-sqlite/Cargo.toml", "[dependencies]\nax-model = {}\nserde = \"1\"\n"),
            ("crates/ax/Cargo.toml", "[dependencies]\nax-sqlite = {}\n[dev-dependencies]\nax-conformance = {}\n"),
        ];
        assert!(places(follow_the_table, &good).is_empty());
    }

    #[test]
    fn the_store_is_named_in_one_file() {
        let text = "//! Opens ax_sqlite.\nuse ax_sqlite::Sqlite;\n";
        let files =
            [("crates/ax/src/open.rs", text), ("crates/ax/src/client.rs", text), ("crates/xtask/src/a.rs", text)];
        assert_eq!(places(one_file_names_the_store, &files), ["crates/ax/src/client.rs:2"]);
    }

    #[test]
    fn a_lock_made_behind_a_mirror_is_noticed() {
        let files = [(
            "Cargo.lock",
            "source = \"registry+https://one/index\"\nsource = \"git+x\"\nsource = \"registry+https://two/index\"\n",
        )];
        assert_eq!(places(lock_has_one_source, &files), ["Cargo.lock:2", "Cargo.lock:3"]);
    }
}

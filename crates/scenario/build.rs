// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Puts the machine models and the example scenarios into the binary, so that it works alone.
use std::fmt::Write;
use std::path::Path;

fn main() {
    let root = Path::new(&std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo says")).join("../..");
    let mut code = String::new();
    for (name, dir) in [("MACHINES", "machines"), ("SCENARIOS", "scenarios")] {
        let dir = root.join(dir);
        println!("cargo:rerun-if-changed={}", dir.display());
        let mut files: Vec<_> = std::fs::read_dir(&dir)
            .unwrap_or_else(|error| panic!("{}: {error}", dir.display()))
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
            .collect();
        files.sort();
        writeln!(code, "pub static {name}: &[(&str, &str)] = &[").unwrap();
        for file in files {
            let path = file.canonicalize().unwrap();
            println!("cargo:rerun-if-changed={}", path.display());
            writeln!(
                code,
                "    ({:?}, include_str!({path:?})),",
                file.file_stem().unwrap().to_str().unwrap()
            )
            .unwrap();
        }
        code.push_str("];\n");
    }
    let out = std::env::var("OUT_DIR").unwrap();
    std::fs::write(Path::new(&out).join("embedded.rs"), code).unwrap();
}

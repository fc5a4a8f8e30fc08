// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compiles bpf/plimsoll.bpf.c, with the policy inside, and generates its skeleton.
use libbpf_cargo::SkeletonBuilder;
use std::env;
use std::path::{Path, PathBuf};

fn main() {
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let root = manifest.join("../..");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join("plimsoll.skel.rs");
    // Debian names the compiler by its version; another one can be named in the environment.
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang-19".into());
    let args = ["-mcpu=v4", "-Wall", "-Werror", "-Wno-unused-function", "-I"].map(Into::into);
    let built = SkeletonBuilder::new()
        .source(root.join("bpf/plimsoll.bpf.c"))
        .clang(clang)
        .clang_args(args.into_iter().chain([root.join("policy").into_os_string()]))
        .build_and_generate(&out);
    if let Err(error) = built {
        eprintln!(
            "bpf/plimsoll.bpf.c does not compile (clang-19 is needed, or CLANG names another): {error:#}"
        );
        std::process::exit(1);
    }
    // libbpf-cargo does not look into included headers.
    rerun_if_changed(&root.join("bpf"));
    rerun_if_changed(&root.join("policy"));
    println!("cargo:rerun-if-env-changed=CLANG");
}

fn rerun_if_changed(folder: &Path) {
    for entry in std::fs::read_dir(folder)
        .expect("a folder of the repository")
        .flatten()
    {
        println!("cargo:rerun-if-changed={}", entry.path().display());
    }
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compiles policy/*.h natively, with external linkage, for the simulator and the tests. `policy` here is a link to the repository's, so that the package holds the
//! headers themselves.
use std::path::Path;

fn main() {
    let policy = Path::new(&std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo says")).join("policy");
    println!("cargo:rerun-if-changed=src");
    for folder in [policy.clone(), policy.join("baseline")] {
        for entry in std::fs::read_dir(&folder)
            .expect("policy/ is part of the repository")
            .flatten()
        {
            println!("cargo:rerun-if-changed={}", entry.path().display());
        }
    }
    let mut build = cc::Build::new();
    build
        .file("src/policy.c")
        .include(&policy)
        .std("gnu11")
        // The policy is hot in the simulator and has no debug variant worth stepping through.
        .opt_level(2)
        .define("PL_EXPORT", None)
        .define("PL_SINGLE_THREADED", None)
        .warnings(true)
        .extra_warnings(true);
    if std::env::var("PROFILE").as_deref() == Ok("release") {
        build.define("NDEBUG", None);
    }
    // Deliberately broken rules, to prove that fuzzing catches them. Never in a normal build.
    for mutation in [
        "PL_MUTATE_LEAVE",
        "PL_MUTATE_REFILL",
        "PL_MUTATE_STEAL",
        "PL_MUTATE_LAG",
        "PL_MUTATE_WEIGH",
        "PL_MUTATE_DEBT",
    ] {
        println!("cargo:rerun-if-env-changed={mutation}");
        if std::env::var_os(mutation).is_some() {
            build.define(mutation, None);
        }
    }
    build.compile("plimsoll_policy");
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compiles bpf/record.bpf.c and generates its skeleton.
use libbpf_cargo::SkeletonBuilder;
use std::env;
use std::path::PathBuf;

fn main() {
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let bpf = manifest.join("../../bpf");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join("record.skel.rs");
    // Debian names the compiler by its version; another one can be named in the environment.
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang-19".into());
    let mut args = vec![
        "-I".into(),
        bpf.clone().into_os_string(),
        "-Wall".into(),
        // Exchanges: kernels since 5.12.
        "-mcpu=v3".into(),
        "-Werror".into(),
    ];
    // Debian keeps <asm/types.h> in a folder per architecture, and those of its cross compilers elsewhere.
    let folders: &[&str] = match env::var("CARGO_CFG_TARGET_ARCH").as_deref() {
        Ok("aarch64") => &["/usr/include/aarch64-linux-gnu", "/usr/aarch64-linux-gnu/include"],
        _ => &["/usr/include/x86_64-linux-gnu"],
    };
    for folder in folders {
        args.extend(["-idirafter".into(), folder.into()]);
    }
    let built = SkeletonBuilder::new()
        .source(bpf.join("record.bpf.c"))
        .clang(clang)
        .clang_args(args)
        .build_and_generate(&out);
    if let Err(error) = built {
        eprintln!(
            "bpf/record.bpf.c does not compile (clang-19 is needed, or CLANG names another): {error:#}"
        );
        std::process::exit(1);
    }
    // libbpf-cargo does not follow #include.
    for file in [
        "record.bpf.c",
        "record.h",
        "record_kernel.h",
        "record_cpu.h",
        "record_threads.h",
        "record_sockets.h",
        "record_datagrams.h",
        "record_streams.h",
        "record_owed.h",
    ] {
        println!("cargo:rerun-if-changed={}", bpf.join(file).display());
    }
    println!("cargo:rerun-if-env-changed=CLANG");
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the guests are given.
use plimsoll_vm::Program;
use std::path::Path;

/// A program or script of the tree, by its path from the root. Panics with what builds it where it is not there.
pub fn built(path: &str) -> Program {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    assert!(
        file.is_file(),
        "{path} is not there: `make static guest` builds what these tests need, and `make test-live` runs them after it"
    );
    Program::of(file).expect("a name in UTF-8")
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a command prints. A closed pipe (`plimsoll ... | head`) ends the printing, not the command: what it was asked to do
//! is done, and its exit code says how it went. Any other error, a full disk say, would lose results and ends it with 3.
//! The standard error carries no results: if it fails, the command goes on, above all one that schedules.
use std::fmt::Arguments;
use std::io::{ErrorKind, Result, Write};

/// As `print!`.
macro_rules! out {
    ($($argument:tt)*) => {{ $crate::out::print(format_args!($($argument)*)); }};
}

/// As `println!`.
macro_rules! outln {
    ($($argument:tt)*) => {{ $crate::out::print(format_args!("{}\n", format_args!($($argument)*))); }};
}

/// As `eprintln!`, which panics when the standard error is closed.
macro_rules! errln {
    ($($argument:tt)*) => {{ $crate::out::complain(format_args!("{}\n", format_args!($($argument)*))); }};
}

/// Whether it is still read. A command that prints for ever ends when it is not.
pub fn print(text: Arguments<'_>) -> bool {
    printed(write(text))
}

/// Likewise, of text that another library has printed.
pub fn printed(result: Result<()>) -> bool {
    match result {
        Ok(()) => true,
        Err(error) if error.kind() == ErrorKind::BrokenPipe => false,
        Err(error) => {
            errln!("error: standard output: cannot write it: {error}");
            std::process::exit(3);
        }
    }
}

/// A line of a command that goes on with its work whatever becomes of the line.
pub fn note(text: Arguments<'_>) {
    let _ = write(format_args!("{text}\n"));
}

/// To the standard error, whatever becomes of it.
pub fn complain(text: Arguments<'_>) {
    let _ = std::io::stderr().write_all(plain(&text.to_string()).as_bytes());
}

/// Without what a terminal would obey: names of threads and groups are chosen by others.
pub fn plain(text: &str) -> String {
    let obeyed = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    text.replace(obeyed, "\u{fffd}")
}

fn write(text: Arguments<'_>) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(plain(&text.to_string()).as_bytes())
        .and_then(|()| out.flush())
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_name_cannot_talk_to_the_terminal() {
        assert_eq!(
            super::plain("\x1b]0;x\x07\u{9b}31m\r\x7f\tä|\n"),
            "\u{fffd}]0;x\u{fffd}\u{fffd}31m\u{fffd}\u{fffd}\tä|\n"
        );
    }
}

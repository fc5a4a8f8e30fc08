// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why a file was not taken as a trace: where, what stood there, what is allowed.
use std::fmt;
use std::path::Path;

/// Where in an input file something was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub file: String,
    pub at: At,
}

/// Position inside a file, in the unit that its format counts in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// The file as a whole.
    Whole,
    /// Line of a text file, from 1.
    Line(u64),
    /// Row of the Parquet table, from 0.
    Row(u64),
    /// Byte offset of a binary file, from 0.
    Byte(u64),
    /// A named part of the file, such as a metadata key.
    Part(&'static str),
}

impl Place {
    pub fn whole(path: &Path) -> Place {
        Place::new(path, At::Whole)
    }

    pub fn new(path: &Path, at: At) -> Place {
        Place {
            file: path.display().to_string(),
            at,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.at {
            At::Whole => write!(f, "{}", self.file),
            At::Line(line) => write!(f, "{}:{line}", self.file),
            At::Row(row) => write!(f, "{}: row {row}", self.file),
            At::Byte(byte) => write!(f, "{}: byte {byte}", self.file),
            At::Part(part) => write!(f, "{}: {part}", self.file),
        }
    }
}

/// A file that is not (or no longer) a trace that can be used.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    #[error("{place}: cannot {action}: {source}")]
    Io {
        place: Place,
        action: &'static str,
        source: std::io::Error,
    },

    /// The flag was set that reading was given.
    #[error("{place}: reading was given up")]
    GivenUp { place: Place },

    #[error("{place}: the file is empty; expected {expected}")]
    Empty { place: Place, expected: &'static str },

    #[error("{place}: not a trace: found {found}; expected {expected}")]
    Foreign {
        place: Place,
        found: String,
        expected: String,
    },

    #[error("{place}: not a trace that is read: this is {what}; {cure}")]
    Unread {
        place: Place,
        what: String,
        cure: String,
    },

    #[error("{place}: the file ends early: {detail}; record or copy it again")]
    Truncated { place: Place, detail: String },

    #[error("{place}: the file is damaged: {detail}; record or copy it again")]
    Damaged { place: Place, detail: String },

    #[error("{place}: {field}: {value}; allowed: {allowed}")]
    Value {
        place: Place,
        field: String,
        value: String,
        allowed: String,
    },

    #[error(
        "{place}: time runs backwards: {ts_ns} ns after {previous_ns} ns; events must be in order of time \
         (was the clock set, or were files joined?)"
    )]
    ClockBackwards {
        place: Place,
        ts_ns: i64,
        previous_ns: i64,
    },

    #[error("{place}: this trace cannot be trusted: {reason}; allowed: {allowed}")]
    Untrustworthy {
        place: Place,
        reason: String,
        allowed: String,
    },

    #[error("{place}: cannot run `{command}`: {detail}")]
    Tool {
        place: Place,
        command: String,
        detail: String,
    },

    #[error("{place}: writing the trace failed: {detail}")]
    Write { place: Place, detail: String },
}

impl TraceError {
    pub(crate) fn io(path: &Path, action: &'static str, source: std::io::Error) -> TraceError {
        TraceError::Io {
            place: Place::whole(path),
            action,
            source,
        }
    }
}

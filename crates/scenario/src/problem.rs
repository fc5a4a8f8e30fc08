// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is wrong with an input: one line for each thing, with the place where it stands.
use std::fmt;

/// One thing wrong with an input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// `file:line:column`, or the command-line option that said it.
    pub place: String,
    /// The key, dotted: `group.web.quota_us`. Empty where the whole file is meant.
    pub path: String,
    /// What was given and what is allowed.
    pub message: String,
    /// Byte offset in the file, to list problems in its order; `usize::MAX` for the command line.
    pub at: usize,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.place)?;
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)
    }
}

/// Everything wrong with an input, in the order of the file. Never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl Problems {
    /// In the order of the file.
    pub fn sorted(mut problems: Vec<Problem>) -> Self {
        problems.sort_by_key(|problem| problem.at);
        Problems(problems)
    }

    /// One problem with no place inside a file, such as a file that cannot be read.
    pub fn one(place: impl Into<String>, message: impl Into<String>) -> Self {
        Problems(vec![Problem {
            place: place.into(),
            path: String::new(),
            message: message.into(),
            at: 0,
        }])
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.0.iter().enumerate() {
            if i > 0 {
                writeln!(f)?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// The one of `known` that is nearest to what was written, if any is near enough to be meant: a typing error or two,
/// letters swapped included.
pub fn nearest<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let far = 1 + written.chars().count() / 4;
    known
        .into_iter()
        .map(|name| (strsim::damerau_levenshtein(written, name), name))
        .filter(|(distance, name)| *distance <= far || (name.starts_with(written) && !written.is_empty()))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

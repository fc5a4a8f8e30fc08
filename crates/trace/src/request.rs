// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a user names a request: `--request` of `plimsoll record` and of `plimsoll plan`.
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// What starts and ends a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestSpec {
    /// From each wake-up of a thread with such a name to its next blocking point.
    Comm { glob: String },
    /// The same for one thread.
    Tid { tid: u32 },
    /// As such a thread sees it: from its wake-up of another program to the moment it runs with the answer.
    Client { glob: String },
    /// The life of a process with such a name.
    Process { glob: String },
    /// Two functions of a program or library.
    Uprobe {
        path: PathBuf,
        begin: String,
        end: String,
    },
    /// Two statically defined probes of a program or library.
    Usdt {
        path: PathBuf,
        provider: String,
        begin: String,
        end: String,
    },
}

/// A `--request` that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("request: {value:?}; allowed: {}", RequestSpec::FORMS)]
pub struct BadRequest {
    pub value: String,
}

impl FromStr for RequestSpec {
    type Err = BadRequest;

    fn from_str(text: &str) -> Result<RequestSpec, BadRequest> {
        let bad = || BadRequest { value: text.into() };
        let words: Vec<&str> = text.split(':').collect();
        if words.iter().any(|w| w.is_empty()) {
            return Err(bad());
        }
        match words[..] {
            ["comm", glob] => Ok(RequestSpec::Comm { glob: glob.into() }),
            ["client", glob] => Ok(RequestSpec::Client { glob: glob.into() }),
            ["process", glob] => Ok(RequestSpec::Process { glob: glob.into() }),
            ["tid", tid] => match tid.parse() {
                Ok(tid) if (1..=crate::TID_MAX).contains(&tid) => Ok(RequestSpec::Tid { tid }),
                _ => Err(bad()),
            },
            ["uprobe", path, begin, end] => Ok(RequestSpec::Uprobe {
                path: path.into(),
                begin: begin.into(),
                end: end.into(),
            }),
            ["usdt", path, provider, begin, end] => Ok(RequestSpec::Usdt {
                path: path.into(),
                provider: provider.into(),
                begin: begin.into(),
                end: end.into(),
            }),
            _ => Err(bad()),
        }
    }
}

impl fmt::Display for RequestSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestSpec::Comm { glob } => write!(f, "comm:{glob}"),
            RequestSpec::Tid { tid } => write!(f, "tid:{tid}"),
            RequestSpec::Client { glob } => write!(f, "client:{glob}"),
            RequestSpec::Process { glob } => write!(f, "process:{glob}"),
            RequestSpec::Uprobe { path, begin, end } => write!(f, "uprobe:{}:{begin}:{end}", path.display()),
            RequestSpec::Usdt {
                path,
                provider,
                begin,
                end,
            } => {
                write!(f, "usdt:{}:{provider}:{begin}:{end}", path.display())
            }
        }
    }
}

impl RequestSpec {
    /// What can be given.
    pub const FORMS: &str =
        "comm:GLOB, tid:NUMBER, client:GLOB, process:GLOB, uprobe:FILE:BEGIN_FUNCTION:END_FUNCTION or \
         usdt:FILE:PROVIDER:BEGIN_PROBE:END_PROBE";

    /// Whether a thread's bursts are requests. Probes do not name threads.
    pub fn names_thread(&self, tid: u32, comm: &str) -> bool {
        match self {
            RequestSpec::Comm { glob } | RequestSpec::Client { glob } | RequestSpec::Process { glob } => {
                glob_matches(glob, comm)
            }
            RequestSpec::Tid { tid: named } => *named == tid,
            RequestSpec::Uprobe { .. } | RequestSpec::Usdt { .. } => false,
        }
    }
}

/// Shell-like pattern with `*` and `?`.
fn glob_matches(glob: &str, text: &str) -> bool {
    let (glob, text): (Vec<char>, Vec<char>) = (glob.chars().collect(), text.chars().collect());
    let (mut g, mut t) = (0, 0);
    // Where to go on after a mismatch: behind the last star, which then takes one character more.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        if g < glob.len() && (glob[g] == '?' || glob[g] == text[t]) && glob[g] != '*' {
            (g, t) = (g + 1, t + 1);
        } else if g < glob.len() && glob[g] == '*' {
            star = Some((g + 1, t));
            g += 1;
        } else if let Some((after, taken)) = star {
            star = Some((after, taken + 1));
            (g, t) = (after, taken + 1);
        } else {
            return false;
        }
    }
    glob[g..].iter().all(|&c| c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_reads_back_as_it_was_written() {
        for text in [
            "comm:postgres*",
            "tid:17",
            "client:pgbench",
            "process:cc1",
            "uprobe:/bin/x:f:g",
            "usdt:/bin/x:p:a:b",
        ] {
            assert_eq!(text.parse::<RequestSpec>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_bad_request_names_the_allowed_forms() {
        for text in [
            "",
            "comm:",
            "tid:x",
            "tid:0",
            "uprobe:/bin/x:f",
            "thread:x",
            "postgres",
        ] {
            let error = text.parse::<RequestSpec>().unwrap_err().to_string();
            assert!(error.contains("comm:GLOB"), "{error}");
        }
    }

    #[test]
    fn globs_match_as_in_a_shell() {
        let check = |glob, text, expected| assert_eq!(glob_matches(glob, text), expected, "{glob} {text}");
        check("redis-server", "redis-server", true);
        check("redis*", "redis-server", true);
        check("*server", "redis-server", true);
        check("r*s*r", "redis-server", true);
        check("redis?server", "redis-server", true);
        check("redis", "redis-server", false);
        check("*x", "redis-server", false);
        check("", "", true);
        check("*", "", true);
    }
}
